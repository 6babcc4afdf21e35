"""EMPO²'s tips: how new the states of a run were, and how tips rank by score and by similarity."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.figures.palette import CUT, ENTERED, LEFT, NEUTRAL, POOL, SELECTED, bare_layout
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.learned.lines import step_axis
from memrl_core.figures.text import plain

ROW_HEIGHT = 24


def novelty_picture(novelty: pd.DataFrame) -> Picture:
    """A bar a step, as high as the mean novelty of its turns, with a dot a turn (`analysis.learned.tips.novelty`)."""
    steps = novelty.groupby("step")["novelty"].mean()
    figure = go.Figure()
    figure.add_bar(
        x=steps.index,
        y=steps,
        name="mean of the step",
        marker={"color": POOL, "line": {"width": 1, "color": NEUTRAL}},
        hovertemplate="step %{x}: %{y:.2f} on average<extra></extra>",
    )
    figure.add_scatter(
        x=novelty["step"],
        y=novelty["novelty"],
        mode="markers",
        name="a turn",
        marker={"color": SELECTED, "size": 6},
        customdata=novelty[["turn", "tips"]],
        hovertemplate="step %{x}, turn %{customdata[0]}: 1 / (%{customdata[1]} + 1) = %{y:.2f}<extra></extra>",
    )
    figure.update_layout(bare_layout(height=280, bargap=0.25))
    if len(novelty):
        figure.update_xaxes(step_axis(int(novelty["step"].min()), int(novelty["step"].max())))
    figure.update_yaxes(title_text="novelty 1 / (n + 1)", range=[0, 1.05], zeroline=False)
    title = _novelty_title(steps)
    return Picture(figure, novelty, title, f"Bars of novelty by step. {title}.")


def tips_picture(tips: pd.DataFrame, k2: int, run: str) -> Picture:
    """Rank by score joined to rank by similarity, a line a tip; coloured where the cut after k2 falls between them.

    `tips` is `analysis.learned.tips.tips_in_order`.
    """
    figure = go.Figure()
    for memory_id, by_score, by_similarity, given in zip(
        tips["memory"], tips["by score"], tips["by similarity"], tips["given"], strict=True
    ):
        colour = NEUTRAL if (by_score <= k2) == (by_similarity <= k2) else ENTERED if by_score <= k2 else LEFT
        label = plain(memory_label(memory_id, run))
        figure.add_scatter(
            x=[0, 1],
            y=[by_score, by_similarity],
            mode="lines+markers+text",
            line={"color": colour, "width": 1.2 if colour == NEUTRAL else 2.5},
            marker={"color": colour, "size": 8},
            text=[f"✓ {label}" if given else label, label],
            textposition=["middle left", "middle right"],
            cliponaxis=False,
            showlegend=False,
            hovertemplate=f"{label}: rank {by_score} by score, {by_similarity} by similarity<extra></extra>",
        )
    if len(tips) > k2 > 0:
        figure.add_hline(y=k2 + 0.5, line={"color": CUT, "dash": "dash", "width": 1.5})
    figure.update_layout(bare_layout(height=80 + ROW_HEIGHT * max(len(tips), 1)))
    figure.update_xaxes(
        range=[-0.6, 1.6], tickvals=[0, 1], ticktext=["by stored score", "by cosine"], side="top", zeroline=False,
        showgrid=False,
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed", visible=False)
    title = _tips_title(tips, k2)
    table = tips.assign(memory=[memory_label(memory_id, run) for memory_id in tips["memory"]])
    return Picture(figure, table, title, f"Lines from rank by score to rank by cosine. {title}.")


def _novelty_title(steps: pd.Series) -> str:
    if steps.empty:
        return "Memory was not asked in any step that can be looked at"
    first, last = steps.iloc[0], steps.iloc[-1]
    return f"Novelty went from {first:.2f} in step {steps.index[0]} to {last:.2f} in step {steps.index[-1]}"


def _tips_title(tips: pd.DataFrame, k2: int) -> str:
    if tips.empty:
        return "No tip was found here: the state is as new as can be"
    both = int(((tips["by score"] <= k2) & (tips["by similarity"] <= k2)).sum())
    first = min(k2, len(tips))
    found = "1 tip" if len(tips) == 1 else f"{len(tips):,} tips"
    if both == first:
        return f"{found} found; score and cosine agree on the first {first}"
    return f"{found} found; the first {first} by score and the first {first} by cosine have {both} in common"
