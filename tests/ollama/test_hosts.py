"""One model on several hosts, of which one is killed: steps are spread, repeated elsewhere, and never counted twice."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import Result
from typer.testing import CliRunner

from memrl_core.agent.preferences import Preferences
from memrl_core.agent.run_parts import hosts_of, make_model
from memrl_core.bank import MemoryBank
from memrl_core.cli import main as cli
from memrl_core.errors import InputError, ServerDown
from memrl_core.models.base import ModelOptions
from memrl_core.models.ollama import OllamaModel
from memrl_core.records import Message, Reply, StepTrace
from tests.ollama.server import OllamaServer

SALT = "the same weights"
HELLO = [Message("user", "Task: say hello")]
PLAN = """
title = "Two hosts"
seeds = 2
epochs = 1
model = "llama3.2"
[[arms]]
name = "no memory"
policy = "none"
[[arms]]
name = "MemRL"
[[streams]]
[[streams.stages]]
count = 2
"""


class Other:
    """A host in a process of its own, which can be killed."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "tests.ollama.server", "--port", "0", "--salt", SALT, *options]
        root = Path(__file__).resolve().parents[2]
        environment = {**os.environ, "PYTHONPATH": str(root)}
        self.process = subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().split()[-1]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def other() -> Iterator[Other]:
    running = Other("--delay", "0.03")
    yield running
    running.kill()


