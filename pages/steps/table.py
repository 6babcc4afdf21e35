"""Steps as a table whose rows are links and whose heads sort it; all that is in it is drawn as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from memrl_core.analysis.decision.outline import shortened
from memrl_core.bank.step_search import FoundStep, SortKey
from memrl_core.numerals import fixed, signed

_table = st.components.v2.component(
    "memrl_steps",
    html='<div class="steps"></div>',
    css="""
.steps { overflow-x: auto; font: 0.875rem/1.3 var(--st-font, sans-serif); color: var(--st-text-color); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
th, td { padding: 0.3rem 0.6rem; text-align: left; border-bottom: 1px solid var(--st-border-color); }
td:nth-child(2) { width: 34%; min-width: 11rem; }
[data-tone] { white-space: nowrap; }
th { font-weight: 600; white-space: nowrap; background: var(--st-secondary-background-color); }
th button { all: unset; cursor: pointer; }
th button:focus-visible, a:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 2px; }
.number { text-align: right; white-space: nowrap; }
tbody tr { cursor: pointer; }
tbody tr:hover { background: var(--st-secondary-background-color); }
a { color: inherit; font-weight: 600; }
[data-tone="good"]::before { content: "▲ "; }
[data-tone="bad"]::before { content: "▼ "; }
[data-tone="bad"], [data-tone="empty"] { font-weight: 600; }
""",
    js=Path(__file__).with_name("table.js").read_text(),
)
COLUMNS: Sequence[tuple[SortKey | None, str, str, bool]] = (
    ("step", "step", "", True),
    ("task", "task", "Sorted by the task's id", False),
    ("epoch", "epoch", "", True),
    ("outcome", "outcome", "As the step ended", False),
    ("reward", "reward", "As the step ended, and → the one that counts now where that differs", True),
    (None, "by", "Who gave the rewards that stand now", False),
    (None, "valid", "Answers on the list offered, of those that had to be", True),
    ("pool", "pool", "Memories recalled", True),
    ("used", "used", "Memories given to the model", True),
    ("reranked", "rank changed", "Recalled memories whose rank phase B changed", True),
    ("seconds", "seconds", "", True),
)
TONES = {"success": "good", "failure": "bad"}


def step_table(
    rows: Sequence[FoundStep], place: Mapping[str, str], sort: SortKey, descending: bool, caption: str
) -> tuple[int | None, SortKey | None]:
    """Draw the table; returns the step that was just clicked, and the column by which it is to be sorted."""
    found = _table(
        key="step_table",
        data={
            "caption": caption,
            "columns": [{"key": key, "label": label, "title": title or None, "number": number}
                        for key, label, title, number in COLUMNS],
            "rows": [{"step": row.step, "link": f"step?{urlencode({**place, 'step': row.step})}", "cells": _cells(row)}
                     for row in rows],
            "sort": sort,
            "descending": descending,
        },
        on_opened_change=lambda: None,
        on_sorted_change=lambda: None,
    )  # fmt: skip
    return found.opened, found.sorted


def _cells(row: FoundStep) -> list[dict[str, Any]]:
    return [
        {"text": f"{row.step:,}"},
        {"text": shortened(row.intent or row.task), "title": f"{row.intent}\n{row.task}"},
        {"text": f"{row.epoch:,}"},
        {"text": row.outcome, "tone": TONES.get(row.outcome)},
        {"text": _reward(row)},
        {"text": ", ".join(row.sources) or "–"},
        {"text": f"{row.valid} of {row.asked}" if row.asked else "–"},
        {"text": str(row.pool) if row.pool else "empty", "tone": None if row.pool else "empty"},
        {"text": str(row.used)},
        {"text": str(row.reranked)},
        {"text": fixed(row.seconds, 2)},
    ]


def _reward(row: FoundStep) -> str:
    then, now = (("–" if reward is None else signed(reward)) for reward in (row.reward, row.now))
    return then if row.now == row.reward else f"{then} → {now}"
