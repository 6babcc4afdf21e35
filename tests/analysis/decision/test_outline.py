"""A run epoch by epoch: what a resumed run has solved counts from its first step."""

from pathlib import Path

import pytest

from memrl_core.analysis.decision.outline import by_epoch
from tests.builders import an_agent_after


def test_what_was_solved_before_a_run_was_resumed_counts(tmp_path: Path) -> None:
    agent = an_agent_after(tmp_path / "bank", tasks=12, epochs=3)
    with agent.bank as bank:
        traces, rows = list(bank.traces("r")), bank.steps.rows("r")
    whole = by_epoch(traces).set_index("epoch")
    assert whole.solved.iloc[-1] > 0
    for before in (12, 18):  # between two epochs, and within one
        resumed = by_epoch(traces[before:], rows[:before]).set_index("epoch")
        assert list(resumed.index) == [2, 3]
        assert resumed.solved.to_list() == pytest.approx(whole.solved.loc[[2, 3]].to_list())
    won = {trace.task.id for trace in traces if trace.reward and trace.reward.outcome == "success"}
    assert whole.solved.iloc[-1] == pytest.approx(len(won) / 12)
