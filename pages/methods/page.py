"""Methods: what each method of the literature does, what each makes of the same step, and what each has learned."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.decision.labels import memory_label, reason_sentence
from memrl_core.analysis.decision.whatif import OnThisPool, on_this_pool
from memrl_core.errors import SettingsError
from memrl_core.figures.decision.methods_on_pool import methods_on_pool_picture
from memrl_core.numerals import signed
from memrl_core.policies import policy_class, policy_names, usable_policies
from memrl_core.policies.base import BADGES as MEANING
from memrl_core.policies.base import RULES, PolicySpec
from memrl_core.records import StepTrace
from pages.methods.learned import learned
from pages.shared import place as places
from pages.shared.header import header
from pages.shared.picture import show, show_table
from pages.shared.place import Place
from pages.shared.text import literal, verbatim
from pages.shared.view import BADGES, arm_line, deviations
from pages.shared.work import working

HOOKS = (
    ("Record", "record"),
    ("When", "when"),
    ("Recall", "recall"),
    ("Select", "select"),
    ("Update", "update"),
    ("Write", "write"),
    ("Forget", "forget"),
)
CARDS, TABLE, POOL, LEARNED = "Cards", "Side by side", "On this pool", "What it has learned"
FEEDBACK = ("episode reward", "step reward", "citation", "human")


COLUMNS = (
    ("stored", "record"),
    ("recalled", "recall"),
    ("scored and selected", "select"),
    ("credited", "update"),
    ("written", "write"),
    ("forgotten", "forget"),
)
"""Of the table: the title of a column and the field of the method."""


def cards(as_table: bool) -> None:
    """Every method that can be had here, two in a row or a row of a table each; a filter by what it learns from."""
    specs = _specs()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        wanted = st.pills("Learns from", [*FEEDBACK, "nothing"], key="methods_feedback", selection_mode="multi")
        text = st.text_input("Find", key="methods_find", placeholder="reward, recency, citation …", width=260)
    shown = [spec for spec in specs if _is_wanted(spec, wanted, text)]
    if not shown:
        st.info("No method is like that. Take a filter away.")
    if as_table:
        _table(shown)
        return
    for start in range(0, len(shown), 2):
        for column, spec in zip(st.columns(2, gap="medium"), shown[start : start + 2], strict=False):
            with column, st.container(border=True, key=f"card_{spec.name}"):
                _card(spec)
    # What the badges mean, and by which rule they are given.
    st.caption(" ".join((*(f"*{BADGES[variant][0]}*: {described}" for variant, described in MEANING.items()), RULES)))


def _table(specs: list[PolicySpec]) -> None:
    rows = [
        {
            "method": spec.title,
            "learns from": ", ".join(spec.feedback) or "nothing",
            "what it learns": spec.learns,
            **{title: getattr(spec, field) for title, field in COLUMNS},
            "whose rules": BADGES[spec.variant][0],
        }
        for spec in specs
    ]
    show_table(
        rows, "methods_table", "Every method: what is stored, recalled, scored, credited and forgotten", height=620
    )
    st.caption("A click on a title sorts by it; a double click on a cell shows all of it.")


def _specs() -> list[PolicySpec]:
    found = []
    for name in policy_names():
        try:
            found.append(policy_class(name).spec)
        except SettingsError as error:
            st.warning(literal(str(error)))
    return found


def _is_wanted(spec: PolicySpec, feedback: list[str], text: str) -> bool:
    learns_from = spec.feedback or ("nothing",)
    if feedback and not set(feedback) & set(learns_from):
        return False
    fields = ("name", "title", "citation", "idea", "cannot", "carries_over", *(field for _, field in HOOKS))
    described = " ".join([*(getattr(spec, field) for field in fields), *spec.feedback, *spec.needs]).lower()
    return all(word in described for word in text.lower().split())


def _card(spec: PolicySpec) -> None:
    label, colour, help_text = BADGES[spec.variant]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"**{literal(spec.title)}**")
        st.badge(label, color=colour, help=help_text)
        others = [BADGES[variant][0] for variant in spec.variants if variant != spec.variant]
        if others:
            st.badge(f"also: {', '.join(others)}", color="gray", help="A setting of the run chooses.")
    st.markdown(literal(spec.idea))
    st.markdown(f"**What it cannot do.** {literal(spec.cannot)}")
    with st.expander("Record, recall, select, update, write, forget", key=f"hooks_{spec.name}"):
        for title, field in HOOKS:
            st.markdown(f"**{title}.** {literal(getattr(spec, field))}")
        st.markdown(f"**Memories of another policy.** {literal(spec.carries_over)}")
    if spec.deviations:
        with st.expander(f"Where it differs from its source ({len(spec.deviations):,})", key=f"deviations_{spec.name}"):
            deviations(spec)
    learns_from = ", ".join(spec.feedback) or "nothing"
    needs = ", ".join(spec.needs) or "nothing special"
    st.caption(literal(f"{spec.name} · {spec.citation} · learns from: {learns_from} · needs: {needs}"))


SAME, OWN = "The same pool", "Its own recall"


def pool(place: Place | None) -> None:
    """The picture of all choices, and below it one method's in full."""
    if place is None or place.run is None or not place.last_step:
        st.info("There is no finished step to ask about. Start a run on Home, or open the demo.")
        st.page_link("pages/home/page.py", label="Home", icon=":material/home:")
        return
    trace = place.bank.trace(place.run.id, place.step or place.last_step)
    st.markdown(f"**Step {trace.step}** · {literal(trace.task.intent)}")
    way = st.segmented_control(
        "Each method gets", [SAME, OWN], key="methods_way", default=SAME, required=True,
        help="The same pool: phase A as the run recalled it, only the selection differs. Its own recall: each method "
        "asks memory in its own way, by similarity, recency or task.",
    )  # fmt: skip
    found = working(
        "on_this_pool",
        f"{place.bank.state} {trace.id} {way}",
        lambda *progress: on_this_pool(place.bank, trace, usable_policies(), way == OWN, *progress),
        "methods",
    )
    if found is None:
        return
    memories = {
        c.memory_id: place.bank.memory(c.memory_id) for one in found if one.decision for c in one.decision.candidates
    }
    show(methods_on_pool_picture(found, memories, trace.run), "methods_on_pool")
    st.caption(
        f"Nothing is stored and no model is asked. Each method decides as if it had watched this run up to step "
        f"{trace.step}, under this run's k1, k2 and δ. Whether another choice would have gone better is a question for "
        "Compare."
    )
    _one(found, trace)


