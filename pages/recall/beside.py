"""Runs and embedders side by side: the same measures, each with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from memrl_core.agent.preferences import load_preferences
from memrl_core.agent.run_parts import new_embedder
from memrl_core.analysis.recall.found import Measure, measured, rankings, usual
from memrl_core.analysis.recall.queries import labelled
from memrl_core.errors import MemRLError
from memrl_core.models.base import Cancelled, Progress
from pages.recall.which import Which
from pages.shared.models import embedders_at_hand
from pages.shared.picture import show_table
from pages.shared.place import Place
from pages.shared.text import literal
from pages.shared.work import working


@dataclass(frozen=True)
class _Arm:
    """A run with its own vectors, or decided again on those of another embedder; `problem` says why that failed."""

    run: str
    embedder: str
    again: bool
    steps: int = 0
    measures: tuple[Measure, ...] = ()
    problem: str = ""


def side_by_side(place: Place, which: Which) -> None:
    """A row for each run as it was, and for each as other embedders would have it decide."""
    bank, own = place.bank, place.info
    with_labels = {label.run for label in bank.judgements.standing()}
    runs = [info.id for info in bank.runs() if which.derived or info.id in with_labels or info.id == own.id]
    left, right = st.columns(2)
    with left:
        chosen = st.multiselect("Runs", runs, [own.id], key="recall_runs", placeholder="choose runs")
    with right:
        others = st.multiselect(
            "Embedders", [name for name in embedders_at_hand() if name != own.embedder], key="recall_embedders",
            placeholder="also decide every step again on the vectors of …", accept_new_options=True,
            help="All intents are embedded anew, here and for this table alone; nothing is stored. An Ollama model, or "
            "openai:NAME or fastembed:NAME, can be typed.",
        )  # fmt: skip
    if not chosen:
        st.info("Choose a run.")
        return
    arms = working(
        "beside", f"{bank.state} {which} {chosen} {others}",
        lambda report, stop: _arms(place, chosen, others, which, report, stop), "texts and steps",
    )  # fmt: skip
    if arms is None:
        return
    show_table([_row(place, arm) for arm in arms if arm.measures], "recall_beside", "Measures of recall, a row per arm")
    st.caption("A mean over labelled steps with its 95 % interval. Intervals that overlap may still differ by pairs.")
    for arm in arms:
        if arm.problem:
            st.caption(f":material/info: {literal(f'{arm.run} · {arm.embedder}: {arm.problem}')}")


def _arms(
    place: Place, runs: Sequence[str], others: Sequence[str], which: Which, report: Progress, stop: Cancelled
) -> list[_Arm] | None:
    settings = place.bank.settings(place.info.id)
    names = usual(int(settings.get("k1", 10)), int(settings.get("k2", 3)))
    found = []
    for run in runs:
        for other in ("", *others):
            name = other or place.bank.run(run).embedder
            try:
                embedder = new_embedder(other, load_preferences()) if other else None
                queries = labelled(
                    place.bank,
                    run,
                    which.of(place.bank, run),
                    derive=which.derived,
                    embedder=embedder,
                    on_progress=report,
                    cancelled=stop,
                )
            except MemRLError as error:
                found.append(_Arm(run, name, bool(other), problem=str(error)))
                continue
            if queries is None:
                return None
            if not queries:
                found.append(_Arm(run, name, bool(other), problem="No step is labelled."))
                continue
            measures = tuple(measured(rankings(queries), names))
            found.append(_Arm(run, name, bool(other), len(queries), measures))
    return found


def _row(place: Place, arm: _Arm) -> dict[str, object]:
    numbers = {}
    for one in arm.measures:
        kind = one.name.removesuffix(".b").removesuffix(".a").replace("_", " ")
        ends = "" if one.share.low != one.share.low else f" ({one.share.low:.2f} – {one.share.high:.2f})"
        name = f"{kind} · {one.phase}" if one.name[0] in "hmnr" else kind
        numbers[name] = f"{one.share.value:.2f}{ends}" if one.share.known else ""
    return {
        "run": arm.run,
        "method": place.bank.run(arm.run).policy,
        "embedder": arm.embedder + (" (again)" if arm.again else ""),
        "steps": arm.steps,
        **numbers,
    }
