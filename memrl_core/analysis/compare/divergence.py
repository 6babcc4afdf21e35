"""Where two runs part: which memories, which order, which answer, which reward, step by step in lockstep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from memrl_core.analysis.compare.alignment import Alignment, ComparedStep, parted_after
from memrl_core.analysis.run.rates import Floats, percentiles, resampled


class Difference(StrEnum):
    """In what two paired steps can differ (the list is closed)."""

    MEMORIES = "memories"
    ORDER = "order"
    ANSWER = "answer"
    REWARD = "reward"


@dataclass(frozen=True, slots=True)
class Pair:
    """A step of the first run beside the same of another.

    `shared` and `removed` are memories of the first run, `added` those that only the other selected; a shared memory
    goes by its id in the first run. What is not known in both is left out of all four.
    """

    occurrence: int
    one: ComparedStep
    other: ComparedStep
    shared: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    differences: frozenset[Difference]


@dataclass(frozen=True, slots=True)
class Divergence:
    """How often pairs differ in one respect: `differing` of `known`, first at `first`; the ends of 95 % of the share.

    The interval is None with fewer than two tasks.
    """

    difference: Difference
    differing: int
    known: int
    first: Pair | None
    interval: tuple[float, float] | None


def pairs_of(alignment: Alignment, line: int, like: Mapping[str, str]) -> list[Pair]:
    """The rows as pairs of the first line with another, without those that are one step that both runs share.

    `like` maps memories of the other to their counterparts.
    """
    begin = parted_after(alignment.lines[0], alignment.lines[line])
    pairs = ((row.occurrence, row.steps[0], row.steps[line]) for row in alignment.rows)
    return [
        _pair(occurrence, one, other, like)
        for occurrence, one, other in pairs
        if not begin or (one.run, one.step) != (other.run, other.step)
    ]


def divergences(pairs: Sequence[Pair]) -> list[Divergence]:
    """One entry a difference that can be known at all."""
    found = [_divergence(pairs, difference) for difference in Difference]
    return [entry for entry in found if entry.known]


def neighbours(pairs: Sequence[Pair], of: Collection[Difference], at: int) -> tuple[Pair | None, Pair | None]:
    """The nearest pairs before and after position `at` (from 0) that differ in one of `of`."""
    before = next((pair for pair in reversed(pairs[: max(at, 0)]) if pair.differences & set(of)), None)
    after = next((pair for pair in pairs[at + 1 :] if pair.differences & set(of)), None)
    return before, after


@dataclass(frozen=True, slots=True)
class UseChange:
    """How often a memory was selected in the first run and in the other."""

    memory_id: str
    one: int
    other: int


def changed_uses(pairs: Sequence[Pair], like: Mapping[str, str]) -> list[UseChange]:
    """Memories selected more or less often in the other run where both selections are known, largest change first."""
    known = [(pair.one.selected, pair.other.selected) for pair in pairs]
    both = [(mine, theirs) for mine, theirs in known if mine is not None and theirs is not None]
    one = Counter(memory_id for mine, _ in both for memory_id in mine)
    other = Counter(like.get(memory_id, memory_id) for _, theirs in both for memory_id in theirs)
    changes = [UseChange(i, one[i], other[i]) for i in sorted(one.keys() | other.keys()) if one[i] != other[i]]
    return sorted(changes, key=lambda change: -abs(change.other - change.one))


def _pair(occurrence: int, one: ComparedStep, other: ComparedStep, like: Mapping[str, str]) -> Pair:
    mine: tuple[str, ...] = ()
    theirs: tuple[str, ...] = ()
    if one.selected is not None and other.selected is not None:
        mine, theirs = one.selected, tuple(like.get(memory_id, memory_id) for memory_id in other.selected)
    differences = set()
    if mine != theirs:
        differences.add(Difference.ORDER if set(mine) == set(theirs) else Difference.MEMORIES)
    if one.answer is not None and other.answer is not None and one.answer != other.answer:
        differences.add(Difference.ANSWER)
    if one.reward is not None and other.reward is not None and one.reward != other.reward:
        differences.add(Difference.REWARD)
    return Pair(
        occurrence,
        one,
        other,
        shared=tuple(i for i in mine if i in theirs),
        added=tuple(i for i in theirs if i not in mine),
        removed=tuple(i for i in mine if i not in theirs),
        differences=frozenset(differences),
    )


def _divergence(pairs: Sequence[Pair], difference: Difference) -> Divergence:
    field = "selected" if difference in (Difference.MEMORIES, Difference.ORDER) else str(difference)
    known = [p for p in pairs if getattr(p.one, field) is not None and getattr(p.other, field) is not None]
    differing = [pair for pair in known if difference in pair.differences]
    first = differing[0] if differing else None
    return Divergence(difference, len(differing), len(known), first, _interval(known, difference))


def _interval(pairs: Sequence[Pair], difference: Difference) -> tuple[float, float] | None:
    tasks = {key: row for row, key in enumerate(dict.fromkeys((p.one.task, p.one.intent) for p in pairs))}
    if len(tasks) < 2:
        return None
    differing, steps = np.zeros(len(tasks)), np.zeros(len(tasks))
    for pair in pairs:
        task = tasks[pair.one.task, pair.one.intent]
        steps[task] += 1
        differing[task] += difference in pair.differences

    def share(counts: Floats) -> Floats:
        value: Floats = (counts @ differing) / (counts @ steps)
        return value

    low, high = percentiles(resampled(len(tasks), share))
    return float(low), float(high)
