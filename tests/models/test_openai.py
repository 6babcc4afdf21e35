"""Models and embedders behind OpenAI's protocol: what goes wrong, with a stand-in, and all that goes right, with the
server of llama.cpp itself."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memrl_core.agent.preferences import Preferences
from memrl_core.agent.run_parts import create_bank, hosts_of, make_embedder, make_model, must_be_there
from memrl_core.agent.runs import live_run, start_run
from memrl_core.bank import MemoryBank
from memrl_core.embedders.base import texts_cut
from memrl_core.embedders.openai import OpenAIEmbedder
from memrl_core.errors import (
    EmptyAnswer,
    InputError,
    ModelError,
    ModelInterrupted,
    ModelMissing,
    ModelSlow,
    NotBound,
    NoVector,
    PromptTooLong,
    ServerDown,
)
from memrl_core.exchange.archive import bank_bytes
from memrl_core.models.base import ModelOptions
from memrl_core.models.openai import OpenAIModel
from memrl_core.records import Message, Reply

KEY = "sk-verysecret-0123456789abcdef"
LINES = {"type": "string", "enum": ["go north", "stop"]}
HELLO = [Message("user", "Say hello to me")]

Answer = Callable[["Handler", dict[str, Any]], None]


class Handler(BaseHTTPRequestHandler):
    """Does what `server.answer` says, and keeps what it was asked."""

    server: Any

    def do_GET(self) -> None:
        self.whole(404, "{}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.headers, body))
        self.server.answer(self, body)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def whole(self, status: int, text: str, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(text)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(text.encode())

    def stream(self, *parts: Any, end: str = "stop") -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for part in parts:
            delta = part if isinstance(part, dict) else {"choices": [{"index": 0, "delta": {"content": part}}]}
            self.wfile.write(f"data: {json.dumps(delta)}\n\n".encode())
        if end:
            last = {"choices": [{"index": 0, "delta": {}, "finish_reason": end}]}
            self.wfile.write(f"data: {json.dumps(last)}\n\ndata: [DONE]\n\n".encode())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        made: Any = running
        made.asked, made.address = [], f"http://127.0.0.1:{running.server_port}/v1"
        monkeypatch.setenv("OPENAI_BASE_URL", made.address)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield made
        running.shutdown()


def chat(server: Any, answer: Answer, timeout: float = 5.0, schema: Any = None, **options: Any) -> Reply:
    server.answer = answer
    model = OpenAIModel("openai:some", server.address, timeout)
    return model.chat(HELLO, ModelOptions(**options), schema=schema)


def says(text: str, status: int = 400) -> Answer:
    return lambda to, _: to.whole(status, json.dumps({"error": {"message": text}}))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (says("no such model", 404), ModelMissing),
        (says("This model's maximum context length is 4096 tokens"), PromptTooLong),
        (says("you exceeded your quota", 400), ModelInterrupted),
        (says(f"bad key {KEY}", 401), ModelError),
        (says(f"what is {KEY[:12]}…?", 400), ModelInterrupted),
        (lambda to, _: to.whole(302, "", Location="http://127.0.0.1:9/v1"), ModelInterrupted),
        (lambda to, _: to.whole(200, "<html>a proxy's page</html>"), ModelInterrupted),
        (lambda to, _: to.stream("One", {"error": {"message": f"{KEY} expired"}}), ModelInterrupted),
        (lambda to, _: to.stream("One", {"choices": 7}), ModelInterrupted),
        (lambda to, _: to.stream("One", end=""), ModelInterrupted),
        (lambda to, _: to.stream("  "), EmptyAnswer),
        (lambda to, _: to.stream({"choices": [{"delta": {"reasoning_content": "Hm."}}]}, end="length"), EmptyAnswer),
        (lambda to, _: time.sleep(0.6), ModelSlow),
    ],
)
def test_every_failure_is_its_own_error_and_never_shows_the_key(
    server: Any, answer: Answer, error: type[ModelError]
) -> None:
    with pytest.raises(error) as caught:
        chat(server, answer, timeout=0.3 if error is ModelSlow else 5.0)
    assert type(caught.value) is error
    assert KEY[:8] not in str(caught.value)
    if isinstance(caught.value, ModelInterrupted):
        assert caught.value.partial in ("", "One")


def test_the_key_goes_to_the_address_of_the_environment_alone_and_into_no_answer(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = chat(server, lambda to, _: to.stream("The key is ", KEY))
    assert KEY not in reply.text and server.asked[-1][0]["Authorization"] == f"Bearer {KEY}"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    chat(server, lambda to, _: to.stream("hello"))
    assert KEY not in str(server.asked[-1][0].items())


def test_nothing_that_the_environment_says_of_a_person_goes_to_a_host_that_they_have_not_named(
    server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Team: blue-7731")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-7731")
    server.answer = lambda to, body: to.stream("hello") if body.get("stream") else to.whole(200, "{}")
    given = ["127.0.0.1:9", server.address.removeprefix("http://").removesuffix("/v1")]
    for trusted in (True, False):
        hosts = hosts_of("openai:some", given, 1, tmp_path / str(trusted), trusted)
        must_be_there("openai:some", Preferences(), hosts)
        reply = make_model("openai:some", Preferences(), hosts).chat(HELLO, ModelOptions())
        assert (reply.text, reply.host) == ("hello", server.address)
        for headers, _ in server.asked[-2:]:
            message = str(headers.items())
            assert ("blue-7731" in message, "org-7731" in message, KEY in message) == (trusted,) * 3


def test_a_password_in_an_address_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://ann:{KEY}@127.0.0.1:9/v1/?token={KEY}")
    assert Preferences().openai_address == "http://127.0.0.1:9/v1"
    with pytest.raises(InputError) as caught:
        OpenAIModel("openai:some", f"http://ann:{KEY}@127.0.0.1:9/v1")
    assert KEY[:8] not in str(caught.value)


def test_nobody_at_the_address_and_a_name_that_is_none(server: Any) -> None:
    with pytest.raises(ServerDown, match="127"):
        OpenAIModel("openai:some", "http://127.0.0.1:9/v1").chat(HELLO, ModelOptions())
    for name in ("openai:", "openai:two words"):
        with pytest.raises(InputError):
            OpenAIModel(name, server.address)


def test_options_are_sent_and_a_limit_that_is_met_is_reported(server: Any) -> None:
    reply = chat(server, lambda to, _: to.stream("One", " two", end="length"), temperature=0.5, seed=7, num_predict=2)
    assert (reply.text, reply.cut) == ("One two", "2 tokens")
    sent = server.asked[-1][1]
    assert (sent["temperature"], sent["seed"], sent["max_tokens"]) == (0.5, 7, 2)
    endless = chat(server, lambda to, _: to.stream(*["word "] * 1000), num_predict=2)
    assert endless.cut == "64 characters" and len(endless.text) == 64


@pytest.mark.parametrize(
    ("more", "timings", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 30}}, {}, 30),
        ({}, {"timings": {"cache_n": 31}}, 31),
        ({"prompt_tokens_details": None}, {}, None),
    ],
)
def test_what_a_server_had_cached_of_a_prompt_is_reported(
    server: Any, more: Any, timings: Any, cached: int | None
) -> None:
    usage = {"prompt_tokens": 40, "completion_tokens": 2, "total_tokens": 42, **more}
    reply = chat(server, lambda to, _: to.stream("One", {"choices": [], "usage": usage, **timings}))
    assert (reply.prompt_tokens, reply.answer_tokens, reply.cached_tokens) == (40, 2, cached)


def test_an_answer_is_bound_by_what_the_server_takes(server: Any) -> None:
    def wants_an_object(to: Handler, body: dict[str, Any]) -> None:
        wanted = body["response_format"]["json_schema"]["schema"]
        if wanted["type"] != "object":
            says("Invalid schema for response_format: must be an object")(to, body)
        else:
            to.stream('{"answer": "go north"}')

    assert chat(server, wants_an_object, schema=LINES).text == '"go north"'
    assert chat(server, lambda to, _: to.stream('```json\n"go', ' north"\n```\n'), schema=LINES).text == '"go north"'
    refuses, ignores = says("response_format is not supported"), lambda to, _: to.stream("I would go north.")
    for answer in (refuses, ignores):
        server.answer, model = answer, OpenAIModel("openai:some", server.address)
        with pytest.raises(NotBound):
            model.chat(HELLO, ModelOptions(), schema=LINES)
        assert not model.binds
    with pytest.raises(ModelInterrupted, match="too long"):
        chat(server, says("the prompt is too long"), schema=LINES)


def test_a_key_that_a_server_repeats_stands_in_no_step_and_in_no_export(server: Any, tmp_path: Path) -> None:
    server.answer = lambda to, body: to.stream(f"go to {KEY}") if body.get("stream") else to.whole(200, "{}")
    with MemoryBank.create(str(tmp_path / "bank"), "hashing-1024", 1024) as bank:
        info = start_run(bank, environment="conversation", tasks="", model="openai:some")
        live = live_run(bank, info.id, Preferences())
        live.begin("Where is the key?")
        live.finish(unrated=True)
        assert live.wait(20)
        assert "go to" in repr(bank.trace(info.id, 1)) and KEY[:8] not in repr(bank.trace(info.id, 1))
        assert KEY[:8].encode() not in bank_bytes(bank, "jsonl")


def test_a_run_begins_only_once_its_model_can_be_asked(server: Any, tmp_path: Path) -> None:
    # Without a list of models it is asked for a token.
    server.answer = says("no such model", 404)
    with MemoryBank.create(str(tmp_path / "bank"), "hashing-1024", 1024) as bank:
        for model, error in (("openai:some", ModelMissing), ("gguf:/nowhere.gguf", ModelMissing)):
            with pytest.raises(error):
                start_run(bank, environment="household", tasks="household-demo", model=model)
        assert bank.runs() == []


def test_a_server_that_cannot_bind_is_asked_without_and_its_answers_are_read(server: Any, tmp_path: Path) -> None:
    def answer(to: Handler, body: dict[str, Any]) -> None:
        if "response_format" in body:
            says("grammar is not supported")(to, body)
        elif body.get("stream"):
            to.stream("look")
        else:
            to.whole(200, "{}")

    server.answer = answer
    preferences = Preferences()
    with MemoryBank.create(str(tmp_path / "bank"), "hashing-1024", 1024) as bank:
        info = start_run(bank, environment="household", tasks="household-demo", model="openai:some")
        live = live_run(bank, info.id, preferences)
        trace = next(live.agent.run(live.tasks))
    replies = [turn.reply for turn in trace.generate.turns]
    assert {reply.bound for reply in replies} == {False} and all(reply.offered is not None for reply in replies)
    asked = [body for _, body in server.asked if "response_format" in body]
    assert len(asked) == 2, "once a refusal is known, no schema is sent"


@pytest.mark.parametrize("vector", [[float("nan"), 1.0], [0.0, 0.0], None, []])
def test_an_embedding_that_cannot_be_used_is_refused(server: Any, vector: Any) -> None:
    server.answer = lambda to, body: to.whole(
        200, json.dumps({"data": [{"index": i, "embedding": vector} for i, _ in enumerate(body["input"])]})
    )
    with pytest.raises(ModelError):
        OpenAIEmbedder("openai:some", server.address)


def test_a_bank_is_made_with_the_embeddings_of_a_server_that_is_not_ollama(server: Any, tmp_path: Path) -> None:
    def answer(to: Handler, body: dict[str, Any]) -> None:
        data = [{"index": i, "embedding": [1.0, 2.0]} for i, _ in enumerate(body["input"])]
        to.whole(200, json.dumps({"data": data}))

    server.answer = answer
    with create_bank(str(tmp_path / "bank"), "openai:some", Preferences()) as bank:
        assert (bank.embedder.name, bank.embedder.dimension) == ("openai:some", 2)


def test_embeddings_come_in_the_order_of_the_texts(server: Any) -> None:
    def answer(to: Handler, body: dict[str, Any]) -> None:
        made = [{"index": i, "embedding": [float(len(text)), 1.0]} for i, text in enumerate(body["input"])]
        to.whole(200, json.dumps({"data": made[::-1]}))

    server.answer = answer
    embedder = make_embedder("openai:some", Preferences())
    assert (embedder.name, embedder.dimension) == ("openai:some", 2)
    assert np.allclose(np.linalg.norm(embedder.embed(["a", "bbb"]), axis=1), 1)
    assert embedder.embed(["a", "bbb"])[1][0] > embedder.embed(["a", "bbb"])[0][0]
    with pytest.raises(InputError):
        embedder.embed([" "])


def test_a_text_of_which_a_server_makes_no_vector_is_cut_or_named(server: Any) -> None:
    def answer(to: Handler, body: dict[str, Any]) -> None:
        if any(len(text) > 100 for text in body["input"]):
            says("input is too large to process. increase the physical batch size", 500)(to, body)
        else:
            made = [[0.0, 0.0] if "poison" in text else [1.0, float(len(text))] for text in body["input"]]
            data = [{"index": i, "embedding": vector} for i, vector in enumerate(made)]
            to.whole(200, json.dumps({"data": data}))

    server.answer = answer
    embedder = make_embedder("openai:some", Preferences())
    assert embedder.embed(["x" * 400])[0] == pytest.approx(embedder.embed(["x" * 100])[0]) and texts_cut(embedder) == 1
    with pytest.raises(NoVector, match="a poison pill"):
        embedder.embed(["fine", "a poison pill"])


# --- llama.cpp ---

LLAMA = """
import sys, xllamacpp
from memrl_core.models.gguf import weights_of
given = xllamacpp.CommonParams()
given.model.path = str(weights_of("gguf:smollm2"))
given.hostnames, given.port, given.verbosity = ["127.0.0.1"], 0, -1
given.n_ctx, given.n_parallel, given.warmup = 4096, 1, False
given.embedding, given.pooling_type = True, 1
given.cpuparams.n_threads = given.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(given)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    """The address of a llama.cpp server with SmolLM2."""
    command = [sys.executable, "-c", LLAMA]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        yield f"{running.stdout.readline().strip()}/v1"
        running.terminate()


