"""What a whole step takes without models (the embedder is one) and the world, now and after many more steps; what a
person's reward takes then, and what several who read the bank add to its memory.

The reference of a step is one append of one row to a new LanceDB table of the same kind as `memories`. Both are taken
in turns, in groups of `GROUP`: at the beginning, and again when `sizes.steps` further steps have been written. That of
a reward is the commit of one row by SQLite itself, as safely.
"""

from __future__ import annotations

import gc
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.measuring import Aim, Row, Sizes, give_back, in_turns, peak, resident_mb, seconds
from benchmarks.synthetic import CREATED, EXPERIENCE, vectors
from memrl_core.agent import Agent
from memrl_core.agent.runs import start_run
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.storage import codec
from memrl_core.bank.storage.codec import Inserted
from memrl_core.bank.storage.vectors import LanceVectors
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments.household import Household
from memrl_core.environments.tasks import sample_tasks
from memrl_core.models.simulated import SimulatedModel
from memrl_core.records import Memory, Task

NAME = "step"
RUN = "headless"
TASKS = "household-train"
BATCH = 50
GROUP = 200
WARM_UP = 20
REFERENCE = "LanceDB appends one row"
COMMIT = "SQLite commits one row"
SESSIONS, ROUNDS = 8, 25
MEMORY = Memory("m", "a task", EXPERIENCE, "success", "a task", (), RUN, 1, "t", CREATED)


def measure(sizes: Sizes) -> list[Row]:
    """Steps on a bank of `sizes.memories` memories of the embedder's own dimension, and `sizes.steps` more of them."""
    embedder = HashingEmbedder(sizes.dimension)
    with TemporaryDirectory(prefix="memrl-bench-", ignore_cleanup_errors=True) as folder, peak() as highest:
        place = Path(folder) / "bank"
        grow(place, sizes.memories, embedder)
        bytes_before, facts_before = _disk(place), _facts(place)
        spent = {"outside": 0.0}
        model, environment = SimulatedModel(), Household()
        with MemoryBank.open(str(place)) as bank:
            agent = Agent(bank, RUN, model, embedder, environment)
            clocked_in(spent, "outside", model, "chat")
            clocked_in(spent, "outside", embedder, "embed")
            clocked_in(spent, "outside", environment, "reset", "step", "distil")
            tasks = iter(household_tasks(sizes.memories, 2 * (GROUP + WARM_UP) + sizes.steps))

            def step() -> float:
                begun, apart = time.perf_counter(), spent["outside"]
                for _ in agent.run([next(tasks)]):
                    pass
                return time.perf_counter() - begun - (spent["outside"] - apart)

            first, first_reference = _in_turns(step, Path(folder) / "before", embedder.dimension)
            for _ in range(sizes.steps):
                step()
            last, last_reference = _in_turns(step, Path(folder) / "after", embedder.dimension)
            taken = bank.next_step(RUN) - 1
            newest, late = (_rewards(bank, at, Path(folder), sizes.repeat) for at in (taken, 1))
            added = _added_by_readers(bank)
        grown = (_disk(place) - bytes_before) / (_facts(place) - facts_before)
    known, dimension = sizes.memories, embedder.dimension
    later = f"after {sizes.steps:,} more steps"
    return [
        Row(NAME, "a step without model and world", known, dimension, first, REFERENCE, first_reference,
            aim=Aim("ratio", 2), peak_mb=highest.mb),
        Row(NAME, "the same, later", known, dimension, last, REFERENCE, last_reference, peak_mb=highest.mb, size=later),
        Row(NAME, "a step later, against one at first", known, dimension, last, "a step at first", first,
            aim=Aim("ratio", 1.3), peak_mb=highest.mb, size=later),
        Row(NAME, "growth on disk ÷ bytes of the facts", known, dimension, value=grown, unit="×",
            aim=Aim("value", 2), peak_mb=highest.mb, size=later),
        Row(NAME, "a person's reward for the newest step", known, dimension, newest[0], COMMIT, newest[1],
            aim=Aim("over_s", 0.005), peak_mb=highest.mb, size=f"a run of {taken:,} steps"),
        Row(NAME, "a person's reward for the first step", known, dimension, late[0], COMMIT, late[1],
            aim=Aim("median_s", 1.0), peak_mb=highest.mb, size=f"a run of {taken:,} steps"),
        Row(NAME, f"memory that {SESSIONS} sessions add which read all {ROUNDS} times more", known, dimension,
            value=added, unit="MB", aim=Aim("value", 20), peak_mb=highest.mb, size=later),
    ]  # fmt: skip


