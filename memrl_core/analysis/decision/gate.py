"""A gate δ that fits an embedder and its texts: the top-20 % quantile of the pairwise similarities of the intents.

Every embedder has a scale of its own. Source of the rule: arXiv 2601.03192 v2, appendix E.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memrl_core.errors import InputError
from memrl_core.retrieval.view import MemoryView

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
    rows = np.arange(len(view.ids)) if view.visible is None else np.flatnonzero(view.visible)
    _, first = np.unique(view.intent_groups[rows], return_index=True)
    return suggested(view.embeddings, rows[np.sort(first)], seed)


def suggested(
    embeddings: npt.NDArray[np.float32], rows: npt.NDArray[np.int64] | None = None, seed: int = 0
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
