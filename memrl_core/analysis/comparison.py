"""Runs compared on the same tasks: what each achieved, how far that lies from the first, and where they part.

Definitions follow arXiv 2601.03192 (success rate, cumulative success, forgetting); intervals draw whole tasks anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memrl_core.analysis.alignment import Alignment, ComparedStep, Line, Row, align, counterparts
from memrl_core.analysis.bootstrap import Floats, percentiles, resampled
from memrl_core.analysis.divergence import Pair, pairs_of
from memrl_core.bank import MemoryBank

POINTS = 400


@dataclass(frozen=True, slots=True)
class Comparison:
    """Lines in lockstep. `likes` and `pairs` have one entry for every line after the first.

    `likes` maps memories that only that line knows to their counterparts in the first.
    """

    alignment: Alignment
    metrics: tuple[Metric, ...]
    rewards: CumulativeReward | None
    likes: tuple[Mapping[str, str], ...]
    pairs: tuple[tuple[Pair, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the lines."""
        return tuple(line.name for line in self.alignment.lines)


def compare(bank: MemoryBank, lines: Sequence[Line]) -> Comparison:
    """Everything there is to say of two or more lines of one bank. Raises `InputError` as `align` does."""
    alignment = align(lines)
    likes = tuple(counterparts(bank, alignment, line) for line in range(1, len(lines)))
    return Comparison(
        alignment,
        tuple(metrics(alignment)),
        cumulative_reward(alignment),
        likes,
        tuple(tuple(pairs_of(alignment, line, like)) for line, like in enumerate(likes, start=1)),
    )


