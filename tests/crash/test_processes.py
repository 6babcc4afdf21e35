"""Several processes at work on one bank, as the benchmark lets them, and what it says when one of them fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.processes import together


@pytest.mark.slow
def test_a_run_a_compacting_run_a_recorder_and_a_rater_lose_nothing_and_agree(tmp_path: Path) -> None:
    found = together(("run", "compaction", "record", "ratings"), 12, tmp_path)
    assert found.failures == ()
    assert (found.lost, found.doubled, found.unseen) == ((), (), 0)
    assert len(found.digests) == 6 and len(set(found.digests)) == 1
    assert found.acknowledged > 100 and found.looks > 0
