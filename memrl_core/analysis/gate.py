"""A gate δ that fits a bank: the top-20 % quantile of the pairwise similarities of its intents.

Source: arXiv 2601.03192 v2, appendix E.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memrl_core.errors import InputError
from memrl_core.view import MemoryView

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


def suggest_delta(view: MemoryView, seed: int = 0) -> GateSuggestion:
    """δ from the distinct intents of a run; beyond `MOST_INTENTS` of them, from a seeded sample.

    Raises `InputError` when there are fewer than two intents.
    """
    rows = np.arange(len(view.ids)) if view.visible is None else np.flatnonzero(view.visible)
    _, first = np.unique(view.intent_groups[rows], return_index=True)
    chosen = rows[np.sort(first)]
    if len(chosen) < 2:
        raise InputError("A gate can be suggested from two different intents on. Let the agent do a few tasks first.")
    sampled = len(chosen) > MOST_INTENTS
    if sampled:
        chosen = np.sort(np.random.default_rng(seed).choice(chosen, MOST_INTENTS, replace=False))
    matrix = view.embeddings[chosen]
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
