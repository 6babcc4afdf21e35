"""What one run sees of a bank at one moment, as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.records import Memory


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What memory is asked for: by a task as it begins (`turn` 0), or by a later turn of its episode.

    `embedding` (d,) is the unit vector of the policy's key, most often of the intent. `task` is the task's id and
    `step` the number of the step, for rules that go by them; what only the environment may know of a task, its family
    and data, is not here. `observation` is what the environment said last. `answers` holds what the model said when the
    policy consulted it before selecting. `seed` is the step's: it draws among equally similar memories in phase A, as
    it does among equals in phase B.
    """

    embedding: npt.NDArray[np.float32]
    task: str = ""
    intent: str = ""
    observation: str = ""
    turn: int = 0
    step: int = 0
    answers: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class MemoryView:
    """The memories of a run in age order (oldest first), with what the run believes of them.

    `ids` (n,); `embeddings` (n, d) float32 unit vectors, often a slice of the bank's mirror without a copy; `q` (n,)
    float64; `visits` (n,) int64; `intent_groups` (n,) int64, equal where memories count as one intent; `visible` (n,)
    bool is False for rows of other runs that lie between this run's own, None when all rows are the run's.
    `rows` maps a memory's id to its row in the whole mirror, of which this view begins at `first_row`. `memories` holds
    the texts of at least these memories by id. `asked` is what memory is asked for and `learned` what the policy has
    learned beyond q; both are there when a policy decides.
    """

    ids: Sequence[str]
    embeddings: npt.NDArray[np.float32]
    q: npt.NDArray[np.float64]
    visits: npt.NDArray[np.int64]
    intent_groups: npt.NDArray[np.int64]
    rows: Mapping[str, int]
    first_row: int = 0
    visible: npt.NDArray[np.bool_] | None = None
    memories: Mapping[str, Memory] = field(default_factory=dict)
    asked: Asked | None = None
    learned: Any = None

    @property
    def size(self) -> int:
        """How many memories the run sees."""
        return len(self.ids) if self.visible is None else int(np.count_nonzero(self.visible))

    @property
    def answers(self) -> Mapping[str, Any]:
        """What the model said when the policy consulted it, by purpose; nothing where nobody asks."""
        return {} if self.asked is None else self.asked.answers

    def position(self, memory_id: str) -> int:
        """Where in this view's arrays the memory stands; raises `KeyError` for an unknown id."""
        return self.rows[memory_id] - self.first_row

    def positions_of(self, memory_ids: Iterable[str]) -> npt.NDArray[np.int64]:
        """Where in this view's arrays these memories stand (n,); raises `KeyError` for an unknown id."""
        rows = self.rows
        return np.array([rows[memory_id] for memory_id in memory_ids], dtype=np.int64) - self.first_row

    def sees(self, memory_id: str) -> bool:
        """Whether the run sees the memory."""
        position = self.rows.get(memory_id, -1) - self.first_row
        return 0 <= position < len(self.ids) and (self.visible is None or bool(self.visible[position]))

    def positions(self) -> npt.NDArray[np.int64]:
        """Where in the arrays the run's memories stand, oldest first."""
        return np.arange(len(self.ids)) if self.visible is None else np.flatnonzero(self.visible)
