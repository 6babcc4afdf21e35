"""Stability and plasticity: what is solved, kept, lost and won back, for one run or two beside each other.

An epoch in which not every task was rated (it still runs, say) is drawn hollow or pale, and its accuracy is that of the
rated tasks. Intervals are Wilson's, at 95 %.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.run.metrics import (
    TaskState,
    cumulative_success,
    epoch_accuracy,
    epoch_changes,
    retention_and_gain,
    solved_before_failing_now,
    task_states,
)
from memrl_core.analysis.run.rates import rate
from memrl_core.figures.palette import (
    ARM_BANDS,
    ARMS,
    FORGOTTEN,
    KEPT,
    NEUTRAL,
    NEVER_SOLVED,
    NEWLY_SOLVED,
    RECOVERED,
    STATE_PATTERNS,
    bare_layout,
    epoch_axis,
    hatching,
    in_panel,
    interval_bars,
    panels,
    plain,
    share_axis,
    shift_marks,
    steps_of_colour,
)
from memrl_core.figures.picture import Picture

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

DASHES = ("solid", "dash")
PALE = 0.5

# From the bottom of a bar: first what is solved, then what is not.
STATES = {
    TaskState.KEPT: ("kept", KEPT, "●"),
    TaskState.RECOVERED: ("recovered", RECOVERED, "↻"),
    TaskState.NEWLY_SOLVED: ("newly solved", NEWLY_SOLVED, "+"),
    TaskState.FORGOTTEN: ("forgotten", FORGOTTEN, "×"),
    TaskState.NEVER: ("never solved", NEVER_SOLVED, ""),
}


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """A run by epochs: `success` (epochs, tasks) is 1 solved, 0 failed, nan not attempted or not rated.

    `shifts` are places on the axis of epochs where the world changed; 3.5 lies between epochs 3 and 4. `tasks` names
    the columns of `success`; without names they are numbered.
    """

    name: str
    success: Floats
    shifts: tuple[float, ...] = ()
    tasks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """A run by steps: `outcomes` (steps,) is 1 solved, 0 failed, nan not rated; `shifts` are steps."""

    name: str
    outcomes: Floats
    shifts: tuple[float, ...] = ()


# --- the pictures -----------------------------------------------------------------------------------------------------


def curves_picture(arms: Sequence[Arm], baseline: tuple[str, Floats] | None = None) -> Picture:
    """Accuracy and CSR by epoch with the gap between them hatched, a panel for each of one or two arms.

    The gap is what was solved before and fails now (`metrics.solved_before_failing_now`); it is hatched over the epochs
    in which every task was rated, where that is exact. `baseline` is a named line (E,) to hold CSR against, such as
    Pass@e of an agent without memory.
    """
    traces, tables = [], []
    for panel, arm in enumerate(arms):
        table = _curves_table(arm, baseline)
        traces += _curves(table, _whole(arm.success), panel)
        tables.append(table)
        if baseline is not None:
            line = {"x": np.arange(1, len(baseline[1]) + 1), "y": baseline[1], "name": plain(baseline[0])}
            look = {"mode": "lines", "line": {"color": NEUTRAL, "dash": "dot"}, "showlegend": panel == 0}
            traces.append(go.Scatter(**line, **look, **in_panel(panel), hovertemplate="epoch %{x}: %{y:.1%}"))
    layout = _panels(arms, share_axis("share of tasks"))
    title = f"{_title(arms, _gap_said)}. CSR never falls, so it alone cannot show forgetting"
    alt = f"Solid lines of accuracy by epoch below dashed lines of CSR, the gap between them hatched. {title}."
    return Picture(go.Figure(traces, layout), pd.concat(tables, ignore_index=True), title, alt)


def moving_accuracy_picture(arms: Sequence[Stream], window: int) -> Picture:
    """The share solved of the last `window` steps, at every step, with its band; unrated steps do not count."""
    traces, tables, sentence = [], [], []
    for place, arm in enumerate(arms):
        solved, rated = (_last(of, window) for of in (arm.outcomes == 1, ~np.isnan(arm.outcomes)))
        low, high = _interval(solved, rated)
        share = np.divide(solved, rated, out=np.full(len(rated), np.nan), where=rated > 0)
        steps, known = np.arange(1, len(share) + 1), rated > 0
        band = _around(steps[known], low[known], high[known])
        line, hover = {"color": ARMS[place], "dash": DASHES[place], "width": 2.5}, "step %{x}: %{y:.1%}"
        traces += [
            go.Scatter(**band, fillcolor=ARM_BANDS[place], showlegend=False),
            go.Scatter(x=steps, y=share, mode="lines", line=line, name=plain(arm.name), hovertemplate=hover),
        ]
        counts = {"arm": arm.name, "step": steps, "solved": solved, "of": rated}
        tables.append(pd.DataFrame({**counts, "share": share, "95 % from": low, "95 % to": high}))
        if len(share) and known[-1]:
            interval = f"95 %: {low[-1]:.0%} to {high[-1]:.0%}"
            sentence.append(f"{arm.name} solved {solved[-1]} of the last {rated[-1]} rated steps ({interval})")
    layout = bare_layout(
        height=300,
        showlegend=True,
        xaxis={"title": {"text": "step"}, "rangemode": "tozero", "zeroline": False},
        yaxis=share_axis(f"solved, last {window} steps"),
        shapes=shift_marks(sorted({shift for arm in arms for shift in arm.shifts}), "x"),
    )
    title = "; ".join(sentence) or "No rated step yet"
    alt = f"Lines of the share solved over the last {window} steps, with 95 % bands. {title}."
    return Picture(go.Figure(traces, layout), pd.concat(tables, ignore_index=True), title, alt)


def changes_picture(arms: Sequence[Arm]) -> Picture:
    """A bar an epoch, stacked from what became of its tasks, a panel for each of one or two arms."""
    traces, tables = [], []
    for panel, arm in enumerate(arms):
        epochs, counts = _epochs(arm.success), _state_counts(arm.success)
        opacity = np.where(_whole(arm.success), 1.0, PALE)
        for name, colour, _ in STATES.values():
            pattern = {"shape": STATE_PATTERNS[colour], "size": 7, "solidity": 0.25}
            marker = {"color": colour, "opacity": opacity, "line": {"color": NEUTRAL, "width": 1}, "pattern": pattern}
            bar = {"x": epochs, "y": counts[name], "name": name, "legendgroup": name, "showlegend": panel == 0}
            hover = f"epoch %{{x}}: %{{y}} {name}<extra></extra>"
            traces.append(go.Bar(**bar, **in_panel(panel), marker=marker, hovertemplate=hover))
        tables.append(pd.DataFrame({"arm": arm.name, "epoch": epochs, "tasks": _rated_said(arm.success), **counts}))
    axis = {"title": {"text": "tasks"}, "zeroline": False, "rangemode": "tozero"}
    layout = _panels(arms, axis, barmode="stack", bargap=0.15)
    title = _title(arms, _changes_said)
    alt = f"A stacked bar an epoch: kept, recovered, newly solved, forgotten and never solved tasks. {title}."
    return Picture(go.Figure(traces, layout), pd.concat(tables, ignore_index=True), title, alt)


def grid_picture(arm: Arm) -> Picture:
    """Every task in every epoch, the first solved at the top; what was not attempted is left open."""
    states, solved, epochs = task_states(arm.success), arm.success == 1, _epochs(arm.success)
    first = np.where(solved.any(axis=0), (solved.cumsum(axis=0) == 0).sum(axis=0), len(solved))
    order = np.argsort(first, kind="stable")
    names = [arm.tasks[task] if arm.tasks else f"task {task + 1}" for task in order]
    shown = states[:, order].T
    codes, marks = np.full(shown.shape, np.nan), np.full(shown.shape, "", dtype=object)
    words = np.full(shown.shape, "not attempted", dtype=object)
    for code, (state, (name, _, mark)) in enumerate(STATES.items()):
        here = shown == state
        codes[here], marks[here], words[here] = code, mark, name
    labels = np.array([plain(name) for name in names], dtype=object)
    legend = [f"{mark} {name}".strip() for name, _, mark in STATES.values()]
    heatmap = go.Heatmap(
        x=epochs,
        z=codes,
        text=marks,
        texttemplate="%{text}",
        customdata=words,
        hovertext=np.repeat(labels[:, None], len(epochs), axis=1),
        hovertemplate="%{hovertext}, epoch %{x}: %{customdata}<extra></extra>",
        xgap=1,
        ygap=1,
        zmin=-0.5,
        zmax=len(STATES) - 0.5,
        colorscale=steps_of_colour([colour for _, colour, _ in STATES.values()]),
        colorbar={"tickvals": list(range(len(STATES))), "ticktext": legend, "thickness": 14, "len": 0.8},
    )
    bare = {"showgrid": False, "zeroline": False}
    tasks = {"title": {"text": "tasks, first solved on top"}, "autorange": "reversed", "showticklabels": False, **bare}
    layout = bare_layout(
        height=min(620, 120 + 14 * len(names)),
        xaxis={**epoch_axis(len(epochs)), **bare},
        yaxis=tasks,
        shapes=shift_marks(arm.shifts, "x"),
    )
    kinds = (solved, states == TaskState.FORGOTTEN, states == TaskState.RECOVERED)
    ever, lost, back = (int(found.any(axis=0).sum()) for found in kinds)
    title = f"{arm.name}: {ever} of {len(names):,} tasks were solved; {lost} of these were lost later, {back} won back"
    alt = f"A grid of tasks and epochs; each cell says what became of the task. {title}."
    table = pd.DataFrame({"task": names, **{f"epoch {epoch}": words[:, epoch - 1] for epoch in epochs}})
    return Picture(go.Figure(heatmap, layout), table, title, alt)


def retention_gain_picture(arms: Sequence[Arm]) -> Picture:
    """Each arm's way through stability (x: solved and solved again) and plasticity (y: failed and solved now)."""
    traces, tables, sentence = [], [], []
    for place, arm in enumerate(arms):
        table, whole = _retention_table(arm), _whole(arm.success)[1:]
        known = (table["retention"].notna() & table["gain"].notna()).to_numpy()
        tables.append(table)
        traces.append(_trail(table[known], whole[known], arm.name, place))
        if known.any():
            last = table[known].iloc[-1]
            partly = "" if whole[known][-1] else f" ({last['tasks']})"
            sentence.append(
                f"{arm.name}, epoch {last['epoch']}{partly}: {last['retention']:.0%} of what the epoch before solved "
                f"was solved again, and {last['gain']:.0%} of what it failed was solved"
            )
    best = {"x": 1, "y": 1, "xanchor": "right", "yanchor": "top", "showarrow": False}
    layout = bare_layout(
        height=380,
        showlegend=True,
        xaxis=share_axis("retention: solved again"),
        yaxis=share_axis("gain: failed before, solved now"),
        annotations=[{**best, "text": "better: keeps and learns ↗"}],
    )
    title = "; ".join(sentence) or "No epoch follows one that both solved and failed tasks: no retention and gain yet"
    alt = f"Trails of gain against retention, the last epoch a star with its intervals; top right is good. {title}."
    return Picture(go.Figure(traces, layout), pd.concat(tables, ignore_index=True), title, alt)


