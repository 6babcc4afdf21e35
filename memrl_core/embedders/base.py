"""What the agent needs of an embedder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]


class Embedder(Protocol):
    """Text to unit vectors.

    `name` and `dimension` are what a bank remembers; `lexical` is True when it only compares letters and words.
    """

    name: str
    dimension: int
    lexical: bool

    def embed(self, texts: Sequence[str]) -> Vectors:
        """(n texts) -> (n, dimension) float32, every row of length 1.

        Raises `InputError` for a text that has no vector (empty), `ModelError` when a server is behind it and fails.
        """
        ...
