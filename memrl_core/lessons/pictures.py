"""The pictures that only lessons have."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.run.theory import mean_q
from memrl_core.figures.palette import ENTERED, LEFT, NEUTRAL, UTILITY, bare_layout
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.stability import Arm, curves_picture
from memrl_core.lessons.ladder import LadderScene
from memrl_core.lessons.scene import Inputs
from memrl_core.lessons.twins import Played
from memrl_core.numerals import signed

LINES = ((UTILITY, "solid"), (ENTERED, "dot"), (LEFT, "dashdot"), (NEUTRAL, "longdash"))
MARGIN = 0.08


def ladder_picture(scene: LadderScene, inputs: Inputs) -> Picture:
    """q after each reward, a line for each step size; dashed, what equation 12 expects of the one in force.

    The expectation takes the mean of the rewards so far as β, so it is drawn once there is a reward.
    """
    rewards, climbs = scene.given(inputs).rewards, scene.climbs(inputs)
    at = np.arange(len(rewards) + 1)
    figure = go.Figure()
    table = pd.DataFrame({"reward number": at, "reward": [None, *rewards]})
    for climb, (colour, dash) in zip(climbs, LINES, strict=False):
        name = f"α = {climb.alpha:g}"
        table[f"q, {name}"] = climb.values
        figure.add_scatter(
            x=at,
            y=climb.values,
            mode="lines+markers",
            name=name,
            line={"color": colour, "dash": dash, "width": 2.5},
            marker={"size": 9, "symbol": ["circle", *("triangle-up" if r > 0 else "triangle-down" for r in rewards)]},
            hovertemplate=f"{name}, after reward %{{x}}: q %{{y:+.3f}}<extra></extra>",
        )
    if rewards:
        beta = float(np.mean(rewards))
        expected = mean_q(at, climbs[0].alpha, beta, scene.q0)
        table["expected of the same mean"] = expected
        figure.add_scatter(
            x=at, y=expected, mode="lines", name="expected of rewards with the same mean",
            line={"color": NEUTRAL, "dash": "dash", "width": 1.5}, hoverinfo="skip",
        )  # fmt: skip
    ends = [scene.q0, *scene.offered]
    room = (max(ends) - min(ends)) * MARGIN
    figure.update_layout(bare_layout(height=320, showlegend=True))
    figure.update_xaxes(title_text="rewards", dtick=1 if len(rewards) <= 20 else 5, zeroline=False)
    figure.update_yaxes(title_text="q", range=[min(ends) - room, max(ends) + room])
    count = "1 reward" if len(rewards) == 1 else f"{len(rewards)} rewards"
    title = f"α = {climbs[0].alpha:g}: {count} took q from {signed(scene.q0)} to {signed(climbs[0].values[-1])}"
    return Picture(figure, table, title, f"A line of q over the rewards for each step size. {title}.")


def twins_picture(played: Played, names: tuple[str, str], task_count: int) -> Picture:
    """Accuracy and CSR by epoch of both runs, with the gap between them."""
    shifts = tuple((shift - 1) / task_count + 0.5 for shift in played.shifts)
    arms = [
        Arm(name, grid.success, tuple(shift for shift in shifts if shift <= played.epochs + 0.5), grid.tasks)
        for name, grid in zip(names, played.grids, strict=True)
    ]
    return curves_picture(arms)
