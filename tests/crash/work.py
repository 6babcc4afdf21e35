"""Work on a bank in a process of its own, which tells every fact once the call that stored it has returned.

    python -m tests.crash.work

reads a `Job` as a line of JSON, opens the bank, says {"ready": true} and works: a line {"stored": …} for what has been
stored since the line before. With `turns` it ends by itself: it says {"done": …}, and for every further line that it
reads it takes in what others appended and says what it then knows.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from memrl_core.agent import Agent
from memrl_core.agent.recorder import Recorder
from memrl_core.agent.runs import start_run
from memrl_core.analysis.map.projection import Pca
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.storage import vectors
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments.household import Household
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import MemRLError
from memrl_core.exchange.archive import read_bank
from memrl_core.exchange.bring_in import Names, bring_in
from memrl_core.exchange.contents import Contents
from memrl_core.exchange.new_banks import merge_runs
from memrl_core.models.simulated import SimulatedModel
from memrl_core.records import Phase, StepTrace, Task
from tests.small_banks import withdraw

TASKS = "household-train"
BATCH = 6
PLACED = 60
BETWEEN_COMPACTIONS = 0.02
RATED_EARLY = 5
"""One step in so many is rated before it ends."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a process is to do: `kind` of `KINDS`, in `run`, on the bank at `uri`; forever, or for so many `turns`.

    `archive` is the file that the import takes in.
    """

    uri: str
    kind: str
    run: str
    seed: int = 0
    turns: int = 0
    archive: str = ""


@dataclass(frozen=True, slots=True)
class Stored:
    """Facts by id, `places` as how many of each layout; `begun` is an import that is about to begin."""

    memories: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    places: Mapping[str, int] = field(default_factory=dict)
    begun: str = ""


def main() -> None:
    """Do the job that the first line of the standard input describes."""
    job = Job(**json.loads(sys.stdin.readline()))
    # So a short time compacts and cleans up as often as a long one.
    vectors.APPENDS_PER_COMPACTION, vectors.MANY_FRAGMENTS, vectors.KEEP_VERSIONS = 9, 2, timedelta(seconds=0.5)
    try:
        _work(job)
    except MemRLError as error:
        _say({"failed": str(error)})
        raise


def _work(job: Job) -> None:
    with MemoryBank.open(job.uri) as bank:
        work = KINDS[job.kind](bank, job)
        HashingEmbedder().embed(["a first text"])  # What it imports is no part of the work.
        _say({"ready": True})
        for reported in islice(work, job.turns or None):
            _say({"stored": asdict(reported)})
        _say({"done": True})
        for _ in sys.stdin:
            bank.refresh()
            _say({"known": digest(bank)})


def _say(line: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def digest(bank: MemoryBank) -> str:
    """A name for everything that a handle knows: other memories, steps or q make another."""
    known = [
        bank.memory_ids(),
        [
            (
                info.id,
                [row.id for row in bank.steps.rows(info.id)],
                sorted((i, u.q, u.visits) for i, u in bank.utilities(info.id).items()),
            )
            for info in sorted(bank.runs(), key=lambda info: info.id)
        ],
    ]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()


# --- steps ------------------------------------------------------------------------------------------------------------


def agent_of(bank: MemoryBank, run: str) -> Agent:
    """An agent with the embedded parts on a run of the bank, which is started where there is none."""
    bank.refresh()
    if run not in {info.id for info in bank.runs()}:
        start_run(bank, environment=Household.name, tasks=TASKS, run=run)
    return Agent(bank, run, SimulatedModel(), HashingEmbedder(), Household())


def tasks_from(number: int) -> Iterator[Task]:
    """The tasks of a run from step `number` on, without end."""
    every = sample_tasks(TASKS)
    return islice(cycle(every), number % len(every), None)


def stored_by(traces: Iterable[StepTrace]) -> Stored:
    """The facts that finished steps have brought into the bank."""
    memories, events, steps = [], [], []
    for trace in traces:
        steps.append(trace.id)
        if trace.reward is not None and trace.reward.source == "environment":
            events.append(f"{trace.id}:environment")
        for operation in trace.write.operations if trace.write else ():
            memories.append(operation.memory_id)
            events.append(f"{trace.id}:{operation.memory_id}")
    return Stored(tuple(memories), tuple(events), tuple(steps))


def _run(bank: MemoryBank, job: Job) -> Iterator[Stored]:
    """Steps, some rated before they end, in single appends and then several an append."""
    agent, rng = agent_of(bank, job.run), np.random.default_rng(job.seed)
    tasks = tasks_from(bank.next_step(job.run))
    while True:
        for task in islice(tasks, BATCH):
            episode = agent.begin(task)
            if rng.integers(RATED_EARLY) == 0:
                while episode.phase is not Phase.REWARD:
                    episode.advance()
                yield Stored(events=(episode.rate(float(rng.choice([-1.0, 1.0])), job.run).id,))
            yield stored_by([episode.finish()])
        with bank.write.batch(BATCH):
            held = list(agent.run(list(islice(tasks, BATCH))))
        yield stored_by(held)


def _compaction(bank: MemoryBank, job: Job) -> Iterator[Stored]:
    """Steps while another thread compacts and sweeps all the time; what is derived is rebuilt in between."""
    agent, over = agent_of(bank, job.run), threading.Event()

    def compact() -> None:
        while not over.wait(BETWEEN_COMPACTIONS):
            bank.write.compact()

    threading.Thread(target=compact, name="compacting", daemon=True).start()
    try:
        for number, trace in enumerate(agent.run(list(islice(tasks_from(bank.next_step(job.run)), 10_000))), start=1):
            yield stored_by([trace])
            if number % BATCH == 0:
                bank.write.rebuild()
    finally:
        over.set()


def _record(bank: MemoryBank, job: Job) -> Iterator[Stored]:
    """Steps of another agent, through the recorder."""
    recorder, rng = Recorder(bank, job.run), np.random.default_rng(job.seed)
    embedder = HashingEmbedder()
    for number in count(1):
        intent = f"carry crate {number} to the shelf"
        with recorder.step(intent, embedding=embedder.embed([intent])[0]) as step:
            known = list(bank.utilities(job.run))[-3:]
            step.recalled([(memory_id, 0.5) for memory_id in known])
            step.selected(known)
            step.answered("carried")
            step.rewarded(float(rng.choice([-1.0, 1.0])))
            step.wrote(f"Crate {number} was carried.")
        yield stored_by([step.trace])


# --- people -----------------------------------------------------------------------------------------------------------


def _ratings(bank: MemoryBank, job: Job) -> Iterator[Stored]:
    """Rewards given, changed, taken back, given back and revoked, for steps of every run."""
    rng, person = np.random.default_rng(job.seed), job.run
    while True:
        bank.refresh()
        rated = [(info.id, row.step, row.id) for info in bank.runs() for row in bank.steps.rows(info.id)[-40:]]
        if not rated:
            threading.Event().wait(0.02)
            continue
        run, step, step_id = rated[int(rng.integers(len(rated)))]
        value = round(float(rng.uniform(-1, 1)), 3)
        action = int(rng.integers(5))
        if action in (0, 1):
            event = bank.write.ratings.rate(Rating(run, step, value, person))
        elif action == 2:
            taken_back = withdraw(bank, run, step, person)
            event = taken_back or bank.write.ratings.rate(Rating(run, step, value, person))
        elif action == 3 and bank.write.undo.undo(person) is not None:
            event = next(event for event in bank.people.lately() if event.rater == person)
        else:
            event = bank.write.ratings.rate(Rating(run, step, value, person, attempt=step_id))
            if value < 0:
                yield Stored(events=(event.id,))
                event = bank.write.ratings.revoke(event.id, person)
        yield Stored(events=(event.id,))


# --- imports and layouts ----------------------------------------------------------------------------------------------


def contents_called(read: Contents, name: str) -> Contents:
    """The same facts under other names throughout, so that a bank that holds them once can take them in again."""
    names = Names(
        {i: f"{name}-{i}" for i in read.memories},
        {event.run: f"{name}-{event.run}" for event in read.events},
        {trace.id: f"{name}-{trace.id}" for trace in read.traces},
        {event.id: f"{name}-{event.id}" for event in read.events},
    )
    return Contents(
        read.embedder,
        read.dimension,
        {names.memories[i]: (names.memory(memory), v) for i, (memory, v) in read.memories.items()},
        tuple(map(names.event, read.events)),
        tuple(map(names.trace, read.traces)),
        None,
        read.account,
    )


def stored_of(contents: Contents) -> Stored:
    """All facts of what was taken in."""
    return Stored(
        tuple(contents.memories),
        tuple(event.id for event in contents.events),
        tuple(trace.id for trace in contents.traces),
    )


def _import(bank: MemoryBank, job: Job) -> Iterator[Stored]:
    """A file taken in again and again as a bank of its own; its run is then merged with the run before."""
    read, before = read_bank(Path(job.archive)), ""
    for number in count(1):
        name = f"{job.run}-{job.seed}-{number}"
        yield Stored(begun=name)
        contents = contents_called(read, name)
        run = next(iter(bring_in(contents, job.uri).runs))
        yield stored_of(contents)
        if before:
            bank.refresh()
            merged = merge_runs(bank, before, run).run
            yield Stored(events=tuple(event.id for event in bank.events(merged)))
        before = run


def _layout(bank: MemoryBank, job: Job) -> Iterator[Stored]:
    """A map made of what the bank holds, first of one half, to which the other half is added."""
    while True:
        ids = bank.memory_ids()[-PLACED:]
        vectors = np.stack([bank.embedding(memory_id) for memory_id in ids])
        places = [(float(x), float(y)) for x, y in Pca(vectors).place(vectors)]
        half = len(ids) // 2
        layout = bank.write.layouts.save("PCA", dict(zip(ids[:half], places[:half], strict=True)))
        yield Stored(places={layout.id: half})
        bank.write.layouts.add(layout, dict(zip(ids[half:], places[half:], strict=True)))
        yield Stored(places={layout.id: len(ids) - half})


KINDS: Mapping[str, Callable[[MemoryBank, Job], Iterator[Stored]]] = {
    "run": _run,
    "ratings": _ratings,
    "compaction": _compaction,
    "import": _import,
    "layout": _layout,
    "record": _record,
}

if __name__ == "__main__":
    main()
