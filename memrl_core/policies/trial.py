"""A made-up run of a policy, without a bank or a model: what the checks of the contract look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from memrl_core.policies.base import Ask, Form, Lesson, NewExperience, Policy, Question, Vector, When, Written
from memrl_core.records import (
    Consulted,
    Decision,
    EmbedRecord,
    GenerateRecord,
    Memory,
    MemoryOperation,
    MemorySpan,
    Message,
    Outcome,
    Phase,
    RecallRecord,
    Reply,
    RewardRecord,
    StepTrace,
    Task,
    Turn,
    TurnRecall,
    UpdateRecord,
    WriteRecord,
)
from memrl_core.retrieval.view import Asked, MemoryView

DIMENSION = 16
OUTCOMES: tuple[Outcome, ...] = ("success", "failure", "unrated")
EXPERIENCE = "Task: {intent}\nSteps that worked:\n> take egg from table\n> put egg on desk"
BEGIN = "You see, on the table: egg.\nYou can:\n- take egg from table\n- search drawer"
OFFER = "You hold an egg.\nYou can:\n- put egg on desk"
Prompt = tuple[tuple[Message, ...], tuple[MemorySpan, ...]]


def by_template(phase: Phase, noted: list[Consulted]) -> Ask:
    """Answers each question of a policy with the policy's own template, and notes it."""

    def ask(question: Question[Form]) -> Form | None:
        filled = question.template.model_dump(mode="json")
        noted.append(Consulted(question.purpose, phase, (), "", filled, simulated=True))
        return question.template.model_copy(deep=True)

    return ask


class Looked(NamedTuple):
    """Both phases for one thing that is asked: what was asked of the model and given back, the pool and the choice."""

    view: MemoryView
    consulted: list[Consulted]
    answers: Mapping[str, Any]
    recalled: RecallRecord
    decision: Decision


