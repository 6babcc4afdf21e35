"""Lessons: one screen each around a question, in the playground's world; they run in the browser alone."""

from pathlib import Path

import streamlit as st

from memrl_core.lessons.cards import kept
from memrl_core.lessons.lesson import load_shelf, own_folder

HERE = Path(__file__).parent
PLAYGROUND = HERE.parent / "playground"

_lessons = st.components.v2.component(
    "memrl_lessons",
    html='<div class="ls" data-testid="lessons"></div>',
    css=(HERE / "lessons.css").read_text(),
    js="\n".join(
        path.read_text()
        for path in (
            *(PLAYGROUND / f"{name}.js" for name in ("core", "pictures", "averages")),
            HERE / "lessons.js",
        )
    ),
    isolate_styles=False,
)
shelf = load_shelf()
_lessons(
    key="lessons",
    data={
        "lessons": {key: lesson.model_dump(by_alias=True) for key, lesson in shelf.lessons.items()},
        "troubles": list(shelf.troubles),
        "own": str(own_folder()).replace(str(Path.home()), "~", 1),
        "own_keys": sorted(shelf.own),
        "stated_at": shelf.stated_at,
        "pictures": {key: kept(key) for key in shelf.lessons if key not in shelf.own},
    },
)
