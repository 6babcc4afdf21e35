"""Models of fastembed: unit vectors where one can be loaded, a sentence where it cannot. Nothing is downloaded here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from memrl_core.agent.preferences import Preferences
from memrl_core.agent.run_parts import embedder_name, make_embedder
from memrl_core.bank import MemoryBank
from memrl_core.embedders import fastembed
from memrl_core.errors import EmbedderMismatch, InputError, ModelError, ModelMissing

pytestmark = pytest.mark.usefixtures("_nothing_loaded")
NAME = "fastembed:BAAI/bge-small-en-v1.5"


@pytest.fixture
def _nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    silent = SimpleNamespace(logger=SimpleNamespace(disable=lambda name: None))
    monkeypatch.setitem(sys.modules, "loguru", silent)
    monkeypatch.setitem(sys.modules, "fastembed", SimpleNamespace(TextEmbedding=Model))
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1")
    fastembed._loaded.cache_clear()
    yield
    fastembed._loaded.cache_clear()


class Model:
    """What fastembed gives, with a file of two bytes for weights."""

    embedding_size = 4
    weights = b"w1"

    def __init__(self, name: str, cache_dir: str) -> None:
        self.length = 3.0
        folder = Path(cache_dir)
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in (("model.onnx", self.weights), ("tokenizer.json", b"{}")):
            (folder / file).write_bytes(content)
        self.model = SimpleNamespace(_model_dir=folder, model_description=SimpleNamespace(model_file="model.onnx"))

    def embed(self, texts: list[str], batch_size: int) -> Iterator[Any]:
        return (np.full(4, self.length, np.float32) for _ in texts)

    @staticmethod
    def list_supported_models() -> list[dict[str, str]]:
        return [{"model": "BAAI/bge-small-en-v1.5"}]


def test_its_vectors_get_length_one_and_others_are_refused() -> None:
    made = make_embedder(NAME, Preferences())
    assert (made.name, made.dimension) == (NAME, 4) == (embedder_name(NAME), 4)
    assert made.embed(["one", "two"]) == pytest.approx(np.full((2, 4), 0.5))
    with pytest.raises(InputError):
        made.embed([" "])
    made._model.length = np.nan
    with pytest.raises(ModelError, match="bge-small"):
        made.embed(["one"])


def test_other_weights_of_the_same_name_are_not_taken_for_a_banks_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path / "home"))
    made = make_embedder(NAME, Preferences())
    MemoryBank.create(str(tmp_path / "bank"), made.name, made.dimension, made.digest, made.version).close()
    fastembed._loaded.cache_clear()
    monkeypatch.setattr(Model, "weights", b"w2")
    with MemoryBank.open(str(tmp_path / "bank")) as bank, pytest.raises(EmbedderMismatch):
        bank.embedder.must_match(make_embedder(NAME, Preferences()))


def test_a_model_that_cannot_be_fetched_and_one_that_is_none_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(self: Any, name: str, cache_dir: str) -> None:
        raise ValueError("Could not load model from any source.")

    monkeypatch.setattr(Model, "__init__", no_network)
    for name in (NAME, "fastembed:no-such-model"):
        with pytest.raises(ModelMissing, match=name.partition(":")[2]):
            make_embedder(name, Preferences())