@pytest.fixture
def server(server: OllamaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OllamaServer:
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    monkeypatch.setattr(cli.console, "width", 1000)
    server.salt = SALT
    return server


def memrl(*words: str) -> Result:
    return CliRunner().invoke(cli.app, list(words))


def a_run(bank: Path, *hosts: str) -> Result:
    words = ("--tasks", "3", "--model", "llama3.2", "--option", "own_words=false")
    return memrl("run", "--bank", str(bank), *words, "--model-host", ",".join(hosts))


def steps(bank: Path) -> list[StepTrace]:
    with MemoryBank.open(str(bank)) as kept:
        return [kept.trace(info.id, step) for info in kept.runs() for step in range(1, kept.next_step(info.id))]


def replies(traces: list[StepTrace]) -> list[Reply]:
    return [turn.reply for trace in traces if trace.generate for turn in trace.generate.turns]


def before_chat(monkeypatch: pytest.MonkeyPatch, do: Callable[[OllamaModel, int], Any]) -> None:
    """`do` is called before each call of a model, with the number of calls before it."""
    chat, calls = OllamaModel.chat, [0]

    def counted(self: OllamaModel, *args: Any, **kwargs: Any) -> Reply:
        do(self, calls[0])
        calls[0] += 1
        return chat(self, *args, **kwargs)

    monkeypatch.setattr(OllamaModel, "chat", counted)


@pytest.mark.slow
def test_a_host_that_is_killed_in_an_answer_is_reported_once_and_the_answer_is_asked_for_elsewhere(
    tmp_path: Path, server: OllamaServer, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert a_run(tmp_path / "undisturbed", server.address).exit_code == 0
    before_chat(monkeypatch, lambda _, n: threading.Timer(0.05, other.kill).start() if n == 3 else None)
    done = a_run(tmp_path / "bank", other.address, server.address)
    assert done.exit_code == 0
    assert done.output.count(f"{other.address} is passed over") == 1
    wanted, got = steps(tmp_path / "undisturbed"), steps(tmp_path / "bank")
    assert [trace.step for trace in got] == [1, 2, 3]
    assert [reply.text for reply in replies(got)] == [reply.text for reply in replies(wanted)]
    hosts = [reply.host for reply in replies(got)]
    assert hosts == [other.address] * 3 + [server.address] * (len(hosts) - 3)
    assert f"by {server.address}" in memrl("show", "3", "--bank", str(tmp_path / "bank")).output


@pytest.mark.slow
def test_a_run_ends_when_all_hosts_are_dead_and_goes_on_when_one_is_back(
    tmp_path: Path, server: OllamaServer, other: Other, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_chat(monkeypatch, lambda _, n: other.kill() if n == 8 else None)
    bank = tmp_path / "bank"
    done = a_run(bank, nobody, other.address)
    assert isinstance(done.exception, ServerDown)
    assert nobody in str(done.exception) and other.address in str(done.exception)
    kept = len(steps(bank))
    with MemoryBank.open(str(bank)) as memory:
        run = memory.runs()[0].id
    done = memrl("run", "--bank", str(bank), "--resume", run, "--model-host", server.address)
    assert done.exit_code == 0, done.output
    assert kept < 3 and {reply.host for reply in replies(steps(bank)[kept:])} == {server.address}
    alone = a_run(tmp_path / "none", nobody)
    assert isinstance(alone.exception, ServerDown) and not (tmp_path / "none").exists()


def test_a_dead_host_is_asked_once(tmp_path: Path, server: OllamaServer, nobody: str) -> None:
    hosts, reported = hosts_of("llama3.2", [nobody, server.address], 1, tmp_path / "dead", True), list[str]()
    with hosts.reporting(reported.append):
        for _ in range(2):
            model = make_model("llama3.2", Preferences(), hosts)
            assert model.chat(HELLO, ModelOptions()).host == server.address
    assert len(reported) == 1 and nobody in reported[0] and [*hosts.passed_over()] == [nobody]


def test_no_host_has_more_answers_under_way_than_it_may(
    tmp_path: Path, server: OllamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OllamaServer() as second:
        second.salt = SALT
        under_way, most, lock, chat = dict[str, int](), dict[str, int](), threading.Lock(), OllamaModel.chat

        def watched(self: OllamaModel, *args: Any, **kwargs: Any) -> Reply:
            with lock:
                under_way[self.address] = under_way.get(self.address, 0) + 1
                most[self.address] = max(most.get(self.address, 0), under_way[self.address])
            try:
                return chat(self, *args, **kwargs)
            finally:
                with lock:
                    under_way[self.address] -= 1

        monkeypatch.setattr(OllamaModel, "chat", watched)
        hosts = hosts_of("llama3.2", [server.address, second.address], 2, tmp_path / "dead", True)
        for one in (server, second):
            one.faults.first_delay = 0.05

        def ask() -> None:
            model = make_model("llama3.2", Preferences(), hosts)
            for _ in range(3):
                assert model.chat(HELLO, ModelOptions()).host in hosts.addresses

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert most == {server.address: 2, second.address: 2}


def test_hosts_with_different_weights_are_refused_and_so_are_models_without_hosts(
    tmp_path: Path, server: OllamaServer
) -> None:
    with OllamaServer() as second:
        done = a_run(tmp_path / "bank", server.address, second.address)
        assert isinstance(done.exception, InputError) and second.address in str(done.exception)
    for model, host in (("simulated", "a"), ("gguf:smollm2", "a"), ("llama3.2", "no address")):
        done = memrl("run", "--bank", str(tmp_path / "bank"), "--model", model, "--model-host", host)
        assert isinstance(done.exception, InputError)
    assert not (tmp_path / "bank").exists()


@pytest.mark.slow
def test_cells_of_an_experiment_use_all_hosts_and_outlive_one(
    tmp_path: Path, server: OllamaServer, other: Other
) -> None:
    server.faults.delay = 0.03

    def kill() -> None:
        while len(server.asked("/api/chat")) < 3:
            time.sleep(0.01)
        other.kill()

    threading.Thread(target=kill, daemon=True).start()
    file, banks = tmp_path / "plan.toml", tmp_path / "banks"
    file.write_text(PLAN.replace("epochs", f'model_hosts = ["{other.address}", "{server.address}"]\nepochs'))
    done = memrl("experiment", str(file), "--out", str(tmp_path / "out"), "--banks", str(banks))
    assert done.exit_code == 0, done.output
    assert done.output.count(f"{other.address} is passed over") == 1
    found = pd.read_parquet(tmp_path / "out" / "steps.parquet")
    assert sorted(found.groupby(["arm", "seed"]).step.apply(list)) == [[1, 2]] * 4
    hosts = {reply.host for bank in banks.iterdir() for reply in replies(steps(bank))}
    assert hosts == {other.address, server.address}
