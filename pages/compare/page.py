"""Compare: runs in lockstep on the same tasks, one run against itself under other settings, or methods side by side."""

import streamlit as st

from memrl_core.analysis.compare.comparison import Comparison, setting_differences
from memrl_core.report.comparison import comparison_report
from pages.compare import choice as choices
from pages.compare.memories import gained_and_lost, trajectories
from pages.compare.methods import in_link, methods_side_by_side
from pages.compare.sources import recorded, supposed
from pages.compare.steps import side_by_side, task_table, where_they_part
from pages.compare.summary import outcomes, setup
from pages.shared import place as places
from pages.shared.header import header
from pages.shared.text import literal

wanted = choices.asked()
place = places.current(keep=in_link())
if place is not None:
    header(place)
if place is None or place.run is None:
    st.info("This bank has no run yet. Start two on the same tasks and seed, and this page compares them.")
    st.page_link("pages/home/page.py", label="Start a run", icon=":material/add:")
    st.stop()

choice = choices.choose(place, wanted)
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
else:
    st.subheader("Memories gained and lost")
    gained_and_lost(place, comparison)
st.download_button(
    "Report of this comparison",
    lambda: comparison_report(bank, compared, settings),
    file_name=f"{comparison.names[0]}-compared.html",
    mime="text/html",
    icon=":material/summarize:",
    on_click="ignore",
    key="compare_report",
    help="One HTML file that opens without a network.",
)
