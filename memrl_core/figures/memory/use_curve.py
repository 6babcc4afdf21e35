"""How evenly a run's memories are used: the Lorenz curve of uses."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.memory.exposure import Starvation
from memrl_core.figures.palette import CUT, SELECTED, bare_layout
from memrl_core.figures.picture import Picture

TOP = 0.2


def use_picture(starvation: Starvation) -> Picture:
    """The share of all uses that the least used memories have, up to all memories, beside the line of equal use."""
    memories, uses = starvation.lorenz[:, 0], starvation.lorenz[:, 1]
    figure = go.Figure()
    figure.add_scatter(
        x=[0, 1], y=[0, 1], mode="lines", name="all used alike", line={"color": CUT, "dash": "dash"}, hoverinfo="skip"
    )
    figure.add_scatter(
        x=memories,
        y=uses,
        mode="lines",
        name="as it was",
        line={"color": SELECTED, "width": 2.5},
        hovertemplate="the least used %{x:.0%} of memories had %{y:.0%} of the uses<extra></extra>",
    )
    figure.update_layout(bare_layout(height=320))
    figure.update_xaxes(title_text="memories, least used first", range=[0, 1], tickformat=".0%", zeroline=False)
    figure.update_yaxes(title_text="share of all uses", range=[0, 1.01], tickformat=".0%", zeroline=False)
    title = _title(starvation)
    table = pd.DataFrame({"share of memories": memories, "share of uses": uses})
    return Picture(figure, table, title, f"A curve of the share of uses below the line of equal use. {title}.")


def _title(starvation: Starvation) -> str:
    if starvation.gini is None:
        return "No memory has been given to the model yet"
    memories, uses = starvation.lorenz[:, 0], starvation.lorenz[:, 1]
    top = 1 - float(np.interp(1 - TOP, memories, uses))
    never = len(starvation.never_recalled) + len(starvation.never_selected)
    return (
        f"The most used {TOP:.0%} of memories had {top:.0%} of all uses (Gini {starvation.gini:.2f}); {never} of "
        f"{len(memories) - 1} were never used"
    )
