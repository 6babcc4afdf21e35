"""Steps: all finished steps of a run as a table to filter, sort and take away; each row leads to its step."""

from collections.abc import Sequence
from dataclasses import asdict

import streamlit as st

from memrl_core.analysis.people.linked_filter import StepFilter
from memrl_core.bank import MemoryBank
from memrl_core.bank.step_search import FoundStep, StepQuery
from memrl_core.exchange.spreadsheet import csv_bytes
from pages.shared import place as places
from pages.shared.header import follow_others, header
from pages.shared.picture import download
from pages.shared.text import literal
from pages.steps.table import step_table

ROWS = 100
FILTER, PAGE = "steps_filter", "steps_page"
WORDS = {
    "outcome": {"": "any outcome", "success": "success", "failure": "failure", "unrated": "unrated"},
    "by": {"": "reward by anyone or nobody", "environment": "reward by the environment", "person": "reward by a person",
           "nobody": "no reward stands"},
    "empty": {"": "any pool", "yes": "empty pool", "no": "something recalled"},
    "reranked": {"": "any ranks", "yes": "a rank changed", "no": "no rank changed"},
}  # fmt: skip
WIDTHS = {"outcome": 140, "by": 240, "empty": 180, "reranked": 170}


@st.cache_data(max_entries=16, show_spinner="Looking through the steps …")
def _matching(_bank: MemoryBank, state: str, run: str, query: StepQuery) -> list[int]:
    return _bank.matching_steps(run, query)


def _asked() -> StepFilter:
    """The filter of this session; at first what the link says."""
    if FILTER not in st.session_state:
        st.session_state[FILTER], wrong = StepFilter.from_query(st.query_params.to_dict())
        for sentence in wrong:
            st.toast(literal(sentence), icon=":material/link_off:", duration="long")
    asked: StepFilter = st.session_state[FILTER]
    return asked


def _ask(**changes: object) -> None:
    st.session_state[FILTER] = _asked().model_copy(update=changes)
    st.session_state[PAGE] = 0


def _taken(name: str) -> None:
    _ask(**{name: st.session_state[f"steps_{name}"]})


def _filters(asked: StepFilter) -> None:
    for name in ("task", *WORDS, "pooled"):
        st.session_state[f"steps_{name}"] = getattr(asked, name)
    st.text_input("Task", placeholder="part of a task or its id", key="steps_task", width=220, max_chars=200,
                  label_visibility="collapsed", on_change=_taken, args=("task",))  # fmt: skip
    for name, words in WORDS.items():
        st.selectbox(
            StepFilter.model_fields[name].title or name, list(words), key=f"steps_{name}", width=WIDTHS[name],
            format_func=words.__getitem__, label_visibility="collapsed", on_change=_taken, args=(name,),
        )  # fmt: skip
    st.text_input("Memory in the pool", placeholder="memory in pool: #7", key="steps_pooled", width=170, max_chars=200,
                  label_visibility="collapsed", on_change=_taken, args=("pooled",))  # fmt: skip


def _turn(by: int) -> None:
    st.session_state[PAGE] += by


def _pages(found: Sequence[int], first: int) -> None:
    last = min(first + ROWS, len(found))
    st.button("Earlier rows", icon=":material/chevron_left:", key="steps_back", disabled=not first, on_click=_turn,
              args=(-1,))  # fmt: skip
    st.markdown(f"{first + 1:,} – {last:,}", width="content")
    st.button("Later rows", icon=":material/chevron_right:", key="steps_on", disabled=last == len(found),
              on_click=_turn, args=(1,))  # fmt: skip


def _csv(bank: MemoryBank, run: str, found: Sequence[int]) -> bytes:
    columns = [name for name in FoundStep.__dataclass_fields__ if name not in ("now", "sources")]
    rows = [{**asdict(row), "reward by": ", ".join(row.sources), "reward now": row.now}
            for row in bank.found_steps(run, found)]  # fmt: skip
    return csv_bytes(rows, [*columns, "reward now", "reward by"])


asked = _asked()
place = places.current(keep=asked.to_query())
if place is not None:
    header(place)
if place is None or place.run is None or not place.last_step:
    st.info("There is no finished step yet, so nothing to list. Run a task on Step: its row comes here.")
    st.page_link("pages/step/page.py", label="Go to Step", icon=":material/skip_next:")
    st.stop()
bank, run = place.bank, place.run.id

with st.container(horizontal=True, vertical_alignment="center", gap="small", key="steps_filters"):
    _filters(asked)
found = _matching(bank, bank.state, run, asked.query(run))
page = min(max(st.session_state.setdefault(PAGE, 0), 0), max(len(found) - 1, 0) // ROWS)
st.session_state[PAGE] = page
total = place.last_step - place.first_step + 1
with st.container(horizontal=True, vertical_alignment="center", gap="small", key="steps_head"):
    st.markdown(f"**{len(found):,} of {total:,} steps**", width="content")
    if not asked.lets_all_in:
        st.button("Clear the filter", icon=":material/filter_alt_off:", type="tertiary", key="steps_clear",
                  on_click=_ask, kwargs=StepFilter().model_dump())  # fmt: skip
    if len(found) > ROWS:
        _pages(found, page * ROWS)
    download(
        "CSV",
        lambda: _csv(bank, run, found),
        places.download_name("steps", kind="csv"),
        "steps_csv",
        type="tertiary",
        disabled=not found,
        help="All rows of this filter, in this order",
    )
if found:
    rows = bank.found_steps(run, found[page * ROWS : (page + 1) * ROWS])
    opened, by = step_table(
        rows, {"bank": place.bank_name, "run": run}, asked.sort, asked.order == "down",
        f"Steps of {run}: rows {page * ROWS + 1} to {page * ROWS + len(rows)} of {len(found)}",
    )  # fmt: skip
    if opened is not None:
        places.go_to_steps(step=opened)
    if by is not None:
        _ask(sort=by, order="down" if by == asked.sort and asked.order == "up" else "up")
        st.rerun()
else:
    st.info(
        "No step passes this filter. Take a part of it away, or clear it. A memory is named by its number, such as #7, "
        "or by its id."
    )
follow_others(place)
