"""Several processes at work on one bank, as the benchmark lets them, and what it says when one of them fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.crash.processes import together

BROKEN = """
from memrl_core.bank.storage.vectors import LanceVectors
from tests.crash import work
LanceVectors.append = lambda vectors, rows: None
work.main()
"""


@pytest.mark.slow
def test_a_run_a_compacting_run_a_recorder_and_a_rater_lose_nothing_and_agree(tmp_path: Path) -> None:
    found = together(("run", "compaction", "record", "ratings"), 12, tmp_path)
    assert found.failures == ()
    assert (found.lost, found.doubled, found.unseen) == ((), (), 0)
    assert len(found.digests) == 6 and len(set(found.digests)) == 1
    assert found.acknowledged > 100 and found.looks > 0


@pytest.mark.slow
def test_a_process_that_drops_a_write_is_found_out(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text(BROKEN)
    found = together(("record",), 4, tmp_path, (sys.executable, str(script)))
    assert len(found.lost) == 4
    assert found.unseen > 0 or len(set(found.digests)) > 1


def test_a_process_that_cannot_begin_is_a_failure_and_not_a_hang(tmp_path: Path) -> None:
    found = together(("run",), 1, tmp_path, (sys.executable, "-c", "raise SystemExit('no work today')"))
    assert any("no work today" in failure for failure in found.failures)
