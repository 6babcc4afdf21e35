"""Memento's cases: the loss of its network, how its predictions went, and the past uses behind a case's value."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.run.learned.notes import CaseHistory
from memrl_core.figures.palette import CUT, SELECTED, UTILITY, bare_layout
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.learned.lines import step_axis
from memrl_core.figures.run.reliability import success_dots

COIN = 0.6931471805599453
"""−ln 0.5: the loss of saying one half to everything."""
MOST_SHOWN = 30
CALIBRATION_NAMES = {
    "low": "p from",
    "high": "p to",
    "p": "mean p",
    "n": "uses",
    "success_low": "95 % from",
    "success_high": "95 % to",
}
KERNEL_NAMES = {"outcome": "r", "similarity": "cosine", "weight": "k(s, s′)", "share": "share of all weights"}


def loss_picture(losses: pd.DataFrame) -> Picture:
    """The batch's loss before each task's step of learning, and after it (`analysis.learned.cases.losses`)."""
    figure = go.Figure()
    figure.add_hline(y=COIN, line={"color": CUT, "dash": "dash", "width": 1})
    if len(losses):
        figure.add_annotation(
            x=1, xref="paper", y=COIN, text="says one half to everything", xanchor="right", yanchor="bottom",
            showarrow=False,
        )  # fmt: skip
    for column, name, colour, symbol in (
        ("before", "before its step", SELECTED, "circle"),
        ("after", "after it", UTILITY, "circle-open"),
    ):
        figure.add_scatter(
            x=losses["step"],
            y=losses[column],
            mode="lines+markers",
            name=name,
            line={"color": colour, "width": 2, "dash": "solid" if column == "before" else "dot"},
            marker={"color": colour, "symbol": symbol, "size": 7},
            customdata=losses["rows"],
            hovertemplate="step %{x}: %{y:.4f} with %{customdata} labelled rows<extra></extra>",
        )
    figure.update_layout(bare_layout(height=300))
    first, last = (int(losses["step"].iloc[0]), int(losses["step"].iloc[-1])) if len(losses) else (1, 1)
    figure.update_xaxes(step_axis(first, last))
    figure.update_yaxes(title_text="cross-entropy of the batch", rangemode="tozero", zeroline=False)
    title = _loss_title(losses)
    return Picture(figure, losses, title, f"The loss of each task's replay batch before and after learning. {title}.")


def case_calibration_picture(bins: pd.DataFrame) -> Picture:
    """A dot a bin of predictions at its share of successes, with the 95 % Wilson interval; larger for more uses.

    `bins` is `analysis.learned.cases.case_calibration`; every prediction was made before its outcome was known.
    """
    figure = go.Figure()
    figure.add_scatter(
        x=[0, 1], y=[0, 1], mode="lines", name="p says it exactly", line={"color": CUT, "dash": "dash"},
        hoverinfo="skip",
    )  # fmt: skip
    hover = "mean p %{x:.2f}: %{y:.0%} of %{customdata[2]:d} uses succeeded<extra></extra>"
    figure.add_scatter(name="p before each use", hovertemplate=hover, **success_dots(bins, "p"))
    figure.update_layout(bare_layout(height=320))
    figure.update_xaxes(title_text="predicted p", range=[-0.03, 1.12], zeroline=False, dtick=0.2)
    figure.update_yaxes(title_text="success", range=[-0.03, 1.03], tickformat=".0%", zeroline=False)
    title = _calibration_title(bins)
    table = bins.rename(columns=CALIBRATION_NAMES)
    return Picture(figure, table, title, f"Dots of success against p with their intervals and a diagonal. {title}.")


def kernel_picture(weights: pd.DataFrame, history: CaseHistory, case: str) -> Picture:
    """A bar a past use of a case: its share in Q_EC(s, c), coloured and hatched by how the use ended.

    `weights` is `analysis.learned.cases.kernel_weights`, `case` the name of the case.
    """
    settings = history.settings
    by_weight = weights.sort_values("weight", ascending=False, kind="stable")
    rows = by_weight.head(MOST_SHOWN)
    labels = [f"step {step}" for step in rows["step"]]
    figure = go.Figure()
    for outcome, name, colour, pattern in ((1.0, "succeeded", SELECTED, ""), (0.0, "failed", UTILITY, "/")):
        members = (rows["outcome"] == outcome).tolist()
        figure.add_bar(
            orientation="h",
            name=name,
            x=[share if member else None for share, member in zip(rows["share"], members, strict=True)],
            y=labels,
            marker={"color": colour, "pattern": {"shape": pattern}},
            customdata=rows[["similarity", "weight"]].to_numpy(),
            hovertemplate="%{y}: cosine %{customdata[0]:.3f}, k = %{customdata[1]:.3f}, %{x:.1%}<extra></extra>",
        )
    figure.update_layout(bare_layout(height=110 + 24 * max(len(rows), 1), barmode="overlay", bargap=0.3))
    figure.update_xaxes(title_text="share of k(s, s′) in Q_EC", tickformat=".0%", rangemode="tozero", zeroline=False)
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=labels, autorange="reversed")
    kernels = {"gaussian": f"a Gaussian kernel of width h = {settings.bandwidth:g}", "cosine": "a cosine kernel"}
    value = float((weights["share"] * weights["outcome"]).sum())
    if weights["weight"].sum() > 0:
        title = (
            f"Q_EC of {case} here is {value:.3f}: the outcomes of {_uses(len(weights))}, weighted by how alike the "
            "tasks are"
        )
        if len(weights) > MOST_SHOWN:
            title += f" (the {MOST_SHOWN} that weigh most are drawn)"
    else:
        title = f"{case} has no past use to go by: its Q counts as {settings.unused_q:g}"
    alt = f"Bars of the share of each past use under {kernels[settings.kernel]}. {title}."
    return Picture(figure, by_weight.rename(columns=KERNEL_NAMES), title, alt)


def _loss_title(losses: pd.DataFrame) -> str:
    if losses.empty:
        return "No task has trained the network yet"
    early, late = losses["before"].head(5).mean(), losses["before"].tail(5).mean()
    change = "fell" if late < early else "rose"
    return (
        f"Over {len(losses):,} tasks the loss {change} from {early:.3f} to {late:.3f} (means of the first and last "
        f"{min(5, len(losses))}); {COIN:.3f} is a coin"
    )


def _calibration_title(bins: pd.DataFrame) -> str:
    if bins.empty:
        return "No prediction was made yet: nothing to hold p against"
    n = int(bins["n"].sum())
    off = float(((bins["success"] - bins["p"]).abs() * bins["n"]).sum() / n)
    return f"p is {off:.0%} off the success that followed, on average over {_uses(n)}"


def _uses(n: int) -> str:
    return "1 use" if n == 1 else f"{n:,} uses"
