"""What other settings would have recalled: exact curves over δ and λ, a grid of k1 and k2, and the best setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from memrl_core.agent.runs import fork
from memrl_core.analysis.recall.queries import DEPTH, Query
from memrl_core.analysis.recall.tune import (
    Best,
    Point,
    Pools,
    best_setting,
    grid,
    over_delta,
    over_weight,
    pools_of,
    why_not,
)
from memrl_core.bank.people.roles import Role
from memrl_core.errors import MemRLError
from memrl_core.figures.run.tuning import NAMES, curves_picture, grid_picture
from pages.recall.which import Which
from pages.shared import place as places
from pages.shared.person import person, within_role
from pages.shared.picture import show
from pages.shared.place import Place
from pages.shared.text import errors_shown, failure_kept, literal

K1S, K2S = (3, 5, 10, 20, 30, 50), (1, 2, 3, 5, 8)


def tuning(place: Place, queries: Sequence[Query], which: Which) -> None:
    """Curves, grid and the best setting under a bar for false recall."""
    bank, run = place.bank, place.info.id
    settings = bank.settings(run)
    if said := why_not(settings, place.info.policy):
        st.info(literal(said))
        return
    try:
        pools = pools_of(queries, settings)
    except MemRLError as error:
        st.info(literal(str(error)))
        return
    own = Point(float(settings["delta"]), float(settings["weight"]), int(settings["k1"]), int(settings["k2"]))
    st.caption(
        f"Every labelled step is decided again as of its moment, with the settings of the run now: δ {own.delta:g}, "
        f"λ {own.weight:g}, k1 {own.k1}, k2 {own.k2}. Answers and rewards stay as they were."
    )
    left, right = st.columns(2, gap="large")
    with left:
        low, high = float(min(0.0, own.delta)), float(max(1.0, own.delta))
        show(curves_picture(over_delta(pools, own), "δ", low, high, own.delta), "recall_delta")
    with right:
        show(curves_picture(over_weight(pools, own), "λ", 0.0, 1.0, own.weight), "recall_weight")
    if not (pools.relevant > 0).any():
        st.info(
            "No labelled step has a memory that should come, so k1, k2 and settings cannot be compared by what they "
            "find. Label some as relevant."
        )
        return
    left, right = st.columns(2, gap="large")
    with left:
        measure = st.segmented_control(
            "Measure", ["recall", "precision"], default="recall", key="recall_grid_of", format_func=NAMES.__getitem__,
            label_visibility="collapsed",
        )  # fmt: skip
        k1s = sorted({*(k1 for k1 in K1S if k1 <= DEPTH), min(own.k1, DEPTH)})
        k2s = sorted({*K2S, own.k2})
        found = grid(pools, own, k1s, k2s, measure or "recall")
        show(grid_picture(found, k1s, k2s, own.k1, own.k2, measure or "recall"), "recall_grid")
    with right:
        _best(place, pools, own)


def _best(place: Place, pools: Pools, own: Point) -> None:
    st.markdown("**The best setting under a bar**")
    bar = st.slider("False recall at most", 0.0, 1.0, 0.1, 0.01, key="recall_bar_value")
    try:
        best = best_setting(pools, own, bar)
    except MemRLError as error:
        st.info(literal(str(error)))
        return
    what, *others = best.sentences(own)
    st.markdown(f"**{what}**")
    for sentence in others:
        st.markdown(sentence)
    if not pools.nothing.any():
        st.caption(":material/info: No step is labelled “nothing should come”, so false recall keeps nothing back.")
    st.caption(
        "Measured by leaving one step out: each step under the setting that all others chose, so nobody tunes on what "
        f"is reported. Without one step the choice stays the same in {best.stable:.0%} of cases."
    )
    same = not best.gains_over(own)
    st.button(
        "Use it from the next step on", icon=":material/tune:", type="primary", key="recall_use", on_click=_use,
        args=(place, best), **within_role(place.bank, Role.MANAGE, same),
    )  # fmt: skip
    with st.popover("Use it in a new run", icon=":material/fork_right:", **within_role(place.bank, Role.MANAGE, same)):
        first = st.number_input(
            "From step", place.first_step, place.last_step, place.step or place.first_step, key="recall_fork_step",
            help="The new run knows what this one knew before that step, and meets the same tasks with the same seeds.",
        )  # fmt: skip
        if st.button("Start it", type="primary", key="recall_fork", **within_role(place.bank, Role.MANAGE, same)):
            with errors_shown():
                chosen = _chosen(place, best, int(first))
                started = fork(place.bank, place.info.id, int(first), chosen, by=person())
                places.go_to_steps(run=started.id, step=None)


def _chosen(place: Place, best: Best, step: int | None = None) -> dict[str, Any]:
    """The settings of the run, or those at a step, with the best δ and λ."""
    return {
        **place.bank.settings(place.info.id, step), "delta": best.point.delta, "weight": best.point.weight,
    }  # fmt: skip


def _use(place: Place, best: Best) -> None:
    bank, run = place.bank, place.info.id
    with failure_kept():
        bank.write.change_settings(run, _chosen(place, best), bank.next_step(run), by=person())
        st.toast(f"δ {best.point.delta:g} and λ {best.point.weight:g} hold from step {bank.next_step(run)} on.")
