"""Embeddings of words by meaning, without a server: the table of word vectors that the package `wordllama` carries.

A text's vector is the mean of its tokens' vectors, so the order of the words does not count. The vectors (MIT, 32,000
tokens × 256 numbers) were distilled from the token table of Llama 2.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.embedders.base import QUOTED, Vectors, must_have_text, unit_vectors
from memrl_core.errors import ModelMissing, NoVector, one_line

NAMES = ("wordllama", "wordllama-256")
"""What to choose it by, and the name that a bank keeps."""

DIMENSION = 256
WEIGHTS = "weights/l2_supercat_256.safetensors"
TOKENS = "tokenizers/l2_supercat_tokenizer_config.json"


class WordLlamaEmbedder:
    """The mean of the vectors of a text's tokens (an `Embedder`). The table is read with the first text.

    Raises `ModelMissing` where the package is not installed.
    """

    name = NAMES[-1]
    dimension = DIMENSION

    def __init__(self) -> None:
        self._folder = _folder()

    @property
    def digest(self) -> str:
        """SHA-256 of the table and of the tokenizer."""
        return _digest(self._folder)

    @property
    def version(self) -> str:
        """The package's, such as "wordllama 0.4.0"."""
        return f"wordllama {importlib.metadata.version('wordllama')}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """(n texts) -> (n, 256) float32 unit vectors; raises `NoVector` for a text without a token, `InputError` for a
        broken one.
        """
        must_have_text(texts)
        tokenizer, table = _read(self._folder)
        means = np.empty((len(texts), DIMENSION), dtype=np.float64)
        for row, text in enumerate(texts):
            # One by one: a batch is padded to its longest text, and 64 of them beside a long one take gigabytes.
            tokens, counts = np.unique(tokenizer.encode(text, add_special_tokens=False).ids, return_counts=True)
            if not counts.size:
                raise NoVector(
                    f"wordllama knows nothing in “{one_line(text, QUOTED)}”, so there is no embedding "
                    "of it. Nothing was stored; type another text."
                )
            means[row] = counts @ table[tokens] / counts.sum()
        return unit_vectors(means, self.name)


def is_installed() -> bool:
    """True if the package is there; it is not where no wheel of it exists."""
    return importlib.util.find_spec("wordllama") is not None


def _folder() -> Path:
    found = importlib.util.find_spec("wordllama")
    if found is None or not found.submodule_search_locations:
        raise ModelMissing(
            "The embedder wordllama is not installed. Nothing was changed; install it with `pip install wordllama`, or "
            "use the embedder hashing."
        )
    return Path(found.submodule_search_locations[0])


@cache
def _digest(folder: Path) -> str:
    with _readable():
        return hashlib.sha256((folder / WEIGHTS).read_bytes() + (folder / TOKENS).read_bytes()).hexdigest()


@cache
def _read(folder: Path) -> tuple[Any, npt.NDArray[np.float32]]:
    """The tokenizer and the table (32,000, 256) in the package's folder.

    The package itself is not imported: it would set up logging for the whole program, and might ask the network.
    """
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    with _readable():
        table: npt.NDArray[np.float32] = load_file(folder / WEIGHTS)["embedding.weight"].astype(np.float32)
        return Tokenizer.from_file(str(folder / TOKENS)), table


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    # The tokenizer's own errors are plain `Exception`s.
    except Exception as error:
        raise ModelMissing(
            f"The weights of wordllama cannot be read ({type(error).__name__}). Nothing was changed; install the "
            "package again, or use the embedder hashing."
        ) from None
