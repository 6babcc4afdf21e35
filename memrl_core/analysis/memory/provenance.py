"""Which rewards made a q what it is, what it would be without one of them, and how far it can be trusted.

With mean reward β and variance σ² of the rewards, q has the expectation β + (1 − α)^t (q0 − β) and the variance
α/(2 − α) · σ² (1 − (1 − α)^(2t)) after t rewards (arXiv 2601.03192 v2, equations 12, 13, 17 and 18). Where α changed on
the way, each move counts with its own α. Answering steps again shows how much of a q is company.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm
from scipy.stats import t as student

from memrl_core.agent.rerun import Rerunner, credit
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.learning import (
    Fold,
    active_rewards,
    assigned_credit,
    by_step,
    folded,
    memrl_rule,
    moves_of,
    shares_in,
    updated_q,
)
from memrl_core.models.base import Cancelled, Progress, never, unheard
from memrl_core.policies import update_rule
from memrl_core.records import EventKind, LedgerEvent, StepTrace, Utility, UtilityPoint
from memrl_core.settings import OFF


@dataclass(frozen=True, slots=True)
class Contribution:
    """One reward's part in a q.

    `value` is the reward, or the memory's own one where a person let that count in its place. `share` is its weight in
    today's q: α (1 − α)^(updates since), times its part in what the run's rules made of the step's rewards, with less
    than α where a q floor stopped the move. `without` is what q would be today had this reward never been given: the
    step then counts by the rewards that are left, or does not move q. `reason` is what its giver said, "" for nothing.
    """

    step: int
    event_id: str
    source: str
    rater: str
    value: float
    before: float
    after: float
    share: float
    without: float
    reason: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """q of one memory as a sum: q0 with its remaining weight, and each reward with its own; all weights add up to 1."""

    q: float
    q0: float
    q0_share: float
    contributions: tuple[Contribution, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Chapter:
    """A run, or as much of it as the next one began with: the events that count and the settings, by step."""

    run: str
    as_of: int | None
    steps: Mapping[int, Sequence[LedgerEvent]]
    settings: Mapping[int, Mapping[str, Any]]


def chapters(bank: MemoryBank, run: str, as_of: int | None = None) -> list[Chapter]:
    """The runs behind what a run knows, the first one first."""
    info = bank.run(run)
    earlier = chapters(bank, info.base, info.base_step) if info.base else []
    finished = {row.id for row in bank.steps.rows(run)}
    known = (event for event in bank.events(run) if as_of is None or event.known_at <= as_of)
    steps = by_step(known, finished.__contains__)
    settings, in_force = {}, info.settings
    for step in sorted(steps):
        for event in steps[step]:
            if event.kind in (EventKind.RUN_STARTED, EventKind.SETTINGS_CHANGED):
                in_force = event.payload["settings"]
        settings[step] = in_force
    return [*earlier, Chapter(run, as_of, steps, settings)]


def entries(bank: MemoryBank, behind: Sequence[Chapter], memory_id: str) -> list[tuple[int, UtilityPoint]]:
    """Every entry of a memory's q in order, with the number of the chapter in which it came about."""
    found: list[tuple[int, UtilityPoint]] = []
    for number, chapter in enumerate(behind):
        points = bank.history(chapter.run, memory_id, chapter.as_of)
        kept = len(found) if points[: len(found)] == [point for _, point in found] else 0
        found = [*found[:kept], *((number, point) for point in points[kept:])]
    return found


@dataclass(frozen=True, slots=True)
class _Step:
    """What moved a memory in one step: its entries with the step size of each, and the rewards and settings behind."""

    points: tuple[UtilityPoint, ...]
    alphas: tuple[float, ...]
    events: Sequence[LedgerEvent]
    settings: Mapping[str, Any]


def under_another_alpha(histories: Mapping[str, Sequence[UtilityPoint]], alpha: float) -> pd.DataFrame:
    """What each q would be had every reward moved it by `alpha`: memory_id, rewards, q, q_then (n, 4).

    The q that differs most stands first. `histories` are `bank.histories(run)`. Eq. 4 is applied to the rewards that
    moved each memory, from its first q on; every decision and every reward stays as it was.
    """
    rows = []
    for memory_id, points in histories.items():
        rewards = [point.reward for point in points if point.reward is not None]
        then = points[0].after
        for reward in rewards:
            then = updated_q(then, reward, alpha)
        rows.append((memory_id, len(rewards), points[-1].after, then))
    found = pd.DataFrame(rows, columns=["memory_id", "rewards", "q", "q_then"])
    order = (found["q_then"] - found["q"]).abs().sort_values(ascending=False, kind="stable").index
    return found.loc[order].reset_index(drop=True)


