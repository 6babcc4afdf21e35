"""A bank whose runs have met everything that can happen to a q, in an order that a seed decides."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np

from memrl_core.bank import MemoryBank
from memrl_core.records import EventKind, LedgerEvent, Memory
from tests.builders import a_bank, a_run, a_step, a_vector
from tests.oracles.ledger import Believed, believed
from tests.small_banks import give_reward


def an_eventful_bank(path: Path, seed: int, happenings: int = 60, **settings: float) -> MemoryBank:
    """Two runs, "r" and "other", and "fork", which goes on from the middle of "r", under `settings` but for α."""
    rng = np.random.default_rng(seed)
    bank = a_bank(path, **settings)
    bank.write.start_run(a_run("other", **settings))
    for _ in range(happenings):
        happen(bank, "other" if rng.random() < 0.2 else "r", rng)
    middle = max(1, (bank.next_step("r") - 1) // 2)
    bank.write.start_run(
        replace(a_run("fork", base="r", base_step=middle, alpha=0.5, **settings), first_step=middle + 1)
    )
    for _ in range(happenings // 2):
        happen(bank, "fork" if rng.random() < 0.8 else "r", rng)
    return bank


def happen(bank: MemoryBank, run: str, rng: np.random.Generator) -> None:
    """One more thing happens to a run: mostly a step, else something that people or imports do."""
    traces = [bank.trace(run, row.step) for row in bank.steps.rows(run)]
    if len(traces) < 2 or rng.random() < 0.4:
        _step(bank, run, rng)
        return
    trace = traces[int(rng.integers(len(traces)))]
    credited = trace.reward.credited if trace.reward else ()
    what = int(rng.integers(8))
    rater = str(rng.choice(["ann", "bob"]))
    if what in (0, 1):
        give_reward(bank, run, trace.step, trace.id, credited, float(rng.normal()), rater)
    elif what == 2:
        given = [e for e in bank.events(run) if e.kind is EventKind.REWARD_GIVEN]
        bank.write.ratings.revoke(given[int(rng.integers(len(given)))].id, rater)
    elif what == 3:
        bank.write.credits.assign(
            run, trace.step, trace.id, {m: float(np.clip(rng.normal(), -1, 1)) for m in credited}, rater, "shares"
        )
    elif what == 4:
        assigned = [e for e in bank.events(run) if e.kind is EventKind.CREDIT_ASSIGNED]
        if assigned:
            bank.write.credits.revoke(assigned[int(rng.integers(len(assigned)))].id, rater)
    elif what == 5:
        settings = {**bank.settings(run), "alpha": float(rng.uniform(0.1, 1))}
        bank.write.change_settings(run, settings, bank.next_step(run))
    elif what == 6:
        _import(bank, run, rng)
    else:
        # A step that began, saw a reward for an earlier one, and never ended.
        bank.write.begin_step(run, bank.next_step(run))
        give_reward(bank, run, trace.step, trace.id, credited, float(rng.normal()), rater)
        give_reward(bank, run, bank.next_step(run), uuid.uuid4().hex, credited, 9.0, rater)


def _step(bank: MemoryBank, run: str, rng: np.random.Generator) -> None:
    known = list(bank.utilities(run))
    credited = tuple(str(m) for m in rng.choice(known, size=min(len(known), 3), replace=False)) if known else ()
    reward = None if rng.random() < 0.1 else float(rng.normal())
    trace, vectors = a_step(bank.next_step(run), credited, reward, run, q0=float(rng.normal()))
    bank.write.commit_step(trace, vectors)


def _import(bank: MemoryBank, run: str, rng: np.random.Generator) -> None:
    step = bank.next_step(run) - 1
    name = f"import-{uuid.uuid4().hex[:6]}"
    event = LedgerEvent(
        id=uuid.uuid4().hex,
        seq=max(e.seq for e in bank.events()) + 1,
        run=run,
        step=step,
        step_id="",
        known_at=step,
        kind=EventKind.MEMORY_IMPORTED,
        memory_ids=(name,),
        value=float(rng.normal()),
        payload={"visits": 4},
    )
    memory = Memory(name, name, "text", "success", name, (), run, step, "", "2026-01-01T00:00:00+00:00")
    bank.write.adopt({name: (memory, a_vector(int(rng.integers(1000))))}, [event], [])


def believed_by_definition(
    bank: MemoryBank, run: str, until: int | None = None, without: Collection[str] = ()
) -> Believed:
    """What a run believes as of a step (None: now), folded by the oracle; `without` leaves events out, by their ids."""
    info = bank.run(run)
    start = believed_by_definition(bank, info.base, info.base_step, without) if info.base else None
    finished = {row.id for row in bank.steps.rows(run)}
    return believed([e for e in bank.events(run) if e.id not in without], finished, start, until)
