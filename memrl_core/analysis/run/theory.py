"""What theory expects of one q under equation 4, as curves and as formulas with their numbers.

Source: arXiv 2601.03192 v2, equations 10 to 19. The rewards of a memory are taken as independent draws of one
distribution with mean β and standard deviation σ; α is held; t counts updates. `practice` tells where a run departs.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
PAPER = "arXiv 2601.03192"
MOST_VISITS = 1000
"""Visits after which a q that has not separated two memories is said never to."""


def mean_q(t: npt.ArrayLike, alpha: npt.ArrayLike, beta: float, q0: float) -> Floats:
    """E[Q_t] = β + (1 − α)^t (q0 − β) (eq. 12), in the shape of `t` and `alpha`, which is in (0, 1]."""
    return beta + _kept(t, alpha) * (q0 - beta)


def variance_q(t: npt.ArrayLike, alpha: npt.ArrayLike, sigma: float, v0: float = 0.0) -> Floats:
    """Var[Q_t] = (1 − α)^2t v0 + α/(2 − α) σ² (1 − (1 − α)^2t): equation 17 with its sum carried out."""
    kept = _kept(t, alpha) ** 2
    variance: Floats = kept * v0 + variance_limit(alpha, sigma) * (1 - kept)
    return variance


def variance_limit(alpha: npt.ArrayLike, sigma: float) -> Floats:
    """α/(2 − α) σ²: the variance that q keeps for good (eq. 13, 18)."""
    return sigma**2 / effective_window(alpha)


def half_life(alpha: npt.ArrayLike) -> Floats:
    """ln 2 / −ln(1 − α): updates until E[Q_t] is half as far from β as it began (from eq. 12); 0 at α = 1."""
    return settled_after(alpha, 0.5)


def settled_after(alpha: npt.ArrayLike, share: float = 0.95) -> Floats:
    """Updates until E[Q_t] has gone `share` of the way from q0 to β (from eq. 12); 0 at α = 1."""
    updates: Floats = -np.log1p(-share) / _rate(alpha)
    return updates


def effective_window(alpha: npt.ArrayLike) -> Floats:
    """(2 − α)/α: the plain mean of that many rewards varies as much as q does in the long run (from eq. 18)."""
    step = np.asarray(alpha, dtype=np.float64)
    return (2 - step) / step


@dataclass(frozen=True, slots=True, eq=False)
class TradeOff:
    """What each α pays for calm with slowness; all (n,).

    `noise` is the standard deviation that q keeps for good, `half_life` the updates until half of a change is followed,
    `until_within` the updates until what is left of a jump is as small as asked.
    """

    alphas: Floats
    noise: Floats
    half_life: Floats
    until_within: Floats


def trade_off(alphas: npt.ArrayLike, sigma: float, jump: float, within: npt.ArrayLike) -> TradeOff:
    """Noise against lag for each of `alphas` (n,), of rewards with sd `sigma` whose mean jumps by `jump`.

    `within`, one number or (n,), says how near to the new mean counts as arrived.
    """
    steps, near, size = np.asarray(alphas, dtype=np.float64), np.asarray(within, dtype=np.float64), abs(jump)
    with np.errstate(divide="ignore", invalid="ignore"):
        until = np.where((size <= near) | (steps == 1), 0.0, np.log(size / near) / _rate(steps))
    return TradeOff(steps, np.sqrt(variance_limit(steps, sigma)), half_life(steps), until)


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula in symbols, with its numbers in their place, and what it comes to.

    `substituted` ends with "= " and `value` to three decimals; `unit` is "updates", "rewards", "reward", "reward²" or
    "" for a share.
    """

    name: str
    symbols: str
    substituted: str
    value: float
    unit: str
    source: str


