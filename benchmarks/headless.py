"""What a step costs without a screen: the household, the simulated model, everything recorded.

A bank is grown by really running the agent; every repetition goes on from a copy of it and does the same work. With
`BATCH` steps an append, finished steps are held back and written together: a crash of the process loses at most the
last `BATCH` steps, never a part of one, and other processes see a step once it is written. With 1, a step is written
before the next begins.

BLAS gets one thread. LanceDB has threads of its own, so the steps are counted twice: per second on the clock, and per
second of CPU time of all threads together, which is what one core can do. Opening and closing the bank stay outside.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.measuring import YARDSTICK, Aim, Row, Sizes, peak, repeated, yardstick
from memrl_core.agent import Agent
from memrl_core.bank import MemoryBank
from memrl_core.bank.places import copy_bank
from memrl_core.bank.store import Store
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments.household import Household
from memrl_core.environments.tasks import sample_tasks
from memrl_core.models.simulated import SimulatedModel
from memrl_core.records import Phase, Task
from memrl_core.workspace import start_run

NAME = "headless"
RUN = "headless"
TASKS = "household-train"
MEMORIES = 1000
STEPS = 100
BATCH = 50
AIM = Aim("value", 150, at_least=True)
PARTS = ("LanceDB", "embedding", "retrieval", "model", "environment")
REST = "everything else"


@dataclass(frozen=True, slots=True)
class Round:
    """Steps and what they took: seconds on the clock, seconds of CPU time, and the seconds on the clock by part."""

    steps: int
    wall: float
    cpu: float
    parts: Mapping[str, float]

    def share(self, part: str) -> float:
        """How much of the time on the clock a part took, in percent."""
        return 100 * self.parts[part] / self.wall


def measure(sizes: Sizes) -> list[Row]:
    """At most `STEPS` steps a repetition, on at most `MEMORIES` memories: `BATCH` steps an append, then one.

    The yardstick is taken as often after each repetition as there are repetitions, and its middle kept.
    """
    known, count = min(sizes.memories, MEMORIES), min(sizes.steps, STEPS)
    found = []
    with (
        TemporaryDirectory(prefix="memrl-bench-", ignore_cleanup_errors=True) as folder,
        threadpool_limits(limits=1, user_api="blas"),
    ):
        grown = Path(folder) / "bank"
        grow(grown, known, HashingEmbedder())
        for batch, aim in ((BATCH, AIM), (1, None)):
            with peak() as highest:
                rounds, beside = [], []
                for _ in range(1 + sizes.repeat):
                    rounds.append(go_on(grown, known, count, batch))
                    beside.append(median(repeated(yardstick, sizes.repeat)))
            size = f"{batch} {'step' if batch == 1 else 'steps'} an append"
            found += _told(rounds[1:], tuple(beside[1:]), known, size, aim, highest.mb)
    return found


def _told(
    rounds: list[Round], beside: tuple[float, ...], known: int, size: str, aim: Aim | None, peak_mb: float | None
) -> list[Row]:
    dimension = HashingEmbedder().dimension

    def each(what: str, unit: str, value: Callable[[Round], float], aim: Aim | None = None) -> Row:
        middle = median(map(value, rounds))
        return Row(NAME, what, known, dimension, value=middle, unit=unit, aim=aim, peak_mb=peak_mb, size=size)

    taken = tuple(one.wall / one.steps for one in rounds)
    return [
        Row(NAME, "a step with all recorded", known, dimension, taken, YARDSTICK, beside, peak_mb=peak_mb, size=size),
        each("steps per second", "/s", lambda one: one.steps / one.wall, aim),
        each("steps per second of CPU time", "/s", lambda one: one.steps / one.cpu),
        *(each(f"share of {part}", "%", partial(Round.share, part=part)) for part in (*PARTS, REST)),
    ]


def grow(place: Path, memories: int, embedder: HashingEmbedder) -> None:
    """Make a bank whose run `RUN` knows `memories` memories: each step writes one."""
    with MemoryBank.create(str(place), embedder.name, embedder.dimension) as bank:
        start_run(bank, environment=Household.name, tasks=TASKS, run=RUN)
        agent = Agent(bank, RUN, SimulatedModel(), embedder, Household())
        with bank.batch(BATCH):
            _run(agent, household_tasks(0, memories))


def go_on(grown: Path, known: int, steps: int, batch: int) -> Round:
    """Steps after the first `known`, on a copy of a grown bank; compaction that they set off is waited for."""
    spent = dict.fromkeys(PARTS, 0.0)
    with TemporaryDirectory(prefix="memrl-bench-", ignore_cleanup_errors=True) as folder:
        place = Path(folder) / "bank"
        copy_bank(grown, place)
        store, meta = Store.open(str(place))
        model, embedder, environment = SimulatedModel(), HashingEmbedder(), Household()
        with MemoryBank(store, meta) as bank:
            agent, tasks = Agent(bank, RUN, model, embedder, environment), household_tasks(known, steps)
            bank.view(RUN)
            clocked_in(spent, "LanceDB", store, "append", "count", "read", "close")
            clocked_in(spent, "embedding", embedder, "embed")
            clocked_in(spent, "model", model, "chat")
            clocked_in(spent, "environment", environment, "reset", "step", "distil")
            gc.collect()  # What earlier repetitions left behind is not to be cleared away in this one's time.
            wall, cpu = time.perf_counter(), time.process_time()
            with bank.batch(batch):
                spent["retrieval"] = _run(agent, tasks)
            store.close()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            return Round(steps, wall, cpu, {**spent, REST: wall - sum(spent.values())})


def _run(agent: Agent, tasks: list[Task]) -> float:
    """Run the tasks; the seconds in phases A and B."""
    return sum(trace.seconds[Phase.RECALL] + trace.seconds[Phase.SELECT] for trace in agent.run(tasks))


def household_tasks(first: int, count: int) -> list[Task]:
    """So many tasks, from number `first` on; when all have come, they come again."""
    every = sample_tasks(TASKS)
    return [every[number % len(every)] for number in range(first, first + count)]


def clocked_in(spent: dict[str, float], part: str, owner: object, *names: str) -> None:
    """From now on the owner's calls of these names add their seconds to a part."""
    for name in names:
        setattr(owner, name, _clocked(spent, part, getattr(owner, name)))


def _clocked(spent: dict[str, float], part: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def clocked(*given: Any, **named: Any) -> Any:
        begun = time.perf_counter()
        try:
            return call(*given, **named)
        finally:
            spent[part] += time.perf_counter() - begun

    return clocked
