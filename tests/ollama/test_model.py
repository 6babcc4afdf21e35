"""OllamaModel: what it sends, what it makes of the answer, and how it is stopped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memrl_core.errors import EmptyAnswer, InputError, ModelInterrupted, ModelSlow, PromptTooLong
from memrl_core.models.base import ModelOptions, whole_characters
from memrl_core.models.ollama import OllamaModel
from memrl_core.records import Message
from tests.ollama.scene import LLAMA
from tests.ollama.server import OllamaServer

HELLO = [Message("system", "Be brief."), Message("user", "Say hello")]
LONG = " ".join(["word"] * 400)


def test_the_request_holds_the_messages_and_options_verbatim(server: OllamaServer) -> None:
    chosen = {"seed": 7, "temperature": 0.25, "num_ctx": 2048, "num_predict": 32, "top_p": 0.8, "num_thread": 1}
    options = ModelOptions.model_validate({**chosen, "keep_alive": "3m", "stop": r"\n\n", "in_all": 9})
    OllamaModel("llama3.2", server.address).chat(HELLO, options)
    (body,) = server.asked("/api/chat")
    assert body == {
        "model": "llama3.2",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello"}],
        "stream": True,
        "think": False,
        "options": {**chosen, "repeat_penalty": 1.0, "stop": ["\n\n"]},
        "keep_alive": "3m",
        "truncate": False,
        "shift": False,
    }


@pytest.mark.parametrize("whole", ['"take egg"', '{"a": "b"}'])
def test_a_bound_answer_ends_with_its_schema_and_not_after_a_thousand_blanks(server: OllamaServer, whole: str) -> None:
    schema, model = {"type": "string", "enum": ["take egg"]}, OllamaModel("llama3.2", server.address)
    server.faults.form, server.faults.delay = whole + " " * 1000, 0.01
    pieces: list[str] = []
    reply = model.chat(HELLO, ModelOptions(), pieces.append, schema=schema)
    assert (reply.text, reply.cut, reply.stopped) == (whole, "", False) and len(pieces) < 500
    server.faults.answer = f"{whole}      and more"
    assert model.chat(HELLO, ModelOptions()).text == server.faults.answer, "free text may hold blanks"


def test_only_the_content_is_the_answer_and_arrives_in_pieces(server: OllamaServer) -> None:
    server.faults.answer = "take egg\nfrom fridge"
    pieces: list[str] = []
    reply = OllamaModel("llama3.2", server.address).chat(HELLO, ModelOptions(), pieces.append)
    assert reply.text == "take egg\nfrom fridge"
    assert pieces == ["take", " egg\nfrom", " fridge"]
    assert not reply.stopped and (reply.prompt_tokens, reply.answer_tokens, reply.seconds) == (26, 3, 1.5)


def test_an_answer_is_cut_at_its_limit_and_says_so(server: OllamaServer) -> None:
    server.faults.answer, server.faults.endless = " go", True
    reply = OllamaModel("llama3.2", server.address).chat(HELLO, ModelOptions(num_predict=32))
    assert (reply.cut, reply.answer_tokens, len(reply.text.split())) == ("32 tokens", 32, 32)
    assert not reply.stopped
    server.faults.endless = False
    assert OllamaModel("llama3.2", server.address).chat(HELLO, ModelOptions(num_predict=32)).cut == ""


def test_a_server_that_ignores_the_limit_is_left_at_the_one_in_characters(server: OllamaServer) -> None:
    server.faults.answer, server.faults.endless, server.faults.unlimited = "x" * 90, True, True
    pieces: list[str] = []
    options = ModelOptions(num_predict=8)
    reply = OllamaModel("llama3.2", server.address).chat(HELLO, options, pieces.append)
    assert len(reply.text) == options.most_characters == len("".join(pieces))
    assert reply.cut == f"{options.most_characters} characters"
    assert server.left.wait(10)


def test_an_answer_ends_when_its_time_is_over(server: OllamaServer) -> None:
    server.faults.answer, server.faults.delay = LONG, 0.05
    reply = OllamaModel("llama3.2", server.address).chat(HELLO, ModelOptions(in_all=0.4))
    assert (reply.cut, reply.stopped) == ("0.4 s", False)
    assert reply.text.startswith("word")
    assert server.left.wait(10)


@pytest.mark.slow
def test_the_first_token_and_those_that_follow_have_their_own_patience(server: OllamaServer) -> None:
    server.faults.answer, server.faults.first_delay = "one two", 2.5
    model = OllamaModel("llama3.2", server.address, timeout=1.0)
    assert model.chat(HELLO, ModelOptions(first_token=20)).text == "one two"
    with pytest.raises(ModelSlow):
        model.chat(HELLO, ModelOptions(between_tokens=20))
    server.faults.first_delay, server.faults.stream, server.faults.after = 0.0, "hang", 1
    with pytest.raises(ModelInterrupted, match="for 1 s"):
        model.chat(HELLO, ModelOptions(first_token=20))


@pytest.mark.parametrize("message", ["<think>\nAn egg.\n</think>\n\ntake egg", "An egg.\n</think>take egg"])
def test_thinking_is_kept_beside_the_answer_wherever_it_stands(server: OllamaServer, message: str) -> None:
    model = OllamaModel("llama3.2", server.address)
    assert model.chat(HELLO, ModelOptions(think=True)).thinking == "They want an action."
    server.faults.answer, server.faults.silent_thoughts = message, True
    reply = model.chat(HELLO, ModelOptions())
    assert (reply.text, reply.thinking) == ("take egg", "An egg.")
    server.faults.answer = "<think>An egg that"
    with pytest.raises(EmptyAnswer) as caught:
        model.chat(HELLO, ModelOptions())
    assert caught.value.thinking == "An egg that"


def test_a_model_that_crawls_is_reported_with_the_option_that_may_help(server: OllamaServer) -> None:
    server.faults.answer = LONG
    model = OllamaModel("llama3.2", server.address)
    assert model.chat(HELLO, ModelOptions()).notes == ()
    server.faults.a_second = 1.0
    (note,) = model.chat(HELLO, ModelOptions()).notes
    assert "num_thread=1" in note
    (note,) = model.chat(HELLO, ModelOptions(num_thread=1)).notes
    assert "num_thread" not in note


def test_half_characters_are_joined_where_they_came_apart_and_replaced_where_not(server: OllamaServer) -> None:
    server.faults.answer = "egg\ud83d \ud83d\ude00 \ude00"
    pieces: list[str] = []
    reply = OllamaModel("llama3.2", server.address).chat(HELLO, ModelOptions(), pieces.append)
    assert (reply.text, reply.replaced) == ("egg\ufffd \U0001f600 \ufffd", 2)
    assert "".join(pieces).encode()
    assert whole_characters("egg\ud83d\ude00") == ("egg\U0001f600", 0)


def test_cancelling_in_the_middle_keeps_what_had_arrived(server: OllamaServer) -> None:
    server.faults.answer, server.faults.delay = LONG, 0.02
    pieces: list[str] = []
    reply = OllamaModel("llama3.2", server.address).chat(HELLO, ModelOptions(), pieces.append, lambda: len(pieces) >= 3)
    assert reply.stopped
    assert reply.text == "".join(pieces) == "word word word"
    assert server.left.wait(10)
    assert server.pieces_sent < 400


def test_an_error_of_the_caller_in_between_passes_and_stops_the_generation(server: OllamaServer) -> None:
    server.faults.answer, server.faults.delay = LONG, 0.02

    def leave(_: str) -> None:
        raise KeyError("the screen went away")

    with pytest.raises(KeyError, match="went away"):
        OllamaModel("llama3.2", server.address).chat(HELLO, ModelOptions(), leave)
    assert server.left.wait(10)


@pytest.mark.parametrize("name", ["", "  ", "two words", "bell\x07", "x" * 300])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"not a model's name\. Choose"):
        OllamaModel(name)


def test_text_that_is_not_unicode_is_refused_before_anything_is_sent(server: OllamaServer) -> None:
    with pytest.raises(InputError, match="position 4"):
        OllamaModel("llama3.2", server.address).chat([Message("user", "egg\ud800")], ModelOptions())
    assert server.requests == []


def test_a_local_server_is_not_asked_through_a_proxy(
    server: OllamaServer, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", nobody)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert OllamaModel("llama3.2", server.address).chat(HELLO, ModelOptions()).text


@pytest.mark.parametrize("fields", ["heeded", "ignored", "refused"])
def test_of_a_prompt_that_does_not_fit_nothing_is_cut_in_silence(server: OllamaServer, fields: Any) -> None:
    server.faults.fields = fields
    model = OllamaModel("llama3.2", server.address)
    long = [Message("system", "Be brief."), Message("user", "word " * 400), Message("user", "and so on " * 20)]
    with pytest.raises(PromptTooLong) as caught:
        model.chat(long, ModelOptions(num_ctx=512))
    assert caught.value.window == 512
    reply = model.chat(long, ModelOptions(num_ctx=2048))
    assert reply.prompt_tokens > 600 and reply.window == 2048


def test_the_window_is_no_larger_than_the_model_was_made_for(server: OllamaServer) -> None:
    server.models[LLAMA.name] = replace(LLAMA, context=1000)
    model = OllamaModel("llama3.2", server.address)
    assert model.chat(HELLO, ModelOptions()).window == 1000
    with pytest.raises(PromptTooLong):
        model.chat([Message("user", "word " * 1001)], ModelOptions())
    assert len(server.asked("/api/chat")) == 1
