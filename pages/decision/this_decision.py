"""Questions about one decision: who got in, who did not, what would have changed that; and recall for another text."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import streamlit as st

from memrl_core.agent.preferences import load_preferences
from memrl_core.agent.run_parts import embedder_name, make_embedder
from memrl_core.analysis.decision import explain
from memrl_core.analysis.decision.explain import score_formula
from memrl_core.analysis.decision.gate import admission, newcomers
from memrl_core.analysis.decision.labels import scope_of
from memrl_core.analysis.decision.spectrum import required_q, spectrum
from memrl_core.analysis.decision.whatif import Moved, Situation, by_normaliser, decided, embedded_anew, moved
from memrl_core.embedders.base import Embedder
from memrl_core.environments.tasks import check_intent
from memrl_core.errors import InputError, MemRLError
from memrl_core.figures.decision.recall import recall_picture
from memrl_core.figures.decision.rerank import difference_picture, score_picture
from memrl_core.numerals import fixed, weight
from memrl_core.records import Reason
from memrl_core.retrieval.view import Asked
from pages.decision.case import Case
from pages.shared.models import EMBEDDERS, embedders_at_hand
from pages.shared.picture import show, show_table
from pages.shared.text import literal, verbatim
from pages.shared.work import working


def pair(case: Case, a: str, b: str) -> None:
    """Why was A selected and B not?"""
    assert case.decision is not None
    if a == b:
        st.info("Choose two different memories.")
        return
    one, other = case.candidate(a), case.candidate(b)
    if one is None or other is None:
        for memory_id in (i for i, c in ((a, one), (b, other)) if c is None):
            st.markdown(literal(_why_not_looked_at(case, memory_id)))
        return
    st.markdown(literal(explain.pair(one, other, case.run, case.decision)))
    if one.terms and other.terms:
        verbatim("\n".join(score_formula(candidate, case.run) for candidate in (one, other)))
        show(difference_picture(one, other, case.run), "waterfall")


def _why_not_looked_at(case: Case, memory_id: str) -> str:
    memory, label = case.memory(memory_id), case.label(memory_id)
    if memory.run == case.run and memory.step >= case.trace.step:
        return f"{label} was written later, in step {memory.step}."
    if scope := scope_of(case.trace):
        return f"{label} was not recalled, and the query was restricted: {scope}."
    if case.trace.retrievals:
        return f"{label} was not recalled by the agent, which does not say why."
    return f"{label} was too far from this intent to be looked at: ask what kept it out of the pool."


def flips(case: Case) -> None:
    """At which λ would the choice change?"""
    decision = case.by_rules[1]
    assert decision is not None
    lines = spectrum(decision)
    st.markdown(literal(explain.flips(lines, case.weighed.weight, case.run)))
    if lines.flips:
        show_table(
            [
                {
                    "λ": flip.weight,
                    "added": explain.names(flip.enters, case.run),
                    "removed": explain.names(flip.leaves, case.run),
                }
                for flip in lines.flips
            ],
            "flips",
            "Every λ at which the selection changes",
            columns={"λ": st.column_config.Column("λ", width="small")},
            write={"λ": weight},
        )


def required(case: Case, a: str, b: str) -> None:
    """How much would q have to change?"""
    assert case.situation is not None
    for memory_id in dict.fromkeys((b, a)):
        try:
            found = required_q(case.situation, memory_id, case.weighed)
        except InputError as error:
            st.info(literal(str(error)))
            continue
        st.markdown(literal(explain.requirement(found, case.run)))
    st.caption(
        "Greedy selection, everything else as it was. A changed q also moves the mean and the sd of the pool, and "
        "with them every z: the figures account for that."
    )


def gate(case: Case, b: str) -> None:
    """What kept B out of the pool?"""
    assert case.situation is not None and case.recall is not None
    if scope := scope_of(case.trace):
        st.info(literal(f"The query was restricted: {scope}. What follows is of all that the run knew."))
    try:
        st.markdown(literal(explain.admitted(admission(case.situation, b, case.weighed), case.run)))
    except InputError as error:
        st.info(literal(str(error)))
    if case.changed:
        new = newcomers(case.situation, case.weighed_as_recorded, case.weighed)
        recall = case.by_rules[0] or case.recall
        st.markdown(
            f"With the settings on the left the pool has {len(recall.pool):,} members; new in it: "
            f"{literal(explain.names([m.memory_id for m in new], case.run))}."
        )
    else:
        st.caption("Move δ or k1 on the left to see who would come in.")
    if case.recall.left_out:
        show_table(
            [
                {
                    "rank": m.rank_recall,
                    "memory": case.label(m.memory_id),
                    "similarity": m.similarity,
                    "kept out by": "δ" if m.reason is Reason.BELOW_DELTA else "k1",
                    "intent": case.memory(m.memory_id).intent,
                }
                for m in case.recall.left_out
            ],
            "left_out",
            "The nearest memories that missed the pool",
            write={"similarity": weight},
        )


def normalisers(case: Case) -> None:
    """Did normalisation decide it?"""
    assert case.situation is not None
    found = by_normaliser(case.situation, case.weighed.model_dump())
    own = case.weighed.normaliser
    others = [name for name, chosen in found.items() if set(chosen) != set(found[own])]
    if others:
        st.markdown(f"**Yes**: {', '.join(others)} would select other memories than {own}.")
    else:
        st.markdown("**No**: every way to bring similarity and q to one scale selects the same memories.")
    rows = [{"normaliser": name, "selects": explain.names(chosen, case.run)} for name, chosen in found.items()]
    show_table(rows, "normalisers", "What each normaliser would select from this pool")
    st.caption("pool: z within the pool. fixed: the official code's. raw: as they are.")


def draw(case: Case) -> None:
    """Was this an exploration draw, and what would greedy have done?"""
    assert case.decision is not None
    st.markdown(literal(explain.draw(case.decision, case.run)))
    st.caption(f"Seed of the draw: {case.decision.seed}.")


def other_embedder(case: Case) -> None:
    """What would another embedder have recalled and chosen?"""
    assert case.situation is not None and case.trace.recall is not None and case.trace.decision is not None
    situation, own = case.situation, case.bank.embedder.name
    others = [name for name in embedders_at_hand() if embedder_name(name) != own]
    name = st.selectbox("Embedder", others, key="other_embedder", format_func=lambda one: EMBEDDERS.get(one, one))
    anew = working(
        "embedder", f"{case.trace.id}·{name}",
        lambda *progress: embedded_anew(situation, _embedder(name), *progress), "texts embedded",
    )  # fmt: skip
    if anew is None:
        return
    recall, decision = decided(anew, case.settings.model_dump())
    rows = moved((situation, case.trace.recall, case.trace.decision), (anew, recall, decision))
    for what, was, now in (
        ("The pool", [r.before.in_pool for r in rows], [r.after.in_pool for r in rows]),
        ("Given to the model", [r.before.selected for r in rows], [r.after.selected for r in rows]),
    ):
        entered = [row.memory_id for row, then, here in zip(rows, was, now, strict=True) if here and not then]
        left = [row.memory_id for row, then, here in zip(rows, was, now, strict=True) if then and not here]
        change = f"added {explain.names(entered, case.run)}; removed {explain.names(left, case.run)}"
        st.markdown(literal(f"{what}: {change}." if entered or left else f"{what}: the same memories."))
    show_table(
        [_beside(case, row) for row in rows],
        "embedded_anew",
        "The memories near the intent for either embedder, with their similarities, ranks and what became of them",
        columns={"memory": st.column_config.TextColumn("memory", pinned=True)},
        write={
            **dict.fromkeys(("similarity", "similarity anew"), weight),
            **dict.fromkeys(("rank B", "rank B anew"), partial(fixed, places=0)),
        },
    )
    st.caption(
        f"Intent and {anew.view.size:,} memories embedded by {literal(name)}, not stored; q and seed are those of the "
        f"step. δ = {recall.delta:g} and {len(recall.pool):,} in the pool: a gate fits one embedder, so move δ on the "
        "left to see another."
    )


def _beside(case: Case, row: Moved) -> dict[str, object]:
    before, after = row.before, row.after
    return {
        "memory": case.label(row.memory_id),
        "similarity": before.similarity,
        "similarity anew": after.similarity,
        "rank A": before.rank,
        "rank A anew": after.rank,
        "rank B": before.rank_select,
        "rank B anew": after.rank_select,
        "given": before.selected,
        "given anew": after.selected,
        "intent": case.memory(row.memory_id).intent,
    }


def probe(case: Case) -> None:
    """What would be recalled for a text I type?"""
    text = st.text_input("Intent", key="probe", placeholder="put a hot egg on the table", max_chars=2000)
    if not text.strip():
        st.caption(
            "Type what an agent could be asked to do. The run's newest memory answers, under the settings on the left."
        )
        return
    try:
        intent = check_intent(text)
        embedder = _embedder(case.bank.embedder.name)
        case.bank.embedder.must_match(embedder)
        query = np.asarray(embedder.embed([intent])[0], dtype=np.float32)
        greedy = {**case.settings.model_dump(), "epsilon": 0.0}
        policy = case.bank.run(case.run).policy
        view = replace(case.bank.view(case.run), asked=Asked(query, intent=intent))
        recall, decision = decided(Situation(policy, greedy, view, seed=0))
    except MemRLError as error:
        st.error(literal(str(error)))
        st.caption("A probe needs the embedder that made this bank's vectors; everything else on this page does not.")
        return
    memories = {c.memory_id: case.memory(c.memory_id) for c in decision.candidates}
    show(recall_picture(recall, decision, memories, case.run), "probe_recall")
    if recall.pool:
        show(score_picture(decision, memories, case.run), "probe_score")


@st.cache_resource(max_entries=4, show_spinner=False)
def _embedder(name: str) -> Embedder:
    return make_embedder(name, load_preferences())