def formulas(alpha: float, beta: float, sigma: float, q0: float, t: int) -> tuple[Formula, ...]:
    """Every formula of this module for one q after `t` updates."""
    mean, variance, limit = mean_q(t, alpha, beta, q0), variance_q(t, alpha, sigma), variance_limit(alpha, sigma)
    a, b, s, start = (_number(value) for value in (alpha, beta, sigma, q0))
    rate = "∞" if alpha == 1 else f"(−ln(1 − {a}))"
    floor = f"{a} / (2 − {a})"
    rows = (
        ("q expected after t updates", "β + (1 − α)^t · (q0 − β)", f"{b} + (1 − {a})^{t} · ({start} − {b})",
         mean, "reward", "eq. 12"),
        ("share of q0 left in it", "(1 − α)^t", f"(1 − {a})^{t}", _kept(t, alpha), "", "eq. 12"),
        ("half-life of what q believed", "ln 2 / (−ln(1 − α))", f"ln(2) / {rate}", half_life(alpha), "updates",
         "from eq. 12"),
        ("95 % of the way to β", "ln 20 / (−ln(1 − α))", f"ln(20) / {rate}", settled_after(alpha), "updates",
         "from eq. 12"),
        ("variance of q after t updates", "α/(2 − α) · σ² · (1 − (1 − α)^(2t))",
         f"{floor} · {s}^2 · (1 − (1 − {a})^(2 · {t}))", variance, "reward²", "eq. 17"),
        ("variance of q in the long run", "α/(2 − α) · σ²", f"{floor} · {s}^2", limit, "reward²", "eq. 13, 18"),
        ("spread of q in the long run", "√(α/(2 − α)) · σ", f"√({floor}) · {s}", np.sqrt(limit), "reward",
         "eq. 13, 18"),
        ("rewards that q averages over", "(2 − α)/α", f"(2 − {a}) / {a}", effective_window(alpha), "rewards",
         "from eq. 18"),
    )  # fmt: skip
    return tuple(
        Formula(name, symbols, f"{numbers} = {_shown(float(value))}", float(value), unit, f"{PAPER}, {equation}")
        for name, symbols, numbers, value, unit, equation in rows
    )


def order_probability(visits: npt.ArrayLike, alpha: float, better: float, worse: float, noise: float = 0.0) -> Floats:
    """The chance that of two memories, updated `visits` times each, the more reliable one has the higher q.

    `better` and `worse` are their chances of success, rewards are +1 and −1, and each is reversed with
    the chance `noise`. Both q begin equal. The difference of the two is taken as normal with the mean of equation 12
    and the variances of equation 17, so it is an approximation for few visits. At 0 visits it is ½.
    """
    seen = [chance * (1 - 2 * noise) + noise for chance in (better, worse)]
    mean = 2 * (seen[0] - seen[1]) * (1 - _kept(visits, alpha))
    spread = np.sqrt(sum(variance_q(visits, alpha, 2 * np.sqrt(chance * (1 - chance))) for chance in seen))
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.where(mean == 0, 0.0, mean / spread)
    probability: Floats = np.vectorize(NormalDist().cdf, otypes=[np.float64])(apart)
    return probability


def visits_to_order(alpha: float, better: float, worse: float, noise: float = 0.0, sure: float = 0.8) -> int | None:
    """The visits after which q orders two memories rightly with the chance `sure`; None when it never does.

    See `order_probability`. With a constant α the spread of q stays, so a small gap is never certain.
    """
    enough = np.flatnonzero(order_probability(np.arange(MOST_VISITS), alpha, better, worse, noise) >= sure)
    return int(enough[0]) if enough.size else None


def _kept(t: npt.ArrayLike, alpha: npt.ArrayLike) -> Floats:
    """(1 − α)^t: how much of the start is left after t updates."""
    kept: Floats = (1 - np.asarray(alpha, dtype=np.float64)) ** np.asarray(t, dtype=np.float64)
    return kept


def _rate(alpha: npt.ArrayLike) -> Floats:
    """−ln(1 − α); infinite at α = 1."""
    with np.errstate(divide="ignore"):
        rate: Floats = -np.log1p(-np.asarray(alpha, dtype=np.float64))
    return rate


def _number(value: float) -> str:
    """For a place in a formula: three decimals, or as many as the number has; in brackets when negative."""
    text = f"{value:.3f}" if round(value, 3) == value else np.format_float_positional(value, trim="-")
    return f"({text.replace('-', '−')})" if value < 0 else text


def _shown(value: float) -> str:
    text = f"{value:.3f}"
    return "0.000" if text == "-0.000" else text.replace("-", "−")
