"""Methods side by side: each arm with a bank of its own, the same tasks and luck."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from memrl_core.agent.run_parts import SIMULATED
from memrl_core.analysis.compare.methods import MethodRow
from memrl_core.analysis.run.metrics import Estimate
from memrl_core.environments.tasks import judged_sets
from memrl_core.exchange.safe_files import csv_bytes
from memrl_core.experiments.method_arms import Arm, MethodsCompared, compare_methods
from memrl_core.figures.compare.methods import cost_picture, csr_picture, forgetting_picture, gain_picture
from memrl_core.models.base import Cancelled, Progress
from memrl_core.numerals import percent, signed
from memrl_core.policies import policy_class, settings_that_fit, usable_policies
from pages.shared.forms import tasks_in
from pages.shared.models import chat_model_choice
from pages.shared.picture import download, show, show_table
from pages.shared.place import download_name
from pages.shared.text import in_badge, literal
from pages.shared.view import BADGES, deviations
from pages.shared.work import Do, working

USUAL = ("none", "rag", "memp", "memrl")
ASKED = "arms_asked"


def methods_side_by_side() -> None:
    """What is compared, a run of it in the background, and what came out."""
    asked = _form()
    if asked is None:
        return
    found = working("arms", repr(sorted(asked.items())), _comparison(asked), "steps")
    if found is not None:
        _results(found)


def _form() -> dict[str, Any] | None:
    """What to compare, once Start was pressed; the link fills the form in."""
    known = usable_policies()
    with st.container(border=True, key="arms_form"):
        chosen = st.multiselect(
            "Methods", known, default=[name for name in USUAL if name in known], key="arms", format_func=_title,
            bind="query-params",
        )  # fmt: skip
        first, second = st.columns(2)
        with first:
            tasks = st.selectbox("Tasks", judged_sets(), key="tasks", bind="query-params")
            most = len(tasks_in(tasks))
            count = st.number_input(
                "How many tasks", min(2, most), most, min(20, most), key="count", bind="query-params"
            )
            epochs = st.number_input("Epochs", 1, 20, 4, key="epochs", bind="query-params")
        with second:
            model = chat_model_choice("arms", begin_with=SIMULATED)
            seeds = st.number_input("Seeds", 1, 30, 3, key="seeds", bind="query-params")
            k2 = st.number_input(
                "k2 · memories in the prompt", 1, 10, 3, key="k2", bind="query-params",
                help="The same prompt budget for every method.",
            )  # fmt: skip
        steps = len(chosen) * count * epochs * seeds
        st.caption(
            f"{steps:,} steps; of the household some hundred go by in a second with the simulated model, of other "
            "worlds fewer. No memory is added as an arm where it is missing: without it nobody could tell gain from "
            "luck."
        )
        sent = st.button("Start", type="primary", icon=":material/play_arrow:", key="arms_start")
    if sent and not chosen:
        st.info("Choose at least one method.")
        return None
    if sent:
        st.session_state[ASKED] = {
            "arms": tuple(chosen), "tasks": tasks, "count": count, "seeds": seeds, "epochs": epochs, "k2": k2,
            "model": model,
        }  # fmt: skip
    asked: dict[str, Any] | None = st.session_state.get(ASKED)
    return asked


def _title(policy: str) -> str:
    return policy_class(policy).spec.title


def _comparison(asked: Mapping[str, Any]) -> Do[MethodsCompared]:
    def arm(name: str) -> Arm:
        k1 = max(asked["k2"], policy_class(name).Settings.model_fields["k1"].default)
        return Arm(_title(name), name, settings_that_fit(name, {"k2": asked["k2"], "k1": k1}))

    def do(report: Progress, cancelled: Cancelled) -> MethodsCompared:
        return compare_methods(
            list(map(arm, asked["arms"])),
            tasks=asked["tasks"],
            count=asked["count"],
            seeds=range(asked["seeds"]),
            epochs=asked["epochs"],
            model=asked["model"],
            on_progress=report,
            cancelled=cancelled,
        )

    return do


def _results(found: MethodsCompared) -> None:
    for arm, why in found.refused.items():
        st.warning(literal(f"{arm} did not run: {why}"), icon=":material/block:")
    if found.stopped:
        st.info(f"Stopped: what follows is from the {len(found.seeds):,} seeds that were over.")
    if not found.rows:
        st.info("No seed was over, so there is nothing to show. Start again and let it run.")
        return
    if found.model == "simulated":
        st.badge(
            "simulated model: a test of the rules in one small world, no ranking of the papers",
            icon=":material/theater_comedy:", color="violet",
        )  # fmt: skip
    _headers(found.rows)
    show(csr_picture([curve for curve in found.curves if curve.arm != found.without], found.luck), "arms_csr")
    st.caption(
        "CSR counts a task for ever once it was solved, also by luck. Grey: what as many tries without memory come "
        "to. Only what lies above the grey band is memory."
    )
    show(gain_picture(found.rows), "arms_gain")
    show(forgetting_picture(found.rows), "arms_forgetting")
    show(cost_picture(found.rows), "arms_cost")
    st.markdown("**All numbers**")
    table = pd.DataFrame([_row(row) for row in found.rows])
    show_table(table, "arms_table", "A row per arm with what it achieved and what it cost")
    seeds = "1 seed" if len(found.seeds) == 1 else f"{len(found.seeds):,} seeds"
    st.caption(
        literal(
            f"Means over {seeds} with 95 % intervals; differences are paired by task and seed, against "
            f"{found.without}. Forgetting A: lost since the last epoch, of all failures; B: of what the last epoch had "
            "solved."
        )
    )
    download(
        "Every step as CSV",
        lambda: csv_bytes(found.steps.to_dict("records"), [str(column) for column in found.steps.columns]),
        download_name("methods-side-by-side", kind="csv"),
        "arms_steps",
    )


def _headers(rows: Sequence[MethodRow]) -> None:
    """Each arm with its badge, and where it differs from its source."""
    with st.container(horizontal=True, gap="small"):
        for row in rows:
            label, colour, meaning = BADGES[row.badge]
            st.badge(in_badge(f"{row.arm} · {label}"), color=colour, help=meaning)
    adapted = [row for row in rows if row.badge == "adapted"]
    if adapted:
        with st.expander(f"Deviations of the adapted arms ({len(adapted):,})"):
            for row in adapted:
                st.markdown(f"**{literal(row.arm)}**")
                deviations(policy_class(row.policy).spec)


def _row(row: MethodRow) -> dict[str, object]:
    cells: dict[str, object] = {"arm": row.arm, "rules of": BADGES[row.badge][0]}
    for title, found in (
        ("solved in the last epoch", row.success),
        ("over no memory", row.gain),
        ("CSR", row.csr),
        ("no memory, as many tries", row.pass_at),
        ("forgetting A", row.lost_of_failures),
        ("forgetting B", row.lost_of_solved),
    ):
        cells[title] = _share(found, difference=title == "over no memory")
    return {
        **cells,
        "memories": _number(row.memories),
        "tokens a task": _number(row.tokens),
        "calls a task": _number(row.calls, 2),
        "own questions a task": _number(row.consulted, 2),
        "seconds of the model a task": _number(row.seconds, 3),
        "not parsed": "" if row.unparsed != row.unparsed else percent(row.unparsed),
    }


def _share(found: Estimate, difference: bool) -> str:
    if not found.known:
        return ""
    value, low, high = (
        f"{signed(100 * v, 1)} pp" if difference else percent(v) for v in (found.value, found.low, found.high)
    )
    return f"{value} [{low}, {high}]"


def _number(value: float, digits: int = 0) -> str:
    return "" if value != value else f"{value:,.{digits}f}"
