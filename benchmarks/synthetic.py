"""Banks of any size, made up from a seed: what is in them means nothing, what it costs to read is real."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.measuring import DIMENSION as DIMENSION
from memrl_core.agent.runs import start_run
from memrl_core.analysis.map.map_layout import UMAP
from memrl_core.analysis.map.projection import Pca
from memrl_core.bank import MemoryBank
from memrl_core.policies.methods.memrl import MemRL
from memrl_core.records import (
    EmbedRecord,
    EventKind,
    LedgerEvent,
    Memory,
    Outcome,
    RewardRecord,
    RunInfo,
    StepTrace,
    Task,
    UpdateRecord,
    WriteRecord,
)
from memrl_core.retrieval.view import MemoryView
from memrl_core.settings import MemRLSettings

Vectors = npt.NDArray[np.float32]

RUN, LIVE = "synthetic", "live"
"""The run of a synthetic bank, and that of a bank that can go on."""
EMBEDDER = "synthetic"
CLUSTERS = 40
TASKS = 200
STEPS_AT_ONCE = 1000
MEMORIES_AT_ONCE = 20_000
SIMILARITIES_AT_ONCE = 20_000_000
RATERS = ("ada", "ben")
RATED_EACH = 20
SETTINGS = MemRLSettings(delta=-1.0)
CREATED = "2026-01-01T00:00:00.000+00:00"
EXPERIENCE = "Look where it was found before, treat it the way that worked, and put it where the task says. " * 4


def vectors(count: int, rng: np.random.Generator, dimension: int = DIMENSION) -> Vectors:
    """Unit vectors (count, dimension) around `CLUSTERS` directions, as the embeddings of tasks of a few kinds lie."""
    centres = np.random.default_rng(0).standard_normal((CLUSTERS, dimension), dtype=np.float32)
    drawn: Vectors = rng.standard_normal((count, dimension), dtype=np.float32)
    drawn += centres[rng.integers(CLUSTERS, size=count)]
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return drawn


@contextmanager
def synthetic_bank(memories: int, steps: int = 0, seed: int = 0, dimension: int = DIMENSION) -> Iterator[MemoryBank]:
    """A bank in a folder that vanishes afterwards, whose run `RUN` knew `memories` memories before its first step.

    Their embeddings have `dimension` numbers. Each of its `steps` recalled and selected as MemRL does and got a reward;
    what the memories are worth is random.
    """
    rng = np.random.default_rng(seed)
    with _bank_of(memories, rng, dimension) as bank:
        view = bank.view(RUN)
        for first, count in portions(steps, STEPS_AT_ONCE):
            _live(bank, view, first, count, rng)
        yield bank


@contextmanager
def rated_bank(memories: int, steps: int, seed: int = 0, dimension: int = DIMENSION) -> Iterator[MemoryBank]:
    """The same, for what reads no trace: its steps hold nothing but their reward, and take a twentieth of the time.

    Of every `RATED_EACH` steps, each of `RATERS` has rated one.
    """
    rng = np.random.default_rng(seed)
    with _bank_of(memories, rng, dimension) as bank:
        for first, count in portions(steps, STEPS_AT_ONCE):
            picked = rng.integers(memories, size=(count, SETTINGS.k2)).tolist()
            traces = [
                _rewarded(first + n, tuple(_name(row) for row in dict.fromkeys(rows)), rng)
                for n, rows in enumerate(picked)
            ]
            events = [_reward_of(trace, memories) for trace in traces]
            bank.write.adopt({}, [*events, *_ratings(events, rng)], traces)
        yield bank


@contextmanager
def live_bank(memories: int, dimension: int, tasks: int = TASKS, k1: int = 10) -> Iterator[str]:
    """The folder of a bank whose run `LIVE` can go on, with a map that is laid out.

    The memories are of so many tasks: each of them is a glyph of the map.
    """
    folder = Path(tempfile.mkdtemp(prefix="memrl-bench-"))
    rng = np.random.default_rng(0)
    try:
        with MemoryBank.create(str(folder / "bank"), f"hashing-{dimension}", dimension) as bank:
            settings = MemRLSettings(delta=-1.0, k1=k1)
            start_run(bank, environment="household", tasks="household-train", settings=settings, run=LIVE)
            for first, count in portions(memories, MEMORIES_AT_ONCE):
                import_memories(bank, LIVE, first - 1, vectors(count, rng, dimension), rng, tasks)
            ids = bank.memory_ids()
            embeddings = np.asarray(bank.view(LIVE).embeddings)
            places = Pca(embeddings).place(embeddings).tolist()
            bank.write.layouts.save(UMAP, {memory_id: (x, y) for memory_id, (x, y) in zip(ids, places, strict=True)})
        yield str(folder / "bank")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _bank_of(memories: int, rng: np.random.Generator, dimension: int) -> Iterator[MemoryBank]:
    folder = Path(tempfile.mkdtemp(prefix="memrl-bench-"))
    try:
        with MemoryBank.create(str(folder / "bank"), EMBEDDER, dimension) as bank:
            bank.write.start_run(_run())
            gc.disable()  # All that is made stays, and looking through it for garbage takes a third of the time.
            try:
                for first, count in portions(memories, MEMORIES_AT_ONCE):
                    import_memories(bank, RUN, first - 1, vectors(count, rng, dimension), rng)
            finally:
                gc.enable()
            yield bank
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def portions(count: int, at_once: int) -> Iterator[tuple[int, int]]:
    """The numbers from 1 to `count` in portions: the first of each, and how many it has."""
    return ((first, min(at_once, count + 1 - first)) for first in range(1, count + 1, at_once))


def _run() -> RunInfo:
    return RunInfo(
        id=RUN,
        environment="synthetic",
        tasks="",
        policy="memrl",
        settings=SETTINGS.model_dump(),
        seed=0,
        model="none",
        simulated=True,
        embedder=EMBEDDER,
        base=None,
        base_step=0,
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


def import_memories(
    bank: MemoryBank, run: str, first: int, embeddings: Vectors, rng: np.random.Generator, tasks: int = TASKS
) -> None:
    """Memories of so many tasks, from number `first` on; written in portions, they need no room but the bank's own."""
    count = len(embeddings)
    outcomes: list[Outcome] = ["success" if lucky else "failure" for lucky in rng.random(count) < 0.6]
    q0 = rng.uniform(-1, 1, count).tolist()
    memories, events = {}, []
    for number, outcome, vector, q in zip(range(first, first + count), outcomes, embeddings, q0, strict=True):
        name, task = _name(number), number % tasks
        memory = Memory(name, f"task {task}", EXPERIENCE, outcome, f"{task}", (), run, 0, "", CREATED)
        memories[name] = memory, vector
        events.append(_arrival(run, name, number, q))
    bank.write.adopt(memories, events, [])


