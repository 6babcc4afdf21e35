"""UMAP at work in a process of its own: `python -m memrl_core.analysis.map.umap_child`, asked by `map_layout`.

A question names the file that vectors stand in, and the one to write their places to.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from memrl_core.analysis.map.projection import SEED, Plane
from memrl_core.embedders.base import Vectors
from memrl_core.environments.child import serve

NEIGHBOURS = 15
MIN_DISTANCE = 0.5
"""Wider than umap-learn's default, so that repeated intents do not hide each other."""

POLITENESS = 5
"""By how much it steps behind the app, where the two share a processor."""


def fit_umap(vectors: Vectors) -> Plane:
    """UMAP (arXiv 1802.03426, umap-learn) of `vectors` (n, d), n >= 4, by cosine and with a fixed seed: (n, 2)."""
    import umap

    reducer: Any = umap.UMAP(
        n_neighbors=min(NEIGHBOURS, len(vectors) - 1),
        min_dist=MIN_DISTANCE,
        metric="cosine",
        random_state=SEED,
        n_jobs=1,
    ).fit(vectors)
    return np.asarray(reducer.embedding_, dtype=np.float64)


class _Asked:
    """Answers a first question, which starts the process, with nothing, and the next with a fit.

    Thus a process that takes the place of one that was ended meanwhile does nothing.
    """

    def __init__(self) -> None:
        self._begun = False

    def __call__(self, question: dict[str, Any]) -> dict[str, Any]:
        if self._begun:
            vectors = np.load(question["vectors"], allow_pickle=False)
            # Where such files stand in memory, it would stand there twice.
            os.unlink(question["vectors"])
            np.save(question["to"], fit_umap(vectors), allow_pickle=False)
        self._begun = True
        return {}


if __name__ == "__main__":
    if sys.platform != "win32":
        os.nice(POLITENESS)
    serve(_Asked())
