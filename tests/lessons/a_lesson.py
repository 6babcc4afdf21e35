"""A finished step as a policy learns from it, without a bank."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memrl_core.policies.base import Lesson, Policy
from memrl_core.records import Consulted, Decision, EmbedRecord, GenerateRecord, Outcome, Reply, StepTrace, Task, Turn
from memrl_core.retrieval.view import MemoryView


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
    """A step that asked what the view was asked, decided so, did one thing, and ended so."""
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
