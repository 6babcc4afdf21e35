"""Rememberer's actions in a state: their values, how often they were taken, and the advice made of them."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.run.learned.values import KnownAction, KnownState
from memrl_core.figures.palette import LEFT_OUT, NEUTRAL, SELECTED, UTILITY, bare_layout, row_axis
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.learned.lines import distinct
from memrl_core.figures.text import plain

LOOKS = {
    "encouraged": (SELECTED, "▲ encouraged"),
    "discouraged": (UTILITY, "▼ discouraged"),
    "": (LEFT_OUT, "no advice"),
}
ROW_HEIGHT = 30


def actions_picture(state: KnownState) -> Picture:
    """A bar an action of a state, as long as its learned value; what the advice has invented is hatched and said so."""
    labels = distinct([_label(action) for action in state.actions])
    figure = go.Figure()
    for advice, (colour, name) in LOOKS.items():
        shown = [
            (label, action) for label, action in zip(labels, state.actions, strict=True) if action.advice == advice
        ]
        if not shown:
            continue
        figure.add_bar(
            orientation="h",
            name=name,
            x=[action.q for _, action in shown],
            y=[label for label, _ in shown],
            marker={
                "color": colour,
                "pattern": {"shape": ["x" if action.invented else "" for _, action in shown]},
                "line": {"color": NEUTRAL, "width": 1},
            },
            hovertemplate="%{y}: Q %{x:.3f}<extra></extra>",
        )
    reach = max([0.1, *(abs(action.q) for action in state.actions)])
    below = min([0.0, *(action.q for action in state.actions)])
    figure.add_scatter(
        x=[max(0.0, action.q) for action in state.actions],
        y=labels,
        mode="text",
        text=[_beside(action) for action in state.actions],
        textposition="middle right",
        cliponaxis=False,
        showlegend=False,
        hoverinfo="skip",
    )
    figure.update_layout(bare_layout(height=120 + ROW_HEIGHT * len(labels), bargap=0.35, barmode="overlay"))
    figure.update_xaxes(title_text="Q", range=[1.1 * below, 1.7 * reach], zeroline=True, zerolinecolor=NEUTRAL)
    figure.update_yaxes(row_axis(labels))
    title = _title(state)
    return Picture(figure, _table(state), title, f"A bar an action, as long as its value Q. {title}.")


def _label(action: KnownAction) -> str:
    text = plain(action.text, 44)
    return f"{text} (invented)" if action.invented else text


def _beside(action: KnownAction) -> str:
    if action.invented:
        return f"  {action.q:.2f} made up"
    return f"  Q = {action.q:.2f}, n = {action.tries}"


def _title(state: KnownState) -> str:
    known = [action for action in state.actions if not action.invented]
    advice = f"{len(known):,} action{'s' if len(known) != 1 else ''} known here"
    best = next((action for action in state.actions if action.advice == "encouraged"), None)
    if best is None:
        return f"{advice}; none is encouraged"
    made_up = ", which is invented" if best.invented else ""
    return f"{advice}; encouraged: {' '.join(best.text.split())[:60]}{made_up}"


def _table(state: KnownState) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "action": [action.text for action in state.actions],
            "Q": [action.q for action in state.actions],
            "n": [action.tries for action in state.actions],
            "immediate reward": [action.reward for action in state.actions],
            "advice": [action.advice for action in state.actions],
            "invented": [action.invented for action in state.actions],
        }
    )
