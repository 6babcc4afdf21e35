"""What the agent would recall for a text that a person types: no episode, nothing stored."""

from __future__ import annotations

import numpy as np
import streamlit as st

from memrl_core.agent import workspace
from memrl_core.analysis.decision.whatif import Situation, decided
from memrl_core.embedders.base import Embedder
from memrl_core.environments.tasks import check_intent
from memrl_core.errors import MemRLError
from memrl_core.figures.recall import recall_picture
from memrl_core.figures.rerank import score_picture
from pages.decision.case import Case
from pages.shared.picture import show
from pages.shared.text import literal


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
        case.bank.must_match(embedder)
        query = np.asarray(embedder.embed([intent])[0], dtype=np.float32)
        greedy = {**case.settings.model_dump(), "epsilon": 0.0}
        policy = case.bank.run(case.run).policy
        recall, decision = decided(Situation(policy, greedy, query, case.bank.view(case.run), seed=0))
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
    return workspace.make_embedder(name, workspace.load_preferences())
