"""Compare: runs in lockstep on the same tasks, one run against itself under other settings, or methods side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from memrl_core.analysis.compare.alignment import line_of, parted_after, supposed_line
from memrl_core.analysis.compare.comparison import (
    Comparison,
    compare,
    finding,
    left_alone,
    metric_table,
    setting_differences,
    setup_warnings,
    shared_past,
)
from memrl_core.analysis.compare.counterfactual import counterfactual
from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.decision.outline import shortened
from memrl_core.bank import MemoryBank
from memrl_core.figures.compare.comparison import reward_picture, trajectories_picture
from memrl_core.figures.report.comparison import comparison_report
from memrl_core.numerals import signed
from pages.compare import choice as choices
from pages.compare.methods import methods_side_by_side
from pages.compare.steps import side_by_side, task_table, where_they_part
from pages.shared import place as places
from pages.shared.header import header
from pages.shared.picture import download, show
from pages.shared.place import Place
from pages.shared.text import literal
from pages.shared.work import working

LAST = "compare_supposed"


@st.cache_resource(max_entries=4, show_spinner="Laying the runs side by side …")
def _recorded(state: str, runs: tuple[str, ...], _bank: MemoryBank) -> Comparison:
    return compare(_bank, [line_of(_bank, run) for run in runs])


def recorded(place: Place, against: tuple[str, ...]) -> Comparison:
    """The place's run beside other runs of its bank."""
    return _recorded(place.bank.state, (place.info.id, *against), place.bank)


def supposed(
    place: Place, settings: Mapping[str, Any]
) -> tuple[Comparison | None, Mapping[str, Mapping[str, Any]] | None]:
    """The place's run beside itself with `settings` changed, and these by the line's name; None until it is done."""
    bank, run = place.bank, place.info.id
    total = len(bank.steps.rows(run))

    what = f"{bank.state}·{run}·{json.dumps(dict(settings))}"
    decided = working(
        "compare", what, lambda *progress: counterfactual(bank, run, settings, *progress), "steps decided again"
    )
    if decided is None:
        return None, None
    if len(decided) < total:
        st.caption(f"{total - len(decided)} steps cannot be decided again and are left out.")
    name = f"{place.info.id} supposed ({_changed(settings)})"
    known = st.session_state.get(LAST)
    if known is None or known[0] is not decided:
        line = line_of(place.bank, place.info.id).own
        known = (decided, compare(place.bank, [line, supposed_line(line, decided, name)]))
        st.session_state[LAST] = known
    return known[1], {name: settings}


def _changed(settings: Mapping[str, Any]) -> str:
    symbols = {"weight": "λ", "delta": "δ", "epsilon": "ε"}
    return ", ".join(
        f"{symbols.get(name, name)} = {value:g}" if isinstance(value, float) else f"{name} = {value}"
        for name, value in settings.items()
    )


def setup(comparison: Comparison, settings: Mapping[str, tuple[str, ...]]) -> None:
    """What was not the same, what could not be paired, and the settings that differ as a table."""
    for sentence in setup_warnings(comparison.alignment):
        st.warning(literal(sentence), icon=":material/balance:")
    if past := shared_past(comparison.alignment):
        st.info(past)
    if alone := left_alone(comparison.alignment):
        st.caption(literal(alone))
    if settings:
        table = pd.DataFrame(list(settings.values()), columns=list(comparison.names))
        table.insert(0, "setting that differs", list(settings))
        st.table(_literal(table), hide_index=True, border="horizontal", alt="The settings in which the runs differ")
    else:
        st.caption("All settings are the same.")


def outcomes(comparison: Comparison) -> None:
    """All metrics beside the reward so far."""
    numbers, curve = st.columns([3, 2], gap="medium")
    with numbers:
        st.markdown(f"**{literal(finding(comparison))}**")
        st.table(
            _literal(metric_table(comparison)),
            hide_index=True,
            border="horizontal",
            alt="Every metric of every run, with the difference to the first and its 95 % interval",
        )
        st.caption(
            f"{len(comparison.alignment.rows):,} steps in lockstep. Δ: to {literal(comparison.names[0])}; in brackets "
            "its 95 % percentile interval from 2,000 draws of whole tasks. n: tasks. An interval that holds 0 may be "
            "chance."
        )
        with st.expander("What each metric is"):
            st.markdown("\n".join(f"- **{literal(m.name)}**: {literal(m.meaning)}" for m in comparison.metrics))
    with curve:
        if comparison.rewards is None:
            st.info("No task has a reward in every run, so there is no reward to add up.")
        else:
            show(reward_picture(comparison.rewards, comparison.names), "compare_rewards")


