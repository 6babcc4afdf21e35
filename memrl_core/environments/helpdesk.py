"""A help desk: pass each message to the team that takes care of such things in this house.

One turn, a closed list of teams, and house rules that nobody could guess: which kind of complaint goes to which team is
drawn from the number of the house. A handbook of earlier cases, of which a stated share follows earlier rules,
can be written into a run's memory at its start. The rules may change on a day, and what becomes of a message may be
reported wrongly with a stated chance. Nothing knows which memory, if any, was used.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from pydantic import Field

from memrl_core.environments.base import (
    Environment,
    EnvironmentOptions,
    EnvironmentSpec,
    StepResult,
    action_lines,
    choices_listed,
    last_step,
    layout,
    script,
    steps_of_change,
)
from memrl_core.environments.tasks import sample_data_path
from memrl_core.errors import InputError
from memrl_core.prompting import TASK_LINE, WHAT_WENT_WRONG
from memrl_core.records import Judgement, Outcome, RewardSource, Task, Turn

TEAMS = ("Black", "Blue", "Brown", "Gold", "Green", "Pink", "Red", "White")
"""Names that say nothing about what a team does, in the order in which they are offered; a token each."""

MESSAGES: Mapping[str, Sequence[str]] = tomllib.loads(
    (sample_data_path() / "helpdesk.toml").read_text(encoding="utf-8")
)
"""Topic to what people write about it. The last two of each topic stand in held-out messages only."""

WHERE = ("here", "upstairs", "downstairs", "next door", "at the front", "in the back", "outside", "inside")
WHEN = ("today", "again", "now", "this week", "this morning", "once more", "since Monday", "since noon")
WHEN_BEFORE = ("since May", "for weeks", "these days")
"""Times of the handbook's messages, so that none of them is a message of a task."""

SETS = {"helpdesk-train": (slice(0, 6), 40), "helpdesk-heldout": (slice(6, 8), 10)}
"""Set to which messages of each topic it takes, and how many tasks it makes of them."""

INSTRUCTIONS = (
    "You pass messages on to teams. Which team takes care of what is a rule of the house. "
    "Answer with exactly one of the teams offered, without the dash. If earlier messages are given, go by them."
)


@cache
def topics() -> Mapping[str, str]:
    """Every message of tasks and handbook, and what it is about: for pictures and studies, never for an agent."""
    when = (*WHEN, *WHEN_BEFORE)
    return {message: topic for topic, texts in MESSAGES.items() for message in _written(texts, when)}


class HelpdeskOptions(EnvironmentOptions):
    """What can be different in a house."""

    own_words: bool = Field(
        False,
        title="The model adds its own words",
        description="To each memory, at the cost of one more answer. A message and its team say all.",
    )
    house: int = Field(
        0,
        ge=0,
        title="House",
        description="Its rules and its handbook are drawn from this number; where nobody chose, it is the run's seed.",
    )
    teams: int = Field(
        8, ge=2, le=len(TEAMS), title="Teams", description="How many there are for the eight kinds of message."
    )
    handbook: bool = Field(
        True, title="Handbook", description="Earlier cases are written into the memory before the first step."
    )
    entries: int = Field(5, ge=1, le=20, title="Entries of the handbook", description="For each kind of message.")
    stale: float = Field(
        0.4,
        ge=0,
        le=1,
        title="Stale share",
        description="Of these entries, that much follows rules that no longer hold.",
    )
    noise: float = Field(
        0.0,
        ge=0,
        le=0.5,
        title="Noise",
        description="The chance that a message is reported as taken care of when it is not, or the other way round.",
    )
    avoid: bool = Field(
        True,
        title="Failures say what to avoid",
        description="A memory of a failure ends with the team to avoid. Off: it only tells that the message came back.",
    )
    shift_at: int | list[int] = Field(
        0, title="The rules change at step", description="From this step on every topic has another team; 0: never."
    )


