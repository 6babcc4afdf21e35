"""What changed between two moments of a run: memories, utilities, and decisions that would now be others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memrl_core.analysis.counterfactual import AT_ONCE
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.policies import make_policy


@dataclass(frozen=True, slots=True)
class Move:
    """One memory's q at the earlier and the later moment."""

    memory_id: str
    before: float
    after: float
    updates: int


@dataclass(frozen=True, slots=True)
class Reconsidered:
    """The intent of an earlier step, decided with the memory of both moments under the same settings and seed."""

    step: int
    task: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """From the end of step `earlier` to the end of step `later`.

    `moved` holds q that differ, largest change first; `reconsidered` the steps up to `earlier` whose intents would now
    be answered with other memories, of `decided` that can be decided again.
    """

    earlier: int
    later: int
    added: tuple[str, ...]
    moved: tuple[Move, ...]
    reconsidered: tuple[Reconsidered, ...]
    decided: int


def changes(bank: MemoryBank, run: str, earlier: int, later: int) -> Changes:
    """What changed in a run between two finished steps. Raises `InputError` unless 0 ≤ earlier < later."""
    if not 0 <= earlier < later:
        raise InputError("Choose an earlier and a later step: the first number must be the smaller one.")
    then, now = bank.utilities(run, earlier), bank.utilities(run, later)
    moved = [
        Move(i, then[i].q, known.q, known.visits - then[i].visits)
        for i, known in now.items()
        if i in then and known.q != then[i].q
    ]
    reconsidered, decided = _reconsidered(bank, run, earlier, later)
    return Changes(
        earlier,
        later,
        tuple(i for i in now if i not in then),
        tuple(sorted(moved, key=lambda m: -abs(m.after - m.before))),
        tuple(reconsidered),
        decided,
    )


def _reconsidered(bank: MemoryBank, run: str, earlier: int, later: int) -> tuple[list[Reconsidered], int]:
    table = bank.step_table(run, ["step", "task", "embedding"])
    known = [
        (int(step), str(task), np.asarray(embedding, dtype=np.float32))
        for step, task, embedding in zip(
            table["step"].to_pylist(), table["task"].to_pylist(), table["embedding"].to_numpy(), strict=True
        )
        if embedding is not None and step <= earlier
    ]
    if not known:
        return [], 0
    policy = make_policy(bank.run(run).policy, {**bank.settings(run, later), "epsilon": 0.0})
    queries = np.stack([query for _, _, query in known])
    chosen = []
    for moment in (earlier, later):
        view = bank.as_of(run, moment)
        coarse = (
            row
            for start in range(0, len(queries), AT_ONCE)
            for row in queries[start : start + AT_ONCE] @ view.embeddings.T
        )
        chosen.append(
            [
                policy.select(policy.recall(query, view, row), view, 0).selected
                for (_, _, query), row in zip(known, coarse, strict=True)
            ]
        )
    found = [
        Reconsidered(step, task, before, after)
        for (step, task, _), before, after in zip(known, *chosen, strict=True)
        if set(before) != set(after)
    ]
    return found, len(known)