def _literal(table: pd.DataFrame) -> pd.DataFrame:
    """A table of texts in which no head and no cell acts as Markdown."""
    return table.map(literal).rename(columns=literal)


def trajectories(place: Place, comparison: Comparison, line: int) -> None:
    """q of a chosen memory in both runs, for memories that both know; those that part farthest come first."""
    first, other = comparison.alignment.lines[0], comparison.alignment.lines[line]
    one, two = place.bank.utilities(first.info.id), place.bank.utilities(other.info.id)
    theirs = {i: i for i in one if i in two} | {mine: its for its, mine in comparison.likes[line - 1].items()}
    if not theirs:
        st.info("No memory is known in both runs, so no q can be compared.")
        return
    apart = {i: two[its].q - one[i].q for i, its in theirs.items()}
    ordered = sorted(theirs, key=lambda i: -abs(apart[i]))
    asked = {its: mine for mine, its in theirs.items()}.get(place.memory or "", place.memory)
    if asked is not None and asked not in theirs:
        st.caption(f"{literal(memory_label(asked, first.info.id))} is known in one of the two runs only.")
    st.session_state["compare_memory"] = asked if asked in theirs else ordered[0]
    chosen = st.selectbox(
        "Memory",
        ordered,
        key="compare_memory",
        format_func=lambda i: (
            f"{memory_label(i, first.info.id)} · Δq {signed(apart[i])} · {shortened(place.bank.memory(i).intent, 60)}"
        ),
        on_change=lambda: places.go(memory=st.session_state["compare_memory"]),
    )
    histories = [
        (first.name, place.bank.history(first.info.id, chosen)),
        (other.name, place.bank.history(other.info.id, theirs[chosen])),
    ]
    label = memory_label(chosen, first.info.id)
    show(trajectories_picture(histories, label, parted_after(first, other)), "compare_q")


place = places.current()
if place is not None:
    header(place)
if place is None or place.run is None:
    st.info("This bank has no run yet. Start two on the same tasks and seed, and this page compares them.")
    st.page_link("pages/home/page.py", label="Start a run", icon=":material/add:")
    st.stop()

choice = choices.choose(place)
if choice.methods:
    methods_side_by_side()
    st.stop()
comparison: Comparison | None
if choice.against:
    comparison, named = recorded(place, choice.against), None
elif choice.under:
    comparison, named = supposed(place, choice.under)
else:
    st.stop()
if comparison is None:
    st.stop()

compared, bank = comparison, place.bank
settings = setting_differences(place.bank, comparison.alignment.lines, named)
setup(comparison, settings)
if not comparison.alignment.rows:
    st.info("No step can be laid beside another: these runs met no task in common after the steps that they share.")
    st.stop()

if choice.against:
    st.subheader("What they achieved")
    outcomes(comparison)
line = 1
if len(comparison.names) > 2:
    chosen = st.segmented_control(
        f"{literal(comparison.names[0])} step by step with", comparison.names[1:], default=comparison.names[1],
        required=True, key="compare_line", format_func=literal,
    )  # fmt: skip
    line = comparison.names.index(chosen)
st.subheader("Where they part")
where_they_part(place, comparison.pairs[line - 1])
side_by_side(place, comparison, line)
st.subheader("All pairs")
task_table(place, comparison, line)
if choice.against:
    st.subheader("q of one memory in both")
    trajectories(place, comparison, line)
download(
    "Report of this comparison",
    lambda: comparison_report(bank, compared, settings),
    f"{comparison.names[0]}-compared.html",
    "compare_report",
    icon=":material/summarize:",
    help="One HTML file that opens without a network.",
)
