"""`memrl run` with a model server: what is sent, what is printed meanwhile, and what is left when it cannot answer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memrl_core.agent.preferences import load_preferences
from memrl_core.agent.runs import fork, live_run, rerunner
from memrl_core.bank import MemoryBank
from memrl_core.cli import main as cli
from memrl_core.errors import MemRLError, ModelChanged, ModelMissing, OllamaDown, SettingsError
from tests.cli.conftest import printed
from tests.ollama.scene import LLAMA
from tests.ollama.server import OllamaServer


@pytest.fixture
def bank(tmp_path: Path, server: OllamaServer, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OLLAMA_HOST", server.address)
    return str(tmp_path / "bank")


def a_run(bank: str, *words: str) -> str:
    return printed("run", "--bank", bank, "--tasks", "1", "--model", "llama3.2", *words)


def test_an_action_of_the_household_is_cut_at_32_tokens_and_reported(bank: str, server: OllamaServer) -> None:
    server.faults.answer, server.faults.endless = " go", True
    server.faults.a_second = 1.0
    reported = a_run(bank)
    assert re.search(r"(\d+) of \1 answers: fewer than 5 tokens a second", reported)
    assert {body["options"]["num_predict"] for body in server.asked("/api/chat")} == {32, 200}
    assert "cut at 32 tokens" in printed("show", "1", "--bank", bank)
    with MemoryBank.open(bank) as kept:
        trace = kept.trace(kept.runs()[0].id, 1)
        assert {turn.reply.cut for turn in trace.generate.turns} == {"32 tokens"}
        assert "(cut at 200 tokens)" in kept.memory(trace.write.operations[0].memory_id).experience


def test_a_run_without_the_models_own_words_asks_for_actions_only(bank: str, server: OllamaServer) -> None:
    a_run(bank, "--option", "own_words=false", "--run", "quiet")
    assert {body["options"]["num_predict"] for body in server.asked("/api/chat")} == {32}
    with MemoryBank.open(bank) as kept:
        assert kept.run("quiet").environment_options["own_words"] is False
        assert "In the words of" not in next(iter(kept.view("quiet").memories.values())).experience
        forked = fork(kept, "quiet", 1, kept.run("quiet").settings)
        live = live_run(kept, forked.id, load_preferences())
        assert live.agent.environment.own_words is False


def test_options_of_a_run_are_sent_and_used_by_whatever_goes_on_with_it(bank: str, server: OllamaServer) -> None:
    chosen = {"temperature": 0.7, "num_ctx": 2048, "num_predict": 40, "top_p": 0.8, "num_thread": 1}
    a_run(bank, *(word for name, value in chosen.items() for word in ("--model-option", f"{name}={value}")))
    first = server.asked("/api/chat")[0]["options"]
    assert {name: first[name] for name in chosen} == chosen
    with MemoryBank.open(bank) as kept:
        info = kept.runs()[0]
        assert dict(info.model_options) == chosen
        forked = fork(kept, info.id, 1, info.settings)
        preferences = load_preferences()
        for run in (info, forked):
            options = live_run(kept, run.id, preferences).agent.options
            assert (options.temperature, options.num_ctx, options.num_predict) == (0.7, 2048, 40)
        asked = len(server.asked("/api/chat"))
        rerunner(kept, kept.trace(info.id, 1), preferences).rerun(())
        assert server.asked("/api/chat")[asked]["options"] == first


def test_a_window_of_512_tokens_leaves_memories_out_and_tells_so_everywhere(bank: str, server: OllamaServer) -> None:
    printed("run", "--bank", bank, "--tasks", "1", "--epochs", "14", "--run", "long")
    small = [
        "--base",
        "long",
        "--setting",
        "k2=14",
        "--setting",
        "delta=0",
        "--setting",
        "k1=14",
        "--model-option",
        "num_ctx=512",
    ]
    assert re.search(
        r"\d+ of \d+ answers: \d+ memor(y|ies) left out of the prompt", a_run(bank, *small, "--run", "small")
    )
    reported = " ".join(printed("show", "1", "--bank", bank, "--run", "small").split())
    with MemoryBank.open(bank) as kept:
        trace = kept.trace("small", 1)
        left_out = set(trace.decision.greedy) - set(trace.decision.selected)
        assert left_out and left_out == set(trace.generate.turns[0].left_out)
        assert not left_out & set(trace.reward.credited)
        assert reported.count("over budget") == len(left_out) and f"without {len(left_out)} of the memories" in reported


def a_list(path: Path, *intents: str) -> str:
    """A file of tasks whose answer is 4."""
    tasks = [{"intent": intent, "reference": "4", "checker": "exact"} for intent in intents]
    path.write_text("\n".join(map(json.dumps, tasks)), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("poison", ["zeros", "no_json", "drop"])
def test_a_task_that_is_never_embedded_is_skipped_reported_and_not_met_again(
    bank: str, server: OllamaServer, tmp_path: Path, poison: Any
) -> None:
    server.faults.poison, server.faults.answer = poison, "4"
    file = a_list(tmp_path / "tasks.jsonl", "add two and two", "a poison pill", "add 2 and 2")
    parts = ["--model", "llama3.2", "--embedder", "nomic-embed-text"]
    ended = CliRunner().invoke(cli.app, ["run", "--bank", bank, "--env", file, "--run", "r", *parts])
    assert ended.exit_code == 1 and "1 step skipped" in ended.output and "“a poison pill”" in ended.output
    assert "Saved 3 steps" in ended.output and "100.0" in ended.output, "a skipped step is no failure"
    resumed = CliRunner().invoke(cli.app, ["run", "--bank", bank, "--resume", "r", "--epochs", "2"])
    assert resumed.exit_code == 1 and "Saved 3 steps" in resumed.output
    with MemoryBank.open(bank) as kept:
        traces = kept.traces("r")
        assert [trace.ending for trace in traces] == ["success", "skipped", "success"] * 2
        skipped = traces[1]
        assert [step.outcome for step in kept.steps.found("r", [1, 2])] == ["success", "skipped"]
        assert (skipped.embed, skipped.generate, skipped.reward.reward) == (None, None, None)
        assert [op.op for op in skipped.operations] == ["NOOP"] and "poison" in skipped.reward.verdict
    assert "skipped" in printed("show", "2", "--bank", bank).lower()
    assert CliRunner().invoke(cli.app, ["doctor", "--bank", bank]).exit_code == 0


def test_steps_without_any_answer_are_counted_as_neither_success_nor_failure(
    bank: str, server: OllamaServer, tmp_path: Path
) -> None:
    file = a_list(tmp_path / "tasks.jsonl", "add two and two", "add 2 and 2")
    server.faults.answer, server.faults.thinking, server.faults.form = "hmm ", True, "hmm "
    reported = printed("run", "--bank", bank, "--env", file, "--model", "llama3.2", "--run", "r")
    assert "2 steps without any answer" in reported and "0.0 %" not in reported
    with MemoryBank.open(bank) as kept:
        assert [trace.ending for trace in kept.traces("r")] == ["no answer", "no answer"]
        assert kept.memory_count("r") == 0
        assert [step.outcome for step in kept.steps.found("r", [1, 2])] == ["no answer"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["endless", "empty", "thinking", "repeated", "no schema", "schema ignored"])
def test_no_answer_that_cannot_be_used_ends_a_run(bank: str, server: OllamaServer, fault: str) -> None:
    message = {"endless": " go", "empty": "", "thinking": "hmm ", "repeated": " a" * 60}
    server.faults.form = server.faults.answer = message.get(fault)
    server.faults.endless, server.faults.thinking = fault in ("endless", "thinking"), fault == "thinking"
    if fault == "repeated":
        server.faults.stream, server.faults.after = "no_end", 31
    if "schema" in fault:
        server.faults.schema = "refused" if fault == "no schema" else "ignored"
        server.faults.answer = "Action: wait and see"
    reported = a_run(bank)
    assert "Saved 1 step as" in reported and "Valid answers: 0.0%" in reported
    with MemoryBank.open(bank) as kept:
        trace = kept.trace(kept.runs()[0].id, 1)
        assert trace.reward.outcome == ("unrated" if fault in ("empty", "thinking") else "failure")
        replies = [turn.reply for turn in trace.generate.turns]
    assert all(reply.offered is False for reply in replies)
    if "schema" in fault:
        assert {reply.bound for reply in replies} == {fault == "schema ignored"}
        assert {note for reply in replies for note in reply.notes if "the server" in note}


@pytest.mark.slow
def test_a_model_that_is_pulled_away_ends_a_run_that_goes_on_when_it_is_back(bank: str, server: OllamaServer) -> None:
    server.faults.chats_left = 12
    ended = CliRunner().invoke(cli.app, ["run", "--bank", bank, "--tasks", "3", "--model", "llama3.2", "--run", "r"])
    assert isinstance(ended.exception, ModelMissing) and "ollama pull" in str(ended.exception)
    assert "--resume r" in ended.output
    with MemoryBank.open(bank) as kept:
        done = len(kept.traces("r"))
    assert 0 < done < 3
    server.models[LLAMA.name], server.faults.chats_left = LLAMA, 1_000_000
    printed("run", "--bank", bank, "--resume", "r")
    with MemoryBank.open(bank) as kept:
        assert len(kept.traces("r")) == 3


@pytest.mark.parametrize(
    "option",
    [
        *("temperature=3", "num_predict=0", "num_predict=many", "colour=blue"),
        *("seed=4", "num_ctx", "top_p=0", "keep_alive=soon", "stop="),
    ],
)
def test_an_option_that_cannot_be_is_a_sentence_that_names_it(bank: str, option: str) -> None:
    with pytest.raises(SettingsError, match=option.partition("=")[0]):
        a_run(bank, "--model-option", option)
    assert not Path(bank).exists()


def test_a_model_that_cannot_answer_leaves_no_bank_and_no_run(
    bank: str, server: OllamaServer, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (("--model", "mistral"), ("--model", "nomic-embed-text"), ("--embedder", "mistral")):
        with pytest.raises(ModelMissing):
            a_run(bank, *words)
    with pytest.raises(MemRLError, match="240 tasks"):
        a_run(bank, "--tasks", "9999")
    assert not Path(bank).exists()
    a_run(bank, "--embedder", "nomic-embed-text")
    monkeypatch.setenv("OLLAMA_HOST", nobody)
    for words in ((), ("--model", "simulated")):
        with pytest.raises(OllamaDown):
            a_run(bank, *words)
    with MemoryBank.open(bank) as kept:
        assert len(kept.runs()) == 1


def test_a_run_keeps_what_its_model_was_and_refuses_other_weights_under_the_name(
    bank: str, server: OllamaServer
) -> None:
    a_run(bank, "--run", "first")
    with MemoryBank.open(bank) as kept:
        facts = kept.run("first").model_facts
        assert len(facts["digest"]) == 64
        assert (facts["quantisation"], facts["server"]) == ("Q4_K_M", "Ollama 0.12.6")
    assert facts["digest"][:12] in printed("show", "1", "--bank", bank)
    printed("run", "--bank", bank, "--resume", "first", "--epochs", "2", "--batch", "1000")
    server.salt = "other weights"
    with pytest.raises(ModelChanged, match=facts["digest"][:12]):
        printed("run", "--bank", bank, "--resume", "first", "--epochs", "3")
    with MemoryBank.open(bank) as kept:
        assert kept.next_step("first") == 3
        for goes_on in (live_run, lambda b, run, p: rerunner(b, b.trace(run, 1), p).rerun(())):
            with pytest.raises(ModelChanged):
                goes_on(kept, "first", load_preferences())
    a_run(bank, "--run", "second")
