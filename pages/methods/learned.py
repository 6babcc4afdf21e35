"""What a method has learned from a run by the step in the header: its own method, or another that has watched it."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from memrl_core.analysis.run.consultations import Consultations, consultations
from memrl_core.analysis.run.learned.deciding import Watching
from memrl_core.errors import SettingsError
from memrl_core.policies import policy_class, policy_names
from pages.methods.learned_case import Case
from pages.methods.learned_notes import cases, notes, nothing, reflections_on_task, standing_workflows, tips
from pages.methods.learned_values import (
    actions,
    named_values,
    operations,
    reranker,
    success_rates,
    timeline,
    tries,
    utilities,
)
from pages.shared.place import Place
from pages.shared.text import errors_shown, literal
from pages.shared.view import arm_line
from pages.shared.work import working

OWN = "own"
ASKING = ("model on write", "model on read", "citations")
DRAWN: dict[str, Callable[[Case], None]] = {
    "memrl": utilities,
    "none": nothing,
    "pass_at_k": tries,
    "rag": nothing,
    "exprag": nothing,
    "exprecent": nothing,
    "reflexion": reflections_on_task,
    "memp": success_rates,
    "rememberer": actions,
    "memento": cases,
    "empo2_memory": tips,
    "rmm_reranker": reranker,
    "a_mem": notes,
    "webcoach": timeline,
    "awm": standing_workflows,
    "remem": timeline,
    "self_rag": timeline,
    "memory_r1_ops": operations,
}
"""What is drawn for each method; for others their q, or, where they keep none, the values that they name."""


def learned(place: Place | None) -> None:
    """The step, the method to look at, and what it has learned by the end of the step."""
    if place is None or place.run is None or not place.last_step:
        st.info("There is no finished step to learn from. Start a run on Home, or open the demo.")
        st.page_link("pages/home/page.py", label="Home", icon=":material/home:")
        return
    with errors_shown():
        _about(place, place.run.id, place.run.policy)


def _about(place: Place, run: str, own: str) -> None:
    trace = place.bank.trace(run, place.step or place.last_step)
    st.markdown(f"**Step {trace.step}** · {literal(trace.task.intent)}")
    chosen = st.selectbox(
        "What has been learned by", [OWN, *(name for name in policy_names() if name != own)], key="by", width=620,
        format_func=lambda name: f"{_title(own)} · this run's own method" if name == OWN else _title(name),
        bind="query-params",
    )  # fmt: skip
    name = own if chosen == OWN else chosen
    watching = Watching(place.bank, run, trace.step, name)
    case = Case(place, watching, watching.method(), trace)
    arm_line(case.method.spec)
    if not case.own:
        st.caption(
            f"The tasks, prompts and rewards are those of this run; nothing is stored and no model is asked. What this "
            f"method can use of another's steps: {literal(case.method.spec.carries_over)}"
        )
    DRAWN.get(watching.policy, utilities if case.method.spec.keeps_q else named_values)(case)
    _asked(case)


def _title(name: str) -> str:
    try:
        return policy_class(name).spec.title
    except SettingsError:
        return name


def _asked(case: Case) -> None:
    """How the method's questions to the model came back, in the whole run."""
    if not case.own or not set(case.method.spec.needs) & set(ASKING):
        return
    found = working(
        "learned_asked",
        f"{case.bank.state} {case.run}",
        lambda report, cancelled: consultations(case.bank, case.run),
        "steps",
    )
    if found is None:
        return
    if not found:
        st.caption("The method has not asked the model anything in this run yet.")
        return
    lines = [f"{literal(one.purpose)}: {_line(one)}" for one in found]
    st.caption(f"Asked of the model in this run — {' · '.join(lines)}.")


def _line(one: Consultations) -> str:
    if one.simulated == one.asked:
        return f"{one.asked}, all filled in by the template (no model asked)"
    rate = f" ({one.failure_rate:.0%})" if one.failure_rate else ""
    by_template = f", {one.simulated} by the template" if one.simulated else ""
    return f"{one.asked}, {one.not_parsed} did not parse{rate}{by_template}"
