"""Embeddings made by an Ollama server, through the official client."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from memrl_core.embedders.base import Vectors, must_have_text, unit_vectors
from memrl_core.errors import ModelError
from memrl_core.models.base import KEEP_ALIVE, tells_no_room
from memrl_core.models.ollama import weights_and_server
from memrl_core.models.ollama_client import (
    checked_address,
    checked_name,
    default_address,
    failure,
    failures,
    official,
    ollama_client,
)

BATCH = 64
"""Texts a request: a large set neither times out as a whole nor waits for one round trip a text."""

PROBE = "How many numbers does an embedding have?"


class OllamaEmbedder:
    """An embedding model of an Ollama server (an `Embedder`).

    `name` is the model's name without the implied `:latest`, so that a bank recognises it. The server is asked for one
    embedding at once, to learn the dimension. `timeout` is in seconds, for each batch. `cut` counts the texts that the
    model's window was too small for, and of which only the beginning is in the vector.
    Raises `ModelError` when the server cannot give it, `InputError` for a bad name or address.
    """

    digest, version = "", ""

    def __init__(self, name: str, address: str | None = None, timeout: float = 60.0) -> None:
        self.name = checked_name(name)
        self.address = checked_address(address or default_address())
        self.timeout = timeout
        self.cut = 0
        self._client = ollama_client(self.address, timeout)
        self.dimension = self._ask([PROBE]).shape[1]
        self.digest, self.version = weights_and_server(self.address, self.name, timeout)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """(n texts) -> (n, dimension) float32 unit vectors; a text beyond the model's window is cut and counted.

        Raises `InputError` for an empty text, `ModelError` for a server that fails or a vector that cannot be used.
        """
        must_have_text(texts)
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(texts), BATCH):
            batch = list(texts[start : start + BATCH])
            made = self._ask(batch)
            if made.shape[1] != self.dimension:
                raise ModelError(
                    f"{self.name} now gives {made.shape[1]} numbers a text; it gave {self.dimension} when it was "
                    "opened. Nothing was stored; open the bank again with the model it was made with."
                )
            vectors[start : start + len(batch)] = made
        return vectors

    def _ask(self, batch: list[str]) -> Vectors:
        raw = self._answered(batch)
        if raw.ndim != 2 or raw.shape[0] != len(batch) or raw.shape[1] == 0:
            raise ModelError(
                f"{self.name} did not give one embedding for each of {len(batch)} texts. Nothing was stored; choose a "
                "model that is made for embeddings."
            )
        return unit_vectors(raw, self.name)

    def _answered(self, batch: list[str]) -> npt.NDArray[np.float64]:
        """What the server gives for the texts; its shape is not looked at. Raises `ModelError`."""
        try:
            return self._asked(batch, truncate=False)
        except failures() as error:
            if isinstance(error, official().ResponseError) and tells_no_room(error.error):
                if len(batch) > 1:
                    return np.concatenate([self._answered([text]) for text in batch])
                self.cut += 1
                return self._asked(batch, truncate=True)
            raise failure(error, self.address, self.name, self.timeout) from None

    def _asked(self, batch: list[str], truncate: bool) -> npt.NDArray[np.float64]:
        reply = self._client.embed(self.name, batch, truncate=truncate, keep_alive=KEEP_ALIVE)
        return np.array(reply.embeddings, dtype=np.float64)
