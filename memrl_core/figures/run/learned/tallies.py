"""What is only counted: operations on the memory by epoch, and tasks solved within k tries."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.run.learned.values import OPERATIONS
from memrl_core.figures.palette import ENTERED, LEFT, LEFT_OUT, NEUTRAL, SELECTED, UTILITY, bare_layout
from memrl_core.figures.picture import Picture
from memrl_core.policies.methods.memory_r1_ops import UNUSABLE

LOOKS = {
    "ADD": (SELECTED, ""),
    "UPDATE": (ENTERED, "/"),
    "DELETE": (LEFT, "x"),
    "NOOP": (LEFT_OUT, ""),
    UNUSABLE: (UTILITY, "."),
}


def operations_picture(counts: pd.DataFrame) -> Picture:
    """A bar an epoch, of the operations done in it (`analysis.learned.tallies.operations_by_epoch`)."""
    figure = go.Figure()
    for name in OPERATIONS:
        colour, pattern = LOOKS[name]
        figure.add_bar(
            x=counts["epoch"],
            y=counts[name],
            name=name,
            marker={"color": colour, "pattern": {"shape": pattern}, "line": {"width": 1, "color": NEUTRAL}},
            hovertemplate=f"epoch %{{x}}: %{{y}} × {name}<extra></extra>",
        )
    figure.update_layout(bare_layout(height=320, barmode="stack", bargap=0.35))
    figure.update_xaxes(title_text="epoch", type="category")
    figure.update_yaxes(title_text="operations", zeroline=False)
    sums = {name: int(counts[name].sum()) for name in OPERATIONS}
    named = ", ".join(f"{n} {name}" for name, n in sums.items() if name != UNUSABLE)
    title = f"{named}; {sums[UNUSABLE]} replies were of no use" if sum(sums.values()) else "No operation was done yet"
    return Picture(figure, counts, title, f"Stacked bars of operations by epoch. {title}.")


def pass_picture(solved: pd.DataFrame) -> Picture:
    """The share of tasks solved within k tries, by k; hollow where k tries are not over for every task.

    `solved` is `analysis.learned.tallies.solved_within`.
    """
    whole = (solved["over"] == solved["tasks"]).tolist()
    figure = go.Figure()
    figure.add_scatter(
        x=solved["k"],
        y=solved["share"],
        mode="lines+markers",
        line={"color": SELECTED, "width": 2, "shape": "hv"},
        marker={"color": SELECTED, "size": 10, "symbol": ["circle" if one else "circle-open" for one in whole]},
        customdata=solved[["solved", "tasks", "over"]],
        hovertemplate="pass@%{x}: %{customdata[0]} of %{customdata[1]} tasks; k tries are over for %{customdata[2]}"
        "<extra></extra>",
        showlegend=False,
    )
    figure.update_layout(bare_layout(height=300))
    figure.update_xaxes(title_text="k tries", tick0=1, dtick=max(1, len(solved) // 10), zeroline=False)
    figure.update_yaxes(title_text="pass@k", range=[-0.03, 1.03], tickformat=".0%", zeroline=False)
    title = _pass_title(solved)
    return Picture(figure, solved, title, f"A line of the share of tasks solved within k tries. {title}.")


def _pass_title(solved: pd.DataFrame) -> str:
    if solved.empty:
        return "No try was judged yet"
    first, last = solved.iloc[0], solved.iloc[-1]
    sentence = f"pass@1 is {int(first['solved'])} of {int(first['tasks'])} tasks"
    if len(solved) > 1:
        sentence += f", pass@{int(last['k'])} is {int(last['solved'])}: luck alone, without memory"
    open_tasks = int(last["tasks"] - last["over"])
    return f"{sentence}; {open_tasks} tasks still have tries to come" if open_tasks else sentence
