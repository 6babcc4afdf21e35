"""Embeddings by a model that runs in this process through ONNX (package `fastembed`): `fastembed:NAME`.

The model is downloaded when it is first used, into `~/.memrl/fastembed`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from memrl_core.embedders.base import Vectors, must_have_text, unit_vectors
from memrl_core.errors import ModelMissing, one_line
from memrl_core.settings import home

PREFIX = "fastembed:"


class FastEmbedder:
    """A model of fastembed's list (an `Embedder`). Raises `ModelMissing` when it is not there and cannot be fetched."""

    def __init__(self, name: str) -> None:
        self.name = name.strip()
        self._model, self.digest = _loaded(self.name.removeprefix(PREFIX))
        self.dimension = int(self._model.embedding_size)
        self.version = f"fastembed {importlib.metadata.version('fastembed')}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """(n texts) -> (n, d) float32 unit vectors; a text beyond the model's window is cut. Raises `InputError`."""
        must_have_text(texts)
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        # One by one: a batch is padded to its longest text, and the last bits of a vector would depend on the others.
        return unit_vectors(np.array(list(self._model.embed(list(texts), batch_size=1))), self.name)


@cache
def _loaded(name: str) -> tuple[Any, str]:
    """The model, and the SHA-256 of its weights and tokenizer."""
    try:
        import loguru
        from fastembed import TextEmbedding
    except ImportError:
        raise ModelMissing(
            "The package fastembed is not installed. Nothing was changed; install it with "
            "`pip install 'memrl-inspector[fastembed]'`, or use the embedder wordllama."
        ) from None
    loguru.logger.disable("fastembed")  # It would log each of its attempts at a download.
    known = sorted(str(model["model"]) for model in TextEmbedding.list_supported_models())
    if name not in known:
        raise ModelMissing(
            f"fastembed has no model {one_line(name)}. Nothing was changed; choose one of these: {', '.join(known)}."
        )
    try:
        embedding = TextEmbedding(name, cache_dir=str(home() / "fastembed"))
        loaded: Any = embedding.model
        folder: Path = loaded._model_dir  # Said nowhere in public.
        files = folder / loaded.model_description.model_file, folder / "tokenizer.json"
        return embedding, hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    # What the download, the ONNX runtime and the tokenizer raise has no class in common.
    except Exception as error:
        raise ModelMissing(
            f"The model {name} could not be loaded ({type(error).__name__}): it is downloaded when it is first used, "
            "which needs the internet. Nothing was changed; connect to it and try again, or use the embedder wordllama."
        ) from None
