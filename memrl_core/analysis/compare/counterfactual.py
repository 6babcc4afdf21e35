"""Every decision of a run made again under other settings, each in the state in which it was really made.

The answers and rewards of the run stay as they were: this says what would have been selected, not how it would have
gone on. From the first step that differs, only a fork of the run can say that.

Also: what changed between two moments of a run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.agent.asking import asked_by
from memrl_core.agent.learned import learned_before, learned_steps, learns
from memrl_core.analysis.decision.explain import tied_at
from memrl_core.analysis.decision.whatif import as_recorded
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.models.base import Cancelled
from memrl_core.policies import make_policy
from memrl_core.policies.base import Policy
from memrl_core.records import Decision, RecallRecord
from memrl_core.retrieval.view import Asked


@dataclass(frozen=True, slots=True)
class Move:
    """One memory's q at the earlier and the later moment."""

    memory_id: str
    before: float
    after: float
    updates: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What a run learned between two steps: the memories `added`, and the q that `moved`, the largest change first."""

    added: tuple[str, ...]
    moved: tuple[Move, ...]


def changes(bank: MemoryBank, run: str, earlier: int, later: int) -> Changes:
    """What changed from the end of one finished step to another's. Raises `InputError` unless 0 ≤ earlier < later."""
    if not 0 <= earlier < later:
        raise InputError("Choose an earlier and a later step: the first number must be the smaller one.")
    then, now = bank.utilities(run, earlier), bank.utilities(run, later)
    moved = [
        Move(i, then[i].q, known.q, known.visits - then[i].visits)
        for i, known in now.items()
        if i in then and known.q != then[i].q
    ]
    moved.sort(key=lambda move: -abs(move.after - move.before))
    return Changes(tuple(i for i in now if i not in then), tuple(moved))


@dataclass(frozen=True, slots=True, eq=False)
class _Met:
    """A finished step of this program's agent: its intent's vector `query` (d,), and the JSON of its trace."""

    step: int
    task: str
    query: npt.NDArray[np.float32]
    trace: Mapping[str, Any]


def _met(bank: MemoryBank, run: str) -> Iterator[_Met]:
    """The steps whose intent's vector is known."""
    table = bank.step_table(run, ["step", "task", "embedding", "trace"])
    columns = (table[name].to_pylist() for name in ("step", "task", "trace"))
    for step, task, trace, embedding in zip(*columns, table["embedding"].to_numpy(), strict=True):
        recorded = json.loads(trace)
        if embedding is not None and recorded.get("origin", "agent") == "agent":
            yield _Met(step, task, np.asarray(embedding, dtype=np.float32), recorded)


AT_ONCE = 128


@dataclass(frozen=True, slots=True)
class Supposed:
    """One step of a run decided under other settings: `recorded` and `selected` are the memories before and after."""

    step: int
    task: str
    recorded: tuple[str, ...]
    selected: tuple[str, ...]
    recall: RecallRecord
    decision: Decision

    @property
    def entered(self) -> tuple[str, ...]:
        """Selected under the other settings only."""
        return tuple(i for i in self.selected if i not in self.recorded)

    @property
    def left(self) -> tuple[str, ...]:
        """Selected in the recorded run only."""
        return tuple(i for i in self.recorded if i not in self.selected)

    @property
    def differs(self) -> bool:
        """Whether another set of memories would have been given to the model."""
        return set(self.recorded) != set(self.selected)


def counterfactual(
    bank: MemoryBank,
    run: str,
    settings: Mapping[str, Any],
    on_progress: Callable[[int], None] | None = None,
    cancelled: Cancelled | None = None,
) -> list[Supposed]:
    """The selection of every step of `run` with `settings` in the place of its own, with the seeds drawn then.

    What `settings` does not name stays as it was at each step. Steps of other agents, steps that were recorded without
    an embedding or a decision, and those decided before the vectors were made anew are passed over. Raises
    `SettingsError` for a value out of range. When `cancelled()` turns true, what was done so far is returned.
    """
    decided = {
        one.step: one
        for one in _met(bank, run)
        if one.trace.get("decision") and not one.trace["embed"].get("decided_by")
    }
    waiting = sorted(decided)
    name = bank.run(run).policy
    policies: dict[int, Policy[Any]] = {}
    found: list[Supposed] = []
    coarse: dict[int, npt.NDArray[np.float32]] = {}
    beyond_q = _beyond_q(bank, run, make_policy(name, {**bank.settings(run), **settings}))
    for step, view in bank.walk(run):
        if step not in decided:
            continue
        if step not in coarse:
            chunk, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
            queries = np.stack([decided[s].query for s in chunk])
            coarse = dict(zip(chunk, queries @ view.embeddings.T, strict=True))
        if cancelled is not None and cancelled():
            break
        one, then = decided[step], decided[step].trace["decision"]
        own = bank.settings(run, step)
        policy = policies.get(id(own)) or policies.setdefault(id(own), make_policy(name, {**own, **settings}))
        learned, known_then = beyond_q(step)
        asked = known_then or Asked(one.query, one.task, step=step, seed=then["seed"])
        q = {candidate["memory_id"]: candidate["q"] for candidate in then["candidates"]}
        view = replace(as_recorded(view, q), asked=asked, learned=learned)
        recall = policy.recall(one.query, view, coarse.pop(step))
        decision = policy.select(recall, view, then["seed"])
        found.append(Supposed(step, one.task, tuple(then["selected"]), decision.selected, recall, decision))
        if on_progress is not None:
            on_progress(len(found))
    return found


def _beyond_q(bank: MemoryBank, run: str, policy: Policy[Any]) -> Callable[[int], tuple[Any, Asked | None]]:
    """For steps in rising order: what the policy had learned beyond q, and all that the step asked memory for; None
    for policies that go by the intent's embedding and the task alone.
    """
    if not learns(policy) and "model on read" not in policy.spec.needs:
        return lambda step: (None, None)
    steps = learned_steps(bank, run)

    def at(step: int) -> tuple[Any, Asked | None]:
        trace, state = next((trace, state) for trace, state in steps if trace.step == step)
        until = bank.seen_until(run, step, trace.epoch)
        return (state if until == step - 1 else learned_before(bank, run, until + 1)), asked_by(trace)

    return at


OTHER_TIES = {"seeded": "older", "older": "seeded"}
"""The rules for ties, each with the other one."""


@dataclass(frozen=True, slots=True)
class Ties:
    """The steps of a run with a decision, those tied at each cut, and those for which `other` selects another set."""

    steps: int
    pool: int
    prompt: int
    either: int
    rule: str
    other: str
    changed: tuple[Supposed, ...]


def ties_of(
    bank: MemoryBank, run: str, on_progress: Callable[[int], None] | None = None, cancelled: Cancelled | None = None
) -> Ties:
    """How many choices of a run went by a tie, and which would be others by the other rule. Raises `UnknownRun`."""
    cuts = [tied_at(trace.recall, trace.decision) for trace in bank.each_trace(run) if trace.decision is not None]
    rule = str(bank.settings(run).get("ties", "seeded"))
    supposed = counterfactual(bank, run, {"ties": OTHER_TIES[rule]}, on_progress, cancelled) if any(cuts) else []
    changed = tuple(one for one in supposed if one.differs)
    pool, prompt = (sum(cut in found for found in cuts) for cut in ("pool", "prompt"))
    return Ties(len(cuts), pool, prompt, sum(map(bool, cuts)), rule, OTHER_TIES[rule], changed)
