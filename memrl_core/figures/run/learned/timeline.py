"""When a method gave memory to the model, and when it kept it back: a mark each time that memory was asked."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.run.learned.deciding import GIVEN, NONE_LEFT, NOTHING, PRUNED, SILENT
from memrl_core.figures.palette import CUT, ENTERED, LEFT, LEFT_OUT, SELECTED, UTILITY, bare_layout, row_axis
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.learned.lines import mark_size, step_axis
from memrl_core.figures.text import plain

LOOKS = {
    GIVEN: ("circle", SELECTED),
    PRUNED: ("diamond", ENTERED),
    NONE_LEFT: ("x", LEFT),
    SILENT: ("square-open", UTILITY),
    NOTHING: ("circle-open", LEFT_OUT),
}
OUTCOMES = {"success": "▲", "failure": "▼", "unrated": "○"}
ROW_HEIGHT = 40
TURN = 0.06
"""Of a step's width by which the mark of a later turn is moved to the right."""
ENDED = "the step ended"


def timeline_picture(became: pd.DataFrame, words: Mapping[str, str], asked_for: int) -> Picture:
    """A row for each way that it can go, a mark each time; below them how each step ended.

    `became` is `analysis.learned.deciding.what_became`, `words` names its ways in the terms of the method, in the order
    of the rows. `asked_for` is the step looked at, which is marked.
    """
    figure, size = go.Figure(), mark_size(became["step"])
    for what, name in words.items():
        rows = became[became["what"] == what]
        symbol, colour = LOOKS[what]
        figure.add_scatter(
            x=rows["step"] + rows["turn"] * TURN,
            y=[name] * len(rows),
            mode="markers",
            name=name,
            showlegend=False,
            marker={
                "symbol": symbol,
                "color": colour,
                "opacity": 1,
                "size": [max(4, size // 2) if turn else size for turn in rows["turn"]],
                "line": {"color": colour, "width": 2},
            },
            customdata=[_hover(row) for row in rows.to_dict("records")],
            hovertemplate="%{customdata}<extra></extra>",
        )
    ends = became.drop_duplicates("step")
    figure.add_scatter(
        x=ends["step"],
        y=[ENDED] * len(ends),
        mode="text",
        text=[OUTCOMES.get(outcome, "") for outcome in ends["outcome"]],
        customdata=ends["outcome"],
        hovertemplate="step %{x}: %{customdata}<extra></extra>",
        showlegend=False,
    )
    rows = [*words.values(), ENDED]
    figure.add_vline(x=asked_for, line={"color": CUT, "width": 1, "dash": "dot"})
    figure.update_layout(bare_layout(height=70 + ROW_HEIGHT * len(rows)))
    if len(became):
        figure.update_xaxes(step_axis(int(became["step"].min()), int(became["step"].max())))
    figure.update_yaxes(row_axis(rows))
    title = _title(became, words)
    table = became.assign(what=[words.get(what, what) for what in became["what"]])
    return Picture(figure, table, title, f"Marks by step in a row for each way that it went. {title}.")


def _hover(row: Mapping[Hashable, Any]) -> str:
    turn = f", turn {row['turn']}" if row["turn"] else ""
    return f"step {row['step']}{turn}: {row['given']} of {row['recalled']} given<br>{plain(row['why'], 140)}"


def _title(became: pd.DataFrame, words: Mapping[str, str]) -> str:
    if became.empty:
        return "Memory was not asked in any step that can be looked at"
    counts = became["what"].value_counts()
    counted = " · ".join(f"{name}: {counts[what]}" for what, name in words.items() if what in counts)
    return f"Memory was asked {len(became):,} times — {counted}"
