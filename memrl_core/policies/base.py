"""What the agent needs of a memory method: one interface for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from memrl_core.records import (
    Decision,
    Memory,
    MemoryOperation,
    MemorySpan,
    Message,
    Outcome,
    RecallRecord,
    Utility,
    ValueChange,
)
from memrl_core.view import MemoryView


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """What a method is: shown wherever its decisions are shown.

    `variant` says whose rules these are; `deviations` says in plain words where they differ from the source.
    """

    name: str
    title: str
    citation: str
    variant: Literal["paper", "code", "adapted"]
    deviations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NewExperience:
    """What WRITE may store: the episode's intent with its embedding (d,), the text, and how it ended."""

    memory_id: str
    intent: str
    embedding: npt.NDArray[np.float32]
    experience: str
    outcome: Outcome


class Policy(Protocol):
    """The rules of one method. Every hook is free of side effects."""

    spec: PolicySpec

    def recall(
        self, query: npt.NDArray[np.float32], view: MemoryView, coarse: npt.NDArray[np.float32] | None = None
    ) -> RecallRecord:
        """Phase A: the pool for `query` (d,); `coarse` as in `retrieval.recall`."""
        ...

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """Phase B: which of the pool are put before the model, and why; `seed` decides every random draw."""
        ...

    def render(
        self, selected: Sequence[Memory], instructions: str, intent: str, observation: str
    ) -> tuple[tuple[Message, ...], tuple[MemorySpan, ...]]:
        """The first messages of the episode, and where in them each memory stands."""
        ...

    def reward_of(self, verdict: float) -> float:
        """The environment's verdict in [0, 1] on the policy's scale of rewards."""
        ...

    def outcome_of(self, reward: float | None) -> Outcome:
        """Whether a reward means success or failure; unrated when there is none."""
        ...

    def update(self, credited: Sequence[str], reward: float, values: Mapping[str, Utility]) -> tuple[ValueChange, ...]:
        """How `reward` moves the values of the memories that were in the prompt."""
        ...

    def write(self, new: NewExperience, view: MemoryView, memories: MemoryLookup, parents: Sequence[str]) -> Written:
        """What becomes of the episode in the memory."""
        ...


class MemoryLookup(Protocol):
    """Reads a stored memory's text by id."""

    def memory(self, memory_id: str) -> Memory:
        """The memory; raises `BankError` when there is none of that id."""
        ...


@dataclass(frozen=True, slots=True)
class Written:
    """The operation, and the embedding (d,) under which the memory is stored."""

    operation: MemoryOperation
    embedding: npt.NDArray[np.float32]
