"""Memory methods beside each other: what they ever solved, gain over no memory, forget, and cost.

Each method has a row or a panel of its own, named with whose rules it follows (paper, code or adapted). Intervals are
at 95 %.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from memrl_core.analysis.compare.methods import MethodCurve, MethodRow
from memrl_core.analysis.run.metrics import Estimate
from memrl_core.figures.palette import (
    ARM_BANDS,
    BELOW,
    CUT,
    FORGOTTEN,
    KEPT,
    LUCK_BAND,
    NEUTRAL,
    SELECTED,
    SIMILARITY,
    UTILITY,
    band,
    bare_layout,
    bars,
    curve,
    drawn,
    interval_bars,
    marks,
    plain,
    upright,
)
from memrl_core.figures.picture import Picture
from memrl_core.numerals import signed

ACROSS = 4
"""Panels in one row."""
TITLE_SIZE = 12
ROW_HEIGHT = 26
LONGEST = 34


def csr_picture(curves: Sequence[MethodCurve], luck: MethodCurve | None = None) -> Picture:
    """The share of tasks solved at least once, by epoch, a panel per arm, with the band of Pass@e without memory.

    `luck` is what as many tries without memory come to (`analysis.compare.methods.luck_curve`).
    """
    if not curves:
        return _nothing("No arm has a finished epoch")
    across = min(ACROSS, len(curves))
    down = -(-len(curves) // across)
    names = [_labelled(curve) for curve in curves]
    panel: dict[str, Any] = {}
    places = [[panel if across * row + index < len(curves) else None for index in range(across)] for row in range(down)]
    figure = make_subplots(
        rows=down, cols=across, shared_yaxes=True, subplot_titles=names, specs=places,
        horizontal_spacing=0.03, vertical_spacing=min(0.12, 0.4 / down),
    )  # fmt: skip
    for index, one in enumerate(curves):
        lines = [] if luck is None else _lines(luck, "Pass@e without memory", NEUTRAL, LUCK_BAND, "dot", index == 0)
        lines += _lines(one, "CSR", SELECTED, ARM_BANDS[0], "solid", index == 0)
        figure.add_traces(lines, rows=index // across + 1, cols=index % across + 1)
    figure.update_layout(bare_layout(height=110 + 170 * down, showlegend=True), legend={**BELOW, "y": -0.25 / down})
    figure.update_annotations(font_size=TITLE_SIZE)
    figure.update_xaxes(tick0=1, dtick=max(1, max(len(c.value) for c in curves) // 5), zeroline=False)
    figure.update_xaxes(title_text="epoch", row=down)
    figure.update_yaxes(range=[-0.02, 1.02], tickformat=".0%", zeroline=False)
    title = _csr_said(curves, luck)
    alt = f"Small panels, one per arm: CSR by epoch above or below a grey band of luck alone. {title}."
    every = [*curves, *([] if luck is None else [luck])]
    parts = [_curve_table(curve, "Pass@e" if curve is luck else "CSR") for curve in every]
    return Picture(figure, pd.concat(parts, ignore_index=True), title, alt)


def gain_picture(rows: Sequence[MethodRow]) -> Picture:
    """What each arm solves more, or less, than no memory on the same tasks with the same luck; the best on top."""
    shown = sorted((row for row in rows if row.gain.known), key=lambda row: row.gain.value)
    if not shown:
        return _nothing("Nothing was run without memory, so no arm has a gain over it")
    clear = [row.gain.low > 0 or row.gain.high < 0 for row in shown]
    looks = ((True, "beyond chance", SELECTED, "circle"), (False, "may be chance", NEUTRAL, "circle-open"))
    traces = []
    for wanted, name, colour, symbol in looks:
        members = [(index, row) for index, row in enumerate(shown) if clear[index] is wanted]
        if members:
            gains = _dots(members, lambda row: row.gain, name, colour, symbol, "%{customdata}: %{x:+.1%}")
            traces.append(gains)
    across = {"title": {"text": "share of tasks solved, minus that without memory"}, "tickformat": "+.0%"}
    chance = upright(0, color=CUT, dash="dot", width=1.5)
    figure = drawn(traces, xaxis=across, shapes=[chance], **_rows_layout(shown))
    title = _gain_said(shown)
    table = pd.DataFrame(
        [
            {"arm": row.arm, "rules of": row.badge, "gain": row.gain.value, "95 % from": row.gain.low,
             "95 % to": row.gain.high, "solved": row.success.value}
            for row in reversed(shown)
        ]
    )  # fmt: skip
    alt = f"A dot per arm with its interval, sorted; a dotted line at no gain. {title}."
    return Picture(figure, table, title, alt)


def forgetting_picture(rows: Sequence[MethodRow]) -> Picture:
    """Both published forgetting rates of each arm on one scale, sorted by A."""
    shown = sorted((row for row in rows if row.lost_of_failures.known or row.lost_of_solved.known), key=_by_a)
    if not shown:
        return _nothing("Nothing was solved before and failed later, or no task was met twice")
    placed = list(enumerate(shown))
    hover = "%{customdata}: %{x:.1%}"
    traces = [
        _dots(placed, lambda row: row.lost_of_failures, "A: of all failures", FORGOTTEN, "circle", hover, 0.14),
        _dots(placed, lambda row: row.lost_of_solved, "B: of what had been solved", KEPT, "diamond", hover, -0.14),
    ]
    for dots in traces:
        dots["hovertemplate"] = hover
    lost = "lost since the last epoch, as a share"
    across = {"title": {"text": lost}, "tickformat": ".0%", "rangemode": "tozero"}
    figure = drawn(traces, xaxis=across, **_rows_layout(shown))
    title = _forgetting_said(shown)
    table = pd.DataFrame(
        [
            {"arm": row.arm, "rules of": row.badge,
             "A, of failures": row.lost_of_failures.value, "A from": row.lost_of_failures.low,
             "A to": row.lost_of_failures.high, "B, of solved": row.lost_of_solved.value,
             "B from": row.lost_of_solved.low, "B to": row.lost_of_solved.high}
            for row in reversed(shown)
        ]
    )  # fmt: skip
    alt = f"Two marks per arm, a circle for rate A and a diamond for rate B, each with its interval. {title}."
    return Picture(figure, table, title, alt)


def cost_picture(rows: Sequence[MethodRow]) -> Picture:
    """Success beside tokens and calls of the model a task; the most successful on top."""
    if not rows:
        return _nothing("No arm has a finished step")
    shown = sorted(rows, key=lambda row: (np.nan_to_num(row.success.value, nan=-1.0), row.arm))
    places, names = np.arange(len(shown)), [_labelled(row) for row in shown]
    figure = make_subplots(
        rows=1, cols=3, shared_yaxes=True, horizontal_spacing=0.04,
        subplot_titles=("solved", "tokens a task", "calls a task"),
    )  # fmt: skip
    solved = _dots(list(enumerate(shown)), lambda row: row.success, "", SELECTED, "circle", "%{customdata}: %{x:.1%}")
    figure.add_trace(solved, row=1, col=1)
    turns = [row.calls - row.consulted for row in shown]
    parts = (
        ("tokens", [row.tokens for row in shown], CUT, "", 2, "%{x:,.0f}"),
        ("turns of the answer", turns, SIMILARITY, "", 3, "%{x:.1f} turns"),
        ("the method's own questions", [row.consulted for row in shown], UTILITY, "/", 3, "%{x:.1f} questions"),
    )
    for name, x, colour, hatch, column, hover in parts:
        look = {"orientation": "h", "showlegend": column == 3, "customdata": names}
        part = bars(x, places, name, colour, f"%{{customdata}}: {hover}", pattern=hatch, **look)
        part["marker"]["pattern"]["solidity"] = 0.3
        figure.add_trace(part, row=1, col=column)
    layout = bare_layout(**_rows_layout(shown), barmode="stack")
    figure.update_layout({**layout, "legend": {**BELOW, "y": -0.12}})
    figure.update_annotations(font_size=TITLE_SIZE)
    figure.update_xaxes(zeroline=False, rangemode="tozero")
    figure.update_xaxes(tickformat=".0%", row=1, col=1)
    title = _cost_said(shown)
    table = pd.DataFrame(
        [
            {"arm": row.arm, "rules of": row.badge, "solved": row.success.value, "tokens a task": row.tokens,
             "calls a task": row.calls, "of these own questions": row.consulted, "unparsed": row.unparsed}
            for row in reversed(shown)
        ]
    )  # fmt: skip
    alt = f"A row per arm: a dot of its success, a bar of its tokens and one of its calls. {title}."
    return Picture(figure, table, title, alt)


# --- their parts ------------------------------------------------------------------------------------------------------


def _lines(one: MethodCurve, name: str, colour: str, shade: str, dash: str, named: bool) -> list[dict[str, Any]]:
    """The band and the line of one arm; `named` in the legend."""
    epochs = np.arange(1, len(one.value) + 1)
    known = ~(np.isnan(one.low) | np.isnan(one.high))
    look = {"dash": dash, "width": 2.5, "legendgroup": name, "showlegend": named}
    hover = "epoch %{x}: %{y:.1%}"
    line = curve(epochs, one.value, name, colour, symbol="circle", size=5, hovertemplate=hover, **look)
    return [band(epochs[known], one.low[known], one.high[known], shade), line]


def _dots(
    rows: Sequence[tuple[int, MethodRow]],
    of: Callable[[MethodRow], Estimate],
    name: str,
    colour: str,
    symbol: str,
    hover: str,
    beside: float = 0.0,
) -> dict[str, Any]:
    """A mark with its interval for each (place, row), moved up by `beside`."""
    estimates = [(of(row).value, of(row).low, of(row).high) for _, row in rows]
    value, low, high = np.array(estimates, dtype=np.float64).T
    look = {"error_x": interval_bars(value, low, high, colour), "customdata": [_labelled(row) for _, row in rows]}
    return marks(value, [index + beside for index, _ in rows], name, colour, hover, symbol=symbol, size=9, **look)


def _rows_layout(shown: Sequence[MethodRow]) -> dict[str, Any]:
    ticks = {"tickvals": list(range(len(shown))), "ticktext": [_labelled(row) for row in shown]}
    axis = {**ticks, "range": [-0.6, len(shown) - 0.4], "zeroline": False, "automargin": True}
    return {"height": 130 + ROW_HEIGHT * len(shown), "showlegend": True, "yaxis": axis}


def _labelled(row: MethodRow | MethodCurve) -> str:
    return f"{plain(row.arm, LONGEST)} · {plain(row.badge)}"


def _by_a(row: MethodRow) -> tuple[float, float, str]:
    a, b = row.lost_of_failures.value, row.lost_of_solved.value
    return float(np.nan_to_num(a, nan=-1.0)), float(np.nan_to_num(b, nan=-1.0)), row.arm


def _curve_table(curve: MethodCurve, measure: str) -> pd.DataFrame:
    epochs = np.arange(1, len(curve.value) + 1)
    known = {"arm": curve.arm, "rules of": curve.badge, "measure": measure, "epoch": epochs}
    return pd.DataFrame({**known, "share": curve.value, "95 % from": curve.low, "95 % to": curve.high})


def _csr_said(curves: Sequence[MethodCurve], luck: MethodCurve | None) -> str:
    best = max(curves, key=lambda curve: float(curve.value[-1]))
    epochs = len(best.value)
    sentence = f"By epoch {epochs}, {best.arm} has solved {best.value[-1]:.0%} of the tasks at least once"
    if luck is None:
        return sentence
    more = sum(bool(curve.low[-1] > luck.high[-1]) for curve in curves)
    return (
        f"{sentence}; {epochs} tries without memory reach {luck.value[-1]:.0%}, and {more} of {_counted(len(curves))} "
        f"lie{'s' * (more == 1)} beyond their band"
    )


def _gain_said(shown: Sequence[MethodRow]) -> str:
    best, better = shown[-1], sum(row.gain.low > 0 for row in shown)
    interval = "" if np.isnan(best.gain.low) else f" (95 %: {_points(best.gain.low)} to {_points(best.gain.high)})"
    return (
        f"{better} of {_counted(len(shown))} solve{'s' * (better == 1)} more than no memory beyond chance; most: "
        f"{best.arm}, {_points(best.gain.value)} points{interval}"
    )


def _forgetting_said(shown: Sequence[MethodRow]) -> str:
    measures: tuple[tuple[str, Callable[[MethodRow], Estimate]], ...] = (
        ("A (of all failures)", lambda row: row.lost_of_failures),
        ("B (of what had been solved)", lambda row: row.lost_of_solved),
    )
    sentence, worst = [], []
    for name, of in measures:
        known = [row for row in shown if of(row).known]
        if known:
            most = max(known, key=lambda row: of(row).value)
            worst.append(most.arm)
            sentence.append(f"by {name} {most.arm} loses most, {of(most).value:.0%}")
    text = "; ".join(sentence)
    return text[:1].upper() + text[1:] + (": the two do not agree" if len(set(worst)) > 1 else "")


def _cost_said(shown: Sequence[MethodRow]) -> str:
    known = [row for row in shown if not np.isnan(row.tokens)]
    if not known:
        return "No model reported its tokens"
    most, least = max(known, key=lambda row: row.tokens), min(known, key=lambda row: row.tokens)
    return (
        f"{most.arm} takes most: {most.tokens:,.0f} tokens and {most.calls:.1f} calls a task; {least.arm} takes least: "
        f"{least.tokens:,.0f} and {least.calls:.1f}"
    )


def _points(share: float) -> str:
    return signed(100 * share, 1)


def _counted(arms: int) -> str:
    return "1 arm" if arms == 1 else f"{arms} arms"


def _nothing(title: str) -> Picture:
    return Picture(go.Figure(layout=bare_layout(height=120)), pd.DataFrame(), title, f"An empty figure. {title}.")
