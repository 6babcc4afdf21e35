"""The curves of theory for one q, with what a run's ledger shows laid over them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.run import theory
from memrl_core.analysis.run.practice import Group, Practice
from memrl_core.analysis.run.theory import Floats
from memrl_core.errors import InputError
from memrl_core.figures.palette import CUT, ENTERED, LEFT, SIMILARITY, UTILITY, bare_layout
from memrl_core.figures.picture import Picture
from memrl_core.numerals import signed

# The dash and the symbol tell lines and groups apart without colour.
LINES = ((UTILITY, "solid"), (SIMILARITY, "dash"), (ENTERED, "dot"), (LEFT, "dashdot"))
GROUPS = {
    "success": ("after successes", SIMILARITY, "triangle-up", "dash"),
    "failure": ("after failures", LEFT, "triangle-down", "dot"),
    "unrated": ("without a rating", ENTERED, "circle", "dashdot"),
}
BAND = 0.2
ERRORS = 2
LABELLED = (0.05, 0.1, 0.2, 0.5, 0.8, 1.0)
ALPHAS = np.round(np.geomspace(0.01, 1.0, 100), 4)
CROWDED = 0.25
LONGEST_LAG = 15.0
MOST_UPDATES = 10_000


def mean_picture(
    alpha: float, beta: float, sigma: float, q0: float, updates: int, practice: Practice | None = None
) -> Picture:
    """E[Q_t] with ±1 sd over the first `updates` updates, its half-life, and the measured means with ±1 s.e.

    Each group of `practice` has its own mean reward, so its own curve of theory is drawn thin beside its marks.
    Raises `InputError`.
    """
    t = _updates(updates)
    mean, sd = theory.mean_q(t, alpha, beta, q0), np.sqrt(theory.variance_q(t, alpha, sigma))
    half = float(theory.half_life(alpha))
    figure = go.Figure([_band(t, mean - sd, mean + sd), _line(t, mean, "E[q]", UTILITY)])
    table = pd.DataFrame({"updates": t, "E[q]": mean, "sd": sd})
    for group in practice.groups if practice else ():
        seen = _until(group, updates)
        name, colour, symbol, dash = GROUPS[group.outcome]
        figure.add_traces(
            [_marks(seen, "q", "se", name, colour, symbol), _thin(seen["t"], seen["theory"], colour, dash)]
        )
        table = table.merge(_columns(seen, name, "q", "se", "theory"), on="updates", how="left")
    shapes, notes = [_level(beta)], [_note(1, beta, "β", xref="paper")]
    if half <= updates:
        shapes.append(_upright(half))
        notes.append(_note(half, 1, f"half-life {half:.3f}", yref="paper", xanchor="left", yanchor="top"))
    _lay_out(figure, shapes, notes, "updates of a memory", "q")
    title = (
        f"q is expected to go from {signed(q0)} to {signed(float(mean[-1]))} after {updates} updates, half of the way "
        f"to β = {signed(beta)} in {half:.3f} updates"
    )
    if practice:
        title += "; " + _agreement(practice, updates)
    return Picture(figure, table, title, f"A curve of the expected q with a band of one standard deviation. {title}.")


def variance_picture(alpha: float, sigma: float, practice: Practice | None = None) -> Picture:
    """Var[Q_t] on its way to the limit; measured: the variance of q among the memories with t visits.

    Memories differ in their mean rewards, which the theory of one memory knows nothing of: what lies above a group's
    own thin curve may be that. Raises `InputError`.
    """
    last = int(np.ceil(theory.settled_after(alpha, 0.99))) + 1
    if practice:
        last = max([last, *(int(group.by_visit["t"].max()) for group in practice.groups)])
    t = _updates(min(last, MOST_UPDATES))
    variance, limit = theory.variance_q(t, alpha, sigma), float(theory.variance_limit(alpha, sigma))
    figure = go.Figure([_line(t, variance, "Var[q]", UTILITY)])
    table = pd.DataFrame({"updates": t, "Var[q]": variance})
    for group in practice.groups if practice else ():
        seen = _until(group, len(t)).assign(
            variance=lambda rows: rows["sd"] ** 2, expected=lambda rows: rows["theory_sd"] ** 2
        )
        name, colour, symbol, dash = GROUPS[group.outcome]
        figure.add_trace(_marks(seen, "variance", None, name, colour, symbol))
        figure.add_trace(_thin(seen["t"], seen["expected"], colour, dash))
        table = table.merge(_columns(seen, name, "variance", None, "expected"), on="updates", how="left")
    note = _note(1, limit, "α/(2 − α) · σ²", xref="paper")
    _lay_out(figure, [_level(limit)], [note], "updates of a memory", "variance of q", rangemode="tozero")
    title = (
        f"q never comes to rest at α = {alpha:g}: its variance stays at {limit:.3f}, {limit / sigma**2:.1%} of that of "
        "the rewards"
        if sigma > 0
        else f"Rewards that never vary leave q no variance, at α = {alpha:g} as at any other"
    )
    if practice and practice.late:
        late = practice.late
        title += f"; the late moves of {late.memories:,} memories have {late.ratio:.2f} of their limits (median)"
    return Picture(figure, table, title, f"A curve of the variance of q that levels off. {title}.")


def trade_off_picture(sigma: float, jump: float, alpha: float) -> Picture:
    """The spread that q keeps for good against the updates until half of a jump is followed, a point an α.

    Raises `InputError`.
    """
    alphas = np.unique([*ALPHAS, *LABELLED, alpha])
    floor = np.sqrt(theory.variance_limit(alphas, sigma))
    found = theory.trade_off(alphas, sigma, jump, within=floor)
    figure = go.Figure()
    figure.add_scatter(
        x=found.half_life, y=found.noise, mode="lines", name="every α", line={"color": CUT, "width": 2},
        customdata=np.column_stack([alphas, found.until_within]), showlegend=False,
        hovertemplate=(
            "α = %{customdata[0]:.3f}: half of the jump after %{x:.3f} updates, the rest below the noise after "
            "%{customdata[1]:.3f}; spread %{y:.3f}<extra></extra>"
        ),
    )  # fmt: skip
    chosen = {a: int(np.flatnonzero(alphas == a)[0]) for a in (*LABELLED, alpha)}
    others = [row for a, row in chosen.items() if abs(np.log(a / alpha)) > CROWDED]
    here = chosen[alpha]
    for rows, name, marker in (
        (others, "others", {"color": CUT, "size": 8}),
        ([here], "this α", {"color": UTILITY, "size": 14, "symbol": "diamond"}),
    ):
        figure.add_scatter(
            x=found.half_life[rows], y=found.noise[rows], mode="markers+text", name=name, marker=marker,
            text=[f"α = {alphas[row]:g}" for row in rows], textposition="top right", cliponaxis=False,
            showlegend=False, hoverinfo="skip",
        )  # fmt: skip
    lag, spread = float(found.half_life[here]), float(found.noise[here])
    _lay_out(figure, [], [], "updates until half of a change is followed", "spread (sd) that q keeps")
    figure.update_xaxes(range=[-0.3, max(LONGEST_LAG, 1.2 * lag)])
    figure.update_yaxes(rangemode="tozero")
    slower = alpha / 2
    title = (
        f"α = {alpha:g} follows half of a jump of {signed(jump)} in {lag:.3f} updates and keeps a spread of "
        f"{spread:.3f}; half that α takes {float(theory.half_life(slower)):.3f} and keeps "
        f"{float(np.sqrt(theory.variance_limit(slower, sigma))):.3f}"
    )
    table = pd.DataFrame(
        {
            "α": alphas,
            "spread of q": found.noise,
            "half-life": found.half_life,
            "updates until the lag is below the spread": found.until_within,
        }
    )
    return Picture(figure, table, title, f"A falling curve of spread against lag with a mark for this α. {title}.")


def shift_picture(
    alphas: Sequence[float], before: float, after: float, sigma: float, shift_at: int, updates: int
) -> Picture:
    """E[q] with ±1 sd of a q that had settled, through a change of its mean reward after update `shift_at`.

    Raises `InputError`, also for a change outside the updates, and for more α than there are kinds of lines.
    """
    if not 1 <= len(alphas) <= len(LINES):
        raise InputError(f"{len(alphas):,} step sizes were given: one figure has room for 1 to {len(LINES):,}.")
    t = _updates(updates)
    if not 0 <= shift_at <= updates:
        raise InputError(f"The change after update {shift_at} lies outside the {updates} updates to be drawn.")
    since = np.maximum(t - shift_at, 0)
    figure, table, parts = go.Figure(), pd.DataFrame({"updates": t}), []
    for alpha, (colour, dash) in zip(alphas, cycle(LINES), strict=False):
        mean = theory.mean_q(since, alpha, after, before)
        sd = float(np.sqrt(theory.variance_limit(alpha, sigma)))
        line = _line(t, mean, f"α = {alpha:g}", colour, dash)
        figure.add_traces([_band(t, mean - sd, mean + sd, colour), line])
        table = table.assign(**{f"E[q], α = {alpha:g}": mean, f"sd, α = {alpha:g}": sd})
        parts.append(f"{float(theory.half_life(alpha)):.3f} updates at α = {alpha:g} (spread {sd:.3f})")
    world = {"type": "line", "line": {"color": CUT, "dash": "dash", "width": 1.5}}
    shapes = [
        {**world, "x0": 0, "x1": shift_at, "y0": before, "y1": before},
        {**world, "x0": shift_at, "x1": updates, "y0": after, "y1": after},
        _upright(shift_at),
    ]
    notes = [
        _note(shift_at, 1, "the world changes", yref="paper", xanchor="left", yanchor="top"),
        _note(updates, after, "new β"),
    ]
    _lay_out(figure, shapes, notes, "updates of a memory", "q")
    title = f"q follows half of the change from {signed(before)} to {signed(after)} in " + ", ".join(parts)
    return Picture(figure, table, title, f"Lines of the expected q with bands, through a change. {title}.")


def _updates(updates: int) -> Floats:
    if not 1 <= updates <= MOST_UPDATES:
        raise InputError(f"{updates} updates cannot be drawn: give 1 to {MOST_UPDATES:,}.")
    return np.arange(updates + 1, dtype=np.float64)


def _until(group: Group, updates: int) -> pd.DataFrame:
    return group.by_visit[group.by_visit["t"] <= updates]


def _agreement(practice: Practice, updates: int) -> str:
    """How many measured means lie near what theory expects for their group, of those that have a standard error."""
    rows = [_until(group, updates) for group in practice.groups]
    known = pd.concat(rows)[lambda seen: (seen["t"] > 0) & (seen["se"] > 0)] if rows else pd.DataFrame()
    if known.empty:
        return "nothing measured yet"
    near = int(((known["q"] - known["theory"]).abs() <= ERRORS * known["se"]).sum())
    return f"{near} of {len(known):,} measured means lie within {ERRORS} standard errors of theory"


def _line(x: Floats, y: Floats, name: str, colour: str, dash: str = "solid") -> go.Scatter:
    return go.Scatter(
        x=x, y=y, mode="lines", name=name, line={"color": colour, "dash": dash, "width": 2.5},
        hovertemplate="after %{x} updates: %{y:.3f}",
    )  # fmt: skip


def _thin(x: pd.Series, y: pd.Series, colour: str, dash: str) -> go.Scatter:
    return go.Scatter(
        x=x, y=y, mode="lines", line={"color": colour, "dash": dash, "width": 1}, showlegend=False, hoverinfo="skip"
    )


def _band(x: Floats, low: Floats, high: Floats, colour: str = UTILITY) -> go.Scatter:
    return go.Scatter(
        x=[*x, *x[::-1]], y=[*high, *low[::-1]], mode="lines", fill="toself", fillcolor=colour, opacity=BAND,
        line={"width": 0}, hoverinfo="skip", showlegend=False,
    )  # fmt: skip


def _marks(seen: pd.DataFrame, y: str, error: str | None, name: str, colour: str, symbol: str) -> go.Scatter:
    return go.Scatter(
        x=seen["t"], y=seen[y], mode="markers", name=f"measured, written {name}",
        marker={"color": colour, "symbol": symbol, "size": 9},
        error_y=None if error is None else {"type": "data", "array": seen[error], "color": colour, "thickness": 1.5},
        customdata=seen[["n"]].to_numpy(),
        hovertemplate="after %{x} updates: %{y:.3f} (%{customdata[0]} memories)",
    )  # fmt: skip


def _columns(seen: pd.DataFrame, name: str, value: str, error: str | None, expected: str) -> pd.DataFrame:
    """The columns that a group adds to a table."""
    sentence = {"t": "updates", "n": f"memories, {name}", value: f"measured, {name}", expected: f"theory, {name}"}
    if error is not None:
        sentence[error] = f"s.e., {name}"
    return seen[list(sentence)].rename(columns=sentence)


def _level(y: float) -> dict[str, Any]:
    return {
        "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y,
        "line": {"color": CUT, "dash": "dash", "width": 1.5},
    }  # fmt: skip


def _upright(x: float) -> dict[str, Any]:
    return {
        "type": "line", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1,
        "line": {"color": CUT, "dash": "dot", "width": 1.5},
    }  # fmt: skip


def _note(x: float, y: float, text: str, **more: Any) -> dict[str, Any]:
    return {"x": x, "y": y, "text": text, "showarrow": False, "xanchor": "right", "yanchor": "bottom", **more}


def _lay_out(
    figure: go.Figure,
    shapes: Sequence[dict[str, Any]],
    notes: Sequence[dict[str, Any]],
    x: str,
    y: str,
    rangemode: str = "normal",
) -> None:
    """Everything in one call: each of plotly's own add_vline and add_annotation copies the whole layout."""
    figure.update_layout(
        bare_layout(
            height=340,
            showlegend=True,
            shapes=list(shapes),
            annotations=list(notes),
            xaxis={"title": {"text": x}, "zeroline": False},
            yaxis={"title": {"text": y}, "zeroline": False, "rangemode": rangemode},
        )
    )
