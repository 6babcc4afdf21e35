"""What the agent needs of an embedder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from memrl_core.errors import ModelError, NoVector
from memrl_core.models.ollama_client import sendable

Vectors = npt.NDArray[np.float32]

QUOTED = 60
"""Characters of a text that a sentence about it quotes."""
TOLERANCE = 1e-3
"""By how much the length of a unit vector may differ from 1."""


class Embedder(Protocol):
    """Text to unit vectors.

    `name`, `dimension`, `digest` and `version` are what a bank remembers: `digest` is that of the weights and differs
    where the same text gets another vector, `version` is that of the server or package. Both are empty when not known.
    """

    name: str
    dimension: int

    @property
    def digest(self) -> str:
        """See above."""
        ...

    @property
    def version(self) -> str:
        """See above."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """(n texts) -> (n, dimension) float32, every row of length 1.

        Raises `NoVector` for a text that has none (empty, or one that a server never embeds), `InputError` for one that
        cannot be sent, `ModelError` when a server is behind it and fails.
        """
        ...


def must_have_text(texts: Sequence[str]) -> None:
    """Raise `NoVector` for a text that is empty, `InputError` for a broken one."""
    if not all(sendable(text).strip() for text in texts):
        raise NoVector("An empty text has no embedding. Nothing was stored; type a text.")


def unit_vectors(raw: npt.NDArray[np.floating], name: str) -> Vectors:
    """`raw` (n, d) with every row of length 1, as float32.

    Raises `ModelError`, with the embedder's `name`, for a row whose length is zero, infinite or not a number: it would
    make every similarity meaningless.
    """
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(raw, axis=1)
    if not np.all(np.isfinite(lengths) & (lengths > 0)):
        raise ModelError(
            f"{name} gave an empty embedding (zeros, or not numbers). Nothing was stored; try again or choose another "
            "embedding model."
        )
    vectors: Vectors = (raw / lengths[:, None]).astype(np.float32)
    return vectors


def texts_cut(embedder: Embedder) -> int:
    """How many texts an embedder has cut so far; 0 for one that cuts none, or does not say."""
    return int(getattr(embedder, "cut", 0))


def embedded(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """What `embedder` makes of `texts`, bit for bit; raises `ModelError` unless that is a unit vector for each."""
    vectors = embedder.embed(texts)
    fits = vectors.shape == (len(texts), embedder.dimension)
    if not fits or not np.allclose(np.linalg.norm(vectors, axis=1), 1, rtol=0, atol=TOLERANCE):
        raise ModelError(
            f"{embedder.name} did not give one unit vector of {embedder.dimension:,} numbers for each text. Nothing "
            "was stored; try again or choose another embedder."
        )
    return vectors
