"""The page Decision below its header, drawn again by itself whenever a control moves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import streamlit as st

from memrl_core.analysis.decision import explain
from memrl_core.analysis.decision.labels import SHORT_REASONS, own_score
from memrl_core.analysis.decision.spectrum import spectrum
from memrl_core.analysis.decision.whatif import chosen_from
from memrl_core.figures.decision.decision_diagram import decision_diagram
from memrl_core.figures.picture import Picture
from memrl_core.learning import memrl_rule
from memrl_core.numerals import signed, weight
from memrl_core.records import Candidate, Utility
from memrl_core.settings import MemRLSettings, Normaliser, PolicySettings
from pages.decision import state
from pages.decision.case import Case, case_at
from pages.decision.catalogue import BY_KEY, QUESTIONS, Question
from pages.shared.picture import load_plotly, show_in_place, show_table
from pages.shared.place import Place
from pages.shared.text import errors_shown, literal
from pages.shared.view import arm_line

INTENT_SHOWN = 46


@st.fragment
def body(place: Place) -> None:
    """Controls on the left; on the right the question, its answer, and the pool."""
    with errors_shown():
        case = case_at(place)
        # Before anything is drawn: each part that comes late costs the browser another pass over the page.
        diagram = _diagram(case)
        controls, answer = st.columns([1, 3], gap="medium")
        with controls:
            settings_tried(case)
        with answer:
            _about(case)
            question, a, b = _asked(case)
            with st.container(border=True, key="answer_box"):
                _answered(case, question, a, b)
            if case.decision is not None:
                _pool(case, diagram)
        state.into_url()


def _about(case: Case) -> None:
    if case.spec is not None and case.policy != "memrl":
        arm_line(case.spec)
    if case.at is None:
        st.markdown("This run has memories and no steps: questions about its memory can be asked.")
        return
    trace = case.at
    heading = f"**Step {trace.step}** · {literal(trace.task.intent)}"
    if trace.decision is not None:
        heading += f"\n\nGiven to the model: **{literal(explain.names(trace.decision.selected, case.run))}**"
        if case.changed and case.decision is not None and not case.is_ours:
            heading += (
                f" · under the settings tried out: **{literal(explain.names(case.decision.selected, case.run))}**"
            )
    st.markdown(heading)
    if trace.origin != "agent":
        lacking = " It does not tell: " + "; ".join(trace.lacks) + "." if trace.lacks else ""
        st.caption(literal(f"Reported from outside ({trace.origin}).{lacking}"))
    for sentence in filter(None, (explain.contradiction(one, case.run) for one in trace.retrievals)):
        st.warning(literal(sentence), icon=":material/info:")
    if case.why_not:
        st.info(literal(case.why_not))
    ours = case.by_rules[1] if case.is_ours else None
    if ours is not None:
        title = case.policy if case.spec is None else case.spec.title
        under = "the settings tried out" if case.changed else "the settings of this run"
        st.markdown(
            f":material/functions: Ours, not the agent's: under {under} {literal(title)} would have chosen "
            f"**{literal(explain.names(ours.greedy, case.run))}** of {chosen_from(trace)}. What a setting, a q or "
            "another normaliser would change is computed for this choice; the pool below is the agent's."
        )


def _asked(case: Case) -> tuple[Question, str | None, str | None]:
    open_to = [question for question in QUESTIONS if _can_be_asked(case, question)]
    keys = [question.key for question in open_to]
    asked = state.opened().get(state.ASK)
    answered = (key for key in keys if not _no_answer(case, BY_KEY[key]))
    st.session_state["question"] = asked if asked in keys else next(answered, keys[0])
    st.selectbox(
        "Ask",
        keys,
        key="question",
        filter_mode="contains",
        format_func=lambda key: f"{BY_KEY[key].group} · {BY_KEY[key].text}",
        on_change=lambda: state.put(state.ASK, st.session_state["question"]),
    )
    question = BY_KEY[st.session_state["question"]]
    a = b = None
    if question.memories:
        with st.container(horizontal=True):
            if "a" in question.memories:
                a = _memory(case, "A", state.FIRST, _default_first(case))
            if "b" in question.memories:
                b = _memory(case, "B", state.SECOND, _default_second(case, a))
    return question, a, b


def _can_be_asked(case: Case, question: Question) -> bool:
    return {
        "run": True,
        "step": case.at is not None,
        "decision": case.decision is not None,
        "own": case.decision is not None and (case.own or (case.is_ours and question.key == "flips")),
        "situation": case.situation is not None,
    }[question.needs]


def _no_answer(case: Case, question: Question) -> str:
    """Why a question has no answer for the run's method; empty where it has one."""
    if question.rules == "any":
        return ""
    settings, keeps_q = case.settings, case.spec is not None and case.spec.keeps_q
    weighed = isinstance(settings, MemRLSettings)
    title = case.spec.title if case.spec is not None else f"The policy {case.policy}, which is not installed here,"
    terms = "so this cannot be computed. The table below shows the terms; ask why one was selected and another not."
    if question.rules == "score" and not weighed:
        return f"{title} does not score by (1 − λ) · similarity_z + λ · q_z, {terms}"
    if isinstance(settings, MemRLSettings):
        extras = settings.exploration != "epsilon" or settings.floor is not None or settings.least_q is not None
        with_extras = f"With a bonus, noise, a q floor or a least q the score is no longer λ and two z alone, {terms}"
        return with_extras if extras and question.rules == "score" else ""
    if not keeps_q:
        return f"{title} keeps no q: rewards move no value of a memory, so there is nothing to tell here."
    return "" if question.rules == "q" else f"{title} does not move q by a step size α, so this cannot be computed."