@dataclass(frozen=True, slots=True)
class Delta:
    """A run's metric minus the first run's, and the ends of the middle 95 % of its draws (None for under two tasks)."""

    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of every line; `deltas` belong to the lines after the first. `tasks` is how many it was measured on.

    A value is None where the metric is not defined, as forgetting without a failure.
    """

    name: str
    meaning: str
    tasks: int
    values: tuple[float | None, ...]
    deltas: tuple[Delta | None, ...]


@dataclass(frozen=True, slots=True)
class _Ratio:
    """A metric as the mean over groups of sum(numerator) / sum(denominator): (lines, tasks, groups) and (...)."""

    name: str
    meaning: str
    numerator: Floats
    denominator: Floats

    def of(self, counts: Floats) -> Floats:
        """The metric of every line when each task counts `counts` (b, tasks) times: (b, lines); nan where undefined."""
        above = np.tensordot(counts, self.numerator, axes=(1, 1))
        below = np.tensordot(counts, self.denominator, axes=(1, 1))
        defined = below > 0
        ratios = np.divide(above, below, out=np.zeros_like(above), where=defined)
        groups = defined.sum(axis=2)
        means: Floats = np.divide(ratios.sum(axis=2), groups, out=np.full(groups.shape, np.nan), where=groups > 0)
        return means


def metrics(alignment: Alignment) -> list[Metric]:
    """All metrics that are defined for some line on the rows of an alignment."""
    if not alignment.rows:
        return []
    return [measured for ratio in _ratios(alignment.rows) if (measured := _measured(ratio)) is not None]


def _measured(ratio: _Ratio) -> Metric | None:
    tasks = ratio.numerator.shape[1]
    values = ratio.of(np.ones((1, tasks)))[0]
    if np.isnan(values).all():
        return None
    counted = int((ratio.denominator.sum(axis=(0, 2)) > 0).sum())
    drawn = resampled(tasks, ratio.of) if counted > 1 else np.full((1, len(values)), np.nan)
    ends = percentiles(drawn[:, 1:] - drawn[:, :1])
    deltas = [
        Delta(float(delta), None if np.isnan(low) else (float(low), float(high))) if not np.isnan(delta) else None
        for delta, low, high in zip(values[1:] - values[0], *ends, strict=True)
    ]
    known = [None if np.isnan(value) else float(value) for value in values]
    return Metric(ratio.name, ratio.meaning, counted, tuple(known), tuple(deltas))


def _ratios(rows: Sequence[Row]) -> list[_Ratio]:
    won = _table(rows, [[None if s.outcome is None else float(s.outcome == "success") for s in r.steps] for r in rows])
    found = [_mean("success rate", "successes / rated steps", won)]
    if won.shape[2] > 1:
        found += [_cumulative(won), *_last_epoch(won), *_forgetting(won)]
    for name, meaning, read in _MEANS:
        found.append(_mean(name, meaning, _table(rows, [[read(step) for step in row.steps] for row in rows])))
    return found


_MEANS: tuple[tuple[str, str, Callable[[ComparedStep], float | None]], ...] = (
    ("mean reward", "of the rewards that count now", lambda step: step.reward),
    ("valid answers", "share of a task's answers that were among the lines offered, mean", lambda step: step.valid),
    ("turns", "answers to the end of a task, mean", lambda step: step.turns),
    ("tokens read", "prompt tokens of all turns of a task, mean", lambda step: step.tokens_read),
    ("tokens written", "answer tokens of all turns of a task, mean", lambda step: step.tokens_written),
    ("pool size", "memories that phase A recalled, mean", lambda step: step.pool),
    ("memories given", "memories in the prompt, mean", lambda s: None if s.selected is None else len(s.selected)),
)


def _table(rows: Sequence[Row], values: Sequence[Sequence[float | None]]) -> Floats:
    """Values of the rows as (lines, tasks, occurrences); nan where there is none, or where some line has none."""
    tasks = {key: place for place, key in enumerate(dict.fromkeys((row.task, row.intent) for row in rows))}
    occurrences = {number: place for place, number in enumerate(sorted({row.occurrence for row in rows}))}
    table = np.full((len(rows[0].steps), len(tasks), len(occurrences)), np.nan)
    for row, of_lines in zip(rows, values, strict=True):
        if None not in of_lines:
            table[:, tasks[row.task, row.intent], occurrences[row.occurrence]] = of_lines
    return table


def _mean(name: str, meaning: str, values: Floats) -> _Ratio:
    """The mean over all known values; tasks without one are not drawn either."""
    values = values[:, ~np.isnan(values).all(axis=(0, 2))]
    known = ~np.isnan(values)
    above = np.nansum(values, axis=2, keepdims=True)
    return _Ratio(name, meaning, above, known.sum(axis=2, keepdims=True).astype(float))


def _cumulative(won: Floats) -> _Ratio:
    won = won[:, ~np.isnan(won).all(axis=(0, 2))]
    known = ~np.isnan(won)
    ever = (known & (np.nan_to_num(won) > 0)).any(axis=2, keepdims=True).astype(float)
    met = known.any(axis=2, keepdims=True).astype(float)
    return _Ratio("cumulative success (CSR)", "tasks solved at least once / tasks; never falls", ever, met)


def _last_epoch(won: Floats) -> list[_Ratio]:
    """The success rate of the newest epoch that has every task."""
    complete = np.flatnonzero((~np.isnan(won)).all(axis=(0, 1)))
    if not complete.size:
        return []
    last = won[:, :, complete[-1] : complete[-1] + 1]
    return [_mean("last epoch", "success rate of the newest epoch that has all tasks", last)]


def _forgetting(won: Floats) -> list[_Ratio]:
    before, now = won[:, :, :-1], won[:, :, 1:]
    known = ~np.isnan(before) & ~np.isnan(now)
    lost = (known & (before == 1) & (now == 0)).astype(float)
    return [
        _Ratio(
            "forgetting A", "failures that succeeded an epoch before / failures; mean over epochs", lost,
            (known & (now == 0)).astype(float),
        ),
        _Ratio(
            "forgetting B", "failures that succeeded an epoch before / successes then; mean over epochs", lost,
            (known & (before == 1)).astype(float),
        ),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class CumulativeReward:
    """Rewards of `tasks` tasks added up over the rows, at `positions` (p,) of them (counted from 1).

    `totals` (lines, p); `differences`, `low` and `high` (lines - 1, p) against the first line, with the ends of 95 % of
    the draws (nan for under two tasks). Rows whose reward is not known in every line add nothing.
    """

    tasks: int
    positions: npt.NDArray[np.int64]
    totals: Floats
    differences: Floats
    low: Floats
    high: Floats


def cumulative_reward(alignment: Alignment) -> CumulativeReward | None:
    """The cumulative reward of every line; None when no row has a reward in all lines."""
    rows = [row for row in alignment.rows if all(step.reward is not None for step in row.steps)]
    if not rows:
        return None
    rewards = np.array([[step.reward for step in row.steps] for row in rows], dtype=float).T
    positions = np.unique(np.linspace(1, len(rows), min(POINTS, len(rows))).round().astype(np.int64))
    totals = rewards.cumsum(axis=1)[:, positions - 1]
    tasks = {key: place for place, key in enumerate(dict.fromkeys((row.task, row.intent) for row in rows))}
    task = np.array([tasks[row.task, row.intent] for row in rows])
    gained = rewards[1:] - rewards[0]
    ends = np.full((2, len(gained), len(positions)), np.nan)
    if len(tasks) > 1:
        sums = np.hstack([_running_sums(of_line, task, positions) for of_line in gained])
        ends = percentiles(resampled(len(tasks), lambda counts: counts @ sums)).reshape(ends.shape)
    return CumulativeReward(len(tasks), positions, totals, totals[1:] - totals[0], ends[0], ends[1])


def _running_sums(gained: Floats, task: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]) -> Floats:
    """What each task has added up to at the positions (tasks, p), from one value a row (n,) and its task (n,)."""
    part = np.searchsorted(positions, np.arange(1, len(gained) + 1))
    sums = np.zeros((task.max() + 1, len(positions)))
    np.add.at(sums, (task, part), gained)
    running: Floats = sums.cumsum(axis=1)
    return running
