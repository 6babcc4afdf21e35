"""Playground: a frozen model, a memory that learns, and a world that shifts; it runs in the browser alone.

Only a person's own tasks come here, to be embedded.
"""

import json
from pathlib import Path

import numpy as np
import streamlit as st

from memrl_core.embedders.wordllama import WordLlamaEmbedder
from memrl_core.environments.tasks import sample_data_path
from memrl_core.errors import MemRLError
from memrl_core.lessons.lesson import PRESETS
from memrl_core.lessons.own_tasks import groups_of
from memrl_core.lessons.world import GRID

HERE = Path(__file__).parent
OWN = "playground_own_tasks"

_playground = st.components.v2.component(
    "memrl_playground",
    html='<div class="pg" data-testid="playground"></div>',
    css=(HERE / "playground.css").read_text(),
    js="\n".join((HERE / f"{name}.js").read_text() for name in ("core", "pictures", "averages", "playground")),
    isolate_styles=False,
)


def _own_tasks() -> None:
    """Keep what the page is to take next: the groups with their embeddings, or a sentence about what is wrong."""
    pasted = str(st.session_state["playground"]["own"] or "")
    number = st.session_state.get(OWN, {"number": 0})["number"] + 1
    try:
        groups = groups_of(pasted)
        vectors = WordLlamaEmbedder().embed([text for _, texts in groups for text in texts])
        on_grid = np.round(vectors.astype(np.float64) * GRID) / GRID
        st.session_state[OWN] = {"number": number, "groups": groups, "embeddings": on_grid.tolist()}
    except MemRLError as error:
        st.session_state[OWN] = {"number": number, "trouble": str(error)}


plane = json.loads((sample_data_path() / "plane.json").read_text(encoding="utf-8"))
data = {"presets": [preset.model_dump() for preset in PRESETS], "plane": plane, "own": st.session_state.get(OWN)}
_playground(key="playground", data=data, on_own_change=_own_tasks)
