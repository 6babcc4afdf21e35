"""How good recall was: measures with intervals, the funnel of loss, and the steps behind each stage."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import streamlit as st

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.recall.changed import changed_sentence, changed_since
from memrl_core.analysis.recall.found import PLAIN, measured, notes_of, rankings, usual
from memrl_core.analysis.recall.grades import SOURCES, STORED_DERIVED, agreement_sentences, on_gold
from memrl_core.analysis.recall.pooling import done_steps, parts_of
from memrl_core.analysis.recall.queries import (
    FOLLOWED,
    NOT_FOLLOWED,
    PROMPT,
    Fate,
    Funnel,
    Query,
    funnel,
    left_at,
    lost_at,
    stages_before,
)
from memrl_core.analysis.recall.success import against_success
from memrl_core.analysis.run.metrics import Rate
from memrl_core.bank import MemoryBank
from memrl_core.figures.run.tuning import funnel_picture, success_picture
from memrl_core.numerals import counted, percent
from pages.recall.which import Which
from pages.recall.winning import winning
from pages.shared import place as places
from pages.shared.person import person
from pages.shared.picture import chosen_row, show, show_table
from pages.shared.place import Place
from pages.shared.text import literal

WHY: dict[str, str] = {
    "not stored": "The run did not know it at this step.",
    "other space": "Its vector, or the query's, is of another embedder.",
    "below delta": "The gate kept it out: δ below its similarity would admit it.",
    "beyond k1": "k1 nearer ones filled the pool: a k1 of its rank would admit it.",
    "kept out": "A rule of the method kept it out of the pool.",
    "reranked away": "It was in the pool, and others had a higher score.",
    "no room": "It was selected and left out of the prompt, which was full.",
    NOT_FOLLOWED: "It was in the prompt, and the answer is not known to follow it.",
}


LEFT = "left: "
FUNNEL_KEY = "recall_funnel"


def measures(place: Place, queries: Sequence[Query], which: Which) -> None:
    """The measures of the run as it was, and the funnel."""
    bank, run = place.bank, place.info.id
    settings = bank.settings(run)
    found = measured(rankings(queries), usual(int(settings.get("k1", 10)), int(settings.get("k2", 3))))
    left, right = st.columns([5, 6], gap="large")
    with left:
        st.markdown(f"**{counted(len(queries), 'labelled step')}** · {literal(_sources(place, which))}")
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
        for sentence in notes_of(found):
            st.caption(f":material/info: {literal(sentence)}")
        if not which.derived and any(one.source == "derived" for one in which.among(bank, run)):
            st.caption(f":material/info: {STORED_DERIVED}")
        if not which.derived and (since := changed_sentence(changed_since(bank, run, which.among(bank, run)))):
            st.caption(f":material/history: {literal(since)}")
        _agreement(place)
    with right:
        lost = funnel(queries)
        show(funnel_picture(lost), FUNNEL_KEY, on_select=_open_bar, selection_mode="points")
    _opened(place, queries, lost)
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


def _sources(place: Place, which: Which) -> str:
    if which.derived:
        return "derived by the environment, not stored"
    by = Counter(label.source for label in which.among(place.bank, place.info.id))
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
        share = f"{percent(right.share or 0.0, 0)} of {counted(right.n, 'label')} ({ends})"
        st.caption(f"{literal(rater)} labels as the environment knows in {share}.")


@st.cache_data(max_entries=4, show_spinner=False)
def _on_gold(_bank: MemoryBank, state: str, run: str) -> dict[str, Rate]:
    return on_gold(_bank, run, _bank.judgements.standing(run))


def _open_bar() -> None:
    """The memories behind the bar of the funnel that was clicked: its second trace is what was lost there."""
    points = st.session_state[FUNNEL_KEY]["selection"]["points"]
    if points:
        bar = str(points[0]["y"])
        st.session_state["recall_part"] = bar, points[0]["curve_number"] == 1
        st.session_state["recall_stage"] = None


def _opened(place: Place, queries: Sequence[Query], found: Funnel) -> None:
    """The memories, and so the steps, behind a part of the funnel."""
    st.markdown("**The steps behind it**", help="Choose a part here, or click a bar of the funnel.")
    parts = _parts(queries, found)
    clicked, was_lost = st.session_state.get("recall_part", ("", False))
    asked = [name for name in (stages_before(clicked) if was_lost else (f"{LEFT}{clicked}",)) if parts.get(name)]
    usually = [name for name in parts if not name.startswith(LEFT) or name in (f"{LEFT}{PROMPT}", f"{LEFT}{FOLLOWED}")]
    shown = [name for name in parts if parts[name] and (name in usually or name in asked)]
    if not shown:
        return
    losses = [name for name in shown if not name.startswith(LEFT)]
    most = max(asked or losses or shown, key=lambda name: len(parts[name]))
    if st.session_state.get("recall_stage") not in shown:
        st.session_state["recall_stage"] = most
    stage = st.segmented_control(
        "Stage", shown, format_func=lambda name: f"{_said(name)} ({len(parts[name]):,})", key="recall_stage",
        label_visibility="collapsed", required=True,
    )  # fmt: skip
    if stage is None:
        return
    if stage in WHY:
        st.caption(WHY[stage])
    rows = parts[stage]
    chosen = chosen_row(
        [_row(query, fate) for query, fate in rows],
        "recall_lost",
        f"Memories that should come: {_said(stage)}",
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


def _parts(queries: Sequence[Query], found: Funnel) -> dict[str, list[tuple[Query, Fate]]]:
    """What can be opened: the losses in the order of the work, then what is left after each stage."""
    known = found.used is not None
    names = [*found.lost, *([NOT_FOLLOWED] if known else [])]
    left = [*found.counts, *([FOLLOWED] if known else [])]
    return {
        **{name: lost_at(queries, name) for name in names},
        **{f"{LEFT}{name}": left_at(queries, name) for name in left},
    }


def _said(name: str) -> str:
    return name.removeprefix(LEFT).replace("delta", "δ")


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
