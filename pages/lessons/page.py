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
folder, person = own_folder(), Path.home()
_lessons(
    key="lessons",
    data={
        "lessons": {key: lesson.model_dump(by_alias=True) for key, lesson in shelf.lessons.items()},
        "troubles": list(shelf.troubles),
        # On a wall it says no more of the machine than it must: who has set the folder knows where it is.
        "own": f"~/{folder.relative_to(person)}" if folder.is_relative_to(person) else f"$MEMRL_HOME/{folder.name}",
        "own_keys": sorted(shelf.own),
        "stated_at": shelf.stated_at,
        "pictures": {key: kept(key) for key in shelf.lessons if key not in shelf.own},
    },
)
