"""A model in this process: files that are none, limits, schemas and windows of llama.cpp itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memrl_core.analysis.decision.outline import tokens_of
from memrl_core.cli import main as cli
from memrl_core.errors import InputError, MemRLError, ModelMissing, ModelSlow, NotBound, PromptTooLong
from memrl_core.models import gguf
from memrl_core.models.base import ModelOptions
from memrl_core.models.gguf import GgufModel, weights_of
from memrl_core.records import Message

SMALL = ModelOptions(num_ctx=512, num_predict=8)
HELLO = [Message("user", "Say hello")]
ACTIONS = {"type": "string", "enum": ["go north", 'wait\n\u2028 "here"']}


@pytest.fixture(scope="module")
def model() -> GgufModel:
    return GgufModel("gguf:smollm2")


@pytest.mark.parametrize("data", [None, b"", b"<html>", b"GGUF", b"GGUF\x03\x00\x00\x00" + b"\xff" * 5000])
def test_what_is_no_model_starts_no_run_and_makes_no_bank(tmp_path: Path, data: bytes | None) -> None:
    file, bank = tmp_path / "some.gguf", tmp_path / "bank"
    if data is not None:
        file.write_bytes(data)
    done = CliRunner().invoke(cli.app, ["run", "--bank", str(bank), "--tasks", "1", "--model", f"gguf:{file}"])
    assert isinstance(done.exception, (InputError, ModelMissing)) and str(file) in str(done.exception)
    assert not bank.exists()


def test_half_a_file_is_told_from_a_whole_one(tmp_path: Path, model: GgufModel) -> None:
    with model.path.open("rb") as whole:
        (tmp_path / "half.gguf").write_bytes(whole.read(2_000_000))
    with pytest.raises(InputError, match="damaged"):
        GgufModel(f"gguf:{tmp_path}/half.gguf").chat(HELLO, SMALL)


@pytest.mark.slow
def test_an_answer_ends_at_its_limit_at_a_stop_and_within_the_window(model: GgufModel) -> None:
    reply = model.chat(HELLO, SMALL)
    assert (reply.cut, reply.answer_tokens, reply.window) == ("8 tokens", 8, 512)
    stopped = model.chat(HELLO, SMALL.model_copy(update={"stop": reply.text[3]}))
    assert stopped.text == reply.text[:3] and not stopped.cut
    with pytest.raises(PromptTooLong) as caught:
        model.chat([Message("user", "egg " * 600)], SMALL)
    assert caught.value.window == 512


def test_the_window_is_no_larger_than_the_model_was_made_for(model: GgufModel, monkeypatch: pytest.MonkeyPatch) -> None:
    made_for = {"general.architecture": "llama", "llama.context_length": 512}
    monkeypatch.setattr(gguf, "_header", lambda path: made_for)
    model = GgufModel(model.name)
    assert model.chat(HELLO, ModelOptions(num_predict=1)).window == 512
    with pytest.raises(PromptTooLong):
        model.chat([Message("user", "egg " * 600)], ModelOptions(num_predict=1))


def test_an_answer_is_bound_by_a_schema_and_a_schema_that_is_none_is_its_own_error(model: GgufModel) -> None:
    options = SMALL.model_copy(update={"num_predict": 32})
    assert json.loads(model.chat(HELLO, options, schema=ACTIONS).text) in ACTIONS["enum"]
    for schema in ({"type": "strange"}, {"type": "string", "enum": []}, {"$ref": "#/nowhere"}):
        with pytest.raises(NotBound):
            model.chat(HELLO, options, schema=schema)
    assert model.chat(HELLO, options).text


def test_no_token_of_a_bound_answer_goes_to_a_fence_around_it(model: GgufModel) -> None:
    asked = [Message("user", "Which action, as JSON in a Markdown fence?")]
    reply = model.chat(asked, SMALL, schema={"type": "string", "enum": ["go north", "wait"]})
    assert (reply.text, reply.cut) == ('"go north"', "")


@pytest.mark.slow
def test_a_model_can_be_stopped_while_it_reads_and_what_the_caller_raises_passes(model: GgufModel) -> None:
    looks: list[bool] = []

    def at_third_look() -> bool:
        looks.append(True)
        return len(looks) >= 3

    long = [Message("user", " ".join(f"egg{number}" for number in range(120)))]
    reply = model.chat(long, SMALL, cancelled=at_third_look)
    assert reply.stopped and not reply.text

    with pytest.raises(ModelSlow):
        model.chat([Message("user", "egg, " * 200)], SMALL.model_copy(update={"first_token": 0.01}))

    def leave(piece: str) -> None:
        raise MemRLError("enough")

    with pytest.raises(MemRLError, match="enough"):
        model.chat(HELLO, SMALL, leave)


@pytest.mark.slow
def test_what_stands_at_the_beginning_of_two_prompts_is_read_once_and_reported(model: GgufModel) -> None:
    long = [Message("system", "Go on. " * 60), *HELLO]
    model.chat(long, SMALL)
    reply = model.chat([*long, Message("assistant", "Hello"), Message("user", "Again")], SMALL)
    assert reply.prompt_tokens is not None
    assert 100 < reply.cached_tokens < reply.prompt_tokens
    assert f"({reply.cached_tokens} from the server's cache)" in tokens_of(reply)[0]


def test_what_the_chat_template_makes_of_messages_is_reported(model: GgufModel) -> None:
    reported = model.rendered([Message("system", "Be brief."), *HELLO], SMALL)
    assert "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nSay hello<|im_end|>" in reported


@pytest.mark.slow
def test_an_answer_for_which_the_window_is_too_small_says_so(model: GgufModel) -> None:
    reported = [Message("user", "Write a story about an egg. " * 65)]
    reply = model.chat(reported, SMALL.model_copy(update={"num_predict": 300}))
    assert reply.cut == "the context window of 512 tokens"


@pytest.mark.slow
def test_a_file_that_is_taken_away_goes_on_answering_and_is_missed_by_the_next_run(
    tmp_path: Path, model: GgufModel
) -> None:
    file = tmp_path / "some.gguf"
    file.symlink_to(model.path)
    linked = GgufModel(f"gguf:{file}")
    assert linked.chat(HELLO, SMALL).text
    file.unlink()
    assert linked.chat(HELLO, SMALL).text
    with pytest.raises(ModelMissing):
        gguf.must_load(f"gguf:{file}")


@pytest.mark.slow
def test_a_file_without_a_chat_template_answers(tmp_path: Path, model: GgufModel) -> None:
    data = weights_of(model.name).read_bytes().replace(b"tokenizer.chat_template", b"tokenizer.chat_templatX")
    (tmp_path / "bare.gguf").write_bytes(data)
    bare = GgufModel(f"gguf:{tmp_path}/bare.gguf")
    assert bare.chat(HELLO, SMALL).text and bare.chat(HELLO, SMALL, schema=ACTIONS).text