# --- their parts ------------------------------------------------------------------------------------------------------


def _panels(arms: Sequence[Arm], up: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    across = epoch_axis(max(len(arm.success) for arm in arms))
    return panels([arm.name for arm in arms], [arm.shifts for arm in arms], across, up, **more)


def _curves_table(arm: Arm, baseline: tuple[str, Floats] | None) -> pd.DataFrame:
    success, epochs = arm.success, _epochs(arm.success)
    low, high = _interval((success == 1).sum(axis=1), _rated(success))
    table = pd.DataFrame(
        {
            "arm": arm.name,
            "epoch": epochs,
            "tasks": _rated_said(success),
            "accuracy": epoch_accuracy(success),
            "95 % from": low,
            "95 % to": high,
            "CSR": cumulative_success(success),
            "solved before, failing now": solved_before_failing_now(success),
        }
    )
    if baseline is not None:
        name, line = baseline
        table[f"baseline: {name}"] = [line[epoch - 1] if epoch <= len(line) else np.nan for epoch in epochs]
    return table


def _curves(table: pd.DataFrame, whole: Bools, panel: int) -> list[Any]:
    """The hatched gap, CSR and accuracy of one arm."""
    epochs, accuracy, cumulative, low, high = (
        table[column].to_numpy() for column in ("epoch", "accuracy", "CSR", "95 % from", "95 % to")
    )
    gap = _around(epochs[whole], accuracy[whole], cumulative[whole])
    shared = {**in_panel(panel), "showlegend": panel == 0}
    symbols = np.where(whole, "circle", "circle-open")
    return [
        go.Scatter(**gap, fillpattern=hatching(FORGOTTEN), name="solved before, failing now", **shared),
        go.Scatter(
            x=epochs,
            y=cumulative,
            mode="lines",
            line={"color": ARMS[panel], "dash": "dash", "width": 2.5},
            name="CSR: solved at least once",
            hovertemplate="epoch %{x}: CSR %{y:.1%}<extra></extra>",
            **shared,
        ),
        go.Scatter(
            x=epochs,
            y=accuracy,
            mode="lines+markers",
            line={"color": ARMS[panel], "width": 2.5},
            marker={"size": 8, "symbol": symbols, "line": {"width": 2, "color": ARMS[panel]}},
            error_y=interval_bars(accuracy, low, high, ARMS[panel]),
            name="accuracy, with its 95 % interval",
            customdata=table["tasks"],
            hovertemplate="epoch %{x}: accuracy %{y:.1%} (%{customdata})<extra></extra>",
            **shared,
        ),
    ]


def _retention_table(arm: Arm) -> pd.DataFrame:
    success = arm.success
    before, now = success[:-1], success[1:]
    columns: dict[str, Any] = {"arm": arm.name, "epoch": _epochs(success)[1:], "tasks": _rated_said(success)[1:]}
    for past, name, share in zip((1, 0), ("retention", "gain"), retention_and_gain(success).T, strict=True):
        solved, rated = (((before == past) & of).sum(axis=1) for of in (now == 1, ~np.isnan(now)))
        low, high = _interval(solved, rated)
        columns |= {name: share, f"{name}, 95 % from": low, f"{name}, 95 % to": high}
    return pd.DataFrame(columns)


def _trail(table: pd.DataFrame, whole: Bools, name: str, place: int) -> Any:
    """One line through the epochs; the last is a star with its intervals."""
    ends = np.arange(len(table)) == len(table) - 1
    symbols = [("star" if end else "circle") + ("" if full else "-open") for end, full in zip(ends, whole, strict=True)]
    bars = {}
    for axis, share in (("error_x", "retention"), ("error_y", "gain")):
        low, high = (np.where(ends, table[f"{share}, 95 % {end}"], np.nan) for end in ("from", "to"))
        bars[axis] = interval_bars(table[share].to_numpy(), low, high, ARMS[place])
    return go.Scatter(
        x=table["retention"],
        y=table["gain"],
        mode="lines+markers",
        name=plain(name),
        line={"color": ARMS[place], "dash": DASHES[place], "width": 1.5},
        marker={"size": np.where(ends, 15, 8), "symbol": symbols},
        customdata=table["epoch"],
        hovertemplate="epoch %{customdata}: retention %{x:.1%}, gain %{y:.1%}",
        **bars,
    )


def _around(x: Ints, low: Floats, high: Floats) -> dict[str, Any]:
    """The outline of the area between two lines, without a line of its own."""
    outline = {"x": np.concatenate([x, x[::-1]]), "y": np.concatenate([high, low[::-1]])}
    return {**outline, "mode": "lines", "line": {"width": 0}, "fill": "toself", "hoverinfo": "skip"}


# --- numbers and words ------------------------------------------------------------------------------------------------


def _epochs(success: Floats) -> Ints:
    return np.arange(1, len(success) + 1)


def _rated(success: Floats) -> Ints:
    counts: Ints = (~np.isnan(success)).sum(axis=1)
    return counts


def _whole(success: Floats) -> Bools:
    """Whether every task was rated, (epochs,)."""
    return np.equal(_rated(success), success.shape[1])


def _rated_said(success: Floats) -> list[str]:
    return [f"{rated} of {success.shape[1]} tasks" for rated in _rated(success)]


def _state_counts(success: Floats) -> dict[str, Ints]:
    counted = epoch_changes(success)
    return {name: getattr(counted, state.name.lower()) for state, (name, _, _) in STATES.items()}


def _last(happened: Bools, window: int) -> Ints:
    """How often it happened in the last `window` steps, at every step (steps,)."""
    so_far: Ints = np.cumsum(happened, dtype=np.int64)
    so_far[window:] -= so_far[:-window].copy()
    return so_far


def _interval(solved: Ints, rated: Ints) -> tuple[Floats, Floats]:
    """The interval (low, high) of solved / rated, (n,) each; nan where nothing was rated."""
    ends = [_ends(won, of) for won, of in zip(solved.tolist(), rated.tolist(), strict=True)]
    low, high = np.array(ends, dtype=np.float64).reshape(-1, 2).T
    return low, high


# A picture that is drawn after every step asks for the same few intervals again and again.
@lru_cache(maxsize=65_536)
def _ends(solved: int, rated: int) -> tuple[float | None, float | None]:
    found = rate(["success"] * solved + ["failure"] * (rated - solved))
    return found.low, found.high


def _title(arms: Sequence[Arm], sentence: Callable[[Floats, int], str]) -> str:
    """What is `said` of the last whole epoch of each arm, or of the last begun where none is whole."""
    parts = []
    for arm in arms:
        rows = np.flatnonzero(_whole(arm.success) & (_rated(arm.success) > 0))
        begun = np.flatnonzero(_rated(arm.success))
        if not len(begun):
            parts.append(f"{arm.name}: no rated task yet")
            continue
        row = int(rows[-1] if len(rows) else begun[-1])
        partly = "" if len(rows) else f" ({_rated_said(arm.success)[row]})"
        parts.append(f"{arm.name}, epoch {row + 1}{partly}: {sentence(arm.success, row)}")
    return "; ".join(parts)


def _gap_said(success: Floats, row: int) -> str:
    lost, tasks = _state_counts(success)["forgotten"][row], success.shape[1]
    csr, accuracy = cumulative_success(success)[row], epoch_accuracy(success)[row]
    return f"{lost} of {tasks} tasks were solved before and fail now (CSR {csr:.0%}, accuracy {accuracy:.0%})"


def _changes_said(success: Floats, row: int) -> str:
    return ", ".join(f"{counts[row]} {name}" for name, counts in _state_counts(success).items())
