"""Pools with similarities and outcomes as wanted, for tests of policies that ask the model before they select."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np

from memrl_core.agent.asking import templates
from memrl_core.policies import make_policy
from memrl_core.policies.base import Ask, NewExperience
from memrl_core.records import (
    Candidate,
    Decision,
    Memory,
    Message,
    Outcome,
    RecallRecord,
    RewardRecord,
    StepTrace,
    Task,
)
from memrl_core.retrieval.view import Asked, MemoryView
from tests.builders import view_of

ASKED = np.array([1.0, 0.0], dtype=np.float32)
Known = tuple[Outcome, float]
"""The outcome of a memory and its similarity to what is asked."""


def a_pool(
    *known: Known, answers: Mapping[str, Any] | None = None, turn: int = 0, own: Sequence[int] = ()
) -> MemoryView:
    """Memories m-0, m-1, … oldest first; those at the positions `own` come from the task that is asked."""
    ids = [f"m-{number}" for number in range(len(known))]
    vectors = [(similarity, sqrt(1 - similarity**2)) for _, similarity in known]
    memories = {
        memory_id: a_memory(memory_id, outcome, "asked" if number in own else f"t{number}", number)
        for number, (memory_id, (outcome, _)) in enumerate(zip(ids, known, strict=True))
    }
    intent, seen = "put a hot apple on the desk", "You see an apple."
    asked = Asked(ASKED, task="asked", intent=intent, observation=seen, turn=turn, step=9, answers=answers or {})
    return view_of(ids, np.reshape(vectors, (-1, 2)), memories=memories, asked=asked)


def a_memory(memory_id: str, outcome: Outcome, task: str = "t", step: int = 1) -> Memory:
    prompt_text = {
        "success": f"Steps that worked:\n> take {memory_id}",
        "failure": f"What went wrong: it burned.\nAvoid:\n> burn {memory_id}\nTry instead:\n> cool {memory_id}",
        "unrated": f"Steps that worked:\n> try {memory_id}",
    }[outcome]
    text = f"Task: do {memory_id}\n{prompt_text}"
    return Memory(memory_id, f"do {memory_id}", text, outcome, task, (), "r", step, task, "")


def decided(policy: str, view: MemoryView, ask: Ask | None = None, **settings: Any) -> tuple[RecallRecord, Decision]:
    """Both phases; the model is consulted where `ask` is given."""
    made = make_policy(policy, settings)
    recalled = made.recall(ASKED, view)
    if ask is not None:
        view = replace(view, asked=replace(view.asked, answers=made.consult(recalled, view, ask)))
    return recalled, made.select(recalled, view, seed=0)


def by_template(policy: str, view: MemoryView, **settings: Any) -> Decision:
    """The decision with the simulated model."""
    return decided(policy, view, templates, **settings)[1]


def reasons(decision: Decision) -> dict[str, str]:
    """Why each candidate was, or was not, selected."""
    return {candidate.memory_id: str(candidate.reason) for candidate in decision.candidates}


def candidate(decision: Decision, memory_id: str) -> Candidate:
    return next(candidate for candidate in decision.candidates if candidate.memory_id == memory_id)


def prompt_text(messages: Sequence[Message]) -> str:
    """The first user message."""
    return next(message.content for message in messages if message.role == "user")


def an_experience(text: str, outcome: Outcome, verdict: str = "It is over.") -> NewExperience:
    """A finished episode that is about to be written."""
    task = Task("asked", "put a hot apple on the desk", "household")
    rewarded = RewardRecord(None if outcome == "unrated" else 1.0, "environment", outcome, verdict, "", "", ())
    trace = StepTrace("step-9", "r", 9, 1, task, "p", {}, "", reward=rewarded)
    return NewExperience(
        "r-0009",
        task.intent,
        ASKED,
        text,
        outcome,
        ("m-0",),
        trace,
        lambda: "r-0009-2",
        lambda texts: np.stack([ASKED]),
    )