def _memory(case: Case, letter: str, name: str, default: str | None) -> str | None:
    options = case.known()
    if not options:
        options = [memory.id for memory in case.bank.memories(case.run)[: 1 if default else 400]]
    chosen = state.opened().get(name)
    if chosen is not None and chosen not in options and chosen in case.bank.memory_ids():
        options = [chosen, *options]
    if not options:
        st.info("No memory was considered in this step. Choose one on the map of Step, or in Bank.")
        return None
    key = f"memory_{name}"
    st.session_state[key] = chosen if chosen in options else default if default in options else options[0]
    st.selectbox(
        f"{letter} (any other memory: choose it on Step's map or in Bank)" if letter == "A" else letter,
        options,
        key=key,
        format_func=lambda memory_id: _described(case, memory_id),
        on_change=lambda: state.put(name, st.session_state[key]),
    )
    return str(st.session_state[key])


def _described(case: Case, memory_id: str) -> str:
    found = case.candidate(memory_id)
    intent = case.memory(memory_id).intent
    short = intent if len(intent) <= INTENT_SHOWN else intent[: INTENT_SHOWN - 1] + "…"
    if found is None:
        return f"{case.label(memory_id)} · {short}"
    mark = "✓ " if found.selected else ""
    recall = case.recall
    own = own_score(recall, memory_id) if recall is not None else ""
    near = f"{own} · cosine" if own else "sim"
    return f"{mark}{case.label(memory_id)} · {near} {found.similarity:.3f} · q {signed(found.q, 2)} · {short}"


def _default_first(case: Case) -> str | None:
    if case.place.memory:
        return case.place.memory
    return case.decision.selected[0] if case.decision and case.decision.selected else None


def _default_second(case: Case, a: str | None) -> str | None:
    found = case.decision.candidates if case.decision else ()
    return next((c.memory_id for c in found if not c.selected and c.memory_id != a), None)


def _answered(case: Case, question: Question, a: str | None, b: str | None) -> None:
    st.markdown(f"**{question.text}**")
    if why := _no_answer(case, question):
        st.info(literal(why))
        return
    chosen = {"": (), "a": (a,), "b": (b,), "ab": (a, b)}[question.memories]
    if None in chosen:
        return
    if case.is_ours and (question.needs == "situation" or question.key == "flips"):
        st.caption(":material/functions: Ours, not the agent's: by the rules of this run.")
    with errors_shown():
        question.draw(case, *chosen)


def _diagram(case: Case) -> Picture | None:
    """Every candidate's score over λ; None where scores are not made so, or there are none."""
    settings, recorded = case.settings, case.recorded
    if case.decision is None or not case.own:
        return None
    if not isinstance(settings, MemRLSettings) or not isinstance(recorded, MemRLSettings):
        return None
    lines = spectrum(case.decision)
    return decision_diagram(lines, settings.weight, recorded.weight, case.run) if lines.ids else None


def _pool(case: Case, diagram: Picture | None) -> None:
    assert case.decision is not None
    decision = case.decision
    st.markdown("##### The pool of this step")
    if decision.note:
        st.caption(literal(decision.note))
    if diagram is not None:
        show_in_place(diagram, "diagram")
        load_plotly()
        dashed = " Dashed: λ as recorded." if "weight" in case.tried else ""
        st.caption(
            "A line per candidate: left its z of similarity, right its z of q. Shaded: the best k2, which greedy "
            f"selection takes. Dotted: the λ at which that changes.{dashed}"
        )
    show_table(
        [_row(case, candidate) for candidate in decision.candidates],
        "pool",
        "Every memory considered in this step with the numbers that decided",
        columns={"memory": st.column_config.TextColumn("memory", pinned=True)},
        write={"similarity": weight, **dict.fromkeys(("similarity_z", "q", "q_z", "score", "q after"), signed)},
    )


