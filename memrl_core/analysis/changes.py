"""What changed between two moments of a run: memories, utilities, and decisions that would now be others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.agent.asking import asked_by
from memrl_core.agent.learned import learned_before, learns
from memrl_core.analysis.counterfactual import AT_ONCE
from memrl_core.analysis.uses import parsed
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.models.base import Cancelled
from memrl_core.policies import make_policy
from memrl_core.policies.base import Policy
from memrl_core.retrieval.view import Asked, MemoryView


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


def changes(
    bank: MemoryBank,
    run: str,
    earlier: int,
    later: int,
    on_progress: Callable[[int, int], None] | None = None,
    cancelled: Cancelled | None = None,
) -> Changes | None:
    """What changed in a run between two finished steps; None when `cancelled()` turned true.

    `on_progress` gets the decisions made and those to make. Raises `InputError` unless 0 ≤ earlier < later.
    """
    if not 0 <= earlier < later:
        raise InputError("Choose an earlier and a later step: the first number must be the smaller one.")
    then, now = bank.utilities(run, earlier), bank.utilities(run, later)
    moved = [
        Move(i, then[i].q, known.q, known.visits - then[i].visits)
        for i, known in now.items()
        if i in then and known.q != then[i].q
    ]
    met = _met_until(bank, run, earlier)
    policy = make_policy(bank.run(run).policy, without_chance(bank.settings(run, later)))
    asked = _asked(bank, run, policy, met)
    chosen: list[list[tuple[str, ...]]] = []
    for moment in (earlier, later):
        made: list[tuple[str, ...]] = []
        view = replace(bank.as_of(run, moment), learned=learned_before(bank, run, moment + 1))
        for selected in _selected(policy, view, asked):
            if cancelled is not None and cancelled():
                return None
            made.append(selected)
            if on_progress is not None:
                on_progress(len(chosen) * len(met) + len(made), 2 * len(met))
        chosen.append(made)
    return Changes(
        earlier,
        later,
        tuple(i for i in now if i not in then),
        tuple(sorted(moved, key=lambda m: -abs(m.after - m.before))),
        tuple(
            Reconsidered(step, task, before, after)
            for (step, task, _), before, after in zip(met, *chosen, strict=True)
            if set(before) != set(after)
        ),
        len(met),
    )


def _met_until(bank: MemoryBank, run: str, step: int) -> list[tuple[int, str, npt.NDArray[np.float32]]]:
    """Step, task and embedding of every intent that a run met until a step, those of its base among them."""
    info = bank.run(run)
    past = _met_until(bank, info.base, min(step, info.base_step)) if info.base and info.first_step > 1 else []
    table = parsed(bank.step_table(run, ["step", "task", "embedding", "trace"]))
    columns = [table[name].to_pylist() for name in ("step", "task", "origin")]
    rows = zip(*columns, table["embedding"].to_numpy(), strict=True)
    own = [
        (int(number), str(task), np.asarray(embedding, dtype=np.float32))
        for number, task, origin, embedding in rows
        if embedding is not None and number <= step and origin == "agent"
    ]
    return [*past, *own]


def without_chance(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings with nothing explored, for policies that explore."""
    greedy = {"epsilon": 0.0, "exploration": "epsilon"}
    return {name: greedy.get(name, value) for name, value in settings.items()}


def _asked(
    bank: MemoryBank, run: str, policy: Policy[Any], met: Sequence[tuple[int, str, npt.NDArray[np.float32]]]
) -> list[Asked]:
    """What each step asked memory for; the whole of it only for policies that go by more than intent and task."""
    if not learns(policy) and "model on read" not in policy.spec.needs:
        return [Asked(query, task, step=step) for step, task, query in met]
    info = bank.run(run)
    own = {trace.step: asked_by(trace) for trace in bank.traces(run) if trace.embed is not None}
    return [own.get(step) or asked_by(bank.trace(str(info.base), step)) for step, _, _ in met]


def _selected(policy: Policy[Any], view: MemoryView, asked: Sequence[Asked]) -> Iterator[tuple[str, ...]]:
    for start in range(0, len(asked), AT_ONCE):
        chunk = asked[start : start + AT_ONCE]
        for one, coarse in zip(chunk, np.stack([one.embedding for one in chunk]) @ view.embeddings.T, strict=True):
            asking = replace(view, asked=one)
            yield policy.select(policy.recall(one.embedding, asking, coarse), asking, 0).selected