class Helpdesk(Environment):
    """The help desk of one house; `HelpdeskOptions` says what its arguments mean."""

    name = "helpdesk"
    spec = EnvironmentSpec(
        title="Help desk",
        idea="Pass a message to the right one of eight teams, in one turn. Which team takes care of what is a rule of "
        "the house that nobody can guess; a handbook of earlier cases helps, and a part of it is out of date.",
        judged="By the rules of the house: 1 when the team takes care of such messages, else 0; with the chance of "
        "the option noise it is reversed.",
        source="Written for this program; small enough for a small language model, and no two messages are the same.",
        answer_tokens=16,
    )
    Options = HelpdeskOptions
    sets = tuple(SETS)
    seed_option = "house"
    reward_source: RewardSource = "environment"
    instructions = INSTRUCTIONS
    max_turns = 1

    def __init__(self, **chosen: Any) -> None:
        self._options = HelpdeskOptions(**chosen)
        self._shifts, self._teams = steps_of_change(self._options.shift_at), TEAMS[: self._options.teams]
        self._task: Task | None = None
        self._right, self._flipped = "", False

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        """Begin `task`. Raises `InputError` when the task is not one of a help desk."""
        topic = task.data.get("topic")
        if topic not in MESSAGES:
            raise InputError(f"Task {task.id[:80]} is not a message to a help desk. Choose tasks of the helpdesk.")
        self._right = self.right_team(str(topic), at_step)
        self._flipped = bool(np.random.default_rng(seed).random() < self._options.noise)
        self._task = task
        return choices_listed(self._teams)

    def step(self, action: str) -> StepResult:
        """Pass the message on: the end of the episode. What is no team is nobody's, whatever the noise."""
        if self._task is None:
            raise InputError("This episode has ended. Begin the next task.")
        self._task = None
        team = next(iter(action_lines(action)), "").rstrip(".")
        if team in self._teams:
            success = (team == self._right) != self._flipped
            response = f"{team} took care of it." if success else f"{team} sent it back."
        else:
            success, response = False, f"There is no team “{team[:80]}”."
        why = "The noise reversed what is reported." if team in self._teams and self._flipped else "As the rules say."
        verdict = f"{'Solved' if success else 'Failed'}: {response}"
        return last_step(response, verdict, success, Judgement(self._right, team[:80], why))

    def distil(self, task: Task, turns: Sequence[Turn], outcome: Outcome) -> str:
        """The message and the team, in the very form of a handbook's entry; after a failure what came of it."""
        if outcome == "failure" and not self._options.avoid and turns and turns[-1].observation:
            return f"{TASK_LINE}{task.intent}\n{WHAT_WENT_WRONG}{turns[-1].observation}\n"
        return layout(task.intent, turns, outcome)

    def first_memories(self) -> list[tuple[str, str]]:
        """The handbook: `entries` messages of every topic with the team of this house, the stale ones among them with
        that of the rules before.
        """
        if not self._options.handbook:
            return []
        rng = np.random.default_rng([self._options.house, 1])
        before, now = self._rules(0), self._rules(1)
        written = []
        for topic, messages in MESSAGES.items():
            known = _written(messages, WHEN_BEFORE)
            stale = round(self._options.stale * self._options.entries)
            for number, position in enumerate(rng.choice(len(known), self._options.entries, replace=False)):
                rules = before if number < stale else now
                written.append((known[position], script(known[position], "success", [rules[topic]])))
        return [written[position] for position in rng.permutation(len(written))]

    def right_team(self, topic: str, at_step: int) -> str:
        """The team that takes care of a topic at a step: for pictures and studies, never for an agent."""
        return self._rules(1 + sum(at_step >= step for step in self._shifts))[topic]

    def _rules(self, number: int) -> Mapping[str, str]:
        """Topic to team, of the rules that came as `number` (0: those before this house's); each time all change."""
        rng = np.random.default_rng([self._options.house, 0])
        teams = np.resize(rng.permutation(len(self._teams)), len(MESSAGES))
        for _ in range(number):
            teams = (teams + rng.integers(1, len(self._teams))) % len(self._teams)
        return {topic: self._teams[team] for topic, team in zip(MESSAGES, teams, strict=True)}

    @classmethod
    def kind_of(cls, intent: str, task: Task | None) -> str:
        """The topic of a message of a task or the handbook."""
        return topics().get(intent, "") if task is None else task.family

    @classmethod
    def make_tasks(cls, name: str) -> list[Task]:
        """The tasks of one of `sets`, a message of each topic in turn; the same ones every time."""
        if name not in SETS:
            return super().make_tasks(name)
        which, count = SETS[name]
        topics = []
        for number, (topic, messages) in enumerate(MESSAGES.items()):
            known = _written(messages[which], WHEN)
            chosen = np.random.default_rng([number, count]).choice(len(known), count, replace=False)
            topics.append(
                [
                    Task(f"{name}-{topic}-{place:02d}", known[position], cls.name, topic, {"topic": topic})
                    for place, position in enumerate(chosen, start=1)
                ]
            )
        return [task for together in zip(*topics, strict=True) for task in together]

    @classmethod
    def faults(cls, task: Task) -> list[str]:
        """What is wrong with a task, a sentence each."""
        topic = task.data.get("topic")
        return [] if topic in MESSAGES else [f"topic is one of {', '.join(MESSAGES)}, not “{str(topic)[:80]}”."]


def _written(messages: Sequence[str], when: Sequence[str]) -> list[str]:
    """Every message at every place and time, beginning with a capital letter."""
    texts = (message.format(where=w, when=t) for message, w, t in itertools.product(messages, WHERE, when))
    return [text[0].upper() + text[1:] for text in texts]
