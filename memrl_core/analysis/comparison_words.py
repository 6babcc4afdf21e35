"""A comparison as tables and sentences, for the screen and for reports."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from memrl_core.analysis.alignment import Alignment
from memrl_core.analysis.comparison import Comparison, Delta, Metric
from memrl_core.analysis.divergence import Difference, Divergence
from memrl_core.analysis.labels import memory_label
from memrl_core.numerals import signed

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
    within = f", 95 % {entry.interval[0]:.3f} to {entry.interval[1]:.3f}" if entry.interval else ""
    return f"in {entry.differing} of {entry.known} steps ({entry.differing / entry.known:.3f}{within})"


def pair_rows(comparison: Comparison, line: int) -> pd.DataFrame:
    """One row a pair; memories by their labels in the first run, by their whole ids where it does not know them.

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
    """One row a metric: its value in every run, each delta with its interval, and n."""
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
    return "–" if value is None else f"{value:,.3f}".replace("-", "−")


def _delta(delta: Delta | None) -> str:
    if delta is None:
        return "–"
    interval = "no interval" if delta.interval is None else " to ".join(signed(end) for end in delta.interval)
    return f"{signed(delta.value)} [{interval}]"


def finding(comparison: Comparison) -> str:
    """Who achieved more, and whether it may be chance."""
    metric = next((m for m in comparison.metrics if m.name in ("success rate", "mean reward")), None)
    if metric is None:
        return "Nobody judged the answers, so only how it was decided can be compared"
    return "; ".join(
        _said(metric, name, delta) for name, delta in zip(comparison.names[1:], metric.deltas, strict=True) if delta
    )


def _said(metric: Metric, name: str, delta: Delta) -> str:
    if delta.interval is None:
        return f"{name}: {metric.name} {signed(delta.value)}, on one task only"
    low, high = delta.interval
    if low <= 0 <= high:
        return f"{name}: {metric.name} {signed(delta.value)}, which may be chance on {metric.tasks} tasks"
    if metric.tasks < ENOUGH_TASKS:
        return f"{name}: {metric.name} {signed(delta.value)}; {metric.tasks} tasks are too few to tell from chance"
    return f"{name}: {metric.name} {signed(delta.value)}, more than chance on {metric.tasks} tasks explains"
