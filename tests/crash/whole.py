"""Whether a bank holds what was acknowledged: its rows as they lie, and q computed a second time.

Nothing here uses what the bank itself knows or folds; it is what that is compared with.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lancedb

from memrl_core.bank import MemoryBank
from tests.crash.work import Stored
from tests.oracles.ledger import Believed, believed

TABLES = ("memories", "ledger", "steps", "layouts")
CLOSE = 1e-9
NAMED = 3
"""How many ids a fault names."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """How often each fact has to be there, by table: once, a layout as often as it has places."""

    memories: Counter[str]
    ledger: Counter[str]
    steps: Counter[str]
    layouts: Counter[str]

    @classmethod
    def by(cls, reported: Iterable[Stored]) -> Acknowledged:
        """All that was acknowledged; what was acknowledged twice is one fact."""
        memories, ledger, steps = set[str](), set[str](), set[str]()
        layouts = Counter[str]()
        for one in reported:
            memories.update(one.memories)
            ledger.update(one.events)
            steps.update(one.steps)
            layouts.update(one.places)
        return cls(Counter(memories), Counter(ledger), Counter(steps), layouts)

    @property
    def facts(self) -> int:
        """How many there are."""
        return sum(sum(getattr(self, table).values()) for table in TABLES)


@dataclass(frozen=True, slots=True)
class Rows:
    """What lies in the tables now: ids, and the rows of the ledger."""

    memories: Counter[str]
    ledger: Counter[str]
    steps: Counter[str]
    layouts: Counter[str]
    events: list[dict[str, Any]]

    @classmethod
    def of(cls, uri: str) -> Rows:
        """All rows of the bank at `uri`, through SQLite and LanceDB. Raises what opening and reading raise."""
        database = sqlite3.connect(Path(uri) / "bank.db")
        database.row_factory = sqlite3.Row
        events = [dict(row) for row in database.execute("SELECT * FROM ledger")]
        for event in events:
            event["memory_ids"] = json.loads(event["memory_ids"])
        steps = [row["id"] for row in database.execute("SELECT id FROM steps")]
        named = {row["memory_id"] for row in database.execute("SELECT memory_id FROM q_values")}
        layouts = [row["layout"] for row in database.execute("SELECT layout FROM points")]
        database.close()
        memories = lancedb.connect(f"{uri}/vectors").open_table("memories").to_arrow()["id"].to_pylist()
        return cls(
            Counter(memory_id for memory_id in memories if memory_id in named),
            Counter(row["id"] for row in events),
            Counter(steps),
            Counter(layouts),
            events,
        )

    def lost(self, acknowledged: Acknowledged) -> list[str]:
        """The ids that should be there and are not, or not often enough."""
        return [
            f"{fact} ({table})"
            for table in TABLES
            for fact, times in getattr(acknowledged, table).items()
            if getattr(self, table)[fact] < times
        ]

    def doubled(self) -> list[str]:
        """The ids that are there more than once, acknowledged or not."""
        tables = (table for table in TABLES if table != "layouts")
        return [f"{fact} ({table})" for table in tables for fact, times in getattr(self, table).items() if times > 1]

    def unfinished(self, run: str) -> list[int]:
        """The steps of a run of which there are events of attempts, none of which has ended."""
        attempts = [event for event in self.events if event["run"] == run and event["step_id"]]
        ended = {event["step"] for event in attempts if event["step_id"] in self.steps}
        return sorted({event["step"] for event in attempts} - ended)


def faults(bank: MemoryBank, rows: Rows, acknowledged: Acknowledged) -> list[str]:
    """What is wrong, a sentence each: facts lost, doubled or unknown to `bank`, q that do not follow, open steps."""
    found = [
        *_named("lost", rows.lost(acknowledged)),
        *_named("stored more than once", rows.doubled()),
        *_named("unknown to the bank", _unknown(bank, acknowledged)),
    ]
    believed = believed_by(rows.events, rows.steps)
    for run in {info.id for info in bank.runs()} | believed.keys():
        if run not in believed or run not in {info.id for info in bank.runs()}:
            found.append(f"The run {run} is known to one side only.")
            continue
        now = {i: (u.q, u.visits) for i, u in bank.utilities(run).items()}
        found += _named(f"have another q than the reference, in {run}", differing(now, believed[run]))
        if bank.unfinished_steps(run) != rows.unfinished(run):
            found.append(f"The steps that never ended in {run} are told as {bank.unfinished_steps(run)}.")
    return found


def _named(what: str, ids: list[str]) -> list[str]:
    return [f"{len(ids)} {what}: {', '.join(ids[:NAMED])}."] if ids else []


def _unknown(bank: MemoryBank, acknowledged: Acknowledged) -> list[str]:
    memories = acknowledged.memories.keys() - set(bank.memory_ids())
    events = acknowledged.ledger.keys() - {event.id for event in bank.events_of(acknowledged.ledger)}
    steps = acknowledged.steps.keys() - {row.id for info in bank.runs() for row in bank.step_rows(info.id)}
    return sorted(memories | events | steps)


def differing(one: Believed, other: Believed) -> list[str]:
    """The memories that only one side knows, or of which q (by more than `CLOSE`) or visits differ."""
    return [
        memory
        for memory in sorted(one.keys() | other.keys())
        if memory not in one
        or memory not in other
        or one[memory][1] != other[memory][1]
        or abs(one[memory][0] - other[memory][0]) > CLOSE
    ]


# --- q, once more -----------------------------------------------------------------------------------------------------


def believed_by(ledger: Iterable[Mapping[str, Any]], finished: Collection[str]) -> dict[str, Believed]:
    """Memory to (q, visits) of every run, from rows of the ledger, by the oracle."""
    runs: dict[str, list[Any]] = {}
    for row in ledger:
        if row["run"]:
            event = SimpleNamespace(**{**row, "payload": json.loads(row["payload"] or "{}")})
            runs.setdefault(row["run"], []).append(event)
    return {run: believed(events, set(finished)) for run, events in runs.items()}
