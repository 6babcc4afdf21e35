"""Runs of one policy, and views of made-up memories, for tests of policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from memrl_core.agent import Agent
from memrl_core.bank import MemoryBank
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments import make_environment
from memrl_core.models.simulated import SimulatedModel
from memrl_core.policies import settings_of
from memrl_core.policies.base import Lesson, NewExperience, Policy
from memrl_core.records import (
    Consulted,
    Decision,
    EmbedRecord,
    GenerateRecord,
    Memory,
    Outcome,
    Reply,
    StepTrace,
    Task,
    Turn,
)
from memrl_core.retrieval.view import Asked, MemoryView
from tests.builders import a_run, a_vector, view_of

EMBEDDER = HashingEmbedder()


def an_agent_of(
    path: Path, policy: str, model: Any = None, environment: Any = None, seed: int = 1, **settings: Any
) -> Agent:
    """An agent with one run "r" of the policy in a new bank; by default the household and the simulated model."""
    embedder = HashingEmbedder()
    bank = MemoryBank.create(str(path), embedder.name, embedder.dimension)
    chosen = settings_of(policy, settings).model_dump()
    bank.write.start_run(replace(a_run(), policy=policy, settings=chosen, seed=seed, embedder=embedder.name))
    return Agent(bank, "r", model or SimulatedModel(), embedder, environment or make_environment("household"))


def newcomer(
    policy: str, intent: str, text: str, outcome: Outcome = "success", number: int = 9, parents: tuple[str, ...] = ()
) -> NewExperience:
    """The end of the step of this number, which is about to be written; texts are embedded by hashing."""
    trace = StepTrace("s", "r", number, 1, Task(f"t{number}", intent, "household"), policy, {}, "")
    fresh, vector = count(2), EMBEDDER.embed([intent])[0]
    memory_id = f"r-{number:04d}"
    return NewExperience(
        memory_id, intent, vector, text, outcome, parents, trace, lambda: f"{memory_id}-{next(fresh)}", EMBEDDER.embed
    )


def decided(policy: Policy[Any], view: MemoryView, seed: int = 0) -> Decision:
    """What a policy selects for what the view is asked."""
    return policy.select(policy.recall(view.asked.embedding, view), view, seed)


def a_lesson(
    view: MemoryView,
    decision: Decision,
    outcome: Outcome = "success",
    policy: str = "memento",
    reward: float | None = None,
    consulted: tuple[Consulted, ...] = (),
    done: str = "take egg from table",
    **changes: Any,
) -> Lesson:
    """What a policy learns from, without a bank: a step that asked what the view asks, decided so, and ended so."""
    embedding = tuple(map(float, view.asked.embedding))
    trace = StepTrace(
        id="step-7",
        run="r",
        step=7,
        epoch=1,
        task=Task(view.asked.task, view.asked.intent, "household"),
        policy=policy,
        settings={},
        started="",
        embed=EmbedRecord("made-up", len(embedding), embedding),
        decision=decision,
        generate=GenerateRecord("made-up", True, {}, (), (), (Turn(Reply(done), "Done.", 1.0, True, False),)),
        consulted=consulted,
    )
    trace = replace(trace, **changes)
    return Lesson(trace, reward, outcome, lambda i: view.embeddings[view.position(i)], lambda i: view.memories[i])


def a_view(tasks: Sequence[str], asked: str = "", outcome: Outcome = "failure", learned: Any = None) -> MemoryView:
    """Memories m-00, m-01, … of these tasks, oldest first, seen by a task that asks with the vector of seed 999."""
    ids = [f"m-{number:02d}" for number in range(len(tasks))]
    memories = {
        memory_id: Memory(memory_id, f"do {task}", f"Task: do {task}", outcome, task, (), "r", number, task, "")
        for number, (memory_id, task) in enumerate(zip(ids, tasks, strict=True), start=1)
    }
    asking = Asked(a_vector(999), task=asked, intent=f"do {asked}")
    return view_of(ids, [a_vector(n) for n in range(len(ids))], memories=memories, asked=asking, learned=learned)


def cosines(view: MemoryView) -> dict[str, float]:
    """Oracle: how similar each memory is to what is asked, in plain Python."""
    asked = view.asked.embedding.tolist()
    return {
        memory_id: sum(a * b for a, b in zip(vector.tolist(), asked, strict=True))
        for memory_id, vector in zip(view.ids, view.embeddings, strict=True)
    }


def outcomes(traces: Sequence[StepTrace]) -> list[Outcome]:
    """How the steps ended."""
    return [trace.reward.outcome for trace in traces if trace.reward is not None]


def prompt_of(trace: StepTrace) -> str:
    """The first user message of a step."""
    return trace.generate.messages[1].content
