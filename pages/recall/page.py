"""Recall: was the right memory found? Measures on labelled steps, where memories were lost, labels, and tuning."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.recall.grades import Deriver
from memrl_core.analysis.recall.queries import Query, labelled
from pages.recall.beside import side_by_side
from pages.recall.labelling import labelling
from pages.recall.measures import measures
from pages.recall.sets import golden_set
from pages.recall.tuning import tuning
from pages.recall.which import Which, chosen_labels
from pages.shared import place as places
from pages.shared.header import LABELLING, follow_others, header
from pages.shared.place import Place
from pages.shared.work import working

VIEWS = {"Measures": measures, "Tune": tuning}
LABEL, BESIDE = "Label", "Side by side"


def _queries(place: Place, which: Which) -> list[Query] | None:
    """The labelled steps; None while they are looked at."""
    bank, run = place.bank, place.info.id
    return working(
        "recall", f"{bank.state} {run} {which}",
        lambda report, stop: labelled(
            bank, run, which.of(bank, run), derive=which.derived, on_progress=report, cancelled=stop
        ),
        "steps",
    )  # fmt: skip


def _view(name: str) -> None:
    st.session_state["recall_view"] = name


def _derive() -> None:
    st.session_state["recall_derived"] = True


place = places.current()
if place is not None:
    header(place, keys=LABELLING)
if place is None or place.run is None or not place.last_step:
    st.info(
        "There is no finished step yet, so nothing was recalled. Run a task on Step: its recall can be judged here."
    )
    st.page_link("pages/step/page.py", label="Go to Step", icon=":material/skip_next:")
    st.stop()

# No default: what another page or a button chose for this list would be said to contradict it.
if "recall_view" not in st.query_params and not st.session_state.get("recall_view"):
    st.session_state["recall_view"] = "Measures"
knows = Deriver(place.bank, place.info.id).knows
with st.container(horizontal=True, vertical_alignment="center", gap="medium", key="recall_bar"):
    view = st.segmented_control(
        "View", [*VIEWS, BESIDE, LABEL], key="recall_view", label_visibility="collapsed", required=True,
        bind="query-params",
    )  # fmt: skip
    # Who labels would see in them what should come.
    derive = knows and view != LABEL and st.toggle(
        "Derived labels", key="recall_derived", bind="query-params",
        help="What the environment knows of its tasks labels every memory that the run saw. Nothing is stored, and no "
        "method ever sees it.",
    )  # fmt: skip
    which = Which(derived=True) if derive or view == LABEL else chosen_labels(place)
    golden_set(place)
if view == LABEL:
    labelling(place)
elif view == BESIDE:
    side_by_side(place, which)
else:
    found = _queries(place, which)
    if found:
        VIEWS[view or "Measures"](place, found, which)
    elif found is not None and not which.derived and place.bank.judgements.standing(place.info.id):
        st.info(f"No label of this run is of this source ({', '.join(which.sources)}). Choose another one above.")
    elif found is not None:
        st.info(
            "No step of this run is labelled yet. A label says whether a memory was right to recall for a task; it is "
            "no reward and moves no q. With labels this page says how often the right memory came, where the others "
            "were lost, and which δ and λ would lose fewer. Label by hand, on Step by the key L, or import a golden "
            "set above" + ("; what the environment knows of its tasks can label all at once." if knows else ".")
        )
        with st.container(horizontal=True, key="recall_begin"):
            st.button("Label this step", icon=":material/label:", key="recall_to_label", on_click=_view, args=(LABEL,))
            if knows:
                st.button(
                    "Use the environment's labels", icon=":material/public:", key="recall_to_derived", on_click=_derive
                )
follow_others(place)
