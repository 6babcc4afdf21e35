"""What one run sees of a bank at one moment, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class MemoryView:
    """The memories of a run in age order (oldest first), with what the run believes of them.

    `ids` (n,); `embeddings` (n, d) float32 unit vectors, often a slice of the bank's mirror without a copy; `q` (n,)
    float64; `visits` (n,) int64; `intent_groups` (n,) int64, equal where memories count as one intent; `visible` (n,)
    bool is False for rows of other runs that lie between this run's own, None when all rows are the run's.
    `rows` maps a memory's id to its row in the whole mirror, of which this view begins at `first_row`.
    """

    ids: Sequence[str]
    embeddings: npt.NDArray[np.float32]
    q: npt.NDArray[np.float64]
    visits: npt.NDArray[np.int64]
    intent_groups: npt.NDArray[np.int64]
    rows: Mapping[str, int]
    first_row: int = 0
    visible: npt.NDArray[np.bool_] | None = None

    @property
    def size(self) -> int:
        """How many memories the run sees."""
        return len(self.ids) if self.visible is None else int(self.visible.sum())

    def position(self, memory_id: str) -> int:
        """Where in this view's arrays the memory stands; raises `KeyError` for an unknown id."""
        return self.rows[memory_id] - self.first_row
