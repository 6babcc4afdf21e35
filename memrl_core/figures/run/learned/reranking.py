"""RMM's reranker: how a pool's ranks move, how large the matrices have grown, and what the answers cited."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.run.learned.deciding import Ranks
from memrl_core.figures.palette import CUT, ENTERED, LEFT, NEUTRAL, SELECTED, UTILITY, bare_layout
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.learned.lines import mark_size, step_axis
from memrl_core.figures.text import plain
from memrl_core.policies.methods.rmm_reranker import NORMS

STAGES = ("similarity", "after adapters", "after noise")
ROW_HEIGHT = 26
CITED = {True: "cited: R = +1", False: "not cited: R = −1", None: "reply not parsed: no feedback"}


def bump_picture(ranks: Sequence[Ranks], k2: int, run: str) -> Picture:
    """A line a memory of the pool through its three ranks; coloured where it crossed the cut after k2 on the way."""
    figure = go.Figure()
    for one in ranks:
        places = (one.recalled, one.adapted, one.drawn)
        label = plain(memory_label(one.memory_id, run))
        colour = _colour(places, k2)
        figure.add_scatter(
            x=[0, 1, 2],
            y=places,
            mode="lines+markers+text",
            line={"color": colour, "width": 1.2 if colour == NEUTRAL else 2.6},
            marker={"color": colour, "size": 8},
            text=[label, "", f"✓ {label}" if one.drawn <= k2 else label],
            textposition=["middle left", "top center", "middle right"],
            cliponaxis=False,
            showlegend=False,
            hovertemplate=f"{label}: rank {places[0]} → {places[1]} → {places[2]}<extra></extra>",
        )
    if len(ranks) > k2 > 0:
        figure.add_hline(y=k2 + 0.5, line={"color": CUT, "dash": "dash", "width": 1.5})
        figure.add_annotation(
            x=-0.6, y=k2 + 0.5, text=f"k2 = {k2}", showarrow=False, xanchor="left", yanchor="bottom"
        )  # fmt: skip
    figure.update_layout(bare_layout(height=90 + ROW_HEIGHT * max(len(ranks), 1)))
    figure.update_xaxes(
        range=[-0.6, 2.6], tickvals=[0, 1, 2], ticktext=list(STAGES), side="top", zeroline=False, showgrid=False
    )
    figure.update_yaxes(autorange="reversed", visible=False)
    title = _bump_title(ranks, k2, run)
    table = pd.DataFrame(
        {
            "memory": [memory_label(one.memory_id, run) for one in ranks],
            "rank by similarity": [one.recalled for one in ranks],
            "after adapters": [one.adapted for one in ranks],
            "after noise": [one.drawn for one in ranks],
            "in the prompt": [one.drawn <= k2 for one in ranks],
        }
    )
    return Picture(figure, table, title, f"Lines from rank by similarity over adapters to noise. {title}.")


def norms_picture(norms: pd.DataFrame) -> Picture:
    """‖W_q‖ and ‖W_m‖ after each lesson (`analysis.learned.reranking.adapter_norms`)."""
    figure = go.Figure()
    for name, colour, symbol in zip(NORMS, (SELECTED, UTILITY), ("circle", "square"), strict=True):
        figure.add_scatter(
            x=norms["step"],
            y=norms[name],
            mode="lines+markers",
            name=name,
            line={"color": colour, "width": 2},
            marker={"color": colour, "symbol": symbol, "size": 7},
            customdata=norms["lessons"],
            hovertemplate="step %{x}: %{y:.5f} after %{customdata} lessons<extra></extra>",
        )
    figure.update_layout(bare_layout(height=280))
    if len(norms):
        figure.update_xaxes(step_axis(int(norms["step"].iloc[0]), int(norms["step"].iloc[-1])))
    figure.update_yaxes(title_text="‖W‖", zeroline=False)
    if norms.empty:
        title = "The adapters have had no lesson yet: they are as they were drawn"
    else:
        moves = ", ".join(f"{name} from {norms[name].iloc[0]:.4f} to {norms[name].iloc[-1]:.4f}" for name in NORMS)
        title = f"After {int(norms['lessons'].iloc[-1])} lessons: {moves}"
    return Picture(figure, norms, title, f"Two lines of the size of the adapters. {title}.")


def citations_picture(cited: pd.DataFrame, run: str) -> Picture:
    """A mark a memory of each prompt, by step and place: cited, not cited, or a reply that could not be read."""
    looks = {True: ("circle", SELECTED), False: ("circle-open", NEUTRAL), None: ("x-thin-open", UTILITY)}
    figure, size = go.Figure(), mark_size(cited["step"])
    for value, (symbol, colour) in looks.items():
        rows = cited[cited["cited"].map(lambda one, value=value: one is value).astype(bool)]
        figure.add_scatter(
            x=rows["step"],
            y=rows["place"],
            mode="markers",
            name=CITED[value],
            marker={"symbol": symbol, "color": colour, "size": size, "line": {"width": 2, "color": colour}},
            customdata=[plain(memory_label(memory_id, run)) for memory_id in rows["memory"]],
            hovertemplate="step %{x}: %{customdata}, place %{y}<extra></extra>",
        )
    figure.update_layout(bare_layout(height=150 + 22 * int(cited["place"].max() if len(cited) else 1)))
    if len(cited):
        figure.update_xaxes(step_axis(int(cited["step"].min()), int(cited["step"].max())))
    figure.update_yaxes(title_text="place in the prompt", autorange="reversed", dtick=1, zeroline=False)
    title = _citations_title(cited)
    table = pd.DataFrame(
        {
            "step": cited["step"].to_numpy(),
            "place": cited["place"].to_numpy(),
            "memory": [memory_label(memory_id, run) for memory_id in cited["memory"]],
            "feedback": [CITED[value] for value in cited["cited"]],
        }
    )
    return Picture(figure, table, title, f"Marks by step and place in the prompt. {title}.")


def _colour(places: tuple[int, int, int], k2: int) -> str:
    """Of a line: in the prompt by adapters or noise, out of it by them, or neither."""
    was_in, is_in = places[0] <= k2, places[2] <= k2
    if is_in != was_in:
        return ENTERED if is_in else LEFT
    return NEUTRAL


def _bump_title(ranks: Sequence[Ranks], k2: int, run: str) -> str:
    if not ranks:
        return "Nothing to rank: the pool is empty"
    moved = sum(one.recalled != one.adapted for one in ranks)
    by_noise = [memory_label(one.memory_id, run) for one in ranks if one.drawn <= k2 < one.adapted]
    sentence = f"The adapters moved {moved} of {len(ranks):,} memories"
    if by_noise:
        return f"{sentence}; the noise brought {', '.join(by_noise)} into the prompt"
    return f"{sentence}; the noise changed nothing of what is in the prompt"


def _citations_title(cited: pd.DataFrame) -> str:
    asked = cited["step"].nunique()
    if not asked:
        return "No answer was asked for its citations yet"
    unread = cited.loc[cited["cited"].isna(), "step"].nunique()
    read = [bool(one) for one in cited["cited"] if one is not None]
    share = f"{sum(read)} of {len(read):,} memories in a prompt were cited" if read else "no reply could be read"
    return f"{share}; {unread} of {asked} replies did not parse"
