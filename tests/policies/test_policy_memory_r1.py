"""The operations of Memory-R1, chosen by a prompted model: add, say anew, delete, leave; and no usable answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memrl_core.agent.asking import templates
from memrl_core.bank.check import check
from memrl_core.environments.tasks import sample_tasks
from memrl_core.models.simulated import SimulatedModel
from memrl_core.policies.base import NewExperience
from memrl_core.policies.methods.memory_r1_ops import UNUSABLE, Chosen, MemoryR1Ops, MemoryR1OpsSettings
from memrl_core.records import Memory, MemoryOperation, Outcome, Reply
from memrl_core.retrieval.view import MemoryView
from tests.builders import view_of
from tests.policies.policy_run import EMBEDDER, an_agent_of, newcomer

WON = "Task: put a hot egg on the table\nSteps that worked:\n> heat egg with stove"
LOST = "Task: put a hot egg on the table\nAvoid:\n> heat egg with microwave"


def a_memory(memory_id: str, text: str, outcome: Outcome, intent: str = "put a hot egg on the table") -> Memory:
    return Memory(memory_id, intent, text, outcome, intent, (), "r", 1, "t1", "")


def an_end(text: str = WON, outcome: Outcome = "success") -> NewExperience:
    return newcomer("memory_r1_ops", "put a hot egg on the table", text, outcome)


def a_view(*memories: Memory) -> MemoryView:
    ids = [memory.id for memory in memories]
    vectors = EMBEDDER.embed([m.intent for m in memories]) if ids else np.zeros((0, EMBEDDER.dimension))
    return view_of(ids, vectors, memories={m.id: m for m in memories})


def written(view: MemoryView, new: NewExperience, chosen: Any = templates) -> MemoryOperation:
    ask = chosen if callable(chosen) else lambda question: chosen
    (one,) = MemoryR1Ops(MemoryR1OpsSettings()).write(new, view, ask)
    assert (one.embedding is None) == (one.operation.op in ("NOOP", "DELETE"))
    return one.operation


# --- the rule that stands in for the model ----------------------------------------------------------------------------

FAILED = a_memory("failed", LOST, "failure")
WORKED = a_memory("worked", WON + "\n> put egg on table", "success")
OTHER = a_memory("other", LOST, "failure", "wash the mug")


@pytest.mark.parametrize(
    ("memories", "new", "op", "about"),
    [
        ([], an_end(), "ADD", ()),
        ([OTHER], an_end(), "ADD", ()),
        ([FAILED], an_end(), "UPDATE", ("failed",)),
        ([WORKED, FAILED], an_end(), "DELETE", ("failed",)),
        ([WORKED], an_end(), "ADD", ()),
        ([WORKED], an_end(LOST, "failure"), "ADD", ()),
        ([FAILED, WORKED], an_end(LOST, "failure"), "NOOP", ()),
        ([a_memory("unrated", LOST, "unrated")], an_end(), "UPDATE", ("unrated",)),
    ],
)
def test_the_rule_chooses(memories: Sequence[Memory], new: NewExperience, op: str, about: tuple[str, ...]) -> None:
    operation = written(a_view(*memories), new)
    assert (operation.op, operation.replaces) == (op, about)


def test_the_same_text_is_named_as_what_makes_writing_unnecessary() -> None:
    operation = written(a_view(OTHER, FAILED), an_end(LOST, "failure"))
    assert (operation.op, operation.duplicate_of) == ("NOOP", "failed")


# --- what the model may answer ----------------------------------------------------------------------------------------


def test_an_update_stores_the_models_text_under_the_an_end() -> None:
    operation = written(a_view(FAILED), an_end(), Chosen(operation="UPDATE", memory="failed", text="> use the stove"))
    assert (operation.memory_id, operation.replaces, operation.outcome) == ("r-0009", ("failed",), "success")
    assert operation.experience == "Task: put a hot egg on the table\n> use the stove"


def test_an_add_without_a_text_stores_the_episode() -> None:
    assert written(a_view(FAILED), an_end(), Chosen(operation="ADD")).experience == WON


def test_the_id_may_come_as_it_was_shown() -> None:
    for reported in ("failed", "[memory failed]", " [failed] ", "memory failed"):
        assert written(a_view(FAILED), an_end(), Chosen(operation="DELETE", memory=reported)).replaces == ("failed",)


@pytest.mark.parametrize("op", ["UPDATE", "DELETE"])
def test_a_memory_that_was_not_shown_is_left_alone(op: Any) -> None:
    operation = written(a_view(FAILED), an_end(), Chosen(operation=op, memory="nobody", text="x"))
    assert operation.op == "NOOP" and operation.why.startswith(UNUSABLE)


def test_the_nearest_memories_are_shown_and_no_more() -> None:
    memories = [a_memory(f"m{n}", LOST, "failure", f"put a hot egg number {n} on the table") for n in range(5)]
    view, new, asked = a_view(*memories, OTHER), an_end(), list[str]()
    MemoryR1Ops(MemoryR1OpsSettings(shown=3, ties="older")).write(
        new, view, lambda question: asked.append(question.message)
    )
    cosine = view.embeddings.astype(float) @ new.embedding.astype(float)
    nearest = [view.ids[i] for i in sorted(range(6), key=lambda i: -cosine[i])[:3]]
    shown = re.findall(r"\[memory (\w+)\]", asked[0])
    assert shown == nearest


# --- a whole run ------------------------------------------------------------------------------------------------------


class Scripted:
    """Answers each episode at random; what it wants done with the memory is told beforehand."""

    name, simulated, binds = "scripted", False, False

    def __init__(self, replies: Sequence[str]) -> None:
        self.replies = list(replies)
        self.acts = SimulatedModel()

    def chat(self, messages: Any, options: Any, *_: Any, schema: Any = None) -> Reply:
        if schema is not None:
            return Reply(self.replies.pop(0))
        return self.acts.chat(messages, options)


def test_a_run_does_what_the_model_wants(tmp_path: Path) -> None:
    replies = [
        '{"operation": "ADD", "memory": "", "text": "first"}',
        '{"operation": "ADD", "memory": "", "text": "second"}',
        '{"operation": "UPDATE", "memory": "r-0001", "text": "better"}',
        "I would rather not say.",
        '{"operation": "DELETE", "memory": "r-0002"}',
        '{"operation": "NOOP"}',
        '{"operation": "DELETE", "memory": "r-0001"}',
    ]
    agent = an_agent_of(tmp_path / "bank", "memory_r1_ops", Scripted(replies))
    traces = list(agent.run(sample_tasks("household-train")[:7]))
    assert list(agent.bank.utilities("r")) == ["r-0003"]
    assert agent.bank.memory("r-0003").experience.endswith("better")
    done = [op.op for trace in traces for op in (trace.write.operations if trace.write else ())]
    assert done == ["ADD", "ADD", "UPDATE", "NOOP", "DELETE", "NOOP", "NOOP"]
    agent.bank.close()
    assert all(finding.ok for finding in check(agent.bank.uri))
