"""OllamaModel: every failure is its own error, says what to do, and keeps what had arrived."""

from __future__ import annotations

from typing import Any

import pytest

from memrl_core.errors import EmptyAnswer, ModelInterrupted, ModelMissing, ModelSlow, OllamaDown
from memrl_core.models.base import ModelOptions
from memrl_core.models.ollama import OllamaModel
from memrl_core.records import Message
from tests.ollama.server import OllamaServer


def chat(server: OllamaServer, name: str = "llama3.2", timeout: float = 30.0) -> Any:
    return OllamaModel(name, server.address, timeout).chat([Message("user", "Say hello to me")], ModelOptions())


def test_no_server(nobody: str) -> None:
    with pytest.raises(OllamaDown, match=f"not running at {nobody}.*kept.*`OLLAMA_HOST={nobody[7:]} ollama serve`"):
        OllamaModel("llama3.2", nobody).chat([Message("user", "hello")], ModelOptions())


@pytest.mark.parametrize(("name", "shown"), [("mistral", "mistral"), ("a;reboot", "'a;reboot'")])
def test_a_model_that_is_not_installed_comes_with_the_command_to_get_it(
    server: OllamaServer, name: str, shown: str
) -> None:
    with pytest.raises(ModelMissing, match=f"ollama pull {shown}`"):
        chat(server, name)


def test_nothing_within_the_timeout(server: OllamaServer) -> None:
    server.faults.instead["/api/chat"] = "hang"
    with pytest.raises(ModelSlow, match=r"0\.8 s"):
        chat(server, timeout=0.8)
    assert server.left.wait(10)


@pytest.mark.parametrize(
    ("fault", "after", "sentence"),
    [
        ("error", 2, "“llama runner process has terminated: signal: killed”"),
        ("drop", 2, "Ollama broke"),
        ("drop", 0, "Ollama broke"),
        ("hang", 2, ""),
        *((fault, 2, "would say") for fault in ("not_json", "not_an_object", "odd_fields", "deep")),
    ],
)
def test_a_break_keeps_what_had_arrived(server: OllamaServer, fault: Any, after: int, sentence: str) -> None:
    server.faults.stream, server.faults.after = fault, after
    with pytest.raises(ModelInterrupted, match="is kept") as caught:
        chat(server, timeout=1.0 if fault == "hang" else 30.0)
    assert sentence in str(caught.value)
    assert caught.value.partial == ("In short:" if after else "")


def test_a_stream_without_a_last_part_is_an_answer_that_the_server_ended(server: OllamaServer) -> None:
    """Ollama ends a stream so when a model repeats one token 31 times."""
    server.faults.stream, server.faults.after = "no_end", 2
    reply = chat(server)
    assert (reply.text, reply.cut, reply.stopped) == ("In short:", "the server's own limit", False)


@pytest.mark.parametrize(("message", "after"), [("egg", 0), ("\n \n \n", 2)])
def test_a_stream_that_the_server_ended_without_a_word_is_an_empty_answer(
    server: OllamaServer, message: str, after: int
) -> None:
    server.faults.answer, server.faults.stream, server.faults.after = message, "no_end", after
    with pytest.raises(EmptyAnswer, match="server's own limit"):
        chat(server)


def test_the_words_of_a_failing_server_are_quoted_in_one_short_line(server: OllamaServer) -> None:
    server.faults.instead["/api/chat"] = 500
    server.faults.says = "out of\x1b[31m\nmemory \u202e" + "x" * 5000
    with pytest.raises(ModelInterrupted) as caught:
        chat(server)
    sentence = str(caught.value)
    assert "“out of [31m memory xxx" in sentence
    assert sentence.isprintable()
    assert len(sentence) < 500


@pytest.mark.parametrize("status", [200, 307, 404, 502])
def test_a_page_of_html_is_no_answer_and_not_quoted(server: OllamaServer, status: int) -> None:
    server.faults.page, server.faults.instead = "<html><h1>Bad gateway</h1></html>", {"/api/chat": status}
    with pytest.raises(ModelInterrupted, match="would say") as caught:
        chat(server)
    assert "<" not in str(caught.value)


def test_a_model_that_cannot_think_answers_without_and_says_so(server: OllamaServer) -> None:
    reply = OllamaModel("llama3.2", server.address).chat([Message("user", "Go")], ModelOptions(think=True))
    assert reply.text and len(reply.notes) == 1
    assert [body["think"] for body in server.asked("/api/chat")] == [True, False]


@pytest.mark.parametrize("message", ["", " \n\t "])
def test_an_empty_answer(server: OllamaServer, message: str) -> None:
    server.faults.answer = message
    with pytest.raises(EmptyAnswer, match="was given"):
        chat(server)
