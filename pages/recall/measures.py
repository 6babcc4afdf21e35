"""How good recall was: measures with intervals, the funnel of loss, and the steps behind each stage."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import streamlit as st

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.recall.found import PLAIN, measured, rankings, usual
from memrl_core.analysis.recall.grades import SOURCES, agreement_sentences, on_gold
from memrl_core.analysis.recall.pooling import done_steps, parts_of
from memrl_core.analysis.recall.queries import Fate, Query, Stage, funnel
from memrl_core.analysis.recall.success import against_success
from memrl_core.analysis.run.metrics import Rate
from memrl_core.bank import MemoryBank
from memrl_core.figures.run.tuning import funnel_picture, success_picture
from memrl_core.numerals import counted, percent
from pages.recall.winning import winning
from pages.shared import place as places
from pages.shared.person import person
from pages.shared.picture import chosen_row, show, show_table
from pages.shared.place import Place
from pages.shared.text import literal

WHY: dict[Stage, str] = {
    "not stored": "The run did not know it at this step.",
    "other space": "Its vector, or the query's, is of another embedder.",
    "below delta": "The gate kept it out: δ below its similarity would admit it.",
    "beyond k1": "k1 nearer ones filled the pool: a k1 of its rank would admit it.",
    "kept out": "A rule of the method kept it out of the pool.",
    "reranked away": "It was in the pool, and others had a higher score.",
    "no room": "It was selected and left out of the prompt, which was full.",
}


def measures(place: Place, queries: Sequence[Query], derived: bool) -> None:
    """The measures of the run as it was, and the funnel."""
    bank, run = place.bank, place.info.id
    settings = bank.settings(run)
    found = measured(rankings(queries), usual(int(settings.get("k1", 10)), int(settings.get("k2", 3))))
    left, right = st.columns([5, 6], gap="large")
    with left:
        st.markdown(f"**{counted(len(queries), 'labelled step')}** · {literal(_sources(place, derived))}")
        show_table(
            [
                {
                    "measure": one.name.removesuffix(".b").replace("_", " "),
                    "phase": "" if one.name in PLAIN else one.phase,
                    "mean": "" if math.isnan(one.share.value) else f"{one.share.value:.3f}",
                    "95 %": "" if math.isnan(one.share.low) else f"{one.share.low:.3f} – {one.share.high:.3f}",
                    "steps": one.queries,
                }
                for one in found
            ],
            "recall_measures",
            "Measures of recall with their intervals",
            height="content",
        )
        for sentence in dict.fromkeys(sentence for one in found for sentence in one.notes):
            st.caption(f":material/info: {literal(sentence[0].upper() + sentence[1:])}.")
        _agreement(place)
    with right:
        lost = funnel(queries)
        show(funnel_picture(lost), "recall_funnel")
    stages = [stage for stage, places_lost in lost.lost.items() if places_lost]
    if stages:
        _lost(place, queries, stages, {stage: len(lost.lost[stage]) for stage in stages})
    _success(place, queries)


def _success(place: Place, queries: Sequence[Query]) -> None:
    found = against_success(place.bank, place.info.id, queries)
    if not found.sentences:
        return
    st.markdown("**Does better recall help the answer?**")
    left, right = st.columns([6, 5], gap="large", vertical_alignment="center")
    with left:
        show(success_picture(found), "recall_success")
    with right:
        for sentence in found.sentences[1:]:
            st.markdown(sentence)
        st.caption(
            "Recall is of what could be in the prompt: of k2 places, or of the memories that should come where these "
            "are fewer. It goes along with success or not; an easy task may have both."
        )


def _sources(place: Place, derived: bool) -> str:
    if derived:
        return "derived by the environment, not stored"
    by = Counter(label.source for label in place.bank.judgements.standing(place.info.id))
    return ", ".join(f"{counted(by[source], 'label')}: {source}" for source in SOURCES if by[source])


def _agreement(place: Place) -> None:
    labels = place.bank.judgements.standing(place.info.id)
    for sentence in agreement_sentences(labels):
        st.caption(literal(sentence))
    # Who still labels would learn from it which items are gold.
    mine = parts_of(place.bank, person(), place.info.id)
    if any(step not in done_steps(batch, person(), labels) for batch, step in mine):
        return
    for rater, right in _on_gold(place.bank, place.bank.state, place.info.id).items():
        ends = f"{percent(right.low or 0.0, 0)} – {percent(right.high or 0.0, 0)}"
        share = f"{percent(right.share or 0.0, 0)} of {right.n:,} labels ({ends})"
        st.caption(f"{literal(rater)} labels as the environment knows in {share}.")


@st.cache_data(max_entries=4, show_spinner=False)
def _on_gold(_bank: MemoryBank, state: str, run: str) -> dict[str, Rate]:
    return on_gold(_bank, run, _bank.judgements.standing(run))


def _lost(place: Place, queries: Sequence[Query], stages: Sequence[Stage], counts: dict[Stage, int]) -> None:
    st.markdown("**Where they were lost**")
    shown = {stage: f"{stage.replace('delta', 'δ')} ({counts[stage]:,})" for stage in stages}
    stage = st.segmented_control(
        "Stage", list(stages), format_func=shown.__getitem__, default=max(stages, key=counts.__getitem__),
        key="recall_stage", label_visibility="collapsed",
    )  # fmt: skip
    if stage is None:
        return
    st.caption(WHY[stage])
    rows = [(query, fate) for query in queries for fate in query.fates if fate.stage == stage]
    chosen = chosen_row(
        [_row(query, fate) for query, fate in rows],
        "recall_lost",
        f"Memories that were lost: {stage}",
        columns={"query": st.column_config.TextColumn("query", width="large")},
        height=260,
    )
    if chosen is None:
        return
    query, fate = rows[chosen]
    with st.container(horizontal=True, vertical_alignment="center", key="recall_card"):
        st.markdown(literal(f"{memory_label(fate.memory_id, query.run)}: {place.bank.memory(fate.memory_id).intent}"))
        if st.button("Open the step", icon=":material/replay:", key="recall_open"):
            places.go_to_steps(step=query.step, memory=fate.memory_id)
    if stage == "reranked away":
        winning(place.bank, query, fate)


def _row(query: Query, fate: Fate) -> dict[str, object]:
    return {
        "step": query.step,
        "query": query.intent,
        "memory": memory_label(fate.memory_id, query.run),
        "grade": fate.grade,
        "similarity": "" if fate.similarity is None else f"{fate.similarity:.3f}",
        "rank": fate.rank,
        "δ then": f"{float(query.settings.get('delta', 0.0)):g}",
        "k1 then": query.settings.get("k1"),
    }