def _in_turns(step: Callable[[], float], place: Path, dimension: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The seconds of `GROUP` steps and of as many appends to a new table."""
    table = LanceVectors.create(str(place), dimension)
    row = codec.table_row(MEMORY, vectors(1, np.random.default_rng(0), dimension)[0], Inserted(1))

    def append() -> None:
        table.append(codec.arrow([row], codec.table_schema(dimension)))

    gc.collect()
    for _ in range(WARM_UP):
        step()
        append()
    pairs = [(step(), seconds(append)) for _ in range(GROUP)]
    return tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)


def _rewards(bank: MemoryBank, step: int, folder: Path, repeat: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The seconds of rewards by a person for one step, each in the place of the last, and of SQLite's own commits."""
    values = count(1)
    with closing(sqlite3.connect(folder / "commits.db", isolation_level=None)) as own:
        own.execute("PRAGMA journal_mode = WAL")
        own.execute("PRAGMA synchronous = FULL")
        own.execute("CREATE TABLE IF NOT EXISTS commits (value REAL)")
        return in_turns(
            lambda: bank.write.ratings.rate(Rating(RUN, step, 1.0 if next(values) % 2 else -1.0, "A person")),
            lambda: own.execute("INSERT INTO commits VALUES (1.0)"),
            repeat,
        )


def _added_by_readers(bank: MemoryBank) -> float:
    """MB of resident memory that sessions add which go on reading all that a screen may ask for; 0.0 where the system
    does not say how much there is.
    """

    def read(rounds: int) -> None:
        for _ in range(rounds):
            bank.refresh()
            bank.utilities(RUN)
            bank.histories(RUN, [bank.memories(RUN)[-1].id])
            bank.steps.table(RUN, ["reward"])

    with ThreadPoolExecutor(SESSIONS) as sessions:
        list(sessions.map(read, [ROUNDS] * SESSIONS))
        give_back()
        before = resident_mb()
        list(sessions.map(read, [ROUNDS] * SESSIONS))
        give_back()
    after = resident_mb()
    return 0.0 if before is None or after is None else after - before


def _disk(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def _facts(place: Path) -> int:
    """The bytes of all facts as they are: vectors and texts, traces, events."""
    with MemoryBank.open(str(place)) as bank:
        traces = bank.steps.table(RUN, ["trace", "embedding"])
        events = sum(len(repr(event)) for event in bank.events())
        memories = sum(bank.embedding(m.id).nbytes + len(m.intent) + len(m.experience) for m in bank.memories())
    return int(traces.nbytes) + events + memories


def grow(place: Path, memories: int, embedder: HashingEmbedder) -> None:
    """Make a bank whose run `RUN` knows `memories` memories: each step writes one."""
    with MemoryBank.create(str(place), embedder.name, embedder.dimension) as bank:
        start_run(bank, environment=Household.name, tasks=TASKS, run=RUN)
        agent = Agent(bank, RUN, SimulatedModel(), embedder, Household())
        with bank.write.batch(BATCH):
            for _ in agent.run(household_tasks(0, memories)):
                pass


def household_tasks(first: int, count: int) -> list[Task]:
    """So many tasks, from number `first` on; when all have come, they come again."""
    every = sample_tasks(TASKS)
    return [every[number % len(every)] for number in range(first, first + count)]


def clocked_in(spent: dict[str, float], part: str, owner: object, *names: str) -> None:
    """From now on the owner's calls of these names add their seconds to a part."""
    for name in names:
        setattr(owner, name, _clocked(spent, part, getattr(owner, name)))


def _clocked(spent: dict[str, float], part: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def clocked(*given: Any, **named: Any) -> Any:
        begun = time.perf_counter()
        try:
            return call(*given, **named)
        finally:
            spent[part] += time.perf_counter() - begun

    return clocked
