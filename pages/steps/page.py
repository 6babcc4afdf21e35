"""Steps: all finished steps of a run as a table to filter, sort and take away; each row leads to its step."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import streamlit as st

from memrl_core.analysis.decision.labels import memory_labels, memory_named
from memrl_core.analysis.memory.relations import known_of
from memrl_core.analysis.recall.uses import used_in_steps
from memrl_core.bank import MemoryBank
from memrl_core.bank.step_search import FoundStep, StepQuery
from memrl_core.exchange.safe_files import csv_bytes
from memrl_core.numerals import fixed, signed
from memrl_core.policies import outcome_of
from pages.shared import place as places
from pages.shared.header import follow_others, header
from pages.shared.picture import chosen_row, download

MOST = 2_000  # Rows in the table; the file has all.
CHOICES: Mapping[str, Mapping[str, Any]] = {
    "outcome": {"any outcome": "", "success": "success", "failure": "failure", "unrated": "unrated"},
    "by": {"reward by anyone or nobody": "", "reward by the environment": "environment",
           "reward by a person": "person", "no reward stands": "nobody"},
    "empty": {"any pool": None, "empty pool": True, "something recalled": False},
    "reranked": {"any ranks": None, "a rank changed": True, "no rank changed": False},
    "better": {"any choice": None, "a higher q left out": True, "no higher q left out": False},
    "follows": {"any answer": None, "follows a memory": True, "follows none": False},
}  # fmt: skip
FAR = {
    "surfaced": "Memories in the pool",
    "selected": "Memories in the prompt",
    "used": "Memories that the answer used: as people say, else whose actions it takes. Empty where not known",
    "helpful": "These, where the step succeeded",
}
WIDTHS = {"outcome": 140, "by": 240, "empty": 180, "reranked": 170, "better": 190, "follows": 170}


@st.cache_data(max_entries=16, show_spinner="Looking through the steps …")
def _matching(_bank: MemoryBank, state: str, run: str, query: StepQuery) -> list[int]:
    return _bank.steps.matching(run, query)


def _asked(run: str) -> StepQuery:
    """The filters, which stand in the link."""
    field = partial(st.text_input, label_visibility="collapsed", bind="query-params", max_chars=200)
    task = field("Task", placeholder="part of a task or its id", key="task", width=220)
    chosen = {
        name: words[
            st.selectbox(
                name, list(words), key=name, width=WIDTHS[name], label_visibility="collapsed", bind="query-params"
            )
        ]
        for name, words in CHOICES.items()
    }
    window = _range(field("Step", placeholder="step: 20 or 20-60", key="window", width=150), "A step")
    epochs = _range(field("Epoch", placeholder="epoch: 2 or 2-4", key="epoch", width=130), "An epoch")
    pooled = field("Memory in the pool", placeholder="memory in pool: #7", key="pooled", width=170)
    memory = memory_named(pooled, run)
    about = _about(run)
    words = field("Words", placeholder="words in task, prompt, answer, reason", key="words", width=290)
    return StepQuery(
        task.strip(), chosen["outcome"], chosen["by"], chosen["empty"], chosen["reranked"], memory, epochs,
        chosen["follows"], chosen["better"], words.strip(), window, pooled=about,
    )  # fmt: skip


def _about(run: str) -> frozenset[str] | None:
    """The memories with the metadata that a person asks for; None where nothing is asked or no memory has any."""
    metadata = {name: known_of(known) for name, known in bank.metadata(run).items()}
    if not metadata:
        return None
    values = sorted({value for known in metadata.values() for value in known})
    asked = st.multiselect(
        "Metadata of a memory in the pool", values, key="about", placeholder="metadata in pool: any", width=240,
        label_visibility="collapsed", bind="query-params",
    )  # fmt: skip
    return frozenset(name for name, known in metadata.items() if set(asked) <= set(known)) if asked else None


def _range(text: str, name: str) -> tuple[int, int] | None:
    """The first and the last of the numbers that a person asks for; None where the text names none."""
    named = re.fullmatch(r"\s*(\d{1,9})(?:\s*[-–…]\s*(\d{1,9}))?\s*", text, re.ASCII)
    if named is None:
        if text.strip():
            st.caption(f"{name} is a number, such as 2, or a range, such as 2-4. All of them are shown.")
        return None
    return int(named[1]), int(named[2] or named[1])


def _clear() -> None:
    for name in ("task", "window", "epoch", "pooled", "words"):
        st.session_state[name] = ""
    st.session_state["about"] = []
    for name, words in CHOICES.items():
        st.session_state[name] = next(iter(words))


def _row(row: FoundStep, used: int | None, won: bool) -> dict[str, object]:
    return {
        "step": row.step,
        "task": row.intent or row.task,
        "epoch": row.epoch,
        "outcome": row.outcome,
        "reward": row.reward,
        "reward now": row.now,
        "reward by": ", ".join(row.sources),
        "reason": row.reason,
        "follows": None if row.follows is None else memory_labels(row.follows, run) or "none",
        "valid answers": f"{row.valid} of {row.asked}" if row.asked else "",
        **_far(row, used, won),
        "ranks changed": row.reranked,
        "higher q left out": row.better,
        "seconds": row.seconds,
    }


def _won(row: FoundStep, policy: str, settings: Mapping[str, Any]) -> bool:
    """Whether the step is a success by the reward that counts now."""
    return (row.outcome if row.as_it_ended else outcome_of(policy, settings, row.now)) == "success"


def _far(row: FoundStep, used: int | None, won: bool) -> dict[str, int | None]:
    """How many memories came how far in a step, in the order of `FAR`."""
    return {
        "surfaced": row.pool, "selected": row.used, "used": used, "helpful": used if used is None else used * won,
    }  # fmt: skip


def _csv(bank: MemoryBank, run: str, policy: str, found: list[int]) -> bytes:
    rows, settings = bank.steps.found(run, found), bank.settings(run)
    used = used_in_steps(bank, run, {row.step: row.follows for row in rows})
    left_out = ("now", "sources", "pool", "used")
    columns = [name for name in FoundStep.__dataclass_fields__ if name not in left_out]
    listed = [
        {
            **asdict(row),
            **_far(row, used[row.step], _won(row, policy, settings)),
            "reward now": row.now,
            "reward by": ", ".join(row.sources),
        }
        for row in rows
    ]
    return csv_bytes(listed, [*columns, *FAR, "reward now", "reward by"])


place = places.current()
if place is not None:
    header(place)
if place is None or place.run is None or not place.last_step:
    st.info("There is no finished step yet, so nothing to list. Run a task on Step: its row comes here.")
    st.page_link("pages/step/page.py", label="Go to Step", icon=":material/skip_next:")
    st.stop()
bank, run, policy = place.bank, place.run.id, place.run.policy

with st.container(horizontal=True, vertical_alignment="center", gap="small", key="steps_filters"):
    query = _asked(run)
found = _matching(bank, bank.state, run, query)
total = place.last_step - place.first_step + 1
with st.container(horizontal=True, vertical_alignment="center", gap="small", key="steps_head"):
    st.markdown(f"**{len(found):,} of {total:,} steps**", width="content")
    if query != StepQuery():
        st.button(
            "Clear the filter", icon=":material/filter_alt_off:", type="tertiary", key="steps_clear", on_click=_clear
        )
    download(
        "CSV", lambda: _csv(bank, run, policy, found), places.download_name("steps", kind="csv"), "steps_csv",
        type="tertiary", disabled=not found, help="All steps that pass the filter",
    )  # fmt: skip
if found:
    rows, settings = bank.steps.found(run, found[-MOST:]), bank.settings(run)
    used = used_in_steps(bank, run, {row.step: row.follows for row in rows})
    chosen = chosen_row(
        [_row(row, used[row.step], _won(row, policy, settings)) for row in rows],
        "steps_table",
        "The finished steps that pass the filter",
        write={"reward": signed, "reward now": signed, "seconds": partial(fixed, places=2)},
        columns={
            "task": st.column_config.TextColumn("task", width="large"),
            **{name: st.column_config.NumberColumn(name, help=said) for name, said in FAR.items()},
        },
        height=620,
    )
    if len(found) > MOST:
        st.caption(f"The newest {MOST:,} are shown; the file has all.")
    if chosen is not None:
        places.go_to_steps(step=found[-MOST:][chosen])
else:
    st.info(
        "No step passes this filter. Take a part of it away, or clear it. A memory is named by its number, such as #7, "
        "or by its id."
    )
follow_others(place)
