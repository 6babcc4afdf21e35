"""How many rewards a memory needs until its q has recovered, or until the choice in a pool falls otherwise.

Source: arXiv 2601.03192, equation 4. n equal rewards r take q to r + (1 − α)^n (q − r), which comes ever nearer to r
and never gets there unless α = 1. In a pool each of these q moves the mean and the sd of all, so the pool is scored
again; where the choice can change at all is known from `required`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from memrl_core.analysis.required import required_q
from memrl_core.analysis.whatif import Situation
from memrl_core.errors import InputError
from memrl_core.policies import make_policy
from memrl_core.records import Candidate, RecallRecord
from memrl_core.settings import MemRLSettings

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
