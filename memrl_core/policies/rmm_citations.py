"""Which memories of a prompt an answer used: the question to the model, and what stands in where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from types import GenericAlias
from typing import Any, Literal

from pydantic import BaseModel, Field, create_model

from memrl_core.policies.base import Question
from memrl_core.prompting import ANSWER_MARK, AVOID
from memrl_core.records import Memory

CITATIONS = "citations"
_REQUEST = (
    "You are shown memories of earlier tasks, a task, and what was done with those memories at hand. Say which of the "
    "memories were really used in it, by their ids. Name none that only look alike; name nothing when none was used."
)


class Citations(BaseModel):
    """Which memories an answer used."""

    cited: list[str]


def question(intent: str, memories: Sequence[Memory], replies: Sequence[str]) -> Question[Citations]:
    """Asks which of `memories` were used in `replies`; without a model, those that said to do what was done."""
    form = citations_of([memory.id for memory in memories])
    known = "\n\n".join(f"[memory {memory.id}]\n{memory.experience.strip()}" for memory in memories)
    done = {line.strip().removeprefix(ANSWER_MARK).strip() for reply in replies for line in reply.splitlines()}
    return Question(
        CITATIONS,
        form,
        _REQUEST,
        told=f"{known}\n\nTask: {intent}\nWhat was done:\n" + "\n".join(replies),
        template=form(cited=[memory.id for memory in memories if to_follow(memory) & done]),
    )


def citations_of(memory_ids: Sequence[str]) -> type[Citations]:
    """The form in which these memories, and no others, can be cited."""
    listed = GenericAlias(list, (Literal.__getitem__(tuple(memory_ids)),))
    told = Field(description="The ids of the memories that were used; empty when none was.")
    fields: dict[str, Any] = {"cited": (listed, told)}
    return create_model("Citations", __base__=Citations, **fields)


def to_follow(memory: Memory) -> set[str]:
    """The actions that a memory says to do: its lines that begin with "> ", but for those to avoid."""
    actions, section = set(), ""
    for line in memory.experience.splitlines():
        if not line.startswith(ANSWER_MARK):
            section = line.strip() or section
        elif section != AVOID:
            actions.add(line.removeprefix(ANSWER_MARK).strip())
    return actions
