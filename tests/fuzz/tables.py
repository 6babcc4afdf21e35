"""Rows that another program put into the tables of a bank with LanceDB itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
from hypothesis import strategies as st

from memrl_core.bank import MemoryBank
from memrl_core.bank.codec import schemas
from memrl_core.bank.integrity import check
from memrl_core.errors import BankDamaged
from memrl_core.records import EventKind
from tests.builders import DIMENSION
from tests.fuzz.mutations import Edit, as_json, edited, edits, reals, texts, wholes
from tests.fuzz.sources import bank_path, can_be_looked_at, copied, is_a_sentence

JSON_COLUMNS = ("payload", "trace")
NAMES: dict[str, tuple[str, ...]] = {
    "kind": (*EventKind, "an_unknown_kind", ""),
    "source": ("", "environment", "person", "somebody"),
    "run": ("r", "s", "agent", "fork", "", "nobody"),
    "outcome": ("success", "failure", "unrated", "", "other"),
}
MEMORY_IDS = ("r-0001", "r-0002", "r-0002.3", "s-0001", "agent-0001", "nobody", "", None)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the bank, by its number around the end, appended again with changes; a new id unless one is given."""

    like: int
    changes: dict[str, Any]
    inside: list[Edit]


@dataclass(frozen=True, slots=True)
class TableCase:
    """Rows appended to one table."""

    table: str
    rows: list[Row]


def rows_of(table: str) -> st.SearchStrategy[TableCase]:
    """Some rows for a table."""
    schema = schemas(DIMENSION)[table]
    columns = {field.name: _values(field) for field in schema if field.name not in JSON_COLUMNS}
    changes = st.lists(st.sampled_from(sorted(columns)), max_size=4, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: columns[name] for name in names})
    )
    row = st.builds(Row, st.integers(0, 200), changes, st.just([]) | edits(3))
    return st.builds(TableCase, st.just(table), st.lists(row, min_size=1, max_size=3))


def _values(field: pa.Field) -> st.SearchStrategy[Any]:
    if field.name in NAMES:
        return st.sampled_from((*NAMES[field.name], None))
    if pa.types.is_string(field.type):
        return st.none() | texts().filter(lambda text: "\ud800" not in text)
    if pa.types.is_integer(field.type):
        return st.none() | wholes().filter(lambda number: -(2**63) <= number < 2**63)
    if pa.types.is_floating(field.type):
        return st.none() | reals()
    if pa.types.is_fixed_size_list(field.type):
        return st.none() | st.lists(st.sampled_from([0.0, 1.0, -0.5, 1e30]), min_size=8, max_size=8)
    return st.none() | st.lists(st.sampled_from(MEMORY_IDS), max_size=3)


@cache
def _sound(table: str) -> tuple[dict[str, Any], ...]:
    return tuple(lancedb.connect(str(bank_path())).open_table(table).to_arrow().to_pylist())


def check_table(case: TableCase, folder: Path) -> None:
    """The bank opens and every q in it is a number, or it is damaged and says so; and so says the doctor."""
    uri = copied(bank_path(), folder)
    lancedb.connect(str(uri)).open_table(case.table).add(added(case))
    is_whole_or_damaged(str(uri))


def added(case: TableCase) -> pa.Table:
    """The rows of a case."""
    sound = _sound(case.table)
    rows = [_row(sound[row.like % len(sound)], row, f"added-{number}") for number, row in enumerate(case.rows)]
    return pa.Table.from_pylist(rows, schema=schemas(DIMENSION)[case.table])


def is_whole_or_damaged(uri: str) -> bool:
    """Whether the bank opens, every q in it a number; if not, it says that it is damaged, and so does the doctor."""
    is_damaged = False
    try:
        bank = MemoryBank.open(uri)
        can_be_looked_at(bank)
        for info in bank.runs():
            bank.traces(info.id)
    except BankDamaged as error:
        is_a_sentence(error)
        is_damaged = True
    found = check(uri)
    assert found
    assert not is_damaged or any(not finding.ok for finding in found), "damaged, and the doctor finds nothing amiss"
    return not is_damaged


def _row(like: dict[str, Any], row: Row, new_id: str) -> dict[str, Any]:
    made = {**like, "id": new_id, **row.changes}
    for column in JSON_COLUMNS:
        if column in made and row.inside:
            made[column] = as_json(edited(json.loads(like[column]), row.inside))
    return made
