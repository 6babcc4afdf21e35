"""What is left of a bank whose process is killed in the middle of its work, again and again.

A round gives a process one kind of work on a bank that others were killed on before, kills it by SIGKILL at a random
moment, and looks: the bank opens, every fact that was acknowledged lies in its tables exactly once and is known, q
follows from the ledger by a computation of its own, the doctor finds nothing amiss, and what was cut short can be done
again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.errors import BankError, MemRLError
from memrl_core.exchange.archive import read_bank, write_bank
from memrl_core.exchange.bring_in import bring_in
from tests.crash.whole import Rows, acknowledged_by, count_of, faults
from tests.crash.work import Job, Stored, agent_of, contents_called, stored_by, stored_of, tasks_from
from tests.crash.worker import PROGRAM, Worker

SEED = 0
KINDS = ("run", "ratings", "compaction", "import", "layout")
ROUNDS_A_BANK = 25
FIRST_STEPS = 16
LONGEST = {"run": 3.0, "ratings": 0.8, "compaction": 1.2, "import": 1.6, "layout": 1.6}
"""Seconds of each kind of work within which the kill falls."""


@dataclass(frozen=True, slots=True)
class Round:
    """One kill: with so many facts `acknowledged` by then; `faults` are sentences, none where all is well."""

    number: int
    kind: str
    acknowledged: int
    faults: tuple[str, ...]


def crash_rounds(rounds: int, seed: int, folder: Path, program: Sequence[str] = PROGRAM) -> list[Round]:
    """Kill a process `rounds` times, the `KINDS` of work in turn, on banks made in `folder`, `ROUNDS_A_BANK` on each.

    The seed decides the work and the moment of each kill; `program` is what does the work (see `work`).
    """
    done: list[Round] = []
    for number in range(rounds):
        if number % ROUNDS_A_BANK == 0:
            scene = Scene.made(folder / f"bank-{number // ROUNDS_A_BANK}")
        worker = Worker(program)
        try:
            done.append(_round(scene, worker, number, seed))
        finally:
            worker.kill()
    return done


@dataclass(slots=True)
class Scene:
    """A bank on which processes are killed, the file that imports take in, and all that was ever acknowledged."""

    uri: str
    archive: Path
    reported: list[Stored] = field(default_factory=list)

    @classmethod
    def made(cls, folder: Path) -> Scene:
        """A new bank in `folder` with some steps of each run that goes on, and a file of the same."""
        scene = cls(str(folder / "bank"), folder / "bank.zip")
        embedder = HashingEmbedder()
        folder.mkdir()
        with MemoryBank.create(scene.uri, embedder.name, embedder.dimension) as bank:
            for run in ("run", "compaction"):
                agent = agent_of(bank, run)
                scene.reported.append(stored_by(agent.run(list(islice(tasks_from(0), FIRST_STEPS)))))
                if not scene.archive.exists():
                    write_bank(bank, scene.archive)
        return scene


def drawn(kind: str, number: int, seed: int) -> tuple[float, int]:
    """After how many seconds of work a round kills, and the seed of that work."""
    rng = np.random.default_rng([seed, number])
    return float(rng.uniform(0, LONGEST[kind])), int(rng.integers(2**31))


def _round(scene: Scene, worker: Worker, number: int, seed: int) -> Round:
    kind = KINDS[number % len(KINDS)]
    alive, work_seed = drawn(kind, number, seed)
    try:
        worker.begin(Job(scene.uri, kind, kind, work_seed, archive=str(scene.archive)))
        time.sleep(alive)
        # It was to work until it is killed: what ends before has failed.
        broke = [f"The process ended before it was killed: {_why(worker)}"] if worker.has_ended_its_work else []
    except BankError as error:
        broke = [f"The work could not begin: {error}"]
    finally:
        worker.kill()
    scene.reported += worker.reported
    try:
        with MemoryBank.open(scene.uri) as bank:
            broke += faults(bank, Rows.of(scene.uri), acknowledged_by(scene.reported))
            broke += _done_again(scene, bank, kind, worker.reported)
            broke += faults(bank, Rows.of(scene.uri), acknowledged_by(scene.reported))
    except MemRLError as error:
        broke.append(f"The bank could not be opened or written: {error}")
    broke += [finding.sentence for finding in check(scene.uri) if not finding.ok]
    return Round(number, kind, count_of(acknowledged_by(worker.reported)), tuple(dict.fromkeys(broke)))


def _why(worker: Worker) -> str:
    try:
        worker.expect("done")
    except BankError as error:
        return str(error)
    return "its work was done."


def _done_again(scene: Scene, bank: MemoryBank, kind: str, reported: Sequence[Stored]) -> list[str]:
    """Do what was cut short once more; what is wrong with that."""
    if kind in ("run", "compaction"):
        return _next_step(scene, bank, kind)
    begun = [one.begun for one in reported if one.begun]
    if kind == "import" and begun:
        contents = contents_called(read_bank(scene.archive), begun[-1])
        arrived = bring_in(contents, scene.uri)
        bank.refresh()
        scene.reported.append(stored_of(contents))
        if arrived.renamed_memories or arrived.renamed_runs:
            return ["An import that was cut short came a second time under other names."]
    if kind == "layout":
        newest = bank.layouts.newest()
        if newest is not None and not newest.fitted:
            return ["The newest map was fitted on nothing."]
    return []


def _next_step(scene: Scene, bank: MemoryBank, run: str) -> list[str]:
    number = bank.next_step(run)
    (trace,) = agent_of(bank, run).run(list(islice(tasks_from(number), 1)))
    scene.reported.append(stored_by([trace]))
    if trace.step != number or not bank.steps.has(run, number):
        return [f"Step {number} of {run} could not be done again."]
    return []


if __name__ == "__main__":  # python -m tests.crash.crash 200
    with TemporaryDirectory(ignore_cleanup_errors=True) as place:
        for one in crash_rounds(int(sys.argv[1]), SEED, Path(place)):
            print(one.number, one.kind, one.acknowledged, *one.faults)
