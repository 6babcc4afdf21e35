"""Several processes, killed processes and full disks: a saved reward is never lost and never counts twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.bank.people.ratings import Rating
from memrl_core.errors import BankFull
from memrl_core.records import EventKind
from tests.builders import a_bank, a_step

ROOT = str(Path(__file__).resolve().parents[3])
EACH = 60
RATER = """
import sys
sys.path.insert(0, {root!r})
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
bank = MemoryBank.open({uri!r})
who, steps = sys.argv[1], int(sys.argv[2])
for n in range({each}):
    bank.write.ratings.rate(Rating("r", 1 + n % steps, (n // steps) / 16, who))
    print(n, flush=True)
"""


@pytest.fixture
def bank(tmp_path: Path) -> MemoryBank:
    return a_bank(tmp_path / "bank")


@pytest.mark.slow
def test_four_processes_rate_many_times_each_and_none_is_lost(tmp_path: Path) -> None:
    steps = 12
    bank = a_bank(tmp_path / "bank")
    bank.write.adopt({}, [], [a_step(step)[0] for step in range(1, steps + 1)])
    script = RATER.format(root=ROOT, uri=bank.uri, each=EACH)
    people = ("ann", "bo", "cy", "di")
    raters = [
        subprocess.Popen([sys.executable, "-c", script, who, str(steps)], stdout=subprocess.DEVNULL) for who in people
    ]
    assert [rater.wait(timeout=300) for rater in raters] == [0, 0, 0, 0]
    bank.refresh()
    for who in people:
        given = [e for e in bank.events("r") if e.rater == who]
        assert len(given) == EACH
        last = [bank.ratings.mine("r", step, who).value for step in range(1, steps + 1)]
        assert last == [(EACH // steps - 1) / 16] * steps
        assert len(bank.undo.done(who)) == EACH


DOER = """
import os, signal, sys
sys.path.insert(0, {root!r})
import numpy as np
from memrl_core.bank import MemoryBank
bank = MemoryBank.open({uri!r})

class OneDirection:
    name, dimension, digest, version = "hashing-8", 8, "", ""

    def embed(self, texts):
        return np.eye(1, 8, dtype=np.float32).repeat(len(texts), axis=0)

store, left = bank.write._updates.store, int(sys.argv[1])

def until_killed(*facts):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    store(*facts)

bank.write._updates.store = until_killed
for n in range(100):
    bank.write.ratings.rate_pair(("r", 1), ("r", 2), ("first", "second")[n % 2], "ann")
    memory = list(bank.utilities("r"))[-1]
    bank.write.editing.edit("r", memory, "task 3", f"wording {{n}}", OneDirection(), "ann")
    bank.write.undo.undo("ann")
    bank.write.undo.undo("ann")
    bank.write.undo.redo("ann")
    print(n, flush=True)
"""
WRITES_A_ROUND = 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "at",
    [0, 1, 2, 4],
    ids=["anywhere", "before the pair", "between the wording and the edit", "before the undo of the pair"],
)
def test_who_is_killed_in_the_middle_of_a_action_has_done_it_whole_or_not_at_all(bank: MemoryBank, at: int) -> None:
    one, two = a_step(1), a_step(2, ("r-0001",))
    for trace, vectors in (one, (replace(two[0], task=one[0].task), two[1]), a_step(3, ("r-0002",))):
        bank.write.commit_step(trace, vectors)
    script = DOER.format(root=ROOT, uri=bank.uri)
    last = WRITES_A_ROUND + at if at else 10**6
    doer = subprocess.Popen([sys.executable, "-c", script, str(last)], stdout=subprocess.PIPE, text=True)
    while not at and int(doer.stdout.readline()) < 3:
        pass
    if not at:
        doer.kill()
    assert doer.wait(timeout=60) == -signal.SIGKILL
    doer.stdout.close()
    again = MemoryBank.open(bank.uri)
    pair = [e.value for step in (1, 2) for e in again.ratings.of("r", step) if e.rater == "ann"]
    assert pair in ([], [1.0, 0.0], [0.0, 1.0])
    edited = {i for e in again.events("r") for i in e.memory_ids if e.kind is EventKind.MEMORY_EDITED}
    orphans = set(again.memory_ids()) - {"r-0001", "r-0002", "r-0003"} - edited
    assert not orphans and len(again.utilities("r")) == 3
    assert all(finding.ok for finding in check(bank.uri))
    done, undone = (len(stack("ann")) for stack in (again.undo.done, again.undo.undone))
    for _ in range(undone):
        assert again.write.undo.redo("ann") is not None
    for _ in range(done + undone):
        assert again.write.undo.undo("ann") is not None
    assert again.write.undo.undo("ann") is None
    assert list(again.utilities("r")) == ["r-0001", "r-0002", "r-0003"]
    assert again.utilities("r") == bank.utilities("r")


def test_a_reward_that_could_not_be_saved_can_be_given_again(bank: MemoryBank, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2):
        bank.write.commit_step(*a_step(step, ("r-0001",) if step == 2 else ()))
    before = bank.utilities("r")

    def full(*_: object) -> None:
        raise BankFull("The disk is full.")

    with monkeypatch.context() as patched, pytest.raises(BankFull):
        patched.setattr(bank._database, "insert", full)
        bank.write.ratings.rate(Rating("r", 2, -1.0, "ann"))
    assert bank.utilities("r") == before
    bank.write.ratings.rate(Rating("r", 2, -1.0, "ann"))
    assert [e.value for e in MemoryBank.open(bank.uri).events("r") if e.rater == "ann"] == [-1.0]
