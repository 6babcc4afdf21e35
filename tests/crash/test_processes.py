"""Several processes on one bank: nothing is lost or doubled, all come to know the same, and compaction hurts nobody.

Two to four of them work at once (a headless run, one that compacts all the time under a run of its own, a recorder, a
person who rates) while this process looks on through a handle of its own, as the app does. Meanwhile everything that
they acknowledged has to be known after a refresh; in the end it lies in the tables once, and every handle knows the
same memories, steps and q.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from memrl_core.bank import MemoryBank
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.errors import BankError, MemRLError
from tests.crash.whole import Facts, Rows, acknowledged_by, count_of, faults, unknown_to
from tests.crash.work import Job, digest
from tests.crash.worker import PROGRAM, Worker

BETWEEN_LOOKS = 0.05


@dataclass(frozen=True, slots=True)
class Together:
    """What became of several processes on one bank: ids `lost`, `doubled`, and those a refreshed handle did not know.

    `digests` are what each handle knew in the end, this process's first and a new one's last. `failures` are sentences.
    """

    acknowledged: int
    looks: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    unseen: int
    digests: tuple[str, ...]
    failures: tuple[str, ...]


def together(kinds: Sequence[str], turns: int, folder: Path, program: Sequence[str] = PROGRAM) -> Together:
    """Let one process a kind of work (of `work.KINDS`) do so many turns at once, on a new bank in `folder`."""
    embedder = HashingEmbedder()
    uri = str(folder / "bank")
    with MemoryBank.create(uri, embedder.name, embedder.dimension) as bank:
        workers = [Worker(program) for _ in kinds]
        try:
            return _followed(bank, workers, [Job(uri, kind, kind, turns=turns) for kind in kinds])
        finally:
            for worker in workers:
                worker.kill()


def _followed(bank: MemoryBank, workers: Sequence[Worker], jobs: Sequence[Job]) -> Together:
    def acknowledged() -> Facts:
        return acknowledged_by(reported for worker in workers for reported in tuple(worker.reported))

    failures: list[str] = []
    looks = unseen = 0
    digests: list[str] = []
    try:
        for worker, job in zip(workers, jobs, strict=True):
            worker.begin(job)
        while not all(worker.has_ended_its_work for worker in workers):
            # What was acknowledged before the refresh is known after it.
            before = acknowledged()
            bank.refresh()
            unseen += len(unknown_to(bank, before))
            looks += 1
            time.sleep(BETWEEN_LOOKS)
        for worker in workers:
            worker.expect("done")
        bank.refresh()
        digests = [digest(bank), *(worker.known() for worker in workers)]
        failures += [f"A process ended with code {code}." for worker in workers if (code := worker.end())]
        bank.refresh()
        digests.append(digest(MemoryBank.open(bank.uri)))
    except (BankError, MemRLError) as error:
        failures.append(str(error))
    facts, rows = acknowledged(), Rows.of(bank.uri)
    failures += faults(bank, rows, facts)
    lost, doubled = tuple(rows.lost(facts)), tuple(rows.doubled())
    return Together(count_of(facts), looks, lost, doubled, unseen, tuple(digests), tuple(failures))


@pytest.mark.slow
def test_a_run_a_compacting_run_a_recorder_and_a_rater_lose_nothing_and_agree(tmp_path: Path) -> None:
    found = together(("run", "compaction", "record", "ratings"), 12, tmp_path)
    assert found.failures == ()
    assert (found.lost, found.doubled, found.unseen) == ((), (), 0)
    assert len(found.digests) == 6 and len(set(found.digests)) == 1
    assert found.acknowledged > 100 and found.looks > 0
