"""A whole run decided again: against the run itself, and against a real run under the other settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memrl_core.analysis.compare.counterfactual import Supposed, counterfactual
from memrl_core.analysis.decision.whatif import decided, situation_of
from memrl_core.bank import MemoryBank
from memrl_core.environments.tasks import sample_tasks
from memrl_core.records import Phase
from tests.builders import a_bank, a_run, a_step, an_agent

STEPS = 40
OWN = {"epsilon": 0.2, "delta": 0.1}


def _run(path: Path, steps: int = STEPS, **settings: Any) -> MemoryBank:
    agent = an_agent(path, **settings)
    list(agent.run(sample_tasks("household-train")[:steps]))
    return agent.bank


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    return _run(tmp_path_factory.mktemp("learned") / "bank", **OWN)


def _under(bank: MemoryBank, **changes: Any) -> list[Supposed]:
    return counterfactual(bank, "r", {**bank.settings("r"), **changes})


def test_under_its_own_settings_every_step_decides_as_it_did(learned: MemoryBank) -> None:
    supposed = _under(learned)
    assert [s.step for s in supposed] == list(range(1, STEPS + 1))
    assert any(s.decision.mode == "explore" for s in supposed)
    for s in supposed:
        trace = learned.trace("r", s.step)
        assert trace.decision is not None
        assert (s.recall, s.decision) == (trace.recall, trace.decision)
        assert s.recorded == s.selected == trace.decision.selected
        assert (s.task, s.differs, s.entered, s.left) == (trace.task.id, False, (), ())


@pytest.mark.parametrize(
    "changes",
    [
        {"weight": 1.0},
        {"weight": 0.0},
        {"k2": 1},
        {"k1": 3, "k2": 2},
        {"delta": 0.6},
        {"normaliser": "fixed"},
        {"epsilon": 0.6},
        {"k1": 2, "k2": 2, "k1_counts": "intent"},
    ],
)
def test_the_first_step_that_differs_is_where_a_real_run_parts(
    learned: MemoryBank, tmp_path: Path, changes: dict[str, Any]
) -> None:
    supposed = _under(learned, **changes)
    parts = next(s for s in supposed if s.selected != s.recorded)
    assert parts.step < STEPS
    real = _run(tmp_path / "bank", parts.step, **{**OWN, **changes})
    for s in supposed[: parts.step]:
        trace = real.trace("r", s.step)
        assert s.selected == trace.decision.selected
        assert (s.recall, s.decision) == (trace.recall, trace.decision)


def test_each_step_is_decided_as_when_asked_alone(learned: MemoryBank) -> None:
    settings = {**learned.settings("r"), "weight": 0.9, "k1": 5}
    for s in counterfactual(learned, "r", settings):
        recall, decision = decided(situation_of(learned, learned.trace("r", s.step)), settings)
        assert (s.recall, s.decision) == (recall, decision)
        assert set(s.entered) == set(s.selected) - set(s.recorded)
        assert set(s.left) == set(s.recorded) - set(s.selected)
        assert s.differs == bool(s.entered or s.left)


def test_a_reward_that_came_while_a_step_was_under_way_counts_as_it_did(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank", k2=2, weight=1.0, delta=-1.0)
    tasks = sample_tasks("household-train")
    traces = list(agent.run(tasks[:12]))
    for number, task in enumerate(tasks[12:20]):
        episode, earlier = agent.begin(task), traces[-1]
        assert earlier.decision is not None
        for phase in (Phase.EMBED, Phase.RECALL):
            if number % 2 == (phase is Phase.RECALL):
                agent.bank.give_reward("r", earlier.step, earlier.id, earlier.decision.selected, -9.0, "ann")
            episode.advance()
        traces.append(episode.finish())
    for s in counterfactual(agent.bank, "r", agent.bank.settings("r")):
        trace = agent.bank.trace("r", s.step)
        assert s.selected == trace.decision.selected
        assert [(c.q, c.score) for c in s.decision.candidates] == [(c.q, c.score) for c in trace.decision.candidates]


def test_progress_counts_and_cancel_keeps_what_was_done(learned: MemoryBank) -> None:
    settings = {**learned.settings("r"), "weight": 0.0}
    seen: list[int] = []
    whole = counterfactual(learned, "r", settings, seen.append)
    assert seen == list(range(1, STEPS + 1))
    seen.clear()
    part = counterfactual(learned, "r", settings, seen.append, lambda: len(seen) >= 7)
    assert seen == list(range(1, 8))
    assert part == whole[:7]
    assert counterfactual(learned, "r", settings, cancelled=lambda: True) == []
    assert learned.next_step("r") == STEPS + 1


def test_nothing_is_decided_where_nothing_was_recorded(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    assert counterfactual(bank, "r", bank.settings("r")) == []
    bank.commit_step(*a_step(1))
    assert counterfactual(bank, "r", bank.settings("r")) == []


def test_a_fork_is_decided_from_what_it_knew(learned: MemoryBank, tmp_path: Path) -> None:
    bank = _run(tmp_path / "bank", 12)
    agent = an_agent(tmp_path / "unused")
    agent.bank, agent.run_id = bank, "fork"
    fork = a_run("fork", base="r", base_step=8, weight=0.8)
    bank.start_run(replace(fork, first_step=9, embedder=bank.embedder.name))
    list(agent.run(sample_tasks("household-train")[8:14]))
    supposed = counterfactual(bank, "fork", bank.settings("fork"))
    assert [s.step for s in supposed] == list(range(9, 15))
    assert all(s.selected == s.recorded for s in supposed)
    assert any(memory.startswith("r-") for s in supposed for memory in s.selected)
