"""Does q say how often a memory helps? Success against q, bin by bin, and q of the used memories epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from plotly.subplots import make_subplots

from memrl_core.analysis.run.calibration import Calibration
from memrl_core.figures.palette import (
    CUT,
    ENTERED,
    INSIDE,
    LEFT,
    SELECTED,
    UTILITY,
    band,
    bare_layout,
    bars,
    curve,
    drawn,
    interval_bars,
    level,
    marks,
    note,
    pale,
    q_range,
    row_axis,
    titled,
)
from memrl_core.figures.picture import Picture
from memrl_core.numerals import signed

SMALLEST, LARGEST = 8, 22
NAMES = {"prequential": "q before each use", "in-sample": "q now, over the uses that made it"}


def reliability_picture(calibration: Calibration, settings: Mapping[str, Any]) -> Picture:
    """A dot per bin of q at its success, with the 95 % Wilson interval; larger dots stand for more uses.

    The uses of one step share its outcome and count as one for the interval. The diagonal runs from no success at r− to
    success always at r+: where rewards are r− and r+ only, the mean reward β is r− + p (r+ − r−) for a chance p of
    success (arXiv 2601.03192, equation 10).
    """
    low, _, high = q_range(settings)
    bins = calibration.bins
    sentence = (bins["q"] - low) / (high - low)
    hover = (
        "mean q %{x:+.3f}: %{y:.0%} of %{customdata[2]:d} uses succeeded "
        "(95 %: %{customdata[0]:.0%} to %{customdata[1]:.0%})"
    )
    margin = (high - low) * 0.05
    figure = drawn(
        [
            curve([low, high], [0, 1], "q says it exactly", CUT, dash="dash"),
            success_dots(bins, "q", NAMES[calibration.kind], hover),
        ],
        height=340,
        xaxis=titled("q", range=[low - margin, high + 2 * margin]),
        yaxis=SUCCESS,
    )
    table = pd.DataFrame(
        {
            "q from": bins["low"],
            "q to": bins["high"],
            "mean q": bins["q"],
            "uses": bins["n"],
            "steps": bins["steps"],
            "success": bins["success"],
            "95 % from": bins["success_low"],
            "95 % to": bins["success_high"],
            "q says": sentence,
        }
    )
    title = _title(calibration, sentence)
    return Picture(figure, table, title, f"Dots of success against q with their intervals and a diagonal. {title}.")


def funnel_picture(found: pd.DataFrame) -> Picture:
    """A bar for each stage of `analysis.run.following.funnel`: the steps that came so far, and those that did not."""
    stages, steps, of = found["stage"], found["steps"], found["of"]
    hover = "%{customdata:,} of %{x:,} steps"
    bars_shown = (
        bars(of, stages, "did not", CUT, "", orientation="h"),
        bars(steps, stages, "came so far", SELECTED, hover, orientation="h", customdata=steps),
    )
    labels = [
        note(total, stage, f"{count:,} of {total:,}", xanchor="left", xshift=6)
        for stage, count, total in zip(stages, steps, of, strict=True)
    ]
    figure = drawn(
        bars_shown,
        height=240,
        barmode="overlay",
        annotations=labels,
        xaxis=titled("steps", rangemode="tozero"),
        yaxis={**row_axis(list(stages))},
    )
    last = found.iloc[-1]
    title = f"Of {int(of.iloc[0]):,} steps, {int(last['steps']):,} got a right answer from a memory"
    return Picture(figure, lambda: found, title, f"Bars, one for each stage. {title}.")


SUCCESS = titled("success", range=[-0.03, 1.03], tickformat=".0%")


def success_dots(bins: pd.DataFrame, against: str, name: str, hover: str) -> dict[str, Any]:
    """Dots of success at the bins' column `against`, with their 95 % intervals; the larger, the more uses.

    `bins` has the columns `success`, `success_low`, `success_high` and `n`; hover texts get the last three.
    """
    sizes = SMALLEST + (LARGEST - SMALLEST) * (bins["n"] / bins["n"].max()) ** 0.5
    success, low, high = (bins[column].to_numpy() for column in ("success", "success_low", "success_high"))
    return marks(
        bins[against],
        bins["success"],
        name,
        UTILITY,
        hover,
        size=sizes.tolist(),
        edge={"color": INSIDE, "width": 1},
        error_y=interval_bars(success, low, high, UTILITY),
        text=[f"n = {n:,}" for n in bins["n"]],
        textposition="middle right",
        cliponaxis=False,
        customdata=bins[["success_low", "success_high", "n"]].to_numpy(),
    )


def _title(calibration: Calibration, sentence: pd.Series) -> str:
    bins, name = calibration.bins, NAMES[calibration.kind]
    if bins.empty:
        return "No rated use of a memory yet: nothing to hold q against"
    n = int(bins["n"].sum())
    off = float(((bins["success"] - sentence).abs() * bins["n"]).sum() / n)
    outside = int(((sentence < bins["success_low"]) | (sentence > bins["success_high"])).sum())
    return (
        f"{name[0].upper()}{name[1:]}: success is {off:.0%} off what q says on average, beyond the 95 % interval in "
        f"{outside} of {len(bins):,} bins ({n:,} uses)"
    )


HEIGHT = 420
SHARES = (("positive", ENTERED, "/"), ("at zero", CUT, ""), ("negative", LEFT, "\\"))
"""What is stacked, with its colour and its hatching."""


def q_by_epoch_picture(spread: pd.DataFrame) -> Picture:
    """The median of q with the middle half and the middle 90 % of memories, and below it the shares by sign.

    `spread` is that of `analysis.run.over_time.q_by_epoch`, with at least one row.
    """
    epochs, known = spread["epoch"], spread["never recalled"].notna().all()
    unit = "epoch" if known else "checkpoint"
    figure = make_subplots(2, 1, shared_xaxes=True, row_heights=[0.6, 0.4], vertical_spacing=0.06)
    above: list[dict[str, Any]] = [
        band(epochs, spread[low], spread[high], pale(UTILITY), name=name, showlegend=True)
        for low, high, name in (("q05", "q95", "90 % of memories"), ("q25", "q75", "half of them"))
    ]
    hover = (
        f"{unit} %{{x}}: median %{{y:+.3f}}, mean %{{customdata[1]:+.3f}}, from %{{customdata[2]:+.3f}} to "
        "%{customdata[3]:+.3f}, %{customdata[0]:,} memories"
    )
    known_of = spread[["memories", "mean", "least", "greatest"]]
    above.append(
        curve(epochs, spread["q50"], "median", UTILITY, hover, width=2.5, symbol="circle", customdata=known_of)
    )
    shares = spread.assign(**{"at zero": 1 - spread["not zero"]})
    below = [bars(epochs, shares[name], name, colour, f"%{{y:.1%}} {name}", pattern=p) for name, colour, p in SHARES]
    for name, symbol in (("never recalled", "circle-open"), ("never updated", "x"))[0 if known else 1 :]:
        look = {"dash": "dot", "width": 1, "symbol": symbol, "size": 9}
        below.append(curve(epochs, shares[name], name, CUT, f"%{{y:.1%}} {name}", **look))
    figure.add_traces(above + below, rows=[1] * len(above) + [2] * len(below), cols=[1] * len(above + below))
    figure.update_layout(bare_layout(height=HEIGHT, barmode="stack"), shapes=[level(0, color=CUT, width=1)])
    figure.update_yaxes(title_text="q", row=1, col=1, zeroline=False)
    figure.update_yaxes(title_text="memories", range=[0, 1.02], tickformat=".0%", row=2, col=1)
    figure.update_xaxes(title_text=unit, dtick=1 if len(epochs) <= 20 else None, row=2, col=1)
    last = spread.iloc[-1]
    unused = "never recalled" if known else "never updated"
    when = f"After epoch {int(last['epoch'])}" if known else "In the last checkpoint"
    title = (
        f"{when} the median q of {int(last['memories']):,} memories is "
        f"{signed(last['q50'])}; {last['positive']:.0%} are above 0, {last['negative']:.0%} below, and "
        f"{last[unused]:.0%} were {unused}"
    )
    return Picture(figure, spread, title, f"Bands of quantiles of q by {unit}, over stacked shares by sign. {title}.")
