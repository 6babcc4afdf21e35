"""Whether a bank holds what was acknowledged: its rows as they lie, and q computed a second time.

Nothing here uses what the bank itself knows or folds; it is what that is compared with.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lancedb

from memrl_core.bank import MemoryBank
from tests.crash.work import Stored
from tests.oracles.ledger import Believed, believed

CLOSE = 1e-9
NAMED = 3
"""How many ids a fault names."""
Facts = dict[str, Counter[str]]
"""By table, how often each fact has to be there: once, a layout as often as it has places."""


def acknowledged_by(reported: Iterable[Stored]) -> Facts:
    """All that was acknowledged; what was acknowledged twice is one fact."""
    facts: Facts = {"memories": Counter(), "ledger": Counter(), "steps": Counter(), "layouts": Counter()}
    for one in reported:
        for table, ids in (("memories", one.memories), ("ledger", one.events), ("steps", one.steps)):
            facts[table] |= Counter(ids)
        facts["layouts"].update(one.places)
    return facts


def count_of(facts: Facts) -> int:
    """How many facts there are."""
    return sum(ids.total() for ids in facts.values())


@dataclass(frozen=True, slots=True)
class Rows:
    """What lies in the tables now: how often each id, and the rows of the ledger."""

    facts: Facts
    events: list[dict[str, Any]]

    @classmethod
    def of(cls, uri: str) -> Rows:
        """All rows of the bank at `uri`, through SQLite and LanceDB. Raises what opening and reading raise."""
        with closing(sqlite3.connect(Path(uri) / "bank.db")) as database:

            def column(query: str) -> list[str]:
                return [value for (value,) in database.execute(query)]

            steps, layouts = column("SELECT id FROM steps"), column("SELECT layout FROM points")
            named = set(column("SELECT memory_id FROM q_values"))
            database.row_factory = sqlite3.Row
            events = [dict(row) for row in database.execute("SELECT * FROM ledger")]
        for event in events:
            event["memory_ids"] = json.loads(event["memory_ids"])
        memories = lancedb.connect(f"{uri}/vectors").open_table("memories").to_arrow()["id"].to_pylist()
        facts = {
            "memories": Counter(memory_id for memory_id in memories if memory_id in named),
            "ledger": Counter(row["id"] for row in events),
            "steps": Counter(steps),
            "layouts": Counter(layouts),
        }
        return cls(facts, events)

    def lost(self, acknowledged: Facts) -> list[str]:
        """The ids that should be there and are not, or not often enough."""
        return [f"{fact} ({table})" for table, ids in acknowledged.items() for fact in ids - self.facts[table]]

    def doubled(self) -> list[str]:
        """The ids that are there more than once, acknowledged or not."""
        once = {table: ids for table, ids in self.facts.items() if table != "layouts"}
        return [f"{fact} ({table})" for table, ids in once.items() for fact, times in ids.items() if times > 1]

    def unfinished(self, run: str) -> list[int]:
        """The steps of a run of which there are events of attempts, none of which has ended."""
        attempts = [event for event in self.events if event["run"] == run and event["step_id"]]
        ended = {event["step"] for event in attempts if event["step_id"] in self.facts["steps"]}
        return sorted({event["step"] for event in attempts} - ended)


def faults(bank: MemoryBank, rows: Rows, acknowledged: Facts) -> list[str]:
    """What is wrong, a sentence each: facts lost, doubled or unknown to `bank`, q that do not follow, open steps."""
    found = [
        *_named("lost", rows.lost(acknowledged)),
        *_named("stored more than once", rows.doubled()),
        *_named("unknown to the bank", unknown_to(bank, acknowledged)),
    ]
    believed = believed_by(rows.events, rows.facts["steps"])
    known = {info.id for info in bank.runs()}
    found += [f"The run {run} is known to one side only." for run in known ^ believed.keys()]
    for run in known & believed.keys():
        now = {i: (u.q, u.visits) for i, u in bank.utilities(run).items()}
        found += _named(f"have another q than the reference, in {run}", differing(now, believed[run]))
        if bank.steps.unfinished(run) != rows.unfinished(run):
            found.append(f"The steps that never ended in {run} are given as {bank.steps.unfinished(run)}.")
    return found


def _named(what: str, ids: list[str]) -> list[str]:
    return [f"{len(ids)} {what}: {', '.join(ids[:NAMED])}."] if ids else []


def unknown_to(bank: MemoryBank, acknowledged: Facts) -> list[str]:
    """The facts that were acknowledged and that a handle does not know."""
    memories = acknowledged["memories"].keys() - set(bank.memory_ids())
    events = acknowledged["ledger"].keys() - {event.id for event in bank.events_of(acknowledged["ledger"])}
    steps = acknowledged["steps"].keys() - {row.id for info in bank.runs() for row in bank.steps.rows(info.id)}
    return sorted(memories | events | steps)


def differing(one: Believed, other: Believed) -> list[str]:
    """The memories that only one side knows, or of which q (by more than `CLOSE`) or visits differ."""
    return sorted(one.keys() ^ other.keys()) + [
        memory
        for memory in sorted(one.keys() & other.keys())
        if one[memory][1] != other[memory][1] or abs(one[memory][0] - other[memory][0]) > CLOSE
    ]


def believed_by(ledger: Iterable[Mapping[str, Any]], finished: Collection[str]) -> dict[str, Believed]:
    """Memory to (q, visits) of every run, from rows of the ledger, by the oracle."""
    runs: dict[str, list[Any]] = {}
    for row in ledger:
        if row["run"]:
            event = SimpleNamespace(**{**row, "payload": json.loads(row["payload"] or "{}")})
            runs.setdefault(row["run"], []).append(event)
    return {run: believed(events, set(finished)) for run, events in runs.items()}
