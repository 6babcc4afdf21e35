"""A stand-in for UMAP, whose process takes seconds to be loaded and compiled."""

from __future__ import annotations

import threading

import numpy as np

from memrl_core.analysis.map.projection import Plane
from memrl_core.embedders.base import Vectors


class InstantUmap:
    """Stands in for UMAP: at once when `gate` is open, so that a test decides when a fit ends."""

    gate = threading.Event()
    gate.set()
    fails = False

    def fit(self, vectors: Vectors) -> Plane:
        assert self.gate.wait(30)
        if self.fails:
            raise TypeError("k >= N")
        return vectors[:, :2].astype(np.float64)

    def end(self) -> None:
        pass