def _one(found: list[OnThisPool], trace: StepTrace) -> None:
    names = [one.spec.name for one in found]
    titles = {one.spec.name: one.spec.title for one in found}
    st.session_state.setdefault("methods_one", names[0])
    chosen = st.selectbox("Look closer at", names, key="methods_one", format_func=titles.__getitem__)
    one = found[names.index(chosen)]
    arm_line(one.spec)
    if one.problem or one.decision is None or one.recall is None:
        st.warning(literal(one.problem))
        return
    for note in one.notes:
        st.info(literal(note), icon=":material/info:")
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**Why**")
        show_table(
            [
                {
                    "memory": memory_label(c.memory_id, trace.run),
                    "given": c.selected,
                    "score": None if c.score is None else signed(c.score),
                    **{term.name: signed(term.contribution) for term in c.terms},
                    "why": reason_sentence(c, one.recall, one.decision),
                }
                for c in one.decision.candidates
            ],
            "methods_one_why",
            "Every memory the method considered, with its terms and the reason",
        )
    with right:
        st.markdown("**What the model would read before its task**")
        with st.container(height=360, key="methods_one_card"):
            verbatim(one.given or "(nothing)")


place = places.current()
if place is not None:
    header(place)
view = st.segmented_control(
    "Show", [CARDS, TABLE, POOL, LEARNED], default=CARDS, key="show", required=True, label_visibility="collapsed",
    bind="query-params",
)  # fmt: skip
if view in (CARDS, TABLE):
    cards(view == TABLE)
elif view == POOL:
    pool(place)
else:
    learned(place)