@pytest.mark.slow
def test_a_llama_server_acts_bound_in_whole_steps(llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", llama)
    preferences = Preferences()
    with MemoryBank.create(str(tmp_path / "bank"), "hashing-1024", 1024) as bank:
        info = start_run(bank, environment="household", tasks="household-demo", model="openai:smollm2")
        live = live_run(bank, info.id, preferences)
        traces = list(live.agent.run(live.tasks[:2]))
        assert bank.next_step(info.id) == 3
    replies = [turn.reply for trace in traces for turn in trace.generate.turns]
    assert all(reply.bound and reply.offered for reply in replies)
    assert all(reply.prompt_tokens and reply.answer_tokens for reply in replies)


@pytest.mark.slow
def test_a_llama_server_stops_long_before_its_end_and_answers_the_next(llama: str) -> None:
    model, pieces = OpenAIModel("openai:smollm2", llama), []
    tale = [Message("user", "Tell a very long story about a lighthouse.")]
    reply = model.chat(tale, ModelOptions(num_predict=2000), pieces.append, lambda: len(pieces) >= 5)
    assert reply.stopped and len(pieces) < 100
    assert reply.text == "".join(pieces)
    assert model.chat(HELLO, ModelOptions(num_predict=8)).answer_tokens == 8
    with pytest.raises(PromptTooLong):
        model.chat([Message("user", "word " * 6000)], ModelOptions())


@pytest.mark.slow
def test_a_llama_server_embeds_and_names_its_weights(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", llama)
    embedder = make_embedder("openai:smollm2", Preferences())
    assert embedder.embed(["one text", "another"]).shape == (2, 576)
    assert "134515008" in embedder.digest and embedder.version == "llama.cpp"
    facts = must_be_there("openai:smollm2", Preferences())
    assert (facts["quantisation"], facts["context"], facts["server"]) == ("Q4_1", 4096, "llama.cpp")
    assert facts["parameters"] == 134_515_008
