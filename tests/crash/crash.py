"""What is left of a bank whose process is killed in the middle of its work, again and again.

A round gives a process one kind of work on a bank that others were killed on before, kills it by SIGKILL at a random
moment, and looks: the bank opens, every fact that was acknowledged lies in its tables exactly once and is known, q
follows from the ledger by a computation of its own, what was cut short is told, and can be done again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
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
from tests.crash.whole import Acknowledged, Rows, faults
from tests.crash.work import Job, Stored, agent_of, contents_called, stored_by, stored_of, tasks_from
from tests.crash.worker import PROGRAM, Worker

SEED = 0
KINDS = ("run", "ratings", "compaction", "import", "layout")
ROUNDS_A_BANK = 25
FIRST_STEPS = 16
LONGEST = {"run": 3.0, "ratings": 0.8, "compaction": 1.2, "import": 1.6, "layout": 1.6}
"""Seconds of each kind of work within which the kill falls."""
APPENDS_PER_COMPACTION = 9
MANY_FRAGMENTS = 2
VERSIONS_KEPT = 0.5


@dataclass(frozen=True, slots=True)
class Round:
    """One kill: `seconds_alive` after the work had begun, with so many facts `acknowledged` by then.

    `unfinished` says how many steps had begun and not ended. `opened` and `opened_whole` are the seconds of opening the
    bank after the kill, and once more when all was mended and closed. `faults` are sentences, none where all is well.
    """

    number: int
    seed: int
    kind: str
    seconds_alive: float
    acknowledged: int
    unfinished: int
    opened: float
    opened_whole: float
    faults: tuple[str, ...]


def crash_rounds(
    rounds: int,
    seed: int,
    folder: Path,
    program: Sequence[str] = PROGRAM,
    on_round: Callable[[Round], None] | None = None,
) -> list[Round]:
    """Kill a process `rounds` times, the `KINDS` of work in turn, on banks made in `folder`, `ROUNDS_A_BANK` on each.

    The seed decides the work and the moment of each kill; `program` is what does the work (see `work`). `on_round`
    hears every round as it ends.
    """
    done: list[Round] = []
    waiting = working = Worker(program)

    def load_the_next() -> None:
        nonlocal waiting
        if waiting is working:
            waiting = Worker(program)

    try:
        for number in range(rounds):
            if number % ROUNDS_A_BANK == 0:
                scene = Scene.made(folder / f"bank-{number // ROUNDS_A_BANK}")
            working = waiting
            # The next one loads its libraries while this one's bank is looked at, but not while an opening is timed.
            done.append(_round(scene, working, number, seed, load_the_next))
            if on_round is not None:
                on_round(done[-1])
    finally:
        waiting.kill()
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

    def job(self, kind: str, seed: int) -> Job:
        """Work of a kind on the bank, for as long as it lives."""
        return Job(
            self.uri,
            kind,
            kind,
            seed,
            archive=str(self.archive),
            appends_per_compaction=APPENDS_PER_COMPACTION,
            many_fragments=MANY_FRAGMENTS,
            versions_kept=VERSIONS_KEPT,
        )


def drawn(kind: str, number: int, seed: int) -> tuple[float, int]:
    """After how many seconds of work a round kills, and the seed of that work."""
    rng = np.random.default_rng([seed, number])
    return float(rng.uniform(0, LONGEST[kind])), int(rng.integers(2**31))


def _round(scene: Scene, worker: Worker, number: int, seed: int, on_opened: Callable[[], None]) -> Round:
    kind = KINDS[number % len(KINDS)]
    alive, work_seed = drawn(kind, number, seed)
    reported = partial(Round, number, seed, kind, alive)
    try:
        worker.begin(scene.job(kind, work_seed))
        time.sleep(alive)
        # It was to work until it is killed: what ends before has failed.
        broke = [f"The process ended before it was killed: {_why(worker)}"] if worker.has_ended_its_work else []
    except BankError as error:
        broke = [f"The work could not begin: {error}"]
    finally:
        worker.kill()
    scene.reported += worker.reported
    acknowledged = Acknowledged.by(worker.reported).facts
    begun = time.perf_counter()
    try:
        with MemoryBank.open(scene.uri) as bank:
            opened = _folded(bank, begun)
            on_opened()
            broke += faults(bank, Rows.of(scene.uri), Acknowledged.by(scene.reported))
            unfinished = sum(_cut_short(bank, info.id) for info in bank.runs())
            broke += _done_again(scene, bank, kind, worker.reported)
            broke += faults(bank, Rows.of(scene.uri), Acknowledged.by(scene.reported))
    except MemRLError as error:
        on_opened()
        return reported(acknowledged, 0, 0.0, 0.0, (*broke, f"The bank could not be opened or written: {error}"))
    begun = time.perf_counter()
    whole = _folded(MemoryBank.open(scene.uri), begun)
    if (number + 1) % ROUNDS_A_BANK == 0:
        broke += [finding.sentence for finding in check(scene.uri) if not finding.ok]
    return reported(acknowledged, unfinished, opened, whole, tuple(dict.fromkeys(broke)))


def _why(worker: Worker) -> str:
    try:
        worker.expect("done")
    except BankError as error:
        return str(error)
    return "its work was done."


def _cut_short(bank: MemoryBank, run: str) -> int:
    """How many steps of a run are told as unfinished and were not done again by another attempt."""
    return sum(not bank.has_step(run, step) for step in bank.unfinished_steps(run))


def _folded(bank: MemoryBank, begun: float) -> float:
    """The seconds since `begun`, once q of every run is known."""
    for info in bank.runs():
        bank.utilities(info.id)
    return time.perf_counter() - begun


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
    if trace.step != number or not bank.has_step(run, number):
        return [f"Step {number} of {run} could not be done again."]
    return []


if __name__ == "__main__":  # python -m tests.crash.crash 200
    with TemporaryDirectory(ignore_cleanup_errors=True) as place:
        for one in crash_rounds(int(sys.argv[1]), SEED, Path(place)):
            print(one.number, one.kind, one.acknowledged, *one.faults)
