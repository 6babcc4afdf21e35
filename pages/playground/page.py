"""Playground: a frozen model, a memory that learns, and a world that shifts; it runs in the browser alone."""

import json
from pathlib import Path

import streamlit as st

from memrl_core.environments.tasks import sample_data_path
from memrl_core.lessons.lesson import PRESETS

HERE = Path(__file__).parent

_playground = st.components.v2.component(
    "memrl_playground",
    html='<div class="pg" data-testid="playground"></div>',
    css=(HERE / "playground.css").read_text(),
    js="\n".join((HERE / f"{name}.js").read_text() for name in ("core", "pictures", "averages", "playground")),
    isolate_styles=False,
)
plane = json.loads((sample_data_path() / "plane.json").read_text(encoding="utf-8"))
_playground(key="playground", data={"presets": [preset.model_dump() for preset in PRESETS], "plane": plane})
