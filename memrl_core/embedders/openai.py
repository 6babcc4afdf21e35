"""Embeddings made by an OpenAI-compatible server, through the official client."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import openai

from memrl_core.embedders.ollama import PROBE, OllamaEmbedder, TooLong, of_length
from memrl_core.models.openai import ALL_FAILURES, PREFIX, checked_model, checked_server, client, facts, failure


class OpenAIEmbedder(OllamaEmbedder):
    """An embedding model of an OpenAI-compatible server (an `Embedder`), asked in batches as one of Ollama is.

    `name` is `openai:` with the model's name. Raises `ModelError` when the server cannot give an embedding, and
    `InputError` for a bad name or address.
    """

    def __init__(self, name: str, address: str, timeout: float = 60.0) -> None:
        self._model = checked_model(name)
        self.name = PREFIX + self._model
        self.address = checked_server(address)
        self.timeout = timeout
        self.cut = 0
        self.dimension = 0
        self.dimension = self._ask([PROBE]).shape[1]
        served = facts(self.name, self.address, timeout, ask=False)
        self.version = str(served.pop("server", ""))
        # The nearest to a digest that servers give; the window is how the server was started.
        self.digest = ", ".join(f"{name} {value}" for name, value in served.items() if name != "context")

    def _answered(self, batch: list[str], truncate: bool) -> npt.NDArray[np.float64]:
        if truncate:
            raise TooLong("The protocol has no word for it. ")
        try:
            with client(self.address, self.timeout) as server:
                reply = server.embeddings.create(model=self._model, input=batch, encoding_format="float")
            by_index = sorted(reply.data, key=lambda one: one.index)
            return np.array([one.embedding for one in by_index], dtype=np.float64)
        except ALL_FAILURES as error:
            failed = failure(error, self.address, self._model, self.timeout)
            if isinstance(error, openai.APIStatusError) and of_length(error.status_code, error.message):
                failed = TooLong(str(failed))
            raise failed from None
