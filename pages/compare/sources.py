"""Where a comparison comes from: recorded runs, or one run decided again; computed once for each state of the bank."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

from memrl_core.analysis.compare.alignment import line_of, supposed_line
from memrl_core.analysis.compare.comparison import Comparison, compare
from memrl_core.analysis.compare.counterfactual import Supposed, counterfactual
from memrl_core.bank import MemoryBank
from pages.shared.place import Place
from pages.shared.work import Work, working

LAST = "compare_supposed"


@st.cache_resource(max_entries=4, show_spinner="Laying the runs side by side …")
def _recorded(state: str, runs: tuple[str, ...], _bank: MemoryBank) -> Comparison:
    return compare(_bank, [line_of(_bank, run) for run in runs])


def recorded(place: Place, against: tuple[str, ...]) -> Comparison:
    """The place's run beside other runs of its bank."""
    assert place.run is not None
    return _recorded(place.bank.state, (place.run.id, *against), place.bank)


def supposed(
    place: Place, settings: Mapping[str, Any]
) -> tuple[Comparison | None, Mapping[str, Mapping[str, Any]] | None]:
    """The place's run beside itself with `settings` changed, and these by the line's name; None until it is done."""
    assert place.run is not None
    bank, run = place.bank, place.run.id
    total = len(bank.step_rows(run))

    def decide(report: Callable[[int, int], None], cancelled: Callable[[], bool]) -> list[Supposed]:
        return counterfactual(bank, run, settings, lambda done: report(done, total), cancelled)

    what = f"{bank.state}·{run}·{json.dumps(dict(settings))}"
    decided = working("compare", what, lambda: Work(decide), "steps decided again")
    if decided is None:
        return None, None
    if len(decided) < total:
        st.caption(f"{total - len(decided)} steps cannot be decided again and are left out.")
    name = f"{place.run.id} supposed ({_changed(settings)})"
    known = st.session_state.get(LAST)
    if known is None or known[0] is not decided:
        line = line_of(place.bank, place.run.id).own
        known = (decided, compare(place.bank, [line, supposed_line(line, decided, name)]))
        st.session_state[LAST] = known
    return known[1], {name: settings}


def _changed(settings: Mapping[str, Any]) -> str:
    symbols = {"weight": "λ", "delta": "δ", "epsilon": "ε"}
    return ", ".join(
        f"{symbols.get(name, name)} = {value:g}" if isinstance(value, float) else f"{name} = {value}"
        for name, value in settings.items()
    )
