"""How far a q can be trusted, how many rewards it needs to recover, and what another reward would have made it.

Recovery: arXiv 2601.03192, equation 4. n equal rewards r take q to r + (1 − α)^n (q − r), which comes ever nearer to r
and never there.
Trust: arXiv 2601.03192 v2, equations 12, 13, 17 and 18. With mean reward β and variance σ² of the rewards, q has the
expectation β + (1 − α)^t (q0 − β) and the variance α/(2 − α) · σ² (1 − (1 − α)^(2t)) after t rewards. Where α changed
on the way, each move counts with the α that it shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm, t

from memrl_core.analysis.decision.required import required_q
from memrl_core.analysis.decision.whatif import Situation
from memrl_core.analysis.memory.provenance import refolded, step_size
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.policies import make_policy
from memrl_core.records import EventKind, LedgerEvent, UtilityPoint
from memrl_core.settings import MemRLSettings


def supposed_reward(bank: MemoryBank, run: str, event_id: str, instead: float) -> dict[str, tuple[float, float]]:
    """q now and then of every memory whose q would differ today if a reward had been `instead`, in the order of age.

    The reward was given in this run or in one it started from. What was selected and written after it is left as it
    was. Nothing moves when the reward does not count: after it was revoked or replaced, beside a person's, or where the
    memory has a credit of its own. Raises `InputError` for an unknown reward.
    """
    (given,) = bank.events_of([event_id]) or (None,)
    if given is None or given.kind is not EventKind.REWARD_GIVEN or not _is_behind(bank, run, given):
        raise InputError("That reward is not in this run or in what it started from.")
    now = bank.utilities(run)
    supposed = replace(given, value=instead)
    then = refolded(bank, run, lambda event: supposed if event.id == event_id else event).utilities
    return {i: (known.q, then[i].q) for i, known in now.items() if known.q != then[i].q}


def _is_behind(bank: MemoryBank, run: str, event: LedgerEvent) -> bool:
    """Whether a run knows an event as its own or by the run that it started from."""
    info = bank.run(run)
    if event.run == run or info.base is None:
        return event.run == run
    return event.known_at <= info.base_step and _is_behind(bank, info.base, event)


UPPER = 0.975


@dataclass(frozen=True, slots=True)
class Expected:
    """After n rewards: q as theory expects it for the memory's mean reward, its 95 % range, and as it was."""

    n: int
    expected: float
    low: float | None
    high: float | None
    recorded: float


@dataclass(frozen=True, slots=True)
class Trust:
    """What the rewards of one memory say about its q.

    `n` rewards are known with this `mean` and `variance` (None below two); `window` = (2 − α)/α is how many rewards q
    averages over in the long run; `q0_share` is the weight that the first q still has. `low` … `high` is the 95 % band
    of q around its value (Student's t); it has no width while all rewards were equal, which is not certainty. `limit`
    is the variance of q in the long run. `ladder` has a rung a reward.
    """

    q: float
    n: int
    mean: float | None
    variance: float | None
    window: float
    q0_share: float
    low: float | None
    high: float | None
    limit: float | None
    ladder: tuple[Expected, ...]


def trust(
    points: Sequence[UtilityPoint], alpha: float, rewards_within: tuple[float, float] = (-math.inf, math.inf)
) -> Trust:
    """Of a memory's history, from its writing on; `alpha` is the step size in force (also where a move shows none).

    q is a weighted mean of its first value and of rewards, so that no band reaches beyond these and `rewards_within`.
    """
    q0, q = points[0].after, points[-1].after
    moves = [p for p in points if p.reward is not None]
    rewards = np.array([p.reward for p in moves], dtype=np.float64)
    n = len(rewards)
    mean = float(rewards.mean()) if n else None
    variance = float(rewards.var(ddof=1)) if n > 1 else None
    reached = [*(p.after for p in points), *rewards]
    within = min(rewards_within[0], *reached), max(rewards_within[1], *reached)
    z = float(norm.ppf(UPPER))
    share, squares, ladder = 1.0, 0.0, []
    for number, point in enumerate(moves, start=1):
        assert mean is not None
        size = step_size(point, alpha)
        share *= 1 - size
        squares = (1 - size) ** 2 * squares + size**2
        expected = mean + share * (q0 - mean)
        ladder.append(Expected(number, expected, *_band(expected, z, squares, variance, within), point.after))
    low, high = _band(q, float(t.ppf(UPPER, n - 1)) if n > 1 else 0.0, squares, variance, within)
    limit = None if variance is None else alpha / (2 - alpha) * variance
    return Trust(q, n, mean, variance, (2 - alpha) / alpha, share, low, high, limit, tuple(ladder))


def _band(
    centre: float, quantile: float, squares: float, variance: float | None, within: tuple[float, float]
) -> tuple[float | None, float | None]:
    """`squares` is the sum of the squared weights that the rewards have in q: times σ², the variance of q (eq. 17)."""
    if variance is None:
        return None, None
    reach = quantile * math.sqrt(squares * variance)
    return max(centre - reach, within[0]), min(centre + reach, within[1])


SLACK = 1e-9


def after_rewards(q: float, reward: float, alpha: float, n: int) -> float:
    """q after n rewards of one value."""
    return reward + (1 - alpha) ** n * (q - reward)


def rewards_to_reach(q: float, target: float, reward: float, alpha: float) -> int | None:
    """The fewest rewards of one value that take q to `target` or past it; None when none ever will."""
    if q == target:
        return 0
    if reward == q:
        return None
    remaining = (reward - target) / (reward - q)
    if not 0 <= remaining < 1:
        return None
    if alpha == 1:
        return 1
    # A target that a whole number of rewards meets exactly may lie one bit off.
    return None if remaining == 0 else max(1, math.ceil(math.log(remaining) / math.log1p(-alpha) - SLACK))


def recovery(
    situation: Situation, memory_id: str, reward: float, settings: MemRLSettings | None = None
) -> tuple[bool, int | None] | None:
    """Whether greedy choice gives a memory to the model, and after how many rewards, given to it alone, that changes.

    The number is None when no number of them changes it. None for a memory outside of the pool, where no q counts.
    Raises `InputError` for a memory that the run did not know at this step.
    """
    chosen = (settings or MemRLSettings.of(situation.settings)).model_copy(
        update={"epsilon": 0.0, "exploration": "epsilon"}
    )
    requirement = required_q(situation, memory_id, chosen)
    policy, view = make_policy(situation.policy, chosen.model_dump()), situation.view
    recall = policy.recall(situation.query, view)
    if not any(member.memory_id == memory_id for member in recall.pool):
        return None

    def selected_after(n: int) -> bool:
        q = view.q.copy()
        q[view.position(memory_id)] = after_rewards(requirement.now, reward, chosen.alpha, n)
        return memory_id in policy.select(recall, replace(view, q=q), situation.seed).selected

    now = selected_after(0)
    edges = [stretch.high for stretch in requirement.stretches[:-1]]
    reached = [rewards_to_reach(requirement.now, edge, reward, chosen.alpha) for edge in edges]
    # On an edge itself two candidates tie, so the reward after it is tried too.
    tried = sorted({1, *(n + more for n in reached if n is not None for more in (0, 1) if n + more)})
    return now, next((n for n in tried if selected_after(n) != now), None)
