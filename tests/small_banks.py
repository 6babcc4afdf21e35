"""A small bank, a run and a step: what tests need where nothing acts. It loads as little as can be."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import person_name
from memrl_core.records import (
    EmbedRecord,
    EventKind,
    LedgerEvent,
    MemoryOperation,
    RewardRecord,
    RunInfo,
    StepTrace,
    Task,
    WriteRecord,
)
from memrl_core.settings import MemRLSettings

DIMENSION = 8


def a_vector(seed: int, dimension: int = DIMENSION) -> np.ndarray:
    """A unit vector that the seed decides."""
    vector = np.random.default_rng(seed).normal(size=dimension)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def a_bank(path: Any, run: str = "r", **settings: Any) -> MemoryBank:
    """A new bank with one run."""
    bank = MemoryBank.create(str(path), "hashing-8", DIMENSION)
    bank.write.start_run(a_run(run, **settings))
    return bank


def give_reward(
    bank: MemoryBank,
    run: str,
    step: int,
    step_id: str,
    memory_ids: Sequence[str],
    value: float,
    rater: str,
    reason: str = "",
    given: Mapping[str, Any] | None = None,
) -> LedgerEvent:
    """A person's reward as it may come from elsewhere: of any value, for any attempt, credited as it says."""
    with bank.write.alone():
        event = bank.write._ledger.event(
            run, step, step_id, EventKind.REWARD_GIVEN, memory_ids=tuple(memory_ids), value=float(value),
            source="person", rater=person_name(rater), reason=reason, payload=dict(given or {}),
        )  # fmt: skip
        bank.write._ledger.append(event)
        return event


def withdraw(bank: MemoryBank, run: str, step: int, person: str) -> Any:
    """Take back the person's reward for a step, where they have one: the event that does it."""
    mine = bank.ratings.mine(run, step, person)
    return mine and bank.write.ratings.revoke(mine.id, person)


def a_run(run: str = "r", base: str | None = None, base_step: int = 0, **settings: Any) -> RunInfo:
    return RunInfo(
        id=run,
        environment="household",
        tasks="household-train",
        policy="memrl",
        settings=MemRLSettings.of(settings).model_dump(),
        seed=1,
        model="simulated",
        simulated=True,
        embedder="hashing-8",
        base=base,
        base_step=base_step,
        created="2026-01-01T00:00:00+00:00",
    )


def a_step(
    step: int, credited: tuple[str, ...] = (), reward: float | None = 1.0, run: str = "r", q0: float = 0.0
) -> tuple[StepTrace, dict[str, np.ndarray]]:
    """A finished step that credited these memories and wrote memory `run-step`, with its vector."""
    memory_id = f"{run}-{step:04d}"
    intent = f"task {step}"
    vector = a_vector(step)
    trace = StepTrace(
        id=uuid.uuid4().hex,
        run=run,
        step=step,
        epoch=1,
        task=Task(f"t{step}", intent, "household"),
        policy="memrl",
        settings={},
        started="2026-01-01T00:00:00+00:00",
        embed=EmbedRecord("hashing-8", DIMENSION, tuple(map(float, vector))),
        reward=RewardRecord(
            reward, "environment" if reward is not None else None, "success", "it went well", "", "", credited
        ),
        write=WriteRecord(
            (MemoryOperation("ADD", memory_id, intent, "did it", "success", intent, q0, credited),),
        ),
    )
    return trace, {memory_id: vector}


def grown(bank: MemoryBank, count: int) -> MemoryBank:
    """The bank after so many more steps of run "r", each of which credits nothing and writes a memory."""
    first = bank.next_step("r")
    for step in range(first, first + count):
        bank.write.commit_step(*a_step(step))
    return bank


def a_chain(path: Any, steps: int, **settings: Any) -> MemoryBank:
    """A bank of successful steps, each of which used the memory of the one before it."""
    bank = a_bank(path, **settings)
    for step in range(1, steps + 1):
        bank.write.commit_step(*a_step(step, (f"r-{step - 1:04d}",) if step > 1 else ()))
    return bank
