"""What theory expects of one q under equation 4, as curves and formulas with their numbers, and what a run shows of it.

Source: arXiv 2601.03192 v2, equations 10 to 19. The rewards of a memory are taken as independent draws of one
distribution with mean β and standard deviation σ; α is held; t counts updates. In the long run the variance of q is
α/(2 − α) times that of the rewards (equations 13 and 18).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import chi2

from memrl_core.analysis.run.metrics import SLACK
from memrl_core.bank import MemoryBank
from memrl_core.numerals import MINUS, fixed
from memrl_core.records import Outcome, UtilityPoint
from memrl_core.retrieval import Floats
from memrl_core.settings import MemRLSettings

PAPER = "arXiv 2601.03192"
MOST_VISITS = 1000
"""Visits after which a q that has not separated two memories is said never to."""
UPPER = 0.975


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


def settled_within(alpha: npt.ArrayLike, jump: float, within: npt.ArrayLike) -> Floats:
    """Updates until what is left of a `jump` of the mean is no larger than `within` (from eq. 12); 0 at α = 1."""
    step, near, size = np.asarray(alpha, dtype=np.float64), np.asarray(within, dtype=np.float64), abs(jump)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((size <= near) | (step == 1), 0.0, np.log(size / near) / _rate(step))


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula in symbols, and with its numbers in their place, which ends with "= " and what it comes to."""

    name: str
    symbols: str
    substituted: str
    source: str


def formulas(alpha: float, beta: float, sigma: float, q0: float, t: int) -> tuple[Formula, ...]:
    """Every formula of this module for one q after `t` updates."""
    mean, variance, limit = mean_q(t, alpha, beta, q0), variance_q(t, alpha, sigma), variance_limit(alpha, sigma)
    a, b, s, start = (_number(value) for value in (alpha, beta, sigma, q0))
    rate = "∞" if alpha == 1 else f"(−ln(1 − {a}))"
    floor = f"{a} / (2 − {a})"
    rows = (
        ("q expected after t updates", "β + (1 − α)^t · (q0 − β)", f"{b} + (1 − {a})^{t} · ({start} − {b})", mean,
         "eq. 12"),
        ("share of q0 left in it", "(1 − α)^t", f"(1 − {a})^{t}", _kept(t, alpha), "eq. 12"),
        ("half-life of what q believed", "ln 2 / (−ln(1 − α))", f"ln(2) / {rate}", half_life(alpha), "from eq. 12"),
        ("95 % of the way to β", "ln 20 / (−ln(1 − α))", f"ln(20) / {rate}", settled_after(alpha), "from eq. 12"),
        ("variance of q after t updates", "α/(2 − α) · σ² · (1 − (1 − α)^(2t))",
         f"{floor} · {s}^2 · (1 − (1 − {a})^(2 · {t}))", variance, "eq. 17"),
        ("variance of q in the long run", "α/(2 − α) · σ²", f"{floor} · {s}^2", limit, "eq. 13, 18"),
        ("spread of q in the long run", "√(α/(2 − α)) · σ", f"√({floor}) · {s}", np.sqrt(limit), "eq. 13, 18"),
        ("rewards that q averages over", "(2 − α)/α", f"(2 − {a}) / {a}", effective_window(alpha), "from eq. 18"),
    )  # fmt: skip
    return tuple(
        Formula(name, symbols, f"{numbers} = {fixed(float(value)).replace(',', '')}", f"{PAPER}, {equation}")
        for name, symbols, numbers, value, equation in rows
    )


def order_probability(visits: npt.ArrayLike, alpha: float, better: float, worse: float) -> Floats:
    """The chance that of two memories, updated `visits` times each, the more reliable one has the higher q.

    `better` and `worse` are their chances of success, rewards are +1 and −1. Both q begin equal. The
    difference of the two is taken as normal with the mean of equation 12 and the variances of equation 17, so it is an
    approximation for few visits. At 0 visits it is ½.
    """
    mean = 2 * (better - worse) * (1 - _kept(visits, alpha))
    spread = np.sqrt(sum(variance_q(visits, alpha, 2 * np.sqrt(chance * (1 - chance))) for chance in (better, worse)))
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.where(mean == 0, 0.0, mean / spread)
    probability: Floats = np.vectorize(NormalDist().cdf, otypes=[np.float64])(apart)
    return probability


def visits_to_order(alpha: float, better: float, worse: float) -> int | None:
    """The visits after which q orders two memories rightly with a chance of 80 %; None when it never does.

    See `order_probability`. With a constant α the spread of q stays, so a small gap is never certain.
    """
    enough = np.flatnonzero(order_probability(np.arange(MOST_VISITS), alpha, better, worse) >= 0.8)
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
    return f"({text.replace('-', MINUS)})" if value < 0 else text


# --- what a run shows of it -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fluctuation:
    """The variance of q over its last moves, with its 95 % interval, beside the `limit` of theory."""

    variance: float
    low: float
    high: float
    limit: float

    @property
    def agrees(self) -> bool:
        """Whether theory lies within what was measured."""
        return self.low <= self.limit <= self.high


