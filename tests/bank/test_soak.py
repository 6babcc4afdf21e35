"""A process that uses one bank for long: through two handles, one of which is closed and opened again and again."""

from __future__ import annotations

import threading
from itertools import cycle, islice
from pathlib import Path

import pytest

from benchmarks.measuring import give_back, resident_mb
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.environments.tasks import sample_tasks
from tests.builders import an_agent

ROUNDS, STEPS = 12, 10
FDS = Path("/proc/self/fd")


def state() -> tuple[int, int, float]:
    """Open files, threads and resident MB of this process."""
    give_back()
    return len(list(FDS.iterdir())), threading.active_count(), resident_mb() or 0.0


@pytest.mark.slow
@pytest.mark.skipif(not FDS.is_dir(), reason="this system does not list the open files of a process")
def test_use_for_long_leaves_no_file_no_thread_and_little_memory_behind(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank")
    tasks, early = cycle(sample_tasks("household-train")), (0, 0, 0.0)
    for turn in range(ROUNDS):
        for trace in agent.run(list(islice(tasks, STEPS))):
            agent.bank.write.ratings.rate(Rating(agent.run_id, trace.step, -0.5, "rater"))
        with MemoryBank.open(agent.bank.uri) as other:
            assert other.utilities(agent.run_id) == agent.bank.utilities(agent.run_id)
        if turn == ROUNDS // 3:
            early = state()
    files, threads, mb = state()
    agent.bank.close()
    assert files <= early[0] + 4 and threads <= early[1] + 2 and mb <= early[2] + 64
