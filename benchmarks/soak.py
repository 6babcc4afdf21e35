"""Hours of use in minutes of a benchmark: what a process and its bank take must not grow beyond what they hold.

One process runs steps, rates them, reads on through a second handle, keeps the map, and opens and closes handles, at a
pace that a person would still call busy. Beside it the app is stepped in by two browsers at once. Memory, open files,
threads and the disk are looked at all the time; what counts is how they grow after a warm-up, by least squares.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.measuring import Aim, Row, Sizes
from benchmarks.soak_watch import Disk, Sample, Witness, disk_of, sampled, witness
from benchmarks.soaked_app import SteppedApp
from benchmarks.work import agent_of, digest, tasks_from
from memrl_core.analysis.map_layout import MapLayout
from memrl_core.bank import MemoryBank, store
from memrl_core.bank.ratings import Rating
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.errors import MemRLError

NAME = "soak"
RUN = "soak"
SECONDS_A_SAMPLE = 10.0
WITNESSES = 8
WARM_UP = 0.25
"""The part of the time that nothing is said of."""
PACE = 2.0
"""Steps a second at most."""
SINGLE, HELD = 2, 4
"""Steps of a turn that are appended one by one, and together."""
TURNS_A_MAP, TURNS_A_LOOK, TURNS_A_REOPENING = 2, 5, 10
MEMORY_MB, FILES, THREADS, DISK = 64.0, 8.0, 12.0, 3.0
APP_MEMORY_MB, APP_FILES, APP_THREADS = 256.0, 24.0, 12.0
HERE, APP = "this process", "the app"


@dataclass(slots=True)
class Soaked:
    """What a soak of so many `seconds` saw; `failures` are sentences."""

    seconds: float
    steps: int = 0
    ratings: int = 0
    clicks: int = 0
    samples: list[Sample] = field(default_factory=list)
    disks: list[Disk] = field(default_factory=list)
    witnesses: list[Witness] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def measure(sizes: Sizes) -> list[Row]:
    """So many minutes, with two browsers. Raises `InputError` where Playwright or Chromium is missing."""
    return rows_of(soak(sizes.minutes))


def soak(
    minutes: float, *, browsers: bool = True, witnesses: int = WITNESSES, every: float = SECONDS_A_SAMPLE
) -> Soaked:
    """Use a new bank for so long, and the app too unless there are to be no `browsers`.

    A sample is taken `every` so many seconds; `witnesses` new processes open the same bank in between, to see what its
    facts alone take. Raises `InputError` where Playwright or Chromium is missing.
    """
    found = Soaked(60 * minutes)
    with TemporaryDirectory(prefix="memrl-bench-", ignore_cleanup_errors=True) as folder, _versions_kept(minutes):
        app = SteppedApp() if browsers else None
        try:
            _use(Path(folder) / "bank", found, app, _moments(found.seconds, witnesses), every)
        finally:
            if app is not None:
                found.clicks, failures = app.end()
                found.failures += failures
    return found


def rows_of(found: Soaked) -> list[Row]:
    """What a soak has shown, with what it has to keep to; failures are printed."""
    for failure in found.failures:
        print(failure)
    size = f"{found.seconds / 60:g} minutes, {found.steps:,} steps, {found.clicks:,} clicks"
    warm = WARM_UP * found.seconds

    def row(what: str, value: float, unit: str = "", aim: Aim | None = None, of: str = HERE) -> Row:
        highest = max((sample.resident_mb for sample in found.samples if sample.of == of), default=None)
        return Row(NAME, what, found.steps, None, value=value, unit=unit, aim=aim, peak_mb=highest, size=size)

    def growth(of: str, what: str, value: Callable[[Sample], float], unit: str, limit: float | None) -> Row:
        points = [(s.at, value(s)) for s in found.samples if s.of == of and s.at >= warm]
        aim = None if limit is None else Aim("value", limit)
        return row(f"{what} of {of}, growth", grown(points), unit, aim, of)

    seen = [one for one in found.witnesses if one.at >= warm]
    beyond = grown([(one.at, one.resident_mb - one.fresh_mb) for one in seen])
    rows = [
        row("steps", found.steps),
        row("ratings", found.ratings),
        growth(HERE, "memory", lambda s: s.resident_mb, "MB", None),
        row("memory beyond what a new process takes for the bank, growth", beyond, "MB", Aim("value", MEMORY_MB)),
        growth(HERE, "open files", lambda s: s.files, "", FILES),
        growth(HERE, "threads", lambda s: s.threads, "", THREADS),
        row("disk for each byte of facts", max(one.share for one in found.disks), "×", Aim("value", DISK)),
        row("failures", len(found.failures), "", Aim("value", 0)),
    ]
    if any(sample.of == APP for sample in found.samples):
        rows += [
            row("clicks on Step, in two browsers", found.clicks, "", Aim("value", 1, at_least=True), APP),
            growth(APP, "memory", lambda s: s.resident_mb, "MB", APP_MEMORY_MB),
            growth(APP, "open files", lambda s: s.files, "", APP_FILES),
            growth(APP, "threads", lambda s: s.threads, "", APP_THREADS),
        ]
    return rows


def grown(points: Sequence[tuple[float, float]]) -> float:
    """How much (seconds, value) points grew from the first to the last, by the line of least squares through them."""
    if len(points) < 2:
        return 0.0
    at, values = np.array(points).T
    return float(np.polyfit(at - at[0], values, 1)[0] * (at[-1] - at[0]))


@contextmanager
def _versions_kept(minutes: float) -> Iterator[None]:
    """In a short soak, old versions of tables are kept for less long: for a sixth of it."""
    before = store.KEEP_VERSIONS
    store.KEEP_VERSIONS = min(before, timedelta(minutes=minutes / 6))
    try:
        yield
    finally:
        store.KEEP_VERSIONS = before


def _moments(seconds: float, count: int) -> list[float]:
    return [float(at) for at in np.linspace(WARM_UP * seconds, seconds, count)]


def _use(place: Path, found: Soaked, app: SteppedApp | None, moments: list[float], every: float) -> None:
    embedder = HashingEmbedder()
    MemoryBank.create(str(place), embedder.name, embedder.dimension).close()
    user = _User(str(place))
    begun, next_sample = time.monotonic(), 0.0
    try:
        while (at := time.monotonic() - begun) < found.seconds or moments:
            found.failures += user.turn()
            if at >= next_sample:
                next_sample = at + every
                found.samples.append(sampled(HERE, at))
                if app is not None:
                    found.samples.append(sampled(APP, at, app.process))
            if moments and at >= moments[0]:
                moments.pop(0)
                found.witnesses.append(seen := witness(str(place), at))
                found.disks.append(disk_of(place, seen))
            time.sleep(max(0.0, begun + user.steps / PACE - time.monotonic()))
    except MemRLError as error:
        found.failures.append(str(error))
    finally:
        found.steps, found.ratings = user.steps, user.ratings
        user.close()


class _User:
    """Somebody who works on one bank through two handles, one of which is closed and opened again."""

    def __init__(self, uri: str) -> None:
        self.steps = self.ratings = self._turns = 0
        self._uri = uri
        self._open()
        self._other = MemoryBank.open(uri)
        self._map = MapLayout(self._other)

    def _open(self) -> None:
        self._bank = MemoryBank.open(self._uri)
        self._agent = agent_of(self._bank, RUN)
        self._tasks = tasks_from(self._bank.next_step(RUN))

    def turn(self) -> list[str]:
        """Some steps and all that people do around them; what went wrong."""
        self._turns += 1
        traces = list(self._agent.run(list(islice(self._tasks, SINGLE))))
        with self._bank.batch(HELD):
            traces += self._agent.run(list(islice(self._tasks, HELD)))
        self.steps += len(traces)
        self._other.refresh()
        for bank, person, trace in ((self._bank, "ann", traces[0]), (self._other, "bo", traces[-1])):
            bank.ratings.rate(Rating(RUN, trace.step, (-1.0, 0.5, 1.0)[self._turns % 3], person))
            self.ratings += 1
        self._other.view(RUN)
        if self._turns % TURNS_A_MAP == 0:
            self._map.places()
        if self._turns % TURNS_A_LOOK == 0:
            with MemoryBank.open(self._uri) as passing:
                passing.view(RUN)
        if self._turns % TURNS_A_REOPENING == 0:
            self._bank.close()
            self._open()
            self._other.refresh()
            if digest(self._bank) != digest(self._other):
                return [f"After {self.steps} steps two handles know different things."]
        return [self._map.error] if self._map.error else []

    def close(self) -> None:
        self._map.close()
        self._map.wait()
        self._bank.close()
        self._other.close()
