"""Embeddings made by an Ollama server, through the official client."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from memrl_core.embedders.base import QUOTED, Vectors, must_have_text, unit_vectors
from memrl_core.errors import ModelError, ModelMissing, ModelSlow, NoVector, ServerDown, one_line, what_happened
from memrl_core.models.base import KEEP_ALIVE
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

_LENGTH = re.compile(r"context|length|tokens|batch size|larger than|too (long|large|big|many)", re.IGNORECASE)
_REFUSALS = (400, 413, 422, 500)


class TooLong(ModelError):
    """The server refuses a text for its length."""


def of_length(status: int, refusal: str) -> bool:
    """True if a server refuses a text for its length, by the HTTP status and its words."""
    return status in _REFUSALS and (status == 413 or _LENGTH.search(refusal) is not None)


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
        self.dimension = 0
        self.dimension = self._ask([PROBE]).shape[1]
        self.digest, self.version = weights_and_server(self.address, self.name, timeout)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """(n texts) -> (n, dimension) float32 unit vectors; a text that is too long for the model is cut and counted.

        Raises `NoVector` for a text that is empty or that the server never embeds, though it does others, and
        `ModelError` for a server that fails.
        """
        must_have_text(texts)
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(texts), BATCH):
            batch = list(texts[start : start + BATCH])
            vectors[start : start + len(batch)] = self._made(batch)
        return vectors

    def _made(self, texts: list[str]) -> Vectors:
        """The vectors of a batch. Where it fails each text is asked for alone, so that one does not stop the others."""
        try:
            return self._ask(texts)
        except (ServerDown, ModelMissing, ModelSlow):
            raise
        except ModelError as error:
            if len(texts) > 1:
                return np.concatenate([self._made([text]) for text in texts])
            return self._once_more(texts[0], error)

    def _once_more(self, text: str, failed: ModelError) -> Vectors:
        """The vector of a text after a first attempt has `failed`."""
        try:
            return self._cut(text) if isinstance(failed, TooLong) else self._ask([text])
        except (ServerDown, ModelMissing, ModelSlow):
            raise
        except ModelError as error:
            why = what_happened(error)
        self._ask([PROBE])  # Where the server fails whatever the text is, this raises.
        raise NoVector(
            f"{self.name} has no embedding of “{one_line(text, QUOTED)}” ({len(text):,} characters), though it embeds "
            f"other texts; it was asked twice. {why}. Nothing of this text was stored; skip it, change it, or take "
            "another embedder."
        )

    def _cut(self, text: str) -> Vectors:
        """The vector of the beginning of a long text: as the server cuts it, or of the first half, quarter … taken."""
        beginning, truncate = text, True
        while True:
            try:
                made = self._ask([beginning], truncate)
            except TooLong:
                beginning, truncate = beginning[: len(beginning) // 2], False
                if not beginning.strip():
                    raise
            else:
                self.cut += 1
                return made

    def _ask(self, batch: list[str], truncate: bool = False) -> Vectors:
        raw = self._answered(batch, truncate)
        if raw.ndim != 2 or raw.shape[0] != len(batch) or raw.shape[1] == 0:
            raise ModelError(
                f"{self.name} did not give one embedding for each text. Nothing was stored; choose a model that is "
                "made for embeddings."
            )
        if self.dimension not in (0, raw.shape[1]):
            raise ModelError(
                f"{self.name} now gives {raw.shape[1]} numbers a text; it gave {self.dimension} when it was opened. "
                "Nothing was stored; open the bank again with the model it was made with."
            )
        return unit_vectors(raw, self.name)

    def _answered(self, batch: list[str], truncate: bool) -> npt.NDArray[np.float64]:
        """What the server gives for the texts, which it is to `truncate` or to refuse; the shape is not looked at.

        Raises `TooLong`, `ModelError`.
        """
        try:
            reply = self._client.embed(self.name, batch, truncate=truncate, keep_alive=KEEP_ALIVE)
            return np.array(reply.embeddings, dtype=np.float64)
        except failures() as error:
            failed = failure(error, self.address, self.name, self.timeout)
            if isinstance(error, official().ResponseError) and of_length(error.status_code, error.error):
                failed = TooLong(str(failed))
            raise failed from None