def _row(case: Case, candidate: Candidate) -> dict[str, object]:
    recorded = case.at.decision.selected if case.at and case.at.decision else ()
    z = {term.name: term.normalised for term in candidate.terms}
    row: dict[str, object] = {"memory": case.label(candidate.memory_id), "given": candidate.memory_id in recorded}
    if case.changed and not case.is_ours:
        row["what if"] = candidate.selected
    row["rank"] = candidate.rank_select
    if case.at is not None and case.at.recall is not None and case.at.recall.signal:
        pool = {one.memory_id: one.signal for one in case.at.recall.pool}
        row[f"agent's {case.at.recall.signal}"] = pool.get(candidate.memory_id)
    row["similarity"] = candidate.similarity
    if case.policy == "memrl":
        row |= {"similarity_z": z.get("similarity"), "q": candidate.q, "q_z": z.get("q")}
    elif case.spec is not None and case.spec.keeps_q:
        row["q"] = candidate.q
    if case.policy != "memrl":
        row |= {term.name: term.contribution for term in candidate.terms if term.name != "similarity"}
    row |= {"score": candidate.score, "why": SHORT_REASONS[candidate.reason]}
    reward = case.at.reward.reward if case.at and case.at.reward else None
    if reward is not None and isinstance(case.settings, MemRLSettings):
        moved = memrl_rule(Utility(candidate.q, candidate.visits), reward, case.settings.model_dump())
        row["q after"] = moved if candidate.memory_id in recorded else None
    row["intent"] = case.memory(candidate.memory_id).intent
    return row


NORMALISERS = get_args(Normaliser)


def settings_tried(case: Case) -> None:
    """One control a setting, standing at the value that is looked at."""
    recorded, looked_at = case.recorded, case.settings
    st.markdown("**What if …**")
    if case.situation is None and case.at is not None:
        st.caption("This step cannot be decided again, so nothing can be tried out on it.")
        return
    if looked_at == recorded:
        st.caption("As recorded. Move a control to see another decision; nothing is changed by it.")
    else:
        st.badge("what-if — not applied", icon=":material/science:", color="orange")
    controls = _controls(recorded)
    for name, (label, limits, step) in controls.items():
        _control(recorded, looked_at, name, label, limits, step)
    _numbers(recorded, looked_at, controls)
    if isinstance(recorded, MemRLSettings) and isinstance(looked_at, MemRLSettings):
        _normaliser(recorded, looked_at)
    st.button(
        "Back to recorded settings",
        icon=":material/undo:",
        key="what_if_reset",
        disabled=looked_at == recorded,
        on_click=state.forget_trials,
        width="stretch",
    )


def _normaliser(recorded: MemRLSettings, looked_at: MemRLSettings) -> None:
    key = "what_if_normaliser"
    _stand_at(key, looked_at.normaliser)
    st.segmented_control(
        "Normaliser", NORMALISERS, key=key, required=True,
        help=MemRLSettings.model_fields["normaliser"].description,
        # A field that the browser has only just drawn may report that nothing is chosen.
        on_change=lambda: state.try_out(
            "normaliser", st.session_state[key] or looked_at.normaliser, recorded.normaliser
        ),
    )  # fmt: skip


def _stand_at(key: str, value: object) -> None:
    # A value that is put there goes to the browser, where by now a person may have moved the field on.
    if st.session_state.get(key) != value:
        st.session_state[key] = value


def _controls(recorded: PolicySettings) -> dict[str, tuple[str, tuple[float, float], float]]:
    """The label of each setting that can be tried out, its limits and its step."""
    known = {
        "weight": ("λ · weight of q", (0.0, 1.0), 0.01),
        "delta": ("δ · similarity gate", (-1.0, 1.0), 0.01),
        "k1": ("k1 · pool size", (1, max(50, 2 * getattr(recorded, "k1", 0))), 1),
        "k2": ("k2 · memories in the prompt", (0, max(10, getattr(recorded, "k2", 0))), 1),
        "alpha": ("α · step size", (0.01, 1.0), 0.01),
    }
    return {name: control for name, control in known.items() if hasattr(recorded, name)}


def _control(
    recorded: PolicySettings, looked_at: PolicySettings, name: str, label: str, limits: tuple[float, float], step: float
) -> None:
    key = f"what_if_{name}"
    value = getattr(looked_at, name)
    _stand_at(key, value)
    st.slider(
        label,
        min(limits[0], value),
        max(limits[1], value),
        key=key,
        step=step,
        on_change=lambda: state.try_out(name, st.session_state[key], getattr(recorded, name)),
    )


def _numbers(
    recorded: PolicySettings,
    looked_at: PolicySettings,
    controls: Mapping[str, tuple[str, tuple[float, float], float]],
) -> None:
    """The same settings as fields to type into. They lie in a popover: beside the sliders, fields that follow them make
    the browser lose presses of a key that is held down.
    """
    keys = {name: f"what_if_number_{name}_{getattr(looked_at, name)}" for name in controls}

    def try_all() -> None:
        for name, key in keys.items():
            state.try_out(name, st.session_state[key], getattr(recorded, name))

    with (
        st.popover("Type numbers", icon=":material/keyboard:", width="stretch", key="what_if_numbers"),
        st.form("what_if_typed", border=False),
    ):
        for name, (label, limits, step) in controls.items():
            value = getattr(looked_at, name)
            low, high = min(limits[0], value), max(limits[1], value)
            digits = None if isinstance(step, int) else "%.4f"
            st.number_input(f"{label} as a number", low, high, value, step, digits, key=keys[name])
        st.form_submit_button("Try these", on_click=try_all, width="stretch")
