"""Everything anyone did in the bank, and how one q came to be what it is; to filter and to take away."""

from __future__ import annotations

from typing import Any, get_args

import streamlit as st

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.people.audit import COLUMNS, Group, audit, reconstruct, who_did
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import actor_of
from memrl_core.exchange.safe_files import csv_bytes, file_name
from memrl_core.numerals import signed
from pages.shared.picture import download, show_table
from pages.shared.place import Place
from pages.shared.text import literal

SHOWN = 500


def audit_trail(place: Place) -> None:
    """Who did what, newest first; below, every move of one memory's q with the rewards behind it."""
    bank = place.bank
    rows = audit(bank, **_filters(bank))
    st.markdown(f"**{len(rows):,}** events" + (f", of which the newest {SHOWN} are shown" if len(rows) > SHOWN else ""))
    if not rows:
        st.info("Nobody has done anything like that here. Take a filter away, or let the program's own events in.")
    else:
        show_table(
            [_shown(row) for row in rows[:SHOWN]],
            "audit_rows",
            "Everything that was done, the newest first: when, who, what, why and to which step and memories",
            columns={"what": st.column_config.TextColumn("what", width="large")},
            height=420,
        )
        with st.container(horizontal=True, gap="small"):
            download(
                f"These {len(rows):,} as CSV",
                lambda: csv_bytes([{**row, "memories": " ".join(row["memories"])} for row in rows], COLUMNS),
                file_name(place.bank_name, "audit", kind="csv"),
                "audit_csv",
            )
    st.divider()
    _of_memory(place)


def _filters(bank: MemoryBank) -> dict[str, Any]:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="audit_filters"):
        people = ["", *sorted({actor_of(event) for event in bank.people.lately()})]
        who = st.selectbox("Who", people, key="audit_who", width=180, format_func=lambda name: name or "everybody")
        kind = st.selectbox("What", get_args(Group), key="audit_kind", width=150)
        runs = ["", *(info.id for info in reversed(bank.runs()))]
        run = st.selectbox("Run", runs, key="audit_run", width=200, format_func=lambda name: name or "every run")
        memory = st.text_input("Memory (its whole id)", key="audit_memory", width=200, max_chars=200)
        since = st.date_input("From (UTC)", None, key="audit_since", width=150)
        until = st.date_input("To (UTC)", None, key="audit_until", width=150)
        program = st.checkbox("The program and the environment too", key="audit_program")
    return {
        "who": who, "kind": kind, "run": run, "memory": memory.strip(), "since": since, "until": until,
        "people_only": not program,
    }  # fmt: skip


def _shown(row: dict[str, Any]) -> dict[str, str | int]:
    return {
        "when (UTC)": row["created"][:19].replace("T", " "),
        "who": row["who"],
        "what": row["words"] + (" (undone since)" if row["undone"] else ""),
        "reason": row["reason"],
        "run": row["run"],
        "step": row["step"],
        "memories": ", ".join(memory_label(memory_id, row["run"]) for memory_id in row["memories"]),
    }


def _of_memory(place: Place) -> None:
    st.subheader("Who made q what it is", anchor=False)
    run = place.info.id
    ids = [*place.bank.editing.away(run), *place.bank.utilities(run)]
    if not ids:
        st.caption("This run knows no memory yet.")
        return
    memory_id = st.selectbox(
        f"Memory of {literal(run)}", ids, ids.index(place.memory) if place.memory in ids else len(ids) - 1,
        key="audit_q_of",
        format_func=lambda name: f"{memory_label(name, run)} · {place.bank.memory(name).intent[:80]}", width=520,
    )  # fmt: skip
    moves = reconstruct(place.bank, run, memory_id)
    st.markdown(f"q is **{signed(moves[-1].after)}**, and this is how it came about:")
    rows = [
        {
            "step": move.step,
            "q before": move.before,
            "reward": move.reward,
            "from": ", ".join(f"{who_did(e)} ({e.created[:19].replace('T', ' ')} UTC)" for e in move.events),
            "α": move.alpha,
            "q after": move.after,
            "events": " ".join(event.id for event in move.events),
        }
        for move in moves
    ]
    show_table(
        rows, "q_moves", "Every move of this q with the rewards behind it", signs=("q before", "reward", "q after")
    )
    download(
        "These moves as CSV",
        lambda: csv_bytes(rows, list(rows[0])),
        file_name(place.bank_name, run, memory_id, "q", kind="csv"),
        "q_moves_csv",
    )
