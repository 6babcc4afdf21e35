"""Stability and plasticity: what is solved, kept, lost and won back, for one run or two beside each other.

An epoch in which not every task was rated (it still runs, say) is drawn hollow, and its accuracy is that of the
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

from memrl_core.analysis.run.metrics import (
    TaskState,
    chance_fell,
    cumulative_success,
    epoch_accuracy,
    failures_by_luck,
    rate,
    solved_before_failing_now,
    task_states,
)
from memrl_core.figures.palette import (
    ARM_BANDS,
    ARMS,
    BELOW,
    CLEAR,
    CUT,
    FORGOTTEN,
    GAP,
    KEPT,
    NEVER_SOLVED,
    NEWLY_SOLVED,
    RECOVERED,
    STATE_PATTERNS,
    UNLUCKY,
    Mark,
    band,
    curve,
    drawn,
    interval_bars,
    note,
    plain,
    titled,
)
from memrl_core.figures.picture import Picture
from memrl_core.retrieval import Floats

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Objects = npt.NDArray[np.object_]

DASHES = ("solid", "dash")
LONGEST_TASK = 34

# From the bottom of a bar: first what is solved, then what is not.
STATES: Mapping[int, tuple[str, str, str]] = {
    TaskState.KEPT: ("kept", KEPT, "●"),
    TaskState.RECOVERED: ("recovered", RECOVERED, "↻"),
    TaskState.NEWLY_SOLVED: ("newly solved", NEWLY_SOLVED, "+"),
    TaskState.FORGOTTEN: ("failed after success", FORGOTTEN, "×"),
    TaskState.NEVER: ("never solved", NEVER_SOLVED, ""),
}
BY_LUCK = len(TaskState)
"""Beside the states, where true chances are known: a failure after a success although the chance has not fallen."""
WITH_CHANCES: Mapping[int, tuple[str, str, str]] = {
    **STATES,
    TaskState.FORGOTTEN: ("forgotten: its chance fell", FORGOTTEN, "×"),
    BY_LUCK: ("failed by luck", UNLUCKY, "~"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """A run by epochs: `success` (epochs, tasks) is 1 solved, 0 failed, nan not attempted or not rated.

    `marks` are changes on the axis of epochs. `tasks` names the columns of `success`; without names they are numbered.
    `chance` (epochs, tasks) is the true chance that what was answered works, nan where that is luck whatever it is, as
    no memory was in the prompt; None in worlds that do not know it.
    """

    name: str
    success: Floats
    marks: tuple[Mark, ...] = ()
    tasks: tuple[str, ...] = ()
    chance: Floats | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """A run by steps: `outcomes` (steps,) is 1 solved, 0 failed, nan not rated; `marks` are changes at steps."""

    name: str
    outcomes: Floats
    marks: tuple[Mark, ...] = ()


# --- the pictures -----------------------------------------------------------------------------------------------------


def curves_picture(arms: Sequence[Arm]) -> Picture:
    """Accuracy and CSR by epoch with the gap between them hatched, a panel for each of one or two arms.

    The gap is what was solved before and fails now (`metrics.solved_before_failing_now`); it is hatched over the epochs
    in which every task was rated, where that is exact.
    """
    tables = [_curves_table(arm) for arm in arms]
    traces = [
        trace
        for panel, (arm, table) in enumerate(zip(arms, tables, strict=True))
        for trace in _curves(table, _whole(arm.success), panel)
    ]
    figure = _panels(traces, arms, _share_axis("share of tasks"), height=270)
    title = f"{_title(arms, _gap_said)}. CSR never falls, so it alone cannot show forgetting"
    alt = f"Solid lines of accuracy by epoch below dashed lines of CSR, the gap between them hatched. {title}."
    return Picture(figure, pd.concat(tables, ignore_index=True), title, alt)


def moving_accuracy_picture(arms: Sequence[Stream], window: int) -> Picture:
    """The share solved of the last `window` steps, at every step, with its band; unrated steps do not count."""
    traces, tables, sentence = [], [], []
    for index, arm in enumerate(arms):
        solved, rated = (_last(of, window) for of in (arm.outcomes == 1, ~np.isnan(arm.outcomes)))
        low, high = _interval(solved, rated)
        share = np.divide(solved, rated, out=np.full(len(rated), np.nan), where=rated > 0)
        steps, known = np.arange(1, len(share) + 1), rated > 0
        line = {"dash": DASHES[index], "width": 2.5, "hovertemplate": "step %{x}: %{y:.1%}"}
        traces += [
            band(steps[known], low[known], high[known], ARM_BANDS[index]),
            curve(steps, share, plain(arm.name), ARMS[index], **line),
        ]
        counts = {"arm": arm.name, "step": steps, "solved": solved, "of": rated}
        tables.append(pd.DataFrame({**counts, "share": share, "95 % from": low, "95 % to": high}))
        if len(share) and known[-1]:
            interval = f"95 %: {low[-1]:.0%} to {high[-1]:.0%}"
            sentence.append(f"{arm.name} solved {solved[-1]} of the last {rated[-1]} rated steps ({interval})")
    marked = [_mark_lines(arm.marks, "x", colour) for arm, colour in zip(arms, ARMS, strict=False)]
    figure = drawn(
        traces,
        height=250,
        margin={"l": 0, "r": 0, "t": 34, "b": 8},
        showlegend=True,
        legend={"orientation": "h", "yanchor": "bottom", "y": 0, "x": 1, "xanchor": "right"},
        xaxis=titled("step", rangemode="tozero"),
        yaxis=_share_axis(f"solved, last {window} steps"),
        shapes=[line for lines, _ in marked for line in lines],
        annotations=[word for _, words in marked for word in words],
    )
    title = "; ".join(sentence) or "No rated step yet"
    alt = f"Lines of the share solved over the last {window} steps, with 95 % bands. {title}."
    return Picture(figure, pd.concat(tables, ignore_index=True), title, alt)


def grid_picture(arms: Sequence[Arm]) -> Picture:
    """Every task in every epoch, a panel for each of one or two arms that meet the same tasks.

    A row is one task in all panels; the tasks that an arm solved first are at the top. What was not attempted is left
    open. A failure after a success is forgetting where the task's true chance fell and luck where it did not; where
    chances are not known it is called what it is, beside how many luck alone would give.
    """
    kinds = STATES if any(arm.chance is None for arm in arms) else WITH_CHANCES
    firsts = np.array([_first_solved(arm.success) for arm in arms])
    order = np.argsort(firsts.min(axis=0), kind="stable")
    names = [arms[0].tasks[task] if arms[0].tasks else f"task {task + 1}" for task in order]
    heatmaps, tables, sentences = [], [], []
    for panel, arm in enumerate(arms):
        states, epochs = _states(arm)[:, order].T, _epochs(arm.success)
        words = np.full(states.shape, "not attempted", dtype=object)
        codes, signs = np.full(states.shape, np.nan), np.full(states.shape, "", dtype=object)
        for code, (state, (word, _, sign)) in enumerate(kinds.items()):
            here = states == state
            codes[here], signs[here], words[here] = code, sign, word
        heatmaps.append(_heatmap(epochs, codes, signs, words, names, panel, len(arms), list(kinds.values())))
        tables.append(pd.DataFrame({"arm": arm.name, "task": names, **{f"epoch {e}": words[:, e - 1] for e in epochs}}))
        sentences.append(_kept_said(arm))
    bare = {"showgrid": False, "zeroline": False}
    rows = {"tickvals": list(range(len(names))), "ticktext": [plain(name, LONGEST_TASK) for name in names]}
    tasks = {"autorange": "reversed", **rows, "tickfont": {"size": 10}, **bare}
    figure = _panels(heatmaps, arms, tasks, bare, height=min(620, 100 + 14 * len(names)), showlegend=False)
    title = "; ".join(sentences)
    alt = f"A grid of tasks and epochs; each cell says what became of the task. {title}."
    return Picture(figure, pd.concat(tables, ignore_index=True), title, alt)


# --- their parts ------------------------------------------------------------------------------------------------------


def _panels(
    traces: Sequence[Mapping[str, Any]],
    arms: Sequence[Arm],
    up: Mapping[str, Any],
    across: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A panel per arm, side by side on the y axis `up`, with its name and its marks above."""
    width = (1 - GAP * (len(arms) - 1)) / len(arms)
    epochs = titled("epoch", tick0=1, dtick=max(1, max(len(arm.success) for arm in arms) // 10), **(across or {}))
    axes, words, lines = {}, [], []
    for panel, arm in enumerate(arms):
        left, axis = panel * (width + GAP), _in_panel(panel)["xaxis"]
        axes[axis.replace("x", "xaxis")] = {**epochs, "domain": [left, left + width], "anchor": "y"}
        name = f"<b>{plain(arm.name)}</b>"
        words.append(note(left, 1, name, xref="paper", **_ABOVE, yshift=4 + 13 * LINES))
        marked, said = _mark_lines(arm.marks, axis)
        lines += marked
        words += said
    margin = {"l": 0, "r": 0, "t": 26 + 13 * LINES, "b": 8}
    layout = {"showlegend": True, "legend": {**BELOW, "y": -0.2}, "margin": margin, **more}
    return drawn(traces, yaxis=up, annotations=words, shapes=lines, **axes, **layout)


LINES = 2
"""On so many lines above a picture stand what its marks say, so that neighbours do not run into each other."""
_ABOVE = {"yref": "paper", "xanchor": "left", "yanchor": "bottom"}


def _in_panel(panel: int) -> dict[str, str]:
    """The axes of a trace in a panel, counted from 0."""
    return {"xaxis": f"x{panel + 1 if panel else ''}", "yaxis": "y"}


def _share_axis(title: str) -> dict[str, Any]:
    """An axis from nothing to all, in percent."""
    return titled(title, range=[-0.02, 1.02], tickformat=".0%")


def _mark_lines(marks: Sequence[Mark], axis: str, colour: str = CUT) -> tuple[list[Any], list[Any]]:
    """A vertical line at every mark, and what it says above the picture."""
    line = {"type": "line", "xref": axis, "yref": "paper", "y0": 0, "y1": 1}
    look = {"color": colour, "dash": "dot", "width": 1.5}
    above = {"xref": axis, **_ABOVE, "font": {"size": 10}}
    return [{**line, "x0": mark.at, "x1": mark.at, "line": look} for mark in marks], [
        note(mark.at, 1, plain(mark.text), yshift=13 * (index % LINES), **above) for index, mark in enumerate(marks)
    ]


def _states(arm: Arm) -> npt.NDArray[np.int8]:
    """The state of every task in every epoch, with `BY_LUCK` where chances are known."""
    states = task_states(arm.success)
    if arm.chance is not None:
        states[(states == TaskState.FORGOTTEN) & ~chance_fell(arm.success, arm.chance)] = BY_LUCK
    return states


def _heatmap(
    epochs: Ints,
    codes: Floats,
    signs: Objects,
    words: Objects,
    names: Sequence[str],
    panel: int,
    panel_count: int,
    kinds: Sequence[tuple[str, str, str]],
) -> dict[str, Any]:
    """A panel of the grid; the last one has the legend."""
    legend = [f"{sign} {name}".strip() for name, _, sign in kinds]
    labels = np.array([plain(name) for name in names], dtype=object)
    # Equal steps of colour without transitions.
    scale = [[(at + end) / len(kinds), colour] for at, (_, colour, _) in enumerate(kinds) for end in (0, 1)]
    return {
        "type": "heatmap",
        "x": epochs,
        "y": np.arange(len(names)),
        "z": codes,
        "text": signs,
        "texttemplate": "%{text}",
        "customdata": words,
        "hovertext": np.repeat(labels[:, None], len(epochs), axis=1),
        "hovertemplate": "%{hovertext}, epoch %{x}: %{customdata}<extra></extra>",
        "xgap": 1,
        "ygap": 1,
        "zmin": -0.5,
        "zmax": len(kinds) - 0.5,
        "colorscale": scale,
        "showscale": panel == panel_count - 1,
        "colorbar": {"tickvals": list(range(len(kinds))), "ticktext": legend, "thickness": 14, "len": 0.8},
        **_in_panel(panel),
    }


def _first_solved(success: Floats) -> Ints:
    """The row of each task's first success, (tasks,); one more than the last for those without."""
    solved = success == 1
    found: Ints = np.where(solved.any(axis=0), (solved.cumsum(axis=0) == 0).sum(axis=0), len(solved))
    return found


def _kept_said(arm: Arm) -> str:
    ever, tasks = int((arm.success == 1).any(axis=0).sum()), arm.success.shape[1]
    failed = int((task_states(arm.success) == TaskState.FORGOTTEN).sum())
    said = f"{arm.name}: {ever} of {tasks:,} tasks were solved; after that came {failed:,} failures, "
    if arm.chance is None:
        return f"{said}where luck alone would give {failures_by_luck(arm.success):,.0f}"
    return f"{said}{int((_states(arm) == TaskState.FORGOTTEN).sum()):,} of them with a chance that had fallen"


def _curves_table(arm: Arm) -> pd.DataFrame:
    success, epochs = arm.success, _epochs(arm.success)
    low, high = _interval((success == 1).sum(axis=1), _rated(success))
    return pd.DataFrame(
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


def _curves(table: pd.DataFrame, whole: Bools, panel: int) -> list[Any]:
    """The hatched gap, CSR and accuracy of one arm."""
    epochs, accuracy, cumulative, low, high = (
        table[column].to_numpy() for column in ("epoch", "accuracy", "CSR", "95 % from", "95 % to")
    )
    shared = {**_in_panel(panel), "showlegend": panel == 0}
    look = {"shape": STATE_PATTERNS[FORGOTTEN], "fgcolor": FORGOTTEN, "fillmode": "replace", "bgcolor": CLEAR}
    gap = band(
        epochs[whole], accuracy[whole], cumulative[whole], None, name="solved before, failing now",
        fillpattern={**look, "size": 7, "solidity": 0.2}, **shared,
    )  # fmt: skip
    csr = curve(
        epochs, cumulative, "CSR: solved at least once", ARMS[panel], "epoch %{x}: CSR %{y:.1%}",
        dash="dash", width=2.5, **shared,
    )  # fmt: skip
    solved = curve(
        epochs, accuracy, "accuracy, with its 95 % interval", ARMS[panel],
        "epoch %{x}: accuracy %{y:.1%} (%{customdata})", width=2.5, size=8,
        symbol=np.where(whole, "circle", "circle-open"), customdata=table["tasks"],
        error_y=interval_bars(accuracy, low, high, ARMS[panel]), **shared,
    )  # fmt: skip
    solved["marker"]["line"] = {"width": 2, "color": ARMS[panel]}
    return [gap, csr, solved]


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
    lost, tasks = (task_states(success)[row] == TaskState.FORGOTTEN).sum(), success.shape[1]
    csr, accuracy = cumulative_success(success)[row], epoch_accuracy(success)[row]
    return f"{lost} of {tasks} tasks were solved before and fail now (CSR {csr:.0%}, accuracy {accuracy:.0%})"
