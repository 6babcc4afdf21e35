"""What every policy must keep, as checks that the author of one can run.

    from memrl_core.policies.contract import CHECKS

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_policy_keeps_the_contract(check):
        check(lambda: MyPolicy(MySettings()))

A check raises `AssertionError` with a sentence. It needs no bank and no model: memories are made up.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from memrl_core.policies.base import Lesson, NewExperience, Policy, Question, Vector, changed_value
from memrl_core.records import (
    Decision,
    EmbedRecord,
    GenerateRecord,
    Memory,
    Outcome,
    RecallRecord,
    Reply,
    RewardRecord,
    StepTrace,
    Task,
    Turn,
    UpdateRecord,
    Utility,
    WriteRecord,
)
from memrl_core.view import Asked, MemoryView

Make = Callable[[], Policy[Any]]
DIMENSION = 16
TOLERANCE = 1e-9
OUTCOMES: tuple[Outcome, ...] = ("success", "failure", "unrated")
EXPERIENCE = "Task: {intent}\nSteps that worked:\n> take egg from table\n> put egg on desk"


def decision_breaks(recalled: RecallRecord, decision: Decision) -> str:
    """What is wrong with a decision about a pool, in words; empty when nothing is."""
    pool = {member.memory_id for member in recalled.pool}
    missed = {member.memory_id for member in recalled.left_out}
    strangers = [i for i in (*decision.selected, *decision.greedy) if i not in pool]
    if strangers:
        return f"it chose “{strangers[0][:80]}”, which is not in the pool"
    if len(set(decision.selected)) < len(decision.selected):
        return "it chose a memory twice"
    if {c.memory_id for c in decision.candidates} != pool | missed:
        return "its candidates are not the pool and what missed it"
    for candidate in decision.candidates:
        if candidate.selected != (candidate.memory_id in decision.selected):
            return f"{candidate.memory_id[:80]} is called selected in one place and not in another"
        numbers = [n for t in candidate.terms for n in (t.raw, t.normalised, t.weight, t.contribution)]
        if not np.isfinite([*numbers, candidate.score or 0.0]).all():
            return f"a number of {candidate.memory_id[:80]} is not finite"
        total = sum(term.contribution for term in candidate.terms)
        if candidate.score is not None and abs(total - candidate.score) > 1e-6 * max(1.0, abs(total)):
            return f"the terms of {candidate.memory_id[:80]} add up to {total}, its score is {candidate.score}"
    if not -TOLERANCE <= decision.propensity <= 1 + TOLERANCE:
        return f"the probability of its choice is {decision.propensity}"
    return ""


def chooses_from_the_pool(make: Make) -> None:
    """What is chosen was recalled, and the terms of each score add up to it."""
    for seed in range(5):
        world = World(make(), seed)
        recalled, decision = world.decide()
        broken = decision_breaks(recalled, decision)
        assert not broken, f"Seed {seed}: {broken}."


def decides_alike_from_the_same_seed(make: Make) -> None:
    """The same memory, intent and seed give the same decision."""
    for seed in range(3):
        first, second = World(make(), seed).decide(), World(make(), seed).decide()
        assert first == second, f"Seed {seed}: two decisions from the same seed differ."


def selects_without_side_effects(make: Make) -> None:
    """Deciding, and deciding again, changes neither what was learned nor what comes of it."""
    world = World(make(), 1)
    before = dict(world.policy.values(world.state))
    first, second = world.decide(), world.decide()
    assert first == second, "Deciding twice gives two decisions."
    assert before == dict(world.policy.values(world.state)), "Deciding changed what was learned."


def works_with_few_memories(make: Make) -> None:
    """An empty memory, and one with a single record, give a decision whose numbers are finite."""
    for size in (0, 1):
        world = World(make(), 0, size=size, steps=0)
        recalled, decision = world.decide()
        broken = decision_breaks(recalled, decision)
        assert not broken, f"With {size} memories: {broken}."
        world.render(decision)


def knows_strange_memories(make: Make) -> None:
    """Memories that the policy did not write are candidates like others, or none at all; nothing fails."""
    world = World(make(), 2, size=12, steps=0)
    recalled, decision = world.decide()
    broken = decision_breaks(recalled, decision)
    assert not broken, f"Among memories of another policy: {broken}."
    world.render(decision)


def reports_what_it_learns(make: Make) -> None:
    """`learn` moves no value that it does not report, and what it reports is what became of the values."""
    world = World(make(), 3, steps=0)
    for step in range(1, 7):
        world.step(step, check=_reported)


def updates_only_the_credited(make: Make) -> None:
    """A reward moves the q of memories that are credited with it, each as the fold of the ledger will."""
    world = World(make(), 4)
    _, decision = world.decide()
    credited = world.policy.credited(decision)
    assert set(credited) <= set(decision.selected), "A memory is credited that was not in the prompt."
    believed = {memory_id: Utility(0.25, 2) for memory_id in credited}
    for change in world.policy.update(credited, 1.0, believed):
        assert change.memory_id in credited, f"{change.memory_id} moved without being credited."
        known = believed[change.memory_id]
        rule = type(world.policy).rule
        assert change.before == known.q, "A change does not begin with what was believed."
        assert change.after == rule(known, 1.0, world.policy.settings.model_dump()), "update and rule disagree."


def writes_what_can_be_stored(make: Make) -> None:
    """What is written has new ids, an embedding each, and takes the place of memories that are there."""
    for outcome in OUTCOMES:
        world = World(make(), 5)
        ids = set(world.memories)
        for written in world.write(7, outcome):
            operation = written.operation
            if operation.op in ("ADD", "UPDATE", "MERGE"):
                assert operation.memory_id and operation.memory_id not in ids, "A new memory has no id of its own."
                ids.add(operation.memory_id)
                assert written.embedding is not None, f"{operation.memory_id} has no embedding."
                assert abs(float(np.linalg.norm(written.embedding)) - 1) < 1e-3, "An embedding has not length 1."
                assert operation.experience.strip(), f"{operation.memory_id} has no text."
            assert set(operation.replaces) <= ids, "A memory is replaced that is not there."


def learns_alike_however_often_it_is_asked(make: Make) -> None:
    """The same steps give the same learned values."""
    first, second = World(make(), 6), World(make(), 6)
    first.decide()
    assert dict(first.policy.values(first.state)) == dict(second.policy.values(second.state))


CHECKS: tuple[Callable[[Make], None], ...] = (
    chooses_from_the_pool,
    decides_alike_from_the_same_seed,
    selects_without_side_effects,
    works_with_few_memories,
    knows_strange_memories,
    reports_what_it_learns,
    updates_only_the_credited,
    writes_what_can_be_stored,
    learns_alike_however_often_it_is_asked,
)
"""Every check of the contract; each takes a function that makes the policy anew."""


def _reported(policy: Policy[Any], state: Any, lesson: Lesson) -> None:
    before = dict(policy.values(state))
    changes = policy.learn(state, lesson)
    after = dict(policy.values(state))
    reported = {changed_value(change): change for change in changes}
    moved = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    silent = moved - reported.keys()
    assert not silent, f"{min(silent)} moved and was not reported."
    for name, change in reported.items():
        assert name not in after or abs(after[name] - change.after) < TOLERANCE, f"{name} is not what was reported."


class World:
    """A made-up run of a policy, from `seed`: `size` memories of another's, then `steps` steps of its own."""

    def __init__(self, policy: Policy[Any], seed: int, size: int = 8, steps: int = 6) -> None:
        self.policy = policy
        self.memories: dict[str, Memory] = {}
        self._seed = seed
        self._rng = np.random.default_rng(seed)
        self._vectors: list[Vector] = []
        self._gone: set[str] = set()
        for number in range(size):
            intent = f"put a hot thing {number % 5} on the table"
            outcome = OUTCOMES[number % 3]
            memory = _memory(f"m-{number:04d}", intent, EXPERIENCE.format(intent=intent), outcome, number)
            self._keep(memory, self._vector())
        self.state = policy.start(list(self.memories.values()))
        for step in range(1, steps + 1):
            self.step(step)

    def decide(self, step: int = 90) -> tuple[RecallRecord, Decision]:
        """Both phases for a new task."""
        return self._decided(self._asked(step))

    def render(self, decision: Decision) -> None:
        """The prompt that a decision gives."""
        chosen = [self.memories[memory_id] for memory_id in decision.selected]
        self.policy.render(chosen, "Act.", "put a hot egg on the table", "You see an egg.", self._view(self._asked(90)))

    def step(self, step: int, check: Callable[[Policy[Any], Any, Lesson], None] | None = None) -> None:
        """One whole step, at the end of which the policy has learned."""
        trace = self._trace(step, OUTCOMES[step % 2])
        lesson = self._lesson(trace)
        if check is None:
            self.policy.learn(self.state, lesson)
        else:
            check(self.policy, self.state, lesson)
        written = self.policy.write(self._new(trace), self._view(self._asked(step)), _template)
        for one in written:
            operation = one.operation
            self._gone.update(operation.replaces)
            if one.embedding is not None and operation.memory_id:
                memory = _memory(
                    operation.memory_id, operation.intent, operation.experience, operation.outcome, step, trace.task.id
                )
                self._keep(memory, one.embedding)
        trace = replace(trace, write=WriteRecord(tuple(one.operation for one in written)))
        self.policy.remember(self.state, self._lesson(trace))

    def write(self, step: int, outcome: Outcome) -> Sequence[Any]:
        """What the policy writes at the end of a step that ended so."""
        return self.policy.write(self._new(self._trace(step, outcome)), self._view(self._asked(step)), _template)

    def _vector(self) -> Vector:
        vector = np.abs(self._rng.normal(size=DIMENSION)) + 0.2
        return (vector / np.linalg.norm(vector)).astype(np.float32)

    def _keep(self, memory: Memory, vector: Vector) -> None:
        self.memories[memory.id] = memory
        self._vectors.append(vector)

    def _asked(self, step: int) -> Asked:
        rng = np.random.default_rng([self._seed, step])
        vector = np.abs(rng.normal(size=DIMENSION)) + 0.2
        return Asked(
            (vector / np.linalg.norm(vector)).astype(np.float32),
            task=f"t{step % 4}",
            intent="put a hot egg on the table",
            observation="You see, on the table: egg.\nYou can:\n- take egg from table\n- search drawer",
            step=step,
        )

    def _view(self, asked: Asked) -> MemoryView:
        ids = list(self.memories)
        rng = np.random.default_rng([self._seed, 7])
        visible = np.array([memory_id not in self._gone for memory_id in ids], dtype=bool)
        return MemoryView(
            ids=ids,
            embeddings=np.stack(self._vectors) if ids else np.zeros((0, DIMENSION), np.float32),
            q=rng.normal(size=len(ids)),
            visits=rng.integers(0, 5, len(ids)),
            intent_groups=np.arange(len(ids)),
            rows={memory_id: row for row, memory_id in enumerate(ids)},
            visible=None if visible.all() else visible,
            memories=self.memories,
            asked=asked,
            learned=self.state,
        )

    def _decided(self, asked: Asked) -> tuple[RecallRecord, Decision]:
        view = self._view(asked)
        recalled = self.policy.recall(asked.embedding, view)
        said = self.policy.consult(recalled, view, _template)
        view = replace(view, asked=replace(asked, said=said))
        return recalled, self.policy.select(recalled, view, seed=self._seed * 100 + asked.step)

    def _trace(self, step: int, outcome: Outcome) -> StepTrace:
        asked = self._asked(step)
        recalled, decision = self._decided(asked)
        won = outcome == "success"
        turns = (
            Turn(Reply("take egg from table"), "You hold an egg.\nYou can:\n- put egg on desk", 0.0, False, False),
            Turn(Reply("put egg on desk"), "Done.", float(won), True, False),
        )
        reward = self.policy.reward_of(float(won)) if outcome != "unrated" else None
        return StepTrace(
            id=f"step-{step}",
            run="made-up",
            step=step,
            epoch=1,
            task=Task(asked.task, asked.intent, "household"),
            policy=self.policy.spec.name,
            settings=self.policy.settings.model_dump(),
            started="2026-01-01T00:00:00+00:00",
            embed=EmbedRecord("made-up", DIMENSION, tuple(map(float, asked.embedding))),
            recall=recalled,
            decision=decision,
            generate=GenerateRecord("made-up", True, {}, (), (), turns),
            reward=RewardRecord(
                reward, "environment", outcome, "", "", "", self.policy.credited(decision), environment=reward
            ),
            update=UpdateRecord(()),
        )

    def _lesson(self, trace: StepTrace) -> Lesson:
        assert trace.reward is not None
        rows = {memory_id: row for row, memory_id in enumerate(self.memories)}
        return Lesson(
            trace,
            trace.reward.reward,
            trace.reward.outcome,
            lambda memory_id: self._vectors[rows[memory_id]],
            lambda memory_id: self.memories[memory_id],
        )

    def _new(self, trace: StepTrace) -> NewExperience:
        assert trace.embed is not None and trace.reward is not None and trace.decision is not None
        fresh = iter(range(1000))
        return NewExperience(
            memory_id=f"made-up-{trace.step:04d}",
            intent=trace.task.intent,
            embedding=np.asarray(trace.embed.embedding, dtype=np.float32),
            experience=EXPERIENCE.format(intent=trace.task.intent),
            outcome=trace.reward.outcome,
            parents=trace.decision.selected,
            trace=trace,
            fresh_id=lambda: f"made-up-{trace.step:04d}-{next(fresh)}",
            embed=lambda texts: np.stack([_embedded(text) for text in texts]),
        )


def _embedded(text: str) -> Vector:
    rng = np.random.default_rng(list(text.encode()))
    vector = np.abs(rng.normal(size=DIMENSION)) + 0.2
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def _template(question: Question[Any]) -> Any:
    return copy.deepcopy(question.template)


def _memory(memory_id: str, intent: str, experience: str, outcome: Outcome, step: int, task: str = "") -> Memory:
    return Memory(memory_id, intent, experience, outcome, intent, (), "made-up", step, task or f"t{step % 4}", "")
