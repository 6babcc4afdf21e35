"""WebCoach, Self-RAG and ReMem: when memory was given to the model, when it was kept back, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import streamlit as st

from memrl_core.analysis.run.learned.deciding import GIVEN, NONE_LEFT, NOTHING, PRUNED, SILENT, what_became
from memrl_core.figures.learned.timeline import timeline_picture
from pages.methods.learned_case import Case, show_or_say
from pages.shared.text import literal

WORDS: Mapping[str, Mapping[str, str]] = {
    "webcoach": {GIVEN: "spoke", SILENT: "kept silent", NOTHING: "nothing to read"},
    "self_rag": {
        GIVEN: "needed, all used",
        PRUNED: "needed, graded out in part",
        NONE_LEFT: "needed, all graded out",
        SILENT: "not needed",
        NOTHING: "nothing found",
    },
    "remem": {
        GIVEN: "kept all",
        PRUNED: "pruned in part",
        NONE_LEFT: "pruned all",
        NOTHING: "nothing retrieved",
    },
}
LEARNED = {
    "webcoach": "The coach learns nothing from rewards: whether its advice helped is not kept. That is the lesson: "
    "keeping silent is a decision too, and here nobody teaches it.",
    "self_rag": "Nothing is learned: the model judges anew in every step, and no reward corrects its grades.",
    "remem": "Nothing is learned: what was pruned stays in the bank, and may be retrieved and pruned again.",
}


def timeline(case: Case) -> None:
    """A mark each time that memory was asked, and the reason in the step looked at."""
    name = case.watching.policy
    found = case.over_all_steps("timeline", lambda report, cancelled: what_became(case.watching, report, cancelled))
    if found is None:
        return
    picture = timeline_picture(found, WORDS[name], case.trace.step)
    show_or_say(picture, "learned_timeline", found.empty, "Choose a run whose steps have a pool.")
    here = found[found["step"] == case.trace.step]
    for (what, why), turns in here.groupby(["what", "why"], sort=False)["turn"]:
        st.markdown(f"**Step {case.trace.step}, {_when(turns)}: {WORDS[name][what]}.** {literal(why)}")
    st.info(LEARNED[name])


def _when(turns: Iterable[int]) -> str:
    later = ", ".join(str(turn + 1) for turn in turns if turn)
    parts = ["at the beginning"] if 0 in set(turns) else []
    return " and ".join([*parts, *([f"before turn {later}"] if later else [])])
