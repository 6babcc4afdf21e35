"""`memrl reembed`: a bank with the vectors of another embedder, and everything else as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from memrl_core.agent import Agent
from memrl_core.analysis.compare.counterfactual import counterfactual
from memrl_core.analysis.decision.whatif import decided, situation_of
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.cli import main as cli
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.embedders.wordllama import WordLlamaEmbedder
from memrl_core.environments import make_environment
from memrl_core.environments.tasks import named_tasks, sample_tasks
from memrl_core.errors import EmbedderMismatch, InputError, ModelError
from memrl_core.exchange.new_banks import reembed
from memrl_core.models.simulated import SimulatedModel
from memrl_core.policies import settings_of, usable_policies
from tests.builders import a_run, an_agent
from tests.cli.conftest import memrl, printed
from tests.ollama.server import OllamaServer
from tests.small_banks import give_reward

TASKS = sample_tasks("household-train")
MESSAGES = named_tasks("helpdesk-train")[:10]


@pytest.fixture
def bank(tmp_path: Path) -> MemoryBank:
    """Seven steps, one with a person's reward, and a fork."""
    agent = an_agent(tmp_path / "bank", delta=0.0)
    last = list(agent.run(TASKS[:7]))[-1]
    give_reward(agent.bank, "r", 7, last.id, last.reward.credited, 0.25, "Ada", "half right")
    agent.bank.write.start_run(
        replace(a_run("fork", base="r", base_step=4), embedder=agent.bank.embedder.name, first_step=5)
    )
    return agent.bank


def as_written(bank: MemoryBank) -> Any:
    """All that is no vector."""
    runs = [info.id for info in bank.runs()]
    traces = [replace(trace, embed=None) for run in runs for trace in bank.traces(run)]
    return bank.memories(), bank.events(), traces, {run: dict(bank.utilities(run)) for run in runs}


def test_all_but_the_vectors_is_as_it_was(bank: MemoryBank, tmp_path: Path) -> None:
    reported: list[tuple[int, int]] = []
    done = reembed(bank, WordLlamaEmbedder(), str(tmp_path / "new"), lambda *now: reported.append(now))
    assert (done.memories, done.steps, done.runs) == (7, 7, ())
    assert reported[-1][0] == reported[-1][1]
    with MemoryBank.open(str(tmp_path / "new"), WordLlamaEmbedder()) as new:
        assert as_written(new) == as_written(bank)
        assert new.embedder.before == ("hashing-1024",) and new.embedder.digest == WordLlamaEmbedder().digest
        for memory in new.memories():
            assert np.array_equal(new.embedding(memory.id), WordLlamaEmbedder().embed([memory.intent])[0])
        embed = new.trace("r", 3).embed
        assert (embed.embedder, embed.decided_by) == ("wordllama-256", "hashing-1024")
        assert embed.embedding == tuple(map(float, WordLlamaEmbedder().embed([TASKS[2].intent])[0]))
    assert all(finding.ok for finding in check(str(tmp_path / "new")))
    assert bank.embedder.name == "hashing-1024" and all(finding.ok for finding in check(bank.uri))


def test_the_run_goes_on_and_only_its_new_steps_can_be_decided_again(bank: MemoryBank, tmp_path: Path) -> None:
    reembed(bank, WordLlamaEmbedder(), str(tmp_path / "new"))
    with MemoryBank.open(str(tmp_path / "new")) as new:
        agent = Agent(new, "r", SimulatedModel(), WordLlamaEmbedder(), make_environment("household"))
        (trace,) = agent.run(TASKS[7:8])
        assert trace.recall.pool and trace.decision is not None
        assert set(decided(situation_of(new, trace))[1].selected) == set(trace.decision.selected)
        with pytest.raises(InputError, match="hashing-1024"):
            situation_of(new, new.trace("r", 7))
        supposed = counterfactual(new, "r", {})
        assert [one.step for one in supposed] == [8] and not supposed[0].differs


@pytest.mark.parametrize("fails", ["cancelled", "not a number"])
def test_what_is_cancelled_or_fails_leaves_nothing(
    bank: MemoryBank, tmp_path: Path, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = as_written(bank)
    embedder = HashingEmbedder(64)
    if fails == "cancelled":
        assert reembed(bank, embedder, str(tmp_path / "new"), cancelled=lambda: True) is None
    else:
        monkeypatch.setattr(embedder, "embed", lambda texts: np.full((len(texts), 64), np.nan))
        with pytest.raises(ModelError):
            reembed(bank, embedder, str(tmp_path / "new"))
    assert [path.name for path in tmp_path.iterdir()] == ["bank"]
    assert as_written(MemoryBank.open(bank.uri)) == before


@pytest.mark.parametrize("place", ["{tmp}/taken", "s3://bucket/new"])
def test_a_place_that_cannot_be_had_is_refused_before_a_text_is_embedded(
    bank: MemoryBank, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    before = sorted(path.name for path in tmp_path.iterdir())
    words = ["reembed", "--bank", bank.uri, "--embedder", "hashing", "--to", place.format(tmp=tmp_path)]
    done = CliRunner().invoke(cli.app, words)
    assert isinstance(done.exception, InputError)
    assert done.output == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize("policy", usable_policies())
def test_vectors_are_those_that_the_policy_would_have_made(tmp_path: Path, policy: str) -> None:
    """Back with the first embedder, every memory and every step has the vector that the policy gave it."""
    agent = an_agent(tmp_path / "bank", environment="helpdesk")
    own = replace(agent.bank.run("r"), id="own", policy=policy, settings=settings_of(policy, {}).model_dump())
    agent.bank.write.start_run(own)
    list(Agent(agent.bank, "own", SimulatedModel(), agent.embedder, agent.environment).run(MESSAGES, epochs=2))
    reembed(agent.bank, WordLlamaEmbedder(), str(tmp_path / "other"))
    with MemoryBank.open(str(tmp_path / "other")) as other:
        reembed(other, agent.embedder, str(tmp_path / "back"))
    with MemoryBank.open(str(tmp_path / "back")) as back:
        assert (len(back.memories()) > 0) == (policy not in ("none", "pass_at_k"))
        for memory in back.memories():
            assert np.array_equal(back.embedding(memory.id), agent.bank.embedding(memory.id)), memory
        for step in range(1, 2 * len(MESSAGES) + 1):
            assert back.trace("own", step).embed.embedding == agent.bank.trace("own", step).embed.embedding


@pytest.mark.slow
def test_the_remedy_for_other_weights_under_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path / "home"))
    old, new = str(tmp_path / "old"), str(tmp_path / "old-nomic-embed-text")
    with OllamaServer() as server:
        monkeypatch.setenv("OLLAMA_HOST", server.address)
        printed("run", "--tasks", "2", "--bank", old, "--embedder", "nomic-embed-text", "--run", "r")
        server.salt = "other weights"
        with pytest.raises(EmbedderMismatch, match=f"memrl reembed --bank {old} --embedder nomic-embed-text"):
            printed("run", "--tasks", "1", "--bank", old)
        assert memrl("doctor", "--bank", old)[0] == 2
        printed("reembed", "--bank", old, "--embedder", "nomic-embed-text")
        printed("doctor", "--bank", new)
        printed("run", "--bank", new, "--resume", "r", "--epochs", "2")
    with MemoryBank.open(old) as before, MemoryBank.open(new) as after:
        assert before.embedder.digest != after.embedder.digest
        assert (before.next_step("r"), after.next_step("r")) == (3, 5)
