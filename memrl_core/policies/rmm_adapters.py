"""RMM's two residual adapters, of low rank: q′ = q + W_q q, m′ = m + W_m m, s = q′ · m′, and REINFORCE on them.

Source: arXiv 2503.08026, retrospective reflection. There W_q and W_m are whole matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from memrl_core.policies.sampling import ordered_log_gradient

Floats = npt.NDArray[np.float64]

FIRST_SD = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Adapters:
    """W_q = `up_q` · `down_q` and W_m = `up_m` · `down_m`: (d, rank) · (rank, d) each. No array is ever changed."""

    up_q: Floats
    down_q: Floats
    up_m: Floats
    down_m: Floats

    def scores(self, query: Floats, memories: Floats) -> Floats:
        """s (n,) of `memories` (n, d) for `query` (d,): q′ · m′ = (q′ + W_mᵀ q′) · m, one product for the pool."""
        adapted = self._adapted_query(query)
        scores: Floats = memories @ (adapted + self.down_m.T @ (self.up_m.T @ adapted))
        return scores

    def norms(self) -> tuple[float, float]:
        """‖W_q‖ and ‖W_m‖ (Frobenius)."""
        return _norm(self.up_q, self.down_q), _norm(self.up_m, self.down_m)

    def gradient(self, query: Floats, memories: Floats, by_score: Floats) -> Adapters:
        """The gradient of anything whose gradient in s is `by_score` (n,), in each of the four matrices."""
        memory = by_score @ memories
        to_query, to_memory = memory + self.up_m @ (self.down_m @ memory), self._adapted_query(query)
        return Adapters(
            up_q=np.outer(to_query, self.down_q @ query),
            down_q=np.outer(self.up_q.T @ to_query, query),
            up_m=np.outer(to_memory, self.down_m @ memory),
            down_m=np.outer(self.up_m.T @ to_memory, memory),
        )

    def moved(self, gradient: Adapters, rate: float) -> Adapters:
        """The adapters after a step of `rate` up the gradient."""
        return Adapters(
            self.up_q + rate * gradient.up_q,
            self.down_q + rate * gradient.down_q,
            self.up_m + rate * gradient.up_m,
            self.down_m + rate * gradient.down_m,
        )

    def _adapted_query(self, query: Floats) -> Floats:
        return query + self.up_q @ (self.down_q @ query)


@lru_cache(maxsize=8)
def first_adapters(dimension: int, rank: int, seed: int) -> Adapters:
    """Adapters nobody has taught: the entries of W_q and W_m have mean 0 and standard deviation `FIRST_SD`.

    The lower factors have entries of variance 1 / rank, so that the rank does not decide how large W is or how fast it
    learns.
    """
    rng = np.random.default_rng(seed)

    def pair() -> tuple[Floats, Floats]:
        return rng.normal(scale=FIRST_SD, size=(dimension, rank)), rng.normal(scale=rank**-0.5, size=(rank, dimension))

    return Adapters(*pair(), *pair())


def reinforced(
    adapters: Adapters,
    query: Floats,
    memories: Floats,
    order: Sequence[int],
    advantages: Sequence[float],
    *,
    temperature: float,
    rate: float,
) -> Adapters:
    """Δφ = η Σ_j (R_j − b) ∇ ln P(order[j] | what was left of the pool), for scores s / τ.

    `query` (d,) and `memories` (n, d) are float64 unit vectors; `order` holds positions as they were drawn.
    """
    scores = adapters.scores(query, memories) / temperature
    by_score = ordered_log_gradient(scores, order, advantages) / temperature
    return adapters.moved(adapters.gradient(query, memories, by_score), rate)


def _norm(up: Floats, down: Floats) -> float:
    return float(np.sqrt(max(0.0, np.einsum("ij,ji->", up.T @ up, down @ down.T))))
