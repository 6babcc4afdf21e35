"""The embedded embedder: hashed character and word n-grams. It compares letters and words, not meaning."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from memrl_core.embedders.base import Vectors
from memrl_core.errors import NoVector
from memrl_core.models.ollama_client import sendable

DIMENSION = 1024
WORDS_SHARE = 0.6


class HashingEmbedder:
    """Word 1-2-grams and character 3-5-grams, each hashed into half of the dimensions (an `Embedder`).

    Deterministic across machines and processes: the hash is MurmurHash3 with a fixed seed.
    """

    digest = f"MurmurHash3, signed; words 1-2 x {WORDS_SHARE}, letters 3-5 x {1 - WORDS_SHARE}"
    version = ""

    def __init__(self, dimension: int = DIMENSION) -> None:
        self.dimension = dimension
        self.name = f"hashing-{dimension}"

    @cached_property
    def _vectorisers(self) -> tuple[Any, Any]:
        # Imported where it is needed: a third of the time in which a command starts that embeds nothing.
        from sklearn.feature_extraction.text import HashingVectorizer

        common = {"n_features": self.dimension // 2, "alternate_sign": True, "norm": None, "dtype": np.float64}
        words = HashingVectorizer(analyzer="word", ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b", **common)
        return words, HashingVectorizer(analyzer="char_wb", ngram_range=(3, 5), **common)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """(n texts) -> (n, dimension) float32 unit vectors; raises `NoVector` for one without letter or digit."""
        from sklearn import config_context

        prepared = [_printable(sendable(text)) for text in texts]
        for text in prepared:
            if not any(character.isalnum() for character in text):
                raise NoVector("A text without letters or digits has no embedding. Nothing was stored; type a text.")
        # What is checked of parameters costs scikit-learn half of the time of a short text.
        with config_context(skip_parameter_validation=True, assume_finite=True):
            words, letters = (_normalised(one.transform(prepared).toarray()) for one in self._vectorisers)
        joined = np.hstack([words * WORDS_SHARE**0.5, letters * (1 - WORDS_SHARE) ** 0.5])
        vectors: Vectors = _normalised(joined).astype(np.float32)
        return vectors


def _normalised(rows: Any) -> Any:
    """The rows (n, d) with length 1; zeros stay. Summed from left to right, so that the last bit is always the same."""
    lengths = np.sqrt(np.cumsum(rows * rows, axis=1)[:, -1:])
    return rows / np.where(lengths == 0, 1, lengths)


def _printable(text: str) -> str:
    return "".join(" " if unicodedata.category(character) in ("Cc", "Cf") else character for character in text)
