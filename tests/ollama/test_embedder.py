"""OllamaEmbedder: unit vectors a bank can remember, in batches, and nothing that is no vector."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memrl_core.agent.preferences import Preferences
from memrl_core.agent.runs import live_run, start_run
from memrl_core.bank import MemoryBank
from memrl_core.cli.terminal import step_parts
from memrl_core.embedders.ollama import OllamaEmbedder
from memrl_core.errors import InputError, ModelError, ModelInterrupted, ModelMissing, ModelSlow, NoVector, OllamaDown
from tests.ollama.scene import NOMIC
from tests.ollama.server import OllamaServer


@pytest.fixture
def embedder(server: OllamaServer) -> OllamaEmbedder:
    return OllamaEmbedder("nomic-embed-text:latest", server.address)


def test_rows_are_unit_vectors_in_the_order_of_the_texts(embedder: OllamaEmbedder) -> None:
    vectors = embedder.embed(["heat the egg", "cool the apple", "heat the egg"])
    assert vectors.dtype == np.float32
    assert vectors.shape == (3, 64)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1], abs=1e-6)
    assert np.array_equal(vectors[0], vectors[2])
    assert not np.array_equal(vectors[0], vectors[1])


def test_many_texts_go_in_batches_of_64(embedder: OllamaEmbedder, server: OllamaServer) -> None:
    texts = [f"task number {i}" for i in range(130)]
    together = embedder.embed(texts)
    sent = server.asked("/api/embed")[1:]
    assert [len(body["input"]) for body in sent] == [64, 64, 2]
    assert [text for body in sent for text in body["input"]] == texts
    assert {body["model"] for body in sent} == {"nomic-embed-text"}
    assert {body["keep_alive"] for body in sent} == {"15m"}
    assert np.array_equal(together[129:], embedder.embed(texts[129:]))


def test_a_text_that_the_model_has_no_room_for_is_cut_and_reported(
    embedder: OllamaEmbedder, server: OllamaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = embedder.embed(["heat the egg", "egg " * 2000, "cool it"])
    assert vectors.shape == (3, 64) and embedder.cut == 1
    assert [body["truncate"] for body in server.asked("/api/embed")[1:]] == [False, False, False, True, False]
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OLLAMA_HOST", server.address)
    with MemoryBank.create(str(tmp_path / "bank"), "nomic-embed-text", 64) as bank:
        info = start_run(bank, environment="conversation", tasks="")
        live = live_run(bank, info.id, Preferences())
        for intent in ("Name a planet.", "egg " * 2000):
            live.begin(intent)
            live.finish(unrated=True)
            assert live.wait(20)
        assert [trace.embed.cut for trace in bank.traces(info.id) if trace.embed] == [False, True]
        parts = [str(part) for part in islice(step_parts(bank.trace(info.id, 2), {}), 2)]
        assert any("less text" in part for part in parts)


def test_a_long_text_that_the_server_will_not_cut_is_cut_by_halves(
    embedder: OllamaEmbedder, server: OllamaServer
) -> None:
    server.faults.most_letters = 400
    long, short = "a text of many letters " * 100, "heat the egg"
    vectors = embedder.embed([short, long])
    assert embedder.cut == 1 and np.array_equal(vectors[1], embedder.embed([long[: len(long) // 8]])[0])
    assert np.array_equal(vectors[0], embedder.embed([short])[0])


@pytest.mark.parametrize("poison", ["zeros", "no_json", "drop"])
def test_a_text_that_is_never_embedded_is_named_and_does_not_stop_the_others(
    embedder: OllamaEmbedder, server: OllamaServer, poison: Any
) -> None:
    server.faults.poison = poison
    with pytest.raises(NoVector, match="“a poison pill” \\(13 characters\\)"):
        embedder.embed(["heat the egg", "a poison pill"])
    asked = [body["input"] for body in server.asked("/api/embed")[1:]]
    assert asked[1:4] == [["heat the egg"], ["a poison pill"], ["a poison pill"]]


def test_no_texts_are_no_rows_and_no_request(embedder: OllamaEmbedder, server: OllamaServer) -> None:
    before = len(server.requests)
    assert embedder.embed([]).shape == (0, 64)
    assert len(server.requests) == before


@pytest.mark.parametrize("text", ["", " \n", "half \udc00"])
def test_a_text_without_a_vector_is_refused_before_anything_is_sent(
    embedder: OllamaEmbedder, server: OllamaServer, text: str
) -> None:
    before = len(server.requests)
    with pytest.raises(InputError):
        embedder.embed(["fine", text])
    assert len(server.requests) == before


@pytest.mark.parametrize(
    ("fault", "error", "sentence"),
    [
        ("zeros", ModelError, "empty embedding"),
        ("nan", ModelError, "empty embedding"),
        ("huge", ModelError, "empty embedding"),
        ("null", ModelInterrupted, "would say"),
        ("ragged", ModelError, "63"),
        ("too_few", ModelError, "for each text"),
    ],
)
def test_what_is_no_embedding_is_refused(
    embedder: OllamaEmbedder, server: OllamaServer, fault: Any, error: type[ModelError], sentence: str
) -> None:
    server.faults.embedding = fault
    with pytest.raises(error, match=sentence):
        embedder.embed(["heat the egg", "cool the apple"])


def test_another_dimension_than_at_the_beginning_is_refused(embedder: OllamaEmbedder, server: OllamaServer) -> None:
    server.models[NOMIC.name] = replace(NOMIC, dimension=32)
    with pytest.raises(ModelError, match="32"):
        embedder.embed(["heat the egg"])


@pytest.mark.parametrize(
    ("name", "error", "sentence"),
    [
        ("all-minilm", ModelMissing, "pull all-minilm`"),
        ("llama3.2", ModelInterrupted, "“this model does not support embeddings”"),
    ],
)
def test_a_model_that_cannot_embed_is_refused(
    server: OllamaServer, nobody: str, name: str, error: type[ModelError], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        OllamaEmbedder(name, server.address)
    with pytest.raises(OllamaDown, match=f"not running at {nobody}"):
        OllamaEmbedder(name, nobody)


def test_a_server_that_does_not_answer_in_time(server: OllamaServer) -> None:
    server.faults.instead["/api/embed"] = "hang"
    with pytest.raises(ModelSlow, match=r"for 0\.2 s"):
        OllamaEmbedder("nomic-embed-text", server.address, timeout=0.2)
    assert server.left.wait(10)