def _arrival(run: str, name: str, number: int, q: float) -> LedgerEvent:
    return LedgerEvent(
        f"import-{name}",
        2 + number,
        run,
        0,
        "",
        0,
        EventKind.MEMORY_IMPORTED,
        (name,),
        q,
        payload={"visits": 0},
        created=CREATED,
    )


def _name(number: int) -> str:
    return f"m-{number:06d}"


def _live(bank: MemoryBank, view: MemoryView, first: int, count: int, rng: np.random.Generator) -> None:
    queries = vectors(count, rng, bank.embedder.dimension)
    traces = []
    for start, some in portions(count, max(1, SIMILARITIES_AT_ONCE // view.size)):
        asked = queries[start - 1 : start - 1 + some]
        for offset, coarse in enumerate((view.embeddings @ asked.T).T.copy()):
            traces.append(_step(view, first + start - 1 + offset, asked[offset], coarse, rng))
    bank.write.adopt({}, [_reward_of(trace, view.size) for trace in traces], traces)


def _step(view: MemoryView, number: int, query: Vectors, coarse: Vectors, rng: np.random.Generator) -> StepTrace:
    policy = MemRL(SETTINGS)
    recall = policy.recall(query, view, coarse)
    decision = policy.select(recall, view, number)
    return replace(
        _rewarded(number, decision.selected, rng),
        embed=EmbedRecord(EMBEDDER, len(query), tuple(map(float, query))),
        recall=recall,
        decision=decision,
        update=UpdateRecord(()),
        write=WriteRecord(()),
    )


def _rewarded(number: int, credited: tuple[str, ...], rng: np.random.Generator) -> StepTrace:
    won = rng.random() < 0.6
    return StepTrace(
        id=f"step-{number:06d}",
        run=RUN,
        step=number,
        epoch=1 + (number - 1) // TASKS,
        task=Task(f"t{number % TASKS}", f"task {number % TASKS}", "synthetic"),
        policy="memrl",
        settings=SETTINGS.model_dump(),
        started=CREATED,
        reward=RewardRecord(1.0 if won else -1.0, "environment", "success" if won else "failure", "", "", "", credited),
    )


def _reward_of(trace: StepTrace, memories: int) -> LedgerEvent:
    """The environment's reward for a step, after the import of so many memories."""
    assert trace.reward is not None
    return LedgerEvent(
        f"{trace.id}:environment",
        2 + memories + trace.step,
        RUN,
        trace.step,
        trace.id,
        trace.step,
        EventKind.REWARD_GIVEN,
        trace.reward.credited,
        trace.reward.reward,
        "environment",
        created=CREATED,
    )


def _ratings(rewards: Sequence[LedgerEvent], rng: np.random.Generator) -> Iterator[LedgerEvent]:
    """The raters' own rewards beside some of the environment's."""
    for place, rater in enumerate(RATERS):
        for reward in rewards[place::RATED_EACH]:
            value = 1.0 if rng.random() < 0.6 else -1.0
            yield replace(reward, id=f"{reward.step_id}:{rater}", value=value, source="person", rater=rater)
