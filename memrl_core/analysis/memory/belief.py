"""How far a q can be trusted, how many rewards it needs to recover, and what another reward would have made it.

Recovery: arXiv 2601.03192, equation 4. n equal rewards r take q to r + (1 − α)^n (q − r), which comes ever nearer to r
and never there.
Trust: arXiv 2601.03192 v2, equations 12, 13, 17 and 18. With mean reward β and variance σ² of the rewards, q has the
expectation β + (1 − α)^t (q0 − β) and the variance α/(2 − α) · σ² (1 − (1 − α)^(2t)) after t rewards. Where α changed
on the way, each move counts with the α that it shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm, t

from memrl_core.analysis.decision.required import required_q
from memrl_core.analysis.decision.whatif import Situation
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.learning import Fold, folded
from memrl_core.policies import make_policy, update_rule
from memrl_core.records import Candidate, EventKind, LedgerEvent, RecallRecord, UtilityPoint
from memrl_core.settings import MemRLSettings


@dataclass(frozen=True, slots=True)
class SupposedReward:
    """A reward of `step` supposed to be `instead` of `value`.

    `moved` maps every memory whose q would differ today to its q now and its q then, in the order of age. What was
    selected and written after the reward is left as it was.
    """

    event_id: str
    step: int
    value: float
    instead: float
    moved: Mapping[str, tuple[float, float]]


def supposed_reward(bank: MemoryBank, run: str, event_id: str, instead: float) -> SupposedReward:
    """q of the run's memories today if a reward, given in this run or in one it started from, had been `instead`.

    Nothing moves when the reward does not count: after it was revoked or replaced, beside a person's, or where the
    memory has a credit of its own. Raises `InputError` for a value that is not finite, and for an unknown reward.
    """
    if not math.isfinite(instead):
        raise InputError(f"{instead} is not a reward: give a finite number.")
    given = next((e for e in _events_behind(bank, run) if e.id == event_id), None)
    if given is None or given.kind is not EventKind.REWARD_GIVEN:
        raise InputError("That reward is not in this run or in what it started from.")
    now = bank.utilities(run)
    then = _fold(bank, run, None, replace(given, value=instead)).utilities
    moved = {i: (known.q, then[i].q) for i, known in now.items() if known.q != then[i].q}
    return SupposedReward(event_id, given.step, given.value or 0.0, instead, moved)


def _events_behind(bank: MemoryBank, run: str) -> list[LedgerEvent]:
    info = bank.run(run)
    earlier = [e for e in _events_behind(bank, info.base) if e.known_at <= info.base_step] if info.base else []
    return [*earlier, *bank.events(run)]


def _fold(bank: MemoryBank, run: str, as_of: int | None, changed: LedgerEvent) -> Fold:
    """The fold of a run with one event in the place of the one of the same id (see `Knowledge.start`)."""
    info = bank.run(run)
    rule = update_rule(info.policy)
    start = Fold(rule)
    if info.base is not None:
        start = replace(_fold(bank, info.base, info.base_step, changed), rule=rule, settings=info.settings)
    events = [changed if e.id == changed.id else e for e in bank.events(run) if as_of is None or e.known_at <= as_of]
    return folded(start, events, {row.id for row in bank.step_rows(run)})


UPPER = 0.975
STANDSTILL = 1e-9


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
    for number, (point, size) in enumerate(zip(moves, _step_sizes(moves, alpha), strict=True), start=1):
        assert mean is not None
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


def _step_sizes(moves: Sequence[UtilityPoint], alpha: float) -> list[float]:
    sizes = []
    for point in moves:
        assert point.before is not None and point.reward is not None
        distance = point.reward - point.before
        sizes.append((point.after - point.before) / distance if abs(distance) > STANDSTILL else alpha)
    return sizes


SLACK = 1e-9
SHOWN = 10


@dataclass(frozen=True, slots=True)
class Rung:
    """After `rewards` equal rewards: the memory's q, and its score, rank and fate in the pool under greedy choice."""

    rewards: int
    q: float
    score: float
    rank: int
    selected: bool


@dataclass(frozen=True, slots=True)
class Recovery:
    """What equal rewards to one memory do to its place in a pool in which nothing else moves.

    `needed` is the first number of rewards after which greedy choice treats the memory otherwise, None when no number
    does. `path` starts at the recorded q and goes as far as `needed`, or `SHOWN` rewards; it is empty when the memory
    is not in the pool, where no q counts.
    """

    memory_id: str
    reward: float
    alpha: float
    needed: int | None
    path: tuple[Rung, ...]


def after_rewards(q: float, reward: float, alpha: float, n: int) -> float:
    """q after n rewards of one value."""
    return reward + (1 - alpha) ** n * (q - reward)


def rewards_to_reach(q: float, target: float, reward: float, alpha: float) -> int | None:
    """The fewest rewards of one value that take q to `target` or past it; None when none ever will.

    Raises `InputError` for values that are not finite, and for an α outside (0, 1].
    """
    if not all(map(math.isfinite, (q, target, reward))) or not 0 < alpha <= 1:
        raise InputError(f"q = {q}, target {target}, reward {reward}, α = {alpha}: give finite numbers and 0 < α ≤ 1.")
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


def recovery(situation: Situation, memory_id: str, reward: float, settings: MemRLSettings | None = None) -> Recovery:
    """How many rewards of one value, given to this memory alone, change whether it is given to the model.

    Raises `InputError` for a reward that is not finite, and for a memory that the run did not know at this step.
    """
    chosen = (settings or MemRLSettings.of(situation.settings)).model_copy(
        update={"epsilon": 0.0, "exploration": "epsilon"}
    )
    if not math.isfinite(reward):
        raise InputError(f"{reward} is not a reward: give a finite number.")
    requirement = required_q(situation, memory_id, chosen)
    scored = _Pool(situation, memory_id, chosen)
    if not scored.holds_it:
        return Recovery(memory_id, reward, chosen.alpha, None, ())

    def rung(n: int) -> Rung:
        q = after_rewards(requirement.now, reward, chosen.alpha, n)
        member = scored.with_q(q)
        return Rung(n, q, member.score or 0.0, member.rank_select or 0, member.selected)

    first = rung(0)
    edges = [stretch.high for stretch in requirement.stretches[:-1]]
    reached = [rewards_to_reach(requirement.now, edge, reward, chosen.alpha) for edge in edges]
    # On an edge itself two candidates tie, so the reward after it is tried too.
    tried = sorted({1, *(n + more for n in reached if n is not None for more in (0, 1) if n + more)})
    needed = next((n for n in tried if rung(n).selected != first.selected), None)
    last = SHOWN if needed is None else min(needed, SHOWN)
    numbers = [*range(1, last + 1), *([needed] if needed is not None and needed > last else [])]
    return Recovery(memory_id, reward, chosen.alpha, needed, (first, *map(rung, numbers)))


class _Pool:
    """The pool of a situation, recalled once and ranked for any q of one memory."""

    def __init__(self, situation: Situation, memory_id: str, settings: MemRLSettings) -> None:
        self._policy = make_policy(situation.policy, settings.model_dump())
        self._situation, self._memory_id = situation, memory_id
        self._recall: RecallRecord = self._policy.recall(situation.query, situation.view)
        self.holds_it = any(member.memory_id == memory_id for member in self._recall.pool)

    def with_q(self, value: float) -> Candidate:
        q = self._situation.view.q.copy()
        q[self._situation.view.position(self._memory_id)] = value
        decision = self._policy.select(self._recall, replace(self._situation.view, q=q), self._situation.seed)
        return next(c for c in decision.candidates if c.memory_id == self._memory_id)
