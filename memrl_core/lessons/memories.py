"""The scene `memories`: the memories of a recorded run, of which a person picks one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from memrl_core.bank import MemoryBank
from memrl_core.lessons.scene import Inputs, Scene, Value, read_inputs
from memrl_core.records import Memory, Utility


class Picked(BaseModel):
    """Which memory a person picked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory: str | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """The memories of the run, oldest first, what it believes of each, and the one that was picked.

    `same_words` are the others that have been used and whose experience is letter for letter that of the picked one.
    """

    memories: tuple[Memory, ...]
    utilities: Mapping[str, Utility]
    picked: Memory | None
    same_words: tuple[Memory, ...]


class MemoriesScene(Scene):
    """Settings: the run whose memories are shown, as of its end."""

    VALUES: ClassVar[Mapping[str, type]] = {
        "picked": bool,
        "outcome": str,
        "q": float,
        "q_of_success": float,
        "q_of_failure": float,
        "visits": float,
        "q_below_same_words": float,
        "q_above_same_words": float,
        "parents": float,
        "written_at": float,
    }

    kind: Literal["memories"]
    run: str = Field("household", min_length=1)

    def shown(self, bank: MemoryBank, inputs: Inputs) -> Shown:
        """What the scene shows. A memory that is not there counts as none."""
        wanted = read_inputs(Picked, inputs).memory
        utilities = bank.utilities(self.run)
        memories = tuple(memory for memory in bank.memories() if memory.id in utilities)
        picked = next((m for m in memories if m.id == wanted), None)
        used = (m for m in memories if utilities[m.id].visits)
        same = tuple(m for m in used if picked and m.id != picked.id and m.experience == picked.experience)
        return Shown(memories, utilities, picked, same)

    def observe(self, bank: MemoryBank, inputs: Inputs) -> Mapping[str, Value]:
        """The picked memory in values; `q_of_success` and `q_of_failure` are there for a memory of that outcome.

        `q_below_same_words` and `q_above_same_words` say how far its q is from the highest and from the lowest of
        those of the same words, where it and one of them have been used.
        """
        shown = self.shown(bank, inputs)
        memory = shown.picked
        if memory is None:
            return {"picked": False}
        utility = shown.utilities[memory.id]
        apart = {}
        if utility.visits and (others := [shown.utilities[other.id].q for other in shown.same_words]):
            apart = {"q_below_same_words": max(others) - utility.q, "q_above_same_words": utility.q - min(others)}
        return {
            **apart,
            "picked": True,
            "outcome": memory.outcome,
            "q": utility.q,
            f"q_of_{memory.outcome}": utility.q,
            "visits": utility.visits,
            "parents": len(memory.parents),
            "written_at": memory.step,
        }