class World:
    """A made-up run of a policy, from `seed`: `size` memories of another's, then `steps` steps of its own.

    `label` is what only the environment may know of its tasks.
    """

    def __init__(self, policy: Policy[Any], seed: int, size: int = 8, steps: int = 6, label: str = "") -> None:
        self.policy, self._label = policy, label
        self.memories: dict[str, Memory] = {}
        self._seed = seed
        rng = np.random.default_rng(seed)
        self._vectors: list[Vector] = []
        self._gone: set[str] = set()
        for number in range(size):
            intent = f"put a hot thing {number % 5} on the table"
            outcome = OUTCOMES[number % 3]
            memory = _memory(f"m-{number:04d}", intent, EXPERIENCE.format(intent=intent), outcome, number)
            self._keep(memory, _unit(rng))
        self.state = policy.start(list(self.memories.values()))
        for step in range(1, steps + 1):
            self.step(step)

    def look(self, step: int = 90, turn: int = 0) -> Looked:
        """Both phases for a new task, or before a later turn of it."""
        asked = self._asked(step, turn)
        view = self.view(asked)
        recalled = self.policy.recall(asked.embedding, view)
        asked_of_model: list[Consulted] = []
        ask = by_template(Phase.GENERATE if turn else Phase.SELECT, asked_of_model)
        answers = self.policy.consult(recalled, view, ask)
        view = replace(view, asked=replace(asked, answers=answers))
        decision = self.policy.select(recalled, view, seed=self._seed * 100 + step + 1000 * turn)
        return Looked(view, asked_of_model, answers, recalled, decision)

    def look_in_turn(self, step: int, turn: int) -> tuple[Looked, TurnRecall] | None:
        """What memory adds before a later turn; None where the policy does not ask for it."""
        asked = self._asked(step, turn)
        when = self.policy.when(asked)
        assert isinstance(when, When), "`when` gives no When."
        if not when.now:
            return None
        looked = self.look(step, turn)
        text = self.policy.render_turn(self._chosen(looked.decision), looked.view)
        return looked, TurnRecall(when.why, looked.recalled, looked.decision, text)

    def render(self, decision: Decision, step: int = 90) -> Prompt:
        """The prompt that a decision gives."""
        view = self.view(self._asked(step))
        return self.policy.render(self._chosen(decision), "Act.", "put a hot egg on the table", "You see an egg.", view)

    def step(self, step: int, outcome: Outcome | None = None) -> None:
        """One whole step, at the end of which the policy has learned."""
        trace = self.trace(step, outcome or OUTCOMES[step % 2])
        self.policy.learn(self.state, self.lesson(trace))
        written = self._written(trace)
        _, forgotten = self.forget(step)
        for one in written:
            op = one.operation
            if one.embedding is not None and op.memory_id:
                memory = _memory(op.memory_id, op.intent, op.experience, op.outcome, step, trace.task.id)
                self._keep(memory, one.embedding)
        operations = (*(one.operation for one in written), *forgotten)
        for operation in operations:
            self._gone.update(operation.replaces)
        self.policy.remember(self.state, self.lesson(replace(trace, write=WriteRecord(operations))))

    def write(self, step: int, outcome: Outcome) -> Sequence[Written]:
        """What the policy writes at the end of a step that ended so."""
        return self._written(self.trace(step, outcome))

    def forget(self, step: int = 90) -> tuple[MemoryView, Sequence[MemoryOperation]]:
        """What the policy forgets at the end of a step, and the memories that it saw."""
        view = self.view(self._asked(step))
        return view, self.policy.forget(view)

    def trace(self, step: int, outcome: Outcome) -> StepTrace:
        """A step that ended so, up to its feedback."""
        looked = self.look(step)
        asked, decision, won = self._asked(step), looked.decision, outcome == "success"
        within = self.look_in_turn(step, 1)
        turns = (
            Turn(Reply("take egg from table"), OFFER, 0.0, False, False),
            Turn(Reply("put egg on desk"), "Done.", float(won), True, False, within[1] if within else None),
        )
        reward = self.policy.reward_of(float(won)) if outcome != "unrated" else None
        trace = StepTrace(
            id=f"step-{step}",
            run="made-up",
            step=step,
            epoch=1,
            task=Task(asked.task, asked.intent, "household", self._label, {"label": self._label}),
            policy=self.policy.spec.name,
            settings=self.policy.settings.model_dump(),
            started="2026-01-01T00:00:00+00:00",
            embed=EmbedRecord("made-up", DIMENSION, tuple(map(float, asked.embedding))),
            recall=looked.recalled,
            decision=decision,
            generate=GenerateRecord("made-up", True, {}, (), (), turns),
            reward=RewardRecord(reward, "environment", outcome, "", "", "", self.policy.credited(decision), reward),
            update=UpdateRecord(()),
            consulted=(*looked.consulted, *(within[0].consulted if within else ())),
        )
        reviewed: list[Consulted] = []
        self.policy.review(trace, self._chosen(decision), by_template(Phase.UPDATE, reviewed))
        return replace(trace, consulted=(*trace.consulted, *reviewed))

    def lesson(self, trace: StepTrace) -> Lesson:
        """A step as the policy learns from it."""
        assert trace.reward is not None
        rows = {memory_id: row for row, memory_id in enumerate(self.memories)}
        return Lesson(
            trace,
            trace.reward.reward,
            trace.reward.outcome,
            lambda memory_id: self._vectors[rows[memory_id]],
            lambda memory_id: self.memories[memory_id],
        )

    def _written(self, trace: StepTrace) -> Sequence[Written]:
        assert trace.embed is not None and trace.reward is not None and trace.decision is not None
        fresh = iter(range(1000))
        new = NewExperience(
            memory_id=f"made-up-{trace.step:04d}",
            intent=trace.task.intent,
            embedding=np.asarray(trace.embed.embedding, dtype=np.float32),
            experience=EXPERIENCE.format(intent=trace.task.intent),
            outcome=trace.reward.outcome,
            parents=trace.decision.selected,
            trace=trace,
            fresh_id=lambda: f"made-up-{trace.step:04d}-{next(fresh)}",
            embed=lambda texts: np.stack([_unit(np.random.default_rng(list(text.encode()))) for text in texts]),
        )
        return self.policy.write(new, self.view(self._asked(trace.step)), by_template(Phase.WRITE, []))

    def view(self, asked: Asked) -> MemoryView:
        """What the run sees now."""
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

    def _keep(self, memory: Memory, vector: Vector) -> None:
        self.memories[memory.id] = memory
        self._vectors.append(vector)

    def _chosen(self, decision: Decision) -> list[Memory]:
        return [self.memories[memory_id] for memory_id in decision.selected]

    def _asked(self, step: int, turn: int = 0) -> Asked:
        rng = np.random.default_rng([self._seed, step, turn] if turn else [self._seed, step])
        intent, observation = "put a hot egg on the table", OFFER if turn else BEGIN
        asked = Asked(_unit(rng), f"t{step % 4}", intent, observation, turn, step)
        assert isinstance(self.policy.key(asked), str), "The key is no text."
        return asked


def _unit(rng: np.random.Generator) -> Vector:
    vector = np.abs(rng.normal(size=DIMENSION)) + 0.2
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def _memory(memory_id: str, intent: str, experience: str, outcome: Outcome, step: int, task: str = "") -> Memory:
    return Memory(memory_id, intent, experience, outcome, intent, (), "made-up", step, task or f"t{step % 4}", "")