def provenance(bank: MemoryBank, run: str, memory_id: str, as_of: int | None = None) -> Provenance | None:
    """How q of a memory came about in a run; None when the run does not know the memory."""
    behind = chapters(bank, run, as_of)
    points = entries(bank, behind, memory_id)
    if not points:
        return None
    moves = (entry for entry in points if entry[1].reward is not None)
    steps = [
        _step([point for _, point in members], behind[number], step)
        for (number, step), members in groupby(moves, key=lambda entry: (entry[0], entry[1].step))
    ]
    q0, shares = points[0][1].after, iter(_shares([alpha for step in steps for alpha in step.alphas]))
    found = []
    for position, step in enumerate(steps):
        active = active_rewards(step.events)
        own = assigned_credit(step.events).get(memory_id)
        parts = shares_in(active, step.settings)
        for point, part in zip(step.points, parts if own is None else parts[-1:], strict=True):
            share = next(shares)
            for event in (event for event in active if event.id in part):
                rest = [e for e in step.events if e.id != event.id]
                left = [reward.value for i, reward in moves_of(rest, step.settings) if i == memory_id]
                found.append(
                    Contribution(
                        step=point.step,
                        event_id=event.id,
                        source=event.source or "",
                        rater=event.rater,
                        value=event.value or 0.0 if own is None else own,
                        before=point.before or 0.0,
                        after=point.after,
                        share=share * part[event.id],
                        without=_replayed(q0, steps, position, left),
                        reason=event.reason,
                    )
                )
    q0_share = math.prod(1 - alpha for step in steps for alpha in step.alphas)
    return Provenance(points[-1][1].after, q0, q0_share, tuple(found))


def _step(points: Sequence[UtilityPoint], chapter: Chapter, step: int) -> _Step:
    settings = chapter.settings[step]
    alphas = tuple(step_size(point, float(settings["alpha"])) for point in points)
    return _Step(tuple(points), alphas, chapter.steps[step], settings)


def step_size(move: UtilityPoint, alpha: float) -> float:
    """The share of the way to its reward that a move went (eq. 4); `alpha` where it had no way to go."""
    assert move.before is not None and move.reward is not None
    distance = move.reward - move.before
    return (move.after - move.before) / distance if abs(distance) > 1e-9 else alpha


def refolded(
    bank: MemoryBank, run: str, changed: Callable[[LedgerEvent], LedgerEvent | None], as_of: int | None = None
) -> Fold:
    """The fold of a run in which `changed` gives what replaces each event, or None for nothing.

    The runs that it started from are folded in the same way.
    """
    info = bank.run(run)
    start = Fold(update_rule(info.policy))
    if info.base is not None:
        known = refolded(bank, info.base, changed, info.base_step)
        inherited = {memory_id: len(points) for memory_id, points in known.histories.items()}
        start = replace(known, rule=start.rule, settings=info.settings, inherited=inherited)
    known_then = (event for event in bank.events(run) if as_of is None or event.known_at <= as_of)
    events = [other for event in known_then if (other := changed(event)) is not None]
    return folded(start, events, {row.id for row in bank.steps.rows(run)})


def _shares(alphas: list[float]) -> list[float]:
    shares = []
    remaining = 1.0
    for alpha in reversed(alphas):
        shares.append(alpha * remaining)
        remaining *= 1 - alpha
    return shares[::-1]


def _replayed(q: float, steps: list[_Step], changed: int, values: list[float]) -> float:
    """q after all steps, of which the one at `changed` moves it by other rewards."""
    for position, step in enumerate(steps):
        rewards = values if position == changed else [p.reward for p in step.points if p.reward is not None]
        # A move that the floor stopped went less than α of its way; from another q it would have gone further.
        has_floor = step.settings.get("q_floor", OFF) > OFF
        by = step.settings if has_floor else {"alpha": step.alphas[0]}
        for reward in rewards:
            q = memrl_rule(Utility(q, 0), reward, by)
    return q


