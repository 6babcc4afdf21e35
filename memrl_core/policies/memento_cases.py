"""What Memento has learned: every use of a case with the state it was used in, and what is made of them.

Source: arXiv 2508.16153, episodic control with D_c, the past uses of case c.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from memrl_core.policies.memento_network import Batch, Network
from memrl_core.records import Outcome
from memrl_core.retrieval import exact_similarity

Floats = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float32]
Kernel = Literal["gaussian", "cosine"]

LABELS: dict[Outcome, float] = {"success": 1.0, "failure": 0.0, "unrated": 0.5}
BINS = 10
_ROW = np.dtype([("state", "i8"), ("case", "i8"), ("outcome", "f8"), ("predicted", "f8")])


class Growing:
    """An array that is only ever added to: copies share what is there already, and neither sees what the other adds."""

    def __init__(self, rows: npt.NDArray[Any] | None = None) -> None:
        self._buffer = np.zeros(0) if rows is None else rows
        self._size = len(self._buffer)

    @property
    def rows(self) -> npt.NDArray[Any]:
        """What was added so far (n, …)."""
        return self._buffer[: self._size]

    def add(self, row: npt.NDArray[Any]) -> int:
        """Add one row; the number of the row."""
        if self._size == len(self._buffer):
            larger = np.zeros((max(8, 2 * self._size), *row.shape), row.dtype)
            if self._size:
                larger[: self._size] = self.rows
            self._buffer = larger
        self._buffer[self._size] = row
        self._size += 1
        return self._size - 1

    def __len__(self) -> int:
        return self._size

    def __deepcopy__(self, memo: dict[int, Any]) -> Growing:
        return Growing(self.rows)


@dataclass(frozen=True, slots=True)
class Loss:
    """One step of the network: binary cross-entropy of the replay batch before and after it, with `rows` rows known."""

    step: int
    rows: int
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """`count` uses in `states` (n,) with a prediction in [low, high): its mean, and the share that succeeded."""

    low: float
    high: float
    predicted: float
    succeeded: float
    count: int
    states: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PastUse:
    """One use of a case as it counts for a new state: cosine to the state, share of all weights, outcome."""

    similarity: float
    share: float
    outcome: float


@dataclass(slots=True)
class Cases:
    """The uses of cases so far, a row each: the state (of `states`), the case (of `vectors`), outcome and prediction.

    `states` (n, d) has an embedding for each task, `vectors` (m, d) one for each case that was used, `outcomes` (m,)
    what became of the case itself; `numbers` says which case has which number. A prediction is NaN where none was made.
    `worth` is Q_EC of each case in the state in which it was used last.
    """

    states: Growing = field(default_factory=Growing)
    vectors: Growing = field(default_factory=Growing)
    outcomes: Growing = field(default_factory=Growing)
    uses: Growing = field(default_factory=lambda: Growing(np.zeros(0, _ROW)))
    numbers: dict[str, int] = field(default_factory=dict)
    worth: dict[str, float] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    network: Network | None = None

    def add_state(self, state: Vector) -> int:
        """Note the embedding (d,) of a task; its number."""
        return self.states.add(state)

    def add_use(
        self, state: int, memory_id: str, vector: Vector, case_outcome: Outcome, outcome: float, predicted: float
    ) -> None:
        """Note that a case was in the prompt in a state, and how the task ended."""
        if memory_id not in self.numbers:
            self.numbers[memory_id] = self.vectors.add(vector)
            self.outcomes.add(np.array(LABELS[case_outcome]))
        self.uses.add(np.array((state, self.numbers[memory_id], outcome, predicted), _ROW))

    def enough(self, rows: int) -> bool:
        """Whether there are so many labelled rows, and both outcomes among them."""
        labels = self.uses.rows["outcome"]
        return len(labels) >= rows and bool(labels.min() < labels.max())

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """`size` rows (or all, where there are fewer) drawn without replacement."""
        drawn = self.uses.rows[rng.choice(len(self.uses), size=min(size, len(self.uses)), replace=False)]
        case = drawn["case"]
        return Batch(
            self.states.rows[drawn["state"]], self.vectors.rows[case], self.outcomes.rows[case], drawn["outcome"]
        )

    def of(self, memory_ids: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        """The uses of these cases: which of them each belongs to (n,), and its row (n,)."""
        places = np.full(len(self.numbers), -1, dtype=np.int64)
        for place, memory_id in enumerate(memory_ids):
            if memory_id in self.numbers:
                places[self.numbers[memory_id]] = place
        of = places[self.uses.rows["case"]]
        return of[of >= 0], self.uses.rows[of >= 0]

    def __deepcopy__(self, memo: dict[int, Any]) -> Cases:
        states, vectors, outcomes, uses = copy.deepcopy((self.states, self.vectors, self.outcomes, self.uses), memo)
        return Cases(
            states, vectors, outcomes, uses, dict(self.numbers), dict(self.worth), list(self.losses), self.network
        )


def kernel_of(similarity: Floats, kernel: Kernel, bandwidth: float) -> Floats:
    """k(s, s′) (n,) of unit vectors with these cosines (n,): exp(−‖s − s′‖² / 2h²), or the cosine, at least 0."""
    if kernel == "cosine":
        return np.maximum(similarity, 0)
    weight: Floats = np.exp((similarity - 1) / bandwidth**2)
    return weight


def episodic_values(
    cases: Cases, state: Vector, memory_ids: Sequence[str], kernel: Kernel, bandwidth: float, unused: float
) -> tuple[Floats, Floats]:
    """Q_EC(s, c) = Σ k(s, s′) Q′ / Σ k(s, s′) over the past uses of each case, and Σ k: both (n,).

    Where Σ k is 0 there is nothing to go by, and Q_EC is `unused`.
    """
    n = len(memory_ids)
    of, uses = cases.of(memory_ids)
    if not len(uses):
        return np.full(n, unused), np.zeros(n)
    seen, back = np.unique(uses["state"], return_inverse=True)
    weight = kernel_of(exact_similarity(cases.states.rows[seen], state), kernel, bandwidth)[back]
    total = np.bincount(of, weight, minlength=n).astype(np.float64)
    earned = np.bincount(of, weight * uses["outcome"], minlength=n).astype(np.float64)
    return np.where(total > 0, earned / np.where(total > 0, total, 1), unused), total


def past_uses(cases: Cases, state: Vector, memory_id: str, kernel: Kernel, bandwidth: float) -> tuple[PastUse, ...]:
    """The uses of one case, oldest first, as they count in the state (d,): Q_EC is the sum of share × outcome."""
    _, uses = cases.of([memory_id])
    if not len(uses):
        return ()
    similarity = exact_similarity(cases.states.rows[uses["state"]], state)
    weight = kernel_of(similarity, kernel, bandwidth)
    share = weight / (weight.sum() or 1)
    return tuple(map(PastUse, similarity.tolist(), share.tolist(), uses["outcome"].tolist()))


def loss_history(cases: Cases) -> tuple[Loss, ...]:
    """Every step of the network so far; () where it never learned."""
    return tuple(cases.losses)


def calibration(cases: Cases) -> tuple[CalibrationBin, ...]:
    """Each prediction, made before its outcome was known, against that outcome, in `BINS` equal bins of [0, 1].

    Predictions are the network's once it decides, and the kernel's for cases that were used before. Empty bins are
    left out.
    """
    uses = cases.uses.rows
    made = uses[~np.isnan(uses["predicted"])]
    place = np.minimum((made["predicted"] * BINS).astype(np.int64), BINS - 1)
    found = []
    for number in np.unique(place).tolist():
        members = made[place == number]
        found.append(
            CalibrationBin(
                number / BINS,
                (number + 1) / BINS,
                float(members["predicted"].mean()),
                float(members["outcome"].mean()),
                len(members),
                tuple(members["state"].tolist()),
            )
        )
    return tuple(found)
