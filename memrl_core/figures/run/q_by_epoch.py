"""How the utilities of a run are spread, epoch by epoch: quantiles over the shares above, at and below zero."""

from __future__ import annotations

import pandas as pd
from plotly.subplots import make_subplots

from memrl_core.figures.palette import CUT, ENTERED, LEFT, UTILITY, bare_layout, level, pale
from memrl_core.figures.picture import Picture
from memrl_core.numerals import signed

HEIGHT = 420
SHARES = (("positive", ENTERED, "/"), ("at zero", CUT, ""), ("negative", LEFT, "\\"))
"""What is stacked, with its colour and its hatching."""


def q_by_epoch_picture(spread: pd.DataFrame) -> Picture:
    """The median of q with the middle half and the middle 90 % of memories, and below it the shares by sign.

    `spread` is that of `analysis.run.over_time.q_by_epoch`, with at least one row.
    """
    epochs = spread["epoch"]
    figure = make_subplots(2, 1, shared_xaxes=True, row_heights=[0.6, 0.4], vertical_spacing=0.06)
    for low, high, name in (("q05", "q95", "90 % of memories"), ("q25", "q75", "half of them")):
        figure.add_scatter(
            x=[*epochs, *epochs[::-1]], y=[*spread[high], *spread[low][::-1]], fill="toself", fillcolor=pale(UTILITY),
            mode="lines", line={"width": 0}, name=name, hoverinfo="skip", row=1, col=1,
        )  # fmt: skip
    figure.add_scatter(
        x=epochs, y=spread["q50"], mode="lines+markers", name="median", line={"color": UTILITY, "width": 2.5},
        customdata=spread[["memories", "mean", "least", "greatest"]],
        hovertemplate=(
            "epoch %{x}: median %{y:+.3f}, mean %{customdata[1]:+.3f}, from %{customdata[2]:+.3f} to "
            "%{customdata[3]:+.3f}, %{customdata[0]:,} memories<extra></extra>"
        ),
        row=1, col=1,
    )  # fmt: skip
    shares = spread.assign(**{"at zero": 1 - spread["not zero"]})
    for name, colour, shape in SHARES:
        figure.add_bar(
            x=epochs, y=shares[name], name=name, marker={"color": colour, "pattern": {"shape": shape}},
            hovertemplate=f"%{{y:.1%}} {name}<extra></extra>", row=2, col=1,
        )  # fmt: skip
    for name, symbol in (("never recalled", "circle-open"), ("never updated", "x")):
        figure.add_scatter(
            x=epochs, y=shares[name], mode="markers+lines", name=name,
            line={"color": CUT, "dash": "dot", "width": 1}, marker={"symbol": symbol, "size": 9},
            hovertemplate=f"%{{y:.1%}} {name}<extra></extra>", row=2, col=1,
        )  # fmt: skip
    figure.update_layout(bare_layout(height=HEIGHT, barmode="stack"), shapes=[level(0, color=CUT, width=1)])
    figure.update_yaxes(title_text="q", row=1, col=1, zeroline=False)
    figure.update_yaxes(title_text="memories", range=[0, 1.02], tickformat=".0%", row=2, col=1)
    figure.update_xaxes(title_text="epoch", dtick=1 if len(epochs) <= 20 else None, row=2, col=1)
    last = spread.iloc[-1]
    title = (
        f"After epoch {int(last['epoch'])} the median q of {int(last['memories']):,} memories is "
        f"{signed(last['q50'])}; {last['positive']:.0%} are above 0, {last['negative']:.0%} below, and "
        f"{last['never recalled']:.0%} were never recalled"
    )
    return Picture(figure, spread, title, f"Bands of quantiles of q by epoch, over stacked shares by sign. {title}.")