@dataclass(frozen=True, slots=True, eq=False)
class Contamination:
    """`memories` has a row for each memory whose q was ever moved: memory_id, visits, q, earned, company = q − earned.

    `share` is Σ|company| / (Σ|company| + Σ|earned|), the part of the run's q that is company; None where all q are 0.
    `steps` were answered again.
    """

    memories: pd.DataFrame
    share: float | None
    steps: int


def contamination(
    bank: MemoryBank,
    run: str,
    rerunner: Callable[[StepTrace], Rerunner],
    on_progress: Progress = unheard,
    cancelled: Cancelled = never,
) -> Contamination | None:
    """q as credited beside q as earned, by leave-one-out shares in every rewarded step; None when it was cancelled.

    Every step with memories in its prompt is answered again with each of them left out: k2 + 1 answers a step. A memory
    earns its own reward (`agent.rerun.Credit.rewards`), and the run's own rule moves its q by it. Nothing is stored.
    `rerunner` makes what answers a step again. Raises `InputError` where people give the rewards.
    """
    shared = [trace for trace in bank.traces(run) if trace.decision is not None and trace.decision.selected]
    rewards: dict[tuple[int, str], float] = {}
    for done, trace in enumerate(shared):
        on_progress(done, len(shared))
        if trace.generate is None or bank.ratings.effective(run, trace.step) is None:
            continue
        again = rerunner(trace)
        if not again.rewarded:
            raise InputError("Here people give the rewards, so an answer that nobody has seen has none.")
        answer = partial(again.rerun, cancelled=cancelled)
        found = credit("leave-one-out", again.memories, answer, cancelled=cancelled)
        if found is None:
            return None
        low, high = (float(trace.settings[name]) for name in ("reward_failure", "reward_success"))
        rewards |= {(trace.step, memory_id): value for memory_id, value in found.rewards(low, high).items()}
    return _meter(bank, run, rewards, len(shared))


def _meter(bank: MemoryBank, run: str, rewards: Mapping[tuple[int, str], float], steps: int) -> Contamination:
    rule, rows = update_rule(bank.run(run).policy), []
    for memory_id, points in bank.histories(run).items():
        first, *moves = points
        if not any(point.reward is not None for point in moves):
            continue
        earned = Utility(first.after, first.visits)
        for point in moves:
            if point.reward is None:
                earned = Utility(point.after, point.visits)
                continue
            own = rewards.get((point.step, memory_id), point.reward)
            earned = Utility(rule(earned, own, bank.settings(run, point.step)), point.visits)
        rows.append((memory_id, points[-1].visits, points[-1].after, earned.q, points[-1].after - earned.q))
    table = pd.DataFrame(rows, columns=["memory_id", "visits", "q", "earned", "company"])
    company, own = table["company"].abs().sum(), table["earned"].abs().sum()
    share = float(company / (company + own)) if company + own > 0 else None
    order = table["company"].abs().sort_values(ascending=False, kind="stable").index
    return Contamination(table.loc[order].reset_index(drop=True), share, steps)


# --- how far a q can be trusted ---------------------------------------------------------------------------------------

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

    `n` rewards are known with this `mean`; `window` = (2 − α)/α is how many rewards q
    averages over in the long run; `q0_share` is the weight that the first q still has. `low` … `high` is the 95 % band
    of q around its value (Student's t); it has no width while all rewards were equal, which is not certainty. `limit`
    is the variance of q in the long run (None below two rewards). `ladder` has a rung a reward.
    """

    q: float
    n: int
    mean: float | None
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
    low, high = _band(q, float(student.ppf(UPPER, n - 1)) if n > 1 else 0.0, squares, variance, within)
    limit = None if variance is None else alpha / (2 - alpha) * variance
    return Trust(q, n, mean, (2 - alpha) / alpha, share, low, high, limit, tuple(ladder))


def _band(
    centre: float, quantile: float, squares: float, variance: float | None, within: tuple[float, float]
) -> tuple[float | None, float | None]:
    """`squares` is the sum of the squared weights that the rewards have in q: times σ², the variance of q (eq. 17)."""
    if variance is None:
        return None, None
    reach = quantile * math.sqrt(squares * variance)
    return max(centre - reach, within[0]), min(centre + reach, within[1])
