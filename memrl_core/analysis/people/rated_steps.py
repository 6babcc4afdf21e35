"""Every finished step of a bank with who has rated it, read from the ledger alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np

from memrl_core.bank import MemoryBank
from memrl_core.records import EventKind

NOBODY: Mapping[str, float] = {}
CHANGES = (EventKind.REWARD_REVOKED, EventKind.MEMORY_EDITED, EventKind.MEMORY_MERGED)


@dataclass(frozen=True, slots=True)
class RatedStep:
    """A finished step and who has rated it.

    `created` is ISO 8601 in UTC. `environment` is the environment's reward, None when it gave none; `people` maps each
    rater to their active reward. `recalls` is how often memories that this step wrote were put before the model later,
    a step counting once for each of them.
    """

    id: str
    run: str
    step: int
    epoch: int
    task: str
    policy: str
    created: str
    environment: float | None
    people: Mapping[str, float]
    recalls: int


def facts_of(bank: MemoryBank) -> list[RatedStep]:
    """Every finished step of every run, oldest run first, with the rewards that `bank.active_rewards` finds for it.

    No trace is read. A step wrote a memory when an event of its attempt says so, which tells it from an imported one;
    other words that people put in its place count as that memory, and a merged one as the oldest of those merged. A
    step's prompt held the parents of what it wrote, and what its environment's reward went to; a step without either is
    not known to have used any memory.
    """
    policies = {info.id: info.policy for info in bank.runs()}
    rows = [row for run in policies for row in bank.step_rows(run)]
    places = {row.id: place for place, row in enumerate(rows)}
    environment: list[float | None] = [None] * len(rows)
    people: dict[int, dict[str, float]] = {}
    prompts: list[tuple[str, ...]] = [()] * len(rows)
    writers: dict[str, int] = {}
    events = bank.events()
    changes = [event for event in events if event.kind in CHANGES]
    revoked = {event.revokes for event in changes}
    given, written = EventKind.REWARD_GIVEN, EventKind.MEMORY_WRITTEN
    for event in events:
        place = places.get(event.step_id)
        if place is None or event.step != rows[place].step or event.run != rows[place].run:
            continue
        if event.kind is written:
            for memory_id in event.memory_ids:
                writers[memory_id] = place
        elif event.kind is given and event.source == "environment":
            environment[place] = None if event.id in revoked else event.value
            prompts[place] += event.memory_ids
        elif event.kind is given and event.source == "person":
            rewards = people.setdefault(place, {})
            if event.id in revoked:
                rewards.pop(event.rater, None)
            else:
                rewards[event.rater] = event.value or 0.0
    for memory in bank.memories():
        place = writers.get(memory.id)
        if place is not None and memory.parents != prompts[place]:
            prompts[place] += memory.parents
    for event in changes:
        replaced = event.payload.get("replaces")
        if replaced and replaced[0] in writers:
            writers[event.memory_ids[0]] = writers[replaced[0]]
    recalls = _recalls(prompts, writers)
    return [
        RatedStep(
            row.id, row.run, row.step, row.epoch, row.task, policies[row.run], row.created,
            environment[place], people.get(place, NOBODY), recalls[place],
        )
        for place, row in enumerate(rows)
    ]  # fmt: skip


def _recalls(prompts: Sequence[Iterable[str]], writers: Mapping[str, int]) -> list[int]:
    """How often the prompts hold what each step wrote; `writers` maps a memory to its step's place in `prompts`."""
    unknown = len(prompts)
    found = map(writers.get, chain.from_iterable(map(set, prompts)), repeat(unknown))
    counted: list[int] = np.bincount(np.fromiter(found, dtype=np.int64), minlength=unknown).tolist()
    return counted
