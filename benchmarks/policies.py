"""What each method takes to choose from a pool, and what one lesson takes those that learn parameters.

Every method goes on for some steps from the same household memories, so that it has learned something, and then selects
from the same number of candidates for tasks to come. Methods that ask the model before they select are not here: their
time is the model's. BLAS gets one thread, because on a busy machine its threads wait for each other.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.measuring import YARDSTICK, Aim, Row, Sizes, peak, seconds, yardstick
from memrl_core.agent import Agent
from memrl_core.agent.learned_state import learned_now
from memrl_core.agent.runs import start_run
from memrl_core.bank import MemoryBank
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments.household import Household
from memrl_core.environments.tasks import sample_tasks
from memrl_core.models.simulated import SimulatedModel
from memrl_core.policies import POLICIES, make_policy
from memrl_core.policies.base import Lesson, Policy
from memrl_core.records import RecallRecord, StepTrace, Task
from memrl_core.retrieval import recall
from memrl_core.retrieval.view import Asked, MemoryView

NAME = "policies"
BASE = "base"
TASKS = "household-train"
POOL = 200
OWN_STEPS = 20
QUERIES = 20
SELECT_AIM = Aim("median_s", 0.002)
LEARN_AIM = Aim("median_s", 0.005)
READS = ("similar", "kernel", "network")
PARAMETRIC = ("kernel", "network", "matrices")
Action = Callable[[], object]


def arms() -> Iterator[tuple[str, Policy[Any]]]:
    """Every policy of this program that selects without a model, with its defaults; Memento with each of its reads."""
    for name in POLICIES:
        variants = [{"read": read} for read in READS] if name == "memento" else [{}]
        for settings in variants:
            policy = make_policy(name, settings)
            if "model on read" not in policy.spec.needs:
                yield " ".join([name, *settings.values()]), policy


def measure(sizes: Sizes) -> list[Row]:
    """A pool of at most `POOL`, after at most `OWN_STEPS` own steps; of each repetition, the middle of `QUERIES` times.

    The peak is that of all methods together: each of them takes next to nothing.
    """
    pool, own_steps = min(sizes.memories, POOL), min(sizes.steps, OWN_STEPS)
    found: list[Row] = []
    with (
        TemporaryDirectory(prefix="memrl-bench-", ignore_cleanup_errors=True) as folder,
        threadpool_limits(limits=1, user_api="blas"),
    ):
        embedder = HashingEmbedder()
        with MemoryBank.create(str(Path(folder) / "bank"), embedder.name, embedder.dimension) as bank:
            start_run(bank, environment=Household.name, tasks=TASKS, run=BASE)
            _live(bank, BASE, _tasks(0, pool))
            with peak() as highest:
                for number, (label, policy) in enumerate(arms()):
                    run = f"arm-{number}"
                    start_run(
                        bank,
                        environment=Household.name,
                        tasks=TASKS,
                        run=run,
                        base=BASE,
                        policy=policy.spec.name,
                        settings=policy.settings,
                    )
                    traces = _live(bank, run, _tasks(pool, own_steps))
                    found += _measured(bank, run, policy, label, pool, traces, sizes.repeat)
    return [replace(row, peak_mb=highest.mb) for row in found]


def _measured(
    bank: MemoryBank, run: str, policy: Policy[Any], label: str, pool: int, traces: Sequence[StepTrace], repeat: int
) -> Iterator[Row]:
    def row(what: str, actions: Callable[[], Iterable[Action]], aim: Aim, size: str) -> Row:
        taken, beside = _middles(actions, repeat)
        return Row(NAME, what, pool, bank.embedder.dimension, taken, YARDSTICK, beside, aim=aim, size=size)

    asked = [_asked(bank, run, pool, task) for task in _tasks(pool + len(traces), QUERIES)]
    yield row(f"select: {label}", lambda: _selections(policy, asked), SELECT_AIM, "all in the pool")
    if policy.spec.learns in PARAMETRIC:
        state = learned_now(bank, run)
        yield row(
            f"update: {label}",
            lambda: _lessons(bank, policy, state, traces[-QUERIES:]),
            LEARN_AIM,
            f"after {len(traces)} steps",
        )


def _middles(actions: Callable[[], Iterable[Action]], repeat: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The middle of the actions' seconds in each repetition, and of the yardstick's in turns; a first one warms up."""
    rounds = [[(seconds(action), seconds(yardstick)) for action in actions()] for _ in range(1 + repeat)][1:]
    return tuple(median(pair[0] for pair in pairs) for pairs in rounds), tuple(
        median(pair[1] for pair in pairs) for pairs in rounds
    )


def _selections(policy: Policy[Any], asked: Sequence[tuple[RecallRecord, MemoryView]]) -> Iterator[Action]:
    return (partial(policy.select, recalled, view, number) for number, (recalled, view) in enumerate(asked))


def _lessons(bank: MemoryBank, policy: Policy[Any], state: Any, traces: Sequence[StepTrace]) -> Iterator[Action]:
    """The lesson of each of these steps, each learned by a state of its own."""
    for trace in traces:
        assert trace.reward is not None
        lesson = Lesson(trace, trace.reward.reward, trace.reward.outcome, bank.embedding, bank.memory)
        yield partial(policy.learn, copy.deepcopy(state), lesson)


def _asked(bank: MemoryBank, run: str, pool: int, task: Task) -> tuple[RecallRecord, MemoryView]:
    """The `pool` memories most similar to a task, and what the run knows, as the policy meets them when it selects."""
    query = HashingEmbedder().embed([task.intent])[0]
    asked = Asked(query, task.id, task.intent, step=bank.next_step(run))
    view = replace(bank.view(run), asked=asked, learned=learned_now(bank, run))
    return recall(query, view, k1=pool, k1_counts="record", delta=-1.0, strict=False), view


def _live(bank: MemoryBank, run: str, tasks: Sequence[Task]) -> list[StepTrace]:
    agent = Agent(bank, run, SimulatedModel(), HashingEmbedder(), Household())
    with bank.write.batch(len(tasks)):
        return list(agent.run(tasks))


def _tasks(first: int, count: int) -> list[Task]:
    every = sample_tasks(TASKS)
    return [every[number % len(every)] for number in range(first, first + count)]
