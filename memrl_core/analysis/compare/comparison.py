"""Runs compared on the same tasks: what each achieved, how far that lies from the first, and where they part.

Definitions follow arXiv 2601.03192 (success rate, cumulative success, forgetting); intervals draw whole tasks anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from memrl_core.analysis.compare.alignment import Alignment, ComparedStep, Line, Row, align, counterparts, parted_after
from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.run.metrics import Estimate, percentiles, resampled
from memrl_core.bank import MemoryBank
from memrl_core.numerals import NOTHING, fixed, percent, signed
from memrl_core.policies import settings_fields_of, with_defaults
from memrl_core.records import RunInfo
from memrl_core.retrieval import Floats


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
    """How often pairs differ in one respect: `differing` of `known`, first at `first`."""

    difference: Difference
    differing: int
    known: int
    first: Pair | None


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
    """One entry per difference that can be known at all."""
    found = [_divergence(pairs, difference) for difference in Difference]
    return [entry for entry in found if entry.known]


def neighbours(pairs: Sequence[Pair], at: int) -> tuple[Pair | None, Pair | None]:
    """The nearest pairs before and after position `at` (from 0) that differ."""
    before, after = ([pair for pair in part if pair.differences] for part in (pairs[: max(at, 0)], pairs[at + 1 :]))
    return before[-1] if before else None, after[0] if after else None


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
    return Divergence(difference, len(differing), len(known), differing[0] if differing else None)


ENOUGH_TASKS = 10
"""Below this, the interval of a bootstrap is too narrow to claim anything from."""

SAYS = {
    Difference.MEMORIES: "Other memories",
    Difference.ORDER: "Same memories, other order",
    Difference.ANSWER: "Another answer",
    Difference.REWARD: "Another reward",
}


def left_alone(alignment: Alignment) -> str:
    """Which steps have no like in the others; "" when all have."""
    counts = zip((line.name for line in alignment.lines), alignment.alone, strict=True)
    parts = [f"{count} of {name}" for name, count in counts if count]
    return f"Steps left out, because not every run met that task as often: {', '.join(parts)}." if parts else ""


def shared_past(alignment: Alignment) -> str:
    """How many steps the runs have in common because one goes on from the other; "" for none."""
    if not alignment.past:
        return ""
    steps = "step is" if alignment.past == 1 else f"{alignment.past} steps are"
    return f"The first {steps} the very same: these runs share them. The comparison begins where they part."


def frequency(entry: Divergence) -> str:
    """How often pairs differ in one respect."""
    if not entry.differing:
        return f"never in {entry.known} steps"
    return f"in {entry.differing} of {entry.known} steps ({percent(entry.differing / entry.known)})"


def pair_rows(comparison: Comparison, line: int) -> pd.DataFrame:
    """One row per pair; memories by their labels in the first run, by their whole ids where it does not know them.

    Rewards are left out where the second line was only supposed.
    """
    first, other = comparison.alignment.lines[0], comparison.alignment.lines[line]
    pairs = comparison.pairs[line - 1]
    known = any(reward is not None for pair in pairs for reward in (pair.one.reward, pair.other.reward))
    rewarded = [f"reward {line.name}" for line in (first, other)] if known and first.info.id != other.info.id else []
    before = ("step", f"step of {other.name}", "task", "time", "differs in", "shared", "added", "removed")

    def labels(ids: Sequence[str]) -> str:
        return ", ".join(memory_label(memory_id, first.info.id) for memory_id in ids)

    rows = [
        (
            pair.one.step,
            pair.other.step,
            pair.one.task,
            pair.occurrence,
            ", ".join(d for d in Difference if d in pair.differences),
            labels(pair.shared),
            labels(pair.added),
            labels(pair.removed),
            *((pair.one.reward, pair.other.reward) if rewarded else ()),
            pair.one.intent,
        )
        for pair in pairs
    ]
    return pd.DataFrame(rows, columns=[*before, *rewarded, "intent"])


def metric_table(comparison: Comparison) -> pd.DataFrame:
    """One row per metric: its value in every run, each delta with its interval, and n."""
    first, *others = comparison.names
    rows = []
    for metric in comparison.metrics:
        # Heads that have a blank cannot be the name of a run.
        row = {"what is measured": metric.name, first: _number(metric.values[0])}
        for name, value, delta in zip(others, metric.values[1:], metric.deltas, strict=True):
            row |= {name: _number(value), f"Δ {name}": _delta(delta)}
        rows.append({**row, "n (tasks)": str(metric.tasks)})
    return pd.DataFrame(rows)


def _number(value: float | None) -> str:
    return NOTHING if value is None else fixed(value)


def _delta(delta: Estimate | None) -> str:
    if delta is None:
        return NOTHING
    interval = "no interval" if np.isnan(delta.low) else f"{signed(delta.low)} to {signed(delta.high)}"
    return f"{signed(delta.value)} [{interval}]"


def finding(comparison: Comparison) -> str:
    """Who achieved more, and whether it may be chance."""
    metric = next((m for m in comparison.metrics if m.name in ("success rate", "mean reward")), None)
    if metric is None:
        return "Nobody judged the answers, so only how it was decided can be compared"
    return "; ".join(
        _said(metric, name, delta) for name, delta in zip(comparison.names[1:], metric.deltas, strict=True) if delta
    )


def _said(metric: Metric, name: str, delta: Estimate) -> str:
    if np.isnan(delta.low):
        return f"{name}: {metric.name} {signed(delta.value)}, on one task only"
    if delta.low <= 0 <= delta.high:
        return f"{name}: {metric.name} {signed(delta.value)}, which may be chance on {metric.tasks} tasks"
    if metric.tasks < ENOUGH_TASKS:
        return f"{name}: {metric.name} {signed(delta.value)}; {metric.tasks} tasks are too few to tell from chance"
    return f"{name}: {metric.name} {signed(delta.value)}, more than chance on {metric.tasks} tasks explains"


_CONDITIONS: tuple[tuple[str, Callable[[RunInfo], str], str], ...] = (
    ("environment", lambda run: run.environment, "they did not act in the same world"),
    ("set of tasks", lambda run: run.tasks or "typed by a person", "only the tasks that both met are compared"),
    ("embedder", lambda run: run.embedder, "similarities cannot be compared"),
    (
        "model",
        lambda run: f"{run.model} {str(run.model_facts.get('digest', ''))[:12]}".strip(),
        "other answers may be the model's doing",
    ),
    ("seed", lambda run: str(run.seed), "luck was not the same"),
    ("policy", lambda run: run.policy, "they did not select by the same rules"),
    (
        "environment options",
        lambda run: ", ".join(f"{k} = {v}" for k, v in sorted(run.environment_options.items())) or "none",
        "the world did not behave alike",
    ),
    (
        "model options",
        lambda run: ", ".join(f"{k} = {v}" for k, v in sorted(run.model_options.items())) or "none",
        "other answers may be the model's doing",
    ),
    (
        "reward scale",
        lambda run: f"{_text(run.settings.get('reward_failure'))} to {_text(run.settings.get('reward_success'))}",
        "rewards and q are not in the same unit",
    ),
)


def setup_warnings(alignment: Alignment) -> list[str]:
    """One sentence for each condition other than the settings that the lines do not share."""
    lines = alignment.lines
    found = []
    for line in range(1, len(lines)):
        if alignment.reordered(line):
            found.append(
                f"{lines[0].name} and {lines[line].name} met the tasks in another order: they knew other memories when "
                "they came to the same task."
            )
    for what, read, consequence in _CONDITIONS:
        values = [read(line.info) for line in lines]
        if len(set(values)) > 1:
            values_text = ", ".join(f"{line.name}: {value}" for line, value in zip(lines, values, strict=True))
            found.append(f"The runs differ in {what} ({values_text}): {consequence}.")
    starts = [_start(line.info, {other.info.id: other.info for other in lines}) for line in lines]
    if len(set(starts)) > 1 and not alignment.past:
        values_text = ", ".join(f"{line.name}: {start}" for line, start in zip(lines, starts, strict=True))
        found.append(f"They did not start from the same memory ({values_text}).")
    return found


def _start(info: RunInfo, known: Mapping[str, RunInfo]) -> str:
    if info.base is None:
        return "empty"
    base = known.get(info.base)
    if base is not None and info.base_step < base.first_step:
        return _start(base, known)
    return f"what {info.base} knew after step {info.base_step}"


def setting_differences(
    bank: MemoryBank, lines: Sequence[Line], supposed: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, tuple[str, ...]]:
    """The settings in which the lines differ over the steps that they do not share, by title, as text a line.

    One that was changed on the way is "0.5 → 0.7"; one that an older run does not have counts as its default.
    `supposed` gives what is changed in lines that were only supposed, by name.
    """
    begin = min((parted_after(lines[0], line) for line in lines[1:]), default=0)
    titles, courses = dict[str, str](), []
    for line in lines:
        own = [bank.settings(step.run, step.step) for step in line.steps if step.step > begin]
        changed = (supposed or {}).get(line.name, {})
        recorded = own or [bank.settings(line.info.id)]
        courses.append([{**with_defaults(line.info.policy, settings), **changed} for settings in recorded])
        titles |= {name: field.title or name for name, field in settings_fields_of(line.info.policy).items()}
        titles |= {name: name for settings in courses[-1] for name in settings if name not in titles}
    found = {}
    for name, title in titles.items():
        values = tuple(" → ".join(text for text, _ in groupby(_text(s.get(name)) for s in one)) for one in courses)
        if len(set(values)) > 1:
            found[title] = values
    return found


def _text(value: Any) -> str:
    return "not set" if value is None else f"{value:.15g}" if isinstance(value, float) else str(value)


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
class Metric:
    """One metric of every line; `deltas` are the lines after the first minus the first. It was measured on `tasks`.

    A value is None where the metric is not defined, as forgetting without a failure; a delta on one task has no
    interval.
    """

    name: str
    meaning: str
    tasks: int
    values: tuple[float | None, ...]
    deltas: tuple[Estimate | None, ...]


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
        None if np.isnan(delta) else Estimate(float(delta), float(low), float(high))
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
    ("follows a memory", "share of the answers that take what a memory of the prompt shows", lambda step: step.follows),
    ("right one at hand", "share of the prompts in which a memory shows the right answer", lambda step: step.at_hand),
    ("right one taken", "share of the answers that take it, where it is at hand", lambda step: step.taken),
    ("turns", "answers to the end of a task, mean", lambda step: step.turns),
    ("tokens read", "prompt tokens of all turns of a task, mean", lambda step: step.tokens_read),
    ("tokens written", "answer tokens of all turns of a task, mean", lambda step: step.tokens_written),
    ("pool size", "memories that phase A recalled, mean", lambda step: step.pool),
    ("memories given", "memories in the prompt, mean", lambda s: None if s.selected is None else len(s.selected)),
)


def _table(rows: Sequence[Row], values: Sequence[Sequence[float | None]]) -> Floats:
    """Values of the rows as (lines, tasks, occurrences); nan where there is none, or where some line has none."""
    tasks = {key: index for index, key in enumerate(dict.fromkeys((row.task, row.intent) for row in rows))}
    occurrences = {number: index for index, number in enumerate(sorted({row.occurrence for row in rows}))}
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
    tasks = {key: index for index, key in enumerate(dict.fromkeys((row.task, row.intent) for row in rows))}
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
