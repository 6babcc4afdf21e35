"""Pool sizes and what came of them, held against the whole traces of a run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from memrl_core.analysis.memory.uses import attempts
from memrl_core.analysis.run.over_time import fallback
from memrl_core.environments.tasks import sample_tasks
from tests.builders import a_bank, a_step, an_agent


def test_pool_sizes_are_counted_as_the_traces_say(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank", k1=4, delta=0.6)
    list(agent.run(sample_tasks("household-train")[:12], epochs=3))
    traces = agent.bank.traces("r")
    found = fallback(attempts(agent.bank, "r"))
    sizes = Counter(len(t.recall.pool) for t in traces)
    won = Counter(len(t.recall.pool) for t in traces if t.reward.outcome == "success")
    assert dict(zip(found.sizes["pool"], found.sizes["steps"], strict=True)) == dict(sorted(sizes.items()))
    assert list(found.sizes["successes"]) == [won[size] for size in found.sizes["pool"]]
    empty = [t for t in traces if t.decision.mode == "fallback"]
    assert 0 < len(empty) < len(traces)
    assert (found.steps, found.empty_steps) == (len(traces), len(empty))
    assert (found.empty.n, found.empty.successes) == (sizes[0], won[0])
    assert found.filled.n == len(traces) - len(empty)
    assert found.filled.share == pytest.approx((sum(won.values()) - won[0]) / found.filled.n)


def test_steps_without_a_decision_do_not_count(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    for step in (1, 2):
        bank.commit_step(*a_step(step))
    table = attempts(bank, "r")
    assert list(table["selected"]) == [None, None]
    found = fallback(table)
    assert (found.steps, found.empty_steps, found.empty.n, len(found.sizes)) == (0, 0, 0, 0)
