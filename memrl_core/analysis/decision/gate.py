"""The gate δ and k1: what keeps a memory out of the pool, and a δ that fits an embedder and its texts.

Every embedder has a scale of its own, so δ is the top-20 % quantile of the pairwise similarities of the intents (arXiv
2601.03192 v2, appendix E.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memrl_core.analysis.decision.whatif import Situation, decided, rank_of
from memrl_core.errors import InputError
from memrl_core.records import Recalled
from memrl_core.retrieval import exact_similarity
from memrl_core.retrieval.view import Embeddings, MemoryView, Vectors
from memrl_core.settings import MemRLSettings

QUANTILE = 0.8
HISTOGRAM_BINS = 50
MOST_INTENTS = 4000


@dataclass(frozen=True, slots=True, eq=False)
class GateSuggestion:
    """The suggested `delta`, with the histogram it was read from: counts (50,) between edges (51,).

    `intents` distinct intents were compared in `pairs` pairs; `sampled` says whether they are a sample of more.
    """

    delta: float
    mean: float
    sd: float
    intents: int
    pairs: int
    sampled: bool
    counts: npt.NDArray[np.int64]
    edges: npt.NDArray[np.float64]

    def passing(self, delta: float) -> float:
        """The share of pairs that are more similar than `delta`, those of a bar taken as spread evenly over it."""
        below = np.concatenate([[0], np.cumsum(self.counts)])
        return 1 - float(np.interp(delta, self.edges, below)) / self.pairs


def suggest_delta(view: MemoryView, seed: int = 0) -> GateSuggestion:
    """δ from the distinct intents that a run knows. Raises as `suggested`."""
    rows = view.positions()
    _, first = np.unique(view.intent_groups[rows], return_index=True)
    return suggested(view.embeddings, rows[np.sort(first)], seed)


def suggested(
    embeddings: Vectors | Embeddings, rows: npt.NDArray[np.int64] | None = None, seed: int = 0
) -> GateSuggestion:
    """δ from unit vectors (n, d), one for each distinct intent; from some `rows` (m,) of them where these are given.

    Beyond `MOST_INTENTS` a seeded sample is taken. Raises `InputError` when there are fewer than two.
    """
    chosen = np.arange(len(embeddings)) if rows is None else rows
    if len(chosen) < 2:
        raise InputError("A gate can be suggested from two different intents on. Let the agent do a few tasks first.")
    sampled = len(chosen) > MOST_INTENTS
    if sampled:
        chosen = np.sort(np.random.default_rng(seed).choice(chosen, MOST_INTENTS, replace=False))
    matrix = embeddings[chosen]
    product = matrix @ matrix.T
    values = product[np.triu_indices(len(chosen), 1)].astype(np.float64)
    counts, edges = np.histogram(values, bins=HISTOGRAM_BINS)
    return GateSuggestion(
        float(np.quantile(values, QUANTILE)),
        float(values.mean()),
        float(values.std()),
        len(chosen),
        len(values),
        sampled,
        counts,
        edges,
    )


@dataclass(frozen=True, slots=True)
class Admission:
    """Where one memory stands before the pool. `rank` counts memories, or intents where k1 counts those.

    `passes_gate` and `within_k1` are the two conditions; a memory is in the pool when both hold. The gate lets it in
    when δ is below its similarity (`strict`), or not above it; k1 when it is at least `rank`.
    """

    memory_id: str
    similarity: float
    rank: int
    delta: float
    k1: int
    strict: bool
    passes_gate: bool
    within_k1: bool

    @property
    def in_pool(self) -> bool:
        """Whether phase A recalls it."""
        return self.passes_gate and self.within_k1


def admission(situation: Situation, memory_id: str, settings: MemRLSettings) -> Admission:
    """Why a memory is in the pool or not, under `settings`.

    Raises `InputError` for a memory that the run did not know at this step.
    """
    rank, similarity = rank_of(situation, memory_id)
    if settings.k1_counts == "intent":
        rank = _intent_rank(situation, memory_id)
    strict = settings.normaliser == "pool"
    passes = similarity > settings.delta if strict else similarity >= settings.delta
    return Admission(memory_id, similarity, rank, settings.delta, settings.k1, strict, passes, rank <= settings.k1)


def newcomers(situation: Situation, before: MemRLSettings, after: MemRLSettings) -> tuple[Recalled, ...]:
    """The memories that the pool holds under `after` and not under `before`, most similar first."""
    known = {member.memory_id for member in decided(situation, before.model_dump())[0].pool}
    return tuple(m for m in decided(situation, after.model_dump())[0].pool if m.memory_id not in known)


def _intent_rank(situation: Situation, memory_id: str) -> int:
    """How many distinct intents are at least as near, the memory's own included."""
    view = situation.view
    rows = view.positions()
    groups, at = np.unique(view.intent_groups[rows], return_inverse=True)
    nearest = np.full(len(groups), -np.inf)
    np.maximum.at(nearest, at, exact_similarity(view.embeddings[rows], situation.query))
    own = nearest[groups == view.intent_groups[view.position(memory_id)]]
    return int((nearest > own).sum()) + 1
