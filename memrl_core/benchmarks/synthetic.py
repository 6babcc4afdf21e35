"""Banks of any size, made up from a seed: what is in them means nothing, what it costs to read is real."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from memrl_core.bank import MemoryBank
from memrl_core.policies.memrl import MemRL
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
from memrl_core.settings import MemRLSettings
from memrl_core.view import MemoryView

Vectors = npt.NDArray[np.float32]

RUN = "synthetic"
EMBEDDER = "synthetic"
DIMENSION = 768
CLUSTERS = 40
TASKS = 200
AT_ONCE = 1000
RATERS = ("ada", "ben")
RATED_EACH = 20
SETTINGS = MemRLSettings(delta=-1.0)
CREATED = "2026-01-01T00:00:00.000+00:00"
EXPERIENCE = "Look where it was found before, treat it the way that worked, and put it where the task says. " * 4


def vectors(count: int, rng: np.random.Generator) -> Vectors:
    """Unit vectors (count, DIMENSION) around `CLUSTERS` directions, as the embeddings of tasks of a few kinds lie."""
    centres = np.random.default_rng(0).normal(size=(CLUSTERS, DIMENSION)).astype(np.float32)
    drawn = centres[rng.integers(CLUSTERS, size=count)] + rng.normal(size=(count, DIMENSION)).astype(np.float32)
    unit: Vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return unit


@contextmanager
def synthetic_bank(memories: int, steps: int = 0, seed: int = 0) -> Iterator[MemoryBank]:
    """A bank in a folder that vanishes afterwards, whose run `RUN` knew `memories` memories before its first step.

    Each of its `steps` recalled and selected as MemRL does and got a reward; what the memories are worth is random.
    """
    rng = np.random.default_rng(seed)
    with _bank_of(memories, rng) as bank:
        view = bank.view(RUN)
        for first, count in _portions(steps):
            _live(bank, view, first, count, rng)
        yield bank


@contextmanager
def rated_bank(memories: int, steps: int, seed: int = 0) -> Iterator[MemoryBank]:
    """The same, for what reads no trace: its steps hold nothing but their reward, and take a twentieth of the time.

    Of every `RATED_EACH` steps, each of `RATERS` has rated one.
    """
    rng = np.random.default_rng(seed)
    with _bank_of(memories, rng) as bank:
        for first, count in _portions(steps):
            picked = rng.integers(memories, size=(count, SETTINGS.k2)).tolist()
            traces = [
                _rewarded(first + n, tuple(_name(row) for row in dict.fromkeys(rows)), rng)
                for n, rows in enumerate(picked)
            ]
            events = [_reward_of(trace, memories) for trace in traces]
            bank.adopt({}, [*events, *_ratings(events, rng)], traces)
        yield bank


@contextmanager
def _bank_of(memories: int, rng: np.random.Generator) -> Iterator[MemoryBank]:
    folder = Path(tempfile.mkdtemp(prefix="memrl-bench-"))
    try:
        with MemoryBank.create(str(folder / "bank"), EMBEDDER, DIMENSION) as bank:
            bank.start_run(_run())
            _import(bank, memories, rng)
            yield bank
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _portions(steps: int) -> Iterator[tuple[int, int]]:
    """The steps from 1 on, `AT_ONCE` at a time: the first of each portion, and how many it has."""
    return ((first, min(AT_ONCE, steps + 1 - first)) for first in range(1, steps + 1, AT_ONCE))


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


def _import(bank: MemoryBank, count: int, rng: np.random.Generator) -> None:
    made = vectors(count, rng)
    names = [_name(number) for number in range(count)]
    outcomes: list[Outcome] = ["success" if lucky else "failure" for lucky in rng.random(count) < 0.6]
    bank.adopt(
        {
            name: (Memory(name, f"task {n % TASKS}", EXPERIENCE, outcome, f"{n % TASKS}", (), RUN, 0, "", CREATED), v)
            for n, (name, outcome, v) in enumerate(zip(names, outcomes, made, strict=True))
        },
        [
            LedgerEvent(
                f"import-{name}",
                2 + n,
                RUN,
                0,
                "",
                0,
                EventKind.MEMORY_IMPORTED,
                (name,),
                float(q),
                payload={"visits": 0},
                created=CREATED,
            )
            for n, (name, q) in enumerate(zip(names, rng.uniform(-1, 1, count), strict=True))
        ],
        [],
    )


def _name(number: int) -> str:
    return f"m-{number:06d}"


def _live(bank: MemoryBank, view: MemoryView, first: int, count: int, rng: np.random.Generator) -> None:
    queries = vectors(count, rng)
    coarse = queries @ view.embeddings.T
    traces = [_step(view, first + offset, query, coarse[offset], rng) for offset, query in enumerate(queries)]
    bank.adopt({}, [_reward_of(trace, view.size) for trace in traces], traces)


def _step(view: MemoryView, number: int, query: Vectors, coarse: Vectors, rng: np.random.Generator) -> StepTrace:
    policy = MemRL(SETTINGS)
    recall = policy.recall(query, view, coarse)
    decision = policy.select(recall, view, number)
    return replace(
        _rewarded(number, decision.selected, rng),
        embed=EmbedRecord(EMBEDDER, DIMENSION, tuple(map(float, query))),
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
