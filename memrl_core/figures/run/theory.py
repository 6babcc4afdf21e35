"""The curves of theory for one q, with what a run's ledger shows laid over them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd

from memrl_core.analysis.run import theory
from memrl_core.analysis.run.theory import Group, Practice
from memrl_core.errors import InputError
from memrl_core.figures.palette import (
    CUT,
    ENTERED,
    LEFT,
    SIMILARITY,
    UTILITY,
    band,
    curve,
    drawn,
    level,
    marks,
    note,
    titled,
    upright,
)
from memrl_core.figures.picture import Picture
from memrl_core.numerals import signed
from memrl_core.retrieval import Floats

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
    traces = [_band(t, mean - sd, mean + sd), _line(t, mean, "E[q]", UTILITY)]
    table = pd.DataFrame({"updates": t, "E[q]": mean, "sd": sd})
    for group in practice.groups if practice else ():
        seen = _until(group, updates)
        traces += _measured(group, seen, "q", "theory", "se")
        table = table.merge(_columns(group, seen, "q", "theory", "se"), on="updates", how="left")
    shapes, notes = [_level(beta)], [_beta(beta, "β")]
    if half <= updates:
        shapes.append(_upright(half))
        notes.append(_at_top(half, f"half-life {half:.3f}"))
    figure = _figure(traces, shapes, notes, UPDATES, "q")
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
    traces = [_line(t, variance, "Var[q]", UTILITY)]
    table = pd.DataFrame({"updates": t, "Var[q]": variance})
    for group in practice.groups if practice else ():
        seen = _until(group, len(t))
        seen = seen.assign(variance=seen["sd"] ** 2, expected=seen["theory_sd"] ** 2)
        traces += _measured(group, seen, "variance", "expected")
        table = table.merge(_columns(group, seen, "variance", "expected"), on="updates", how="left")
    notes = [_beta(limit, "α/(2 − α) · σ²")]
    figure = _figure(traces, [_level(limit)], notes, UPDATES, "variance of q", rangemode="tozero")
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
    noise, half_life = np.sqrt(theory.variance_limit(alphas, sigma)), theory.half_life(alphas)
    until_within = theory.settled_within(alphas, jump, noise)
    hover = (
        "α = %{customdata[0]:.3f}: half of the jump after %{x:.3f} updates, the rest below the noise after "
        "%{customdata[1]:.3f}; spread %{y:.3f}"
    )
    until = {"customdata": np.column_stack([alphas, until_within]), "showlegend": False}
    traces = [curve(half_life, noise, "every α", CUT, hover, **until)]
    chosen = {a: int(np.flatnonzero(alphas == a)[0]) for a in (*LABELLED, alpha)}
    others = [row for a, row in chosen.items() if abs(np.log(a / alpha)) > CROWDED]
    here = chosen[alpha]
    looks = ((others, "others", CUT, 8, "circle"), ([here], "this α", UTILITY, 14, "diamond"))
    for rows, name, colour, size, symbol in looks:
        named = {"text": [f"α = {alphas[row]:g}" for row in rows], "textposition": "top right", "cliponaxis": False}
        x, y = half_life[rows], noise[rows]
        traces.append(marks(x, y, name, colour, size=size, symbol=symbol, showlegend=False, **named))
    lag, spread = float(half_life[here]), float(noise[here])
    across, up = "updates until half of a change is followed", "spread (sd) that q keeps"
    figure = _figure(traces, [], [], across, up, rangemode="tozero")
    figure["layout"]["xaxis"]["range"] = [-0.3, max(LONGEST_LAG, 1.2 * lag)]
    slower = alpha / 2
    title = (
        f"α = {alpha:g} follows half of a jump of {signed(jump)} in {lag:.3f} updates and keeps a spread of "
        f"{spread:.3f}; half that α takes {float(theory.half_life(slower)):.3f} and keeps "
        f"{float(np.sqrt(theory.variance_limit(slower, sigma))):.3f}"
    )
    table = pd.DataFrame(
        {
            "α": alphas,
            "spread of q": noise,
            "half-life": half_life,
            "updates until the lag is below the spread": until_within,
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
    traces: list[dict[str, Any]] = []
    table, parts = pd.DataFrame({"updates": t}), []
    for alpha, (colour, dash) in zip(alphas, cycle(LINES), strict=False):
        mean = theory.mean_q(since, alpha, after, before)
        sd = float(np.sqrt(theory.variance_limit(alpha, sigma)))
        traces += [_band(t, mean - sd, mean + sd, colour), _line(t, mean, f"α = {alpha:g}", colour, dash)]
        table = table.assign(**{f"E[q], α = {alpha:g}": mean, f"sd, α = {alpha:g}": sd})
        parts.append(f"{float(theory.half_life(alpha)):.3f} updates at α = {alpha:g} (spread {sd:.3f})")
    shapes = [
        {**_level(before), "xref": "x", "x1": shift_at},
        {**_level(after), "xref": "x", "x0": shift_at, "x1": updates},
        _upright(shift_at),
    ]
    notes = [_at_top(shift_at, "the world changes"), {**_beta(after, "new β"), "x": updates, "xref": "x"}]
    figure = _figure(traces, shapes, notes, UPDATES, "q")
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


UPDATES = "updates of a memory"


def _line(x: Floats, y: Floats, name: str, colour: str, dash: str = "solid") -> dict[str, Any]:
    return curve(x, y, name, colour, dash=dash, width=2.5, hovertemplate="after %{x} updates: %{y:.3f}")


def _band(x: Floats, low: Floats, high: Floats, colour: str = UTILITY) -> dict[str, Any]:
    return band(x, low, high, colour, opacity=BAND)


def _measured(group: Group, seen: pd.DataFrame, y: str, theory: str, error: str = "") -> list[dict[str, Any]]:
    """The marks of a group with their errors, and its own curve of theory, drawn thin."""
    name, colour, symbol, dash = GROUPS[group.outcome]
    bars = {"type": "data", "array": seen[error], "color": colour, "thickness": 1.5} if error else None
    look = {"symbol": symbol, "size": 9, "error_y": bars, "customdata": seen[["n"]].to_numpy()}
    hover = "after %{x} updates: %{y:.3f} (%{customdata[0]} memories)"
    found = marks(seen["t"], seen[y], f"measured, written {name}", colour, hovertemplate=hover, **look)
    return [found, curve(seen["t"], seen[theory], "", colour, dash=dash, width=1)]


def _columns(group: Group, seen: pd.DataFrame, value: str, expected: str, error: str = "") -> pd.DataFrame:
    """The columns that a group adds to a table."""
    name = GROUPS[group.outcome][0]
    titles = {"t": "updates", "n": f"memories, {name}", value: f"measured, {name}", expected: f"theory, {name}"}
    if error:
        titles[error] = f"s.e., {name}"
    return seen[list(titles)].rename(columns=titles)


def _level(y: float) -> dict[str, Any]:
    return level(y, color=CUT, dash="dash", width=1.5)


def _upright(x: float) -> dict[str, Any]:
    return upright(x, color=CUT, dash="dot", width=1.5)


def _beta(y: float, text: str) -> dict[str, Any]:
    return note(1, y, text, xref="paper", xanchor="right", yanchor="bottom")


def _at_top(x: float, text: str) -> dict[str, Any]:
    return note(x, 1, text, yref="paper", xanchor="left", yanchor="top")


def _figure(
    traces: Sequence[dict[str, Any]], shapes: Sequence[Any], notes: Sequence[Any], x: str, y: str, **up: Any
) -> dict[str, Any]:
    marked = {"shapes": list(shapes), "annotations": list(notes)}
    return drawn(traces, height=340, showlegend=True, xaxis=titled(x), yaxis=titled(y, **up), **marked)