def fluctuation(points: Sequence[UtilityPoint], alpha: float) -> Fluctuation | None:
    """How much q moves about once its start is forgotten, against the long-run variance of theory (eq. 13).

    The moves of the first two windows are left out: less than 2 % of the start is then left. Neighbouring q are
    correlated by 1 − α, so they count as fewer: the variance of n of them has the freedom of
    n (1 − (1 − α)²)/(1 + (1 − α)²). None when that leaves less than two.
    """
    moves = [p for p in points if p.reward is not None]
    window = (2 - alpha) / alpha
    late = np.array([p.after for p in moves[math.ceil(2 * window) :]], dtype=np.float64)
    n, kept = len(late), (1 - alpha) ** 2
    freedom = n * (1 - kept) / (1 + kept) - 1
    if freedom < 1 or n <= window:
        return None
    variance = float(late.var()) / (1 - window / n)
    low, high = (freedom * variance / float(chi2.ppf(p, freedom)) for p in (UPPER, 1 - UPPER))
    rewards = np.array([p.reward for p in moves], dtype=np.float64)
    return Fluctuation(variance, low, high, alpha / (2 - alpha) * float(rewards.var(ddof=1)))


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The memories written with one outcome.

    `by_visit` has a row for every number of visits `t` from 0: `n` memories that had so many, their mean `q`, its `sd`
    and standard error `se` (nan for one memory), and what `theory` expects for the mean of all their rewards, with
    `theory_sd`. `se` takes memories as independent; those that shared a prompt shared its reward, so the true error is
    larger.
    """

    outcome: Outcome
    by_visit: pd.DataFrame


@dataclass(frozen=True, slots=True)
class LateVariance:
    """Of `memories` with enough visits, the median `ratio` of the late variance of q to its limit in theory.

    For `agreeing` of them the limit lies within the 95 % interval of what was measured.
    """

    memories: int
    ratio: float
    agreeing: int


@dataclass(frozen=True, slots=True)
class MeasuredHalfLife:
    """Updates until q of `memories` was half as far from their mean rewards as at their writing; `expected` of α."""

    memories: int
    updates: float
    expected: float


@dataclass(frozen=True, slots=True, eq=False)
class Practice:
    """What a run's ledger says about the curves of theory at its `alpha`.

    `groups` has the outcomes of which a memory was rewarded. `left_out` memories moved by another step size at some
    time and are in none of the numbers. `late` and `half_life` are None without enough visits.
    """

    alpha: float
    groups: tuple[Group, ...]
    left_out: int = 0
    late: LateVariance | None = None
    half_life: MeasuredHalfLife | None = None


def measured(bank: MemoryBank, run: str) -> Practice:
    """What can be laid over the curves of theory, of a run of MemRL. Raises `UnknownRun`."""
    alpha = MemRLSettings.of(bank.settings(run)).alpha
    # Also of memories that the run forgot: to leave them out would be one more selection.
    known = {i: points for i in bank.memory_ids() if (points := bank.history(run, i))}
    histories = {i: points for i, points in known.items() if all(_moved_by(alpha, point) for point in points)}
    frame = pd.DataFrame(
        [
            (memory_id, bank.memory(memory_id).outcome, t, point.after, point.reward)
            for memory_id, points in histories.items()
            for t, point in enumerate(points)
        ],
        columns=["memory_id", "outcome", "t", "q", "reward"],
    ).astype({"reward": float, "q": float})
    groups = [_group(outcome, members, alpha) for outcome, members in frame.groupby("outcome", sort=True)]
    return Practice(
        alpha,
        tuple(group for group in groups if group is not None),
        len(known) - len(histories),
        _late(list(histories.values()), alpha),
        _half_life(frame, alpha),
    )


def _moved_by(alpha: float, point: UtilityPoint) -> bool:
    if point.reward is None or point.before is None:
        return True
    return abs(point.before + alpha * (point.reward - point.before) - point.after) <= SLACK


def _group(outcome: Outcome, members: pd.DataFrame, alpha: float) -> Group | None:
    rewards = members["reward"].dropna()
    if rewards.empty:
        return None
    beta, sigma = float(rewards.mean()), float(rewards.std(ddof=1)) if len(rewards) > 1 else 0.0
    by_visit = members.groupby("t")["q"].agg(n="size", q="mean", sd="std").reset_index()
    q0 = float(by_visit["q"].iloc[0])
    by_visit["se"] = by_visit["sd"] / np.sqrt(by_visit["n"])
    by_visit["theory"] = mean_q(by_visit["t"], alpha, beta, q0)
    by_visit["theory_sd"] = np.sqrt(variance_q(by_visit["t"], alpha, sigma))
    return Group(outcome, by_visit)


def _late(histories: Sequence[Sequence[UtilityPoint]], alpha: float) -> LateVariance | None:
    found = [f for points in histories if (f := fluctuation(points, alpha)) is not None and f.limit > 0]
    if not found:
        return None
    ratio = float(np.median([f.variance / f.limit for f in found]))
    return LateVariance(len(found), ratio, sum(f.agrees for f in found))


def _half_life(frame: pd.DataFrame, alpha: float) -> MeasuredHalfLife | None:
    """Of the memories with at least two half-lives of visits, so that the same ones are averaged all the way.

    The distance keeps its sign, positive on the side of q0: for rewards in any order it then shrinks by (1 − α)^t on
    average, while its size would stop at the noise.
    """
    expected = float(half_life(alpha))
    last = max(1, math.ceil(2 * expected))
    own = frame.groupby("memory_id")["reward"].transform("mean")
    wide = frame.assign(off=frame["q"] - own).pivot(index="memory_id", columns="t", values="off")
    if last not in wide.columns:
        return None
    far = wide.loc[wide[last].notna(), list(range(last + 1))].to_numpy()
    away = (far * np.sign(far[:, :1])).mean(axis=0)
    halved = np.flatnonzero(away <= away[0] / 2)
    if away[0] <= SLACK or not len(halved):
        return None
    t = int(halved[0])
    above, below, half = float(away[t - 1]), float(away[t]), float(away[0]) / 2
    part = math.log(above / half) / math.log(above / below) if below > 0 else (above - half) / (above - below)
    return MeasuredHalfLife(len(far), t - 1 + part, expected)
