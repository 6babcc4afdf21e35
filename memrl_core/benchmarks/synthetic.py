"""Banks of any size, made up from a seed: what is in them means nothing, what it costs to read is real."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
    RewardSource,
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
    folder = Path(tempfile.mkdtemp(prefix="memrl-bench-"))
    rng = np.random.default_rng(seed)
    try:
        with MemoryBank.create(str(folder / "bank"), EMBEDDER, DIMENSION) as bank:
            bank.start_run(_run())
            _import(bank, memories, rng)
            view = bank.view(RUN)
            for first in range(1, steps + 1, AT_ONCE):
                _live(bank, view, first, min(AT_ONCE, steps + 1 - first), rng)
            yield bank
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
    names = [f"m-{number:06d}" for number in range(count)]
    outcomes: list[Outcome] = ["success" if lucky else "failure" for lucky in rng.random(count) < 0.6]
    bank.adopt(
        {
            name: (Memory(name, f"task {n % TASKS}", EXPERIENCE, outcome, f"{n % TASKS}", (), RUN, 0, "", CREATED), v)
            for n, (name, outcome, v) in enumerate(zip(names, outcomes, made, strict=True))
        },
        [
            _event(f"import-{name}", 2 + n, 0, "", EventKind.MEMORY_IMPORTED, (name,), float(q))
            for n, (name, q) in enumerate(zip(names, rng.uniform(-1, 1, count), strict=True))
        ],
        [],
    )


def _live(bank: MemoryBank, view: MemoryView, first: int, count: int, rng: np.random.Generator) -> None:
    queries = vectors(count, rng)
    coarse = queries @ view.embeddings.T
    traces, events = [], []
    for offset, query in enumerate(queries):
        trace = _step(view, first + offset, query, coarse[offset], rng)
        assert trace.reward is not None
        traces.append(trace)
        events.append(
            _event(
                f"{trace.id}:environment",
                2 + view.size + trace.step,
                trace.step,
                trace.id,
                EventKind.REWARD_GIVEN,
                trace.reward.credited,
                trace.reward.reward,
            )
        )
    bank.adopt({}, events, traces)


def _step(view: MemoryView, number: int, query: Vectors, coarse: Vectors, rng: np.random.Generator) -> StepTrace:
    policy = MemRL(SETTINGS)
    recall = policy.recall(query, view, coarse)
    decision = policy.select(recall, view, number)
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
        embed=EmbedRecord(EMBEDDER, DIMENSION, tuple(map(float, query))),
        recall=recall,
        decision=decision,
        reward=RewardRecord(
            1.0 if won else -1.0, "environment", "success" if won else "failure", "", "", "", decision.selected
        ),
        update=UpdateRecord(()),
        write=WriteRecord(()),
    )


def _event(
    name: str, seq: int, step: int, step_id: str, kind: EventKind, memory_ids: tuple[str, ...], value: float | None
) -> LedgerEvent:
    source: RewardSource | None = "environment" if kind is EventKind.REWARD_GIVEN else None
    return LedgerEvent(
        name, seq, RUN, step, step_id, step, kind, memory_ids, value, source, payload={"visits": 0}, created=CREATED
    )
