"""Theory beside practice: the curves of one q, every formula with its numbers, and what a run's ledger shows."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from memrl_core.agent.twins import labels
from memrl_core.analysis.run.theory import Practice, formulas, measured
from memrl_core.bank import MemoryBank
from memrl_core.figures.run.theory import mean_picture, shift_picture, trade_off_picture, variance_picture
from memrl_core.settings import symbol
from pages.lab.place import LabPlace
from pages.shared.picture import show, show_table
from pages.shared.text import literal

NONE = "theory alone"
ENOUGH = 5
CHARTS = {
    "mean": "Mean of q",
    "variance": "Variance of q",
    "trade-off": "Noise against lag",
    "shift": "A shifting world",
}


def theory_beside_practice(place: LabPlace) -> None:
    """Sliders for one q; below them curves, what a run measured, and formulas."""
    run = _run(place)
    practice = None if run == NONE else _measured(place.bank.state, run, place.bank)
    alpha0 = practice.alpha if practice else 0.3
    sliders, curves = st.columns([1, 2.4])
    with sliders, st.container(border=True):
        alpha = st.slider("α · step size", 0.01, 1.0, alpha0, 0.01, key=f"theory_alpha_{run}")
        beta = st.slider("β · mean reward", -1.0, 1.0, 0.6, 0.05, key="theory_beta")
        sigma = st.slider("σ · spread of a reward", 0.0, 1.0, 0.8, 0.05, key="theory_sigma")
        start = st.slider("q₀ · where q begins", -1.0, 1.0, 0.0, 0.05, key="theory_q0")
        updates = st.slider("t · updates", 1, 60, 15, key="theory_updates")
        after = st.slider("β after a shift", -1.0, 1.0, -0.6, 0.05, key="theory_after")
        st.caption(f"Rewards of −1 and +1 with mean β have σ = √(1 − β²) = {(1 - beta**2) ** 0.5:.3f}.")
    with curves:
        chart = st.segmented_control(
            "Chart", list(CHARTS), format_func=CHARTS.__getitem__, default="mean", required=True, key="theory_chart",
            label_visibility="collapsed",
        )  # fmt: skip
        if chart == "mean":
            show(mean_picture(alpha, beta, sigma, start, updates, practice), "theory_mean")
        elif chart == "variance":
            show(variance_picture(alpha, sigma, practice), "theory_variance")
        elif chart == "trade-off":
            show(trade_off_picture(sigma, after - beta, alpha), "theory_trade_off")
        else:
            others = [a for a in (0.1, 0.9) if abs(a - alpha) > 0.05]
            show(shift_picture([alpha, *others], beta, after, sigma, updates, 3 * updates), "theory_shift")
    if practice is not None:
        _said(practice)
    st.subheader("Every formula with its numbers")
    formula_lines = formulas(alpha, beta, sigma, start, updates)
    show_table(
        pd.DataFrame(
            [
                {"what": f.name, "formula": f.symbols, "with these numbers": f.substituted, "source": f.source}
                for f in formula_lines
            ]
        ),
        "theory_formulas",
        "Every formula with its numbers and its source",
    )


def _run(place: LabPlace) -> str:
    """The run whose measured values are laid over theory."""
    pair = place.twins.runs if place.twins else ()
    names = dict(zip(pair, labels(place.bank, *pair), strict=True)) if pair else {}
    of_memrl = [info.id for info in place.bank.runs() if info.policy == "memrl"]
    others = [run for run in of_memrl if run not in pair and place.bank.next_step(run) > 1]
    measurable = [run for run in pair if run in of_memrl]
    options = [NONE, *measurable, *reversed(others)]
    chosen = st.selectbox(
        "Lay measured values over it",
        options,
        index=1 if measurable and place.twins and place.twins.steps else 0,
        format_func=lambda run: f"{names[run]} ({run})" if run in names else run,
        key=f"theory_run_{'-'.join(pair)}",
        help="A run of MemRL in this bank: what its ledger says about q beside what theory expects.",
    )
    return str(chosen)


@st.cache_data(max_entries=16, show_spinner="Reading the ledger …")
def _measured(state: str, run: str, _bank: MemoryBank) -> Practice:
    return measured(_bank, run)


def _said(practice: Practice) -> None:
    """What the ledger says beside the curves."""
    lines = []
    if practice.half_life is not None:
        found = practice.half_life
        lines.append(
            f"Measured half-life: {found.updates:.2f} updates over {found.memories:,} memories; theory says "
            f"{found.expected:.2f}."
        )
    if practice.late is not None and practice.late.memories >= ENOUGH:
        found_late = practice.late
        lines.append(
            f"Long-run variance: {found_late.ratio:.2f} times that of theory (median of {found_late.memories:,} "
            f"memories); theory lies within the interval of {found_late.agreeing}."
        )
    if practice.left_out:
        lines.append(f"{practice.left_out} memories were moved by another {symbol('alpha')} and are left out.")
    if not lines:
        lines = ["Too few rewards yet to say more about this run."]
    st.markdown("\n".join(f"- {literal(line)}" for line in lines))
