"""How alike the intents of a bank are, and where a gate δ cuts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.decision.gate import QUANTILE, GateSuggestion
from memrl_core.figures.palette import CUT, SIMILARITY, UTILITY, bare_layout
from memrl_core.figures.picture import Picture


def similarity_picture(suggestion: GateSuggestion, delta: float) -> Picture:
    """Bars of the pairwise similarities with the suggested δ, and the δ in force, as lines."""
    edges, counts = suggestion.edges, suggestion.counts
    figure = go.Figure()
    figure.add_bar(
        x=(edges[1:] + edges[:-1]) / 2,
        y=counts,
        width=np.diff(edges),
        marker={"color": SIMILARITY},
        customdata=np.column_stack([edges[:-1], edges[1:]]),
        hovertemplate="%{y:,} pairs from %{customdata[0]:.3f} to %{customdata[1]:.3f}<extra></extra>",
    )
    marks = (("suggested", suggestion.delta, UTILITY, "solid", 1.0), ("now", delta, CUT, "dash", 0.88))
    for name, value, colour, dash, height in marks:
        figure.add_vline(x=value, line={"color": colour, "dash": dash, "width": 2})
        figure.add_annotation(
            x=value, y=height, yref="paper", text=f"{name}: δ = {value:.3f}", showarrow=False, xanchor="left", xshift=4
        )
    figure.update_layout(bare_layout(height=300, bargap=0, showlegend=False))
    figure.update_xaxes(title_text="similarity of two intents", zeroline=False)
    figure.update_yaxes(title_text="pairs", zeroline=False)
    passed = suggestion.passing(delta)
    of = f"{suggestion.intents:,} intents" + (", a sample," if suggestion.sampled else "")
    title = (
        f"δ = {suggestion.delta:.3f} lets the nearest {1 - QUANTILE:.0%} of pairs among {of} pass; the δ in force, "
        f"{delta:.3f}, about {passed:.0%}"
    )
    table = pd.DataFrame({"similarity from": edges[:-1], "similarity to": edges[1:], "pairs": counts})
    return Picture(figure, table, title, f"A histogram of pairwise similarities with two marks. {title}.")
