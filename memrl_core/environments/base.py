"""What the agent needs of an environment: Gymnasium's reset and step, in text; and what people read about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from memrl_core.errors import InputError, printable
from memrl_core.prompting import (
    ANSWER_MARK,
    AVOID,
    CHOICE_MARK,
    CHOICES,
    STEPS_THAT_WORKED,
    TASK_LINE,
    TRY_INSTEAD,
    WHAT_WENT_WRONG,
)
from memrl_core.records import Judgement, Outcome, RewardSource, Task, Turn


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """An environment as a person chooses it, in plain words.

    `judged` says where its reward comes from, `source` whose tasks or engine these are, and `needs` what must be
    installed besides this program ("" when nothing). `answer_tokens` is enough for any sensible answer of one turn: a
    model that says more is cut there, where the run does not say otherwise.
    """

    title: str
    idea: str
    judged: str
    source: str
    needs: str = ""
    answer_tokens: Annotated[int, Field(ge=1)] = 512


StepResult = tuple[str, float, bool, bool, dict[str, Any]]
"""Observation, reward, terminated, truncated, info."""


class EnvironmentOptions(BaseModel):
    """The options with which an environment is made; each field has a title, a description and its range."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    own_words: bool = Field(
        True,
        title="The model adds its own words",
        description="A language model adds a strategy or a reflection to each memory, at the cost of one more answer. "
        "Off: a memory is what happened, word for word. Small models write nonsense here.",
    )


class TurnsOptions(EnvironmentOptions):
    """The options of a world in which an episode has several turns."""

    repeats: int = Field(
        0,
        ge=0,
        le=100,
        title="Repeats that end an episode",
        description="What was tried before in the same state is marked in the prompt, and an action that is repeated "
        "there so often ends the episode. 0: neither. A run with a language model begins with 3.",
    )


class Environment(ABC):
    """Gives observations and rewards for tasks.

    `name` is its registry name, `reward_source` says who judges an answer, `instructions` is the system message that
    tells a model how to act in it, `max_turns` the number of actions after which an episode is truncated. `sets` are
    the names of the lists of tasks that it offers by itself, the first one for a run that names none. It is made with
    the fields of `Options` by name; `simulated_options` are those that a run with the simulated model begins with,
    where nobody chose, and `seed_option` names the one that is then the run's seed. `own_words`, an option of every
    environment, and `repeats`, one of those with several turns (`TurnsOptions`), are not passed to `__init__`:
    `make_environment` sets them, and the agent heeds them.
    """

    name: str
    spec: ClassVar[EnvironmentSpec]
    Options: ClassVar[type[EnvironmentOptions]] = EnvironmentOptions
    sets: ClassVar[tuple[str, ...]] = ()
    simulated_options: ClassVar[Mapping[str, Any]] = {}
    seed_option: ClassVar[str] = ""
    own_words: bool = True
    repeats: int = 0
    reward_source: RewardSource = "environment"
    instructions: str
    max_turns: int

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.own_words = cls.Options.model_fields["own_words"].default  # Made by hand or by name: the same.

    @abstractmethod
    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        """Begin `task`; returns the first observation, as the model will read it.

        The same seed gives the same world and the same luck. `at_step` is the number of the step in its run, for worlds
        that change in the course of a run. Raises `InputError` for a task that is none of its own, and
        `EnvironmentFailed`.
        """

    @abstractmethod
    def step(self, action: str) -> StepResult:
        """Do `action`: (observation, reward, terminated, truncated, info).

        `reward` is the environment's own verdict between 0 and 1 (the agent maps it to r− … r+).
        At the end `info` holds `verdict` (a sentence that does not give the answer away: models and memories read it),
        `success` (bool; None for a task that it leaves to a person, which then earns no reward of its own), and, where
        it can tell more, `judgement` (a `Judgement`, for people alone). Raises `EnvironmentFailed` when the world has
        stopped; the same action can then be tried again.
        """

    def distil(self, task: Task, turns: Sequence[Turn], outcome: Outcome) -> str:
        """Lay the episode out as the text of an experience: a script for a success, a reflection for a failure."""
        return layout(task.intent, turns, outcome)

    def first_memories(self) -> Sequence[tuple[str, str]]:
        """Intent and experience of what a run in this world knows before its first step, as successes; mostly nothing.

        They are laid out as `distil` does it, and hold nothing that somebody in this world could not have written.
        """
        return ()

    def chance(self, task: Task, answer: str, at_step: int) -> float | None:
        """The true chance that `answer` solves `task` at a step of its run, for studies and never for an agent.

        None where nobody knows it.
        """
        return None

    @classmethod
    def kind_of(cls, intent: str, task: Task | None) -> str:
        """What a task or a memory is about, so that those of one kind can help each other; "" where nobody knows it.

        `task` is the one that the memory comes from, None where that is not known. For labels of recall and pictures,
        and never for an agent.
        """
        return ""

    @classmethod
    def misleading(cls, task: Task) -> str:
        """An experience that looks like help with `task` and is harm, for studies of poisoned memories; "" for none."""
        return ""

    def close(self) -> None:  # noqa: B027
        """Give back what it holds outside this program; it can be reset again."""

    @classmethod
    def missing(cls) -> str:
        """What this machine lacks to run it, as a sentence with its remedy; "" when nothing."""
        return ""

    @classmethod
    def make_tasks(cls, name: str) -> list[Task]:
        """The tasks of one of `sets` that does not come as a file. Raises `InputError`, and `EnvironmentFailed`."""
        raise InputError(f"The environment {cls.name} makes no set of tasks “{name[:80]}”.")

    @classmethod
    def faults(cls, task: Task) -> list[str]:
        """What is wrong with a task of this environment, a sentence each; its own reference answer must satisfy it."""
        return []


def steps_of_change(given: int | Sequence[int]) -> list[int]:
    """The steps at which a world changes, in order; 0 means never. Raises `InputError` for what is no step."""
    steps = [given] if isinstance(given, int) else list(given)
    if any(not isinstance(step, int) or step < 0 for step in steps):
        raise InputError("The step at which the world changes is a whole number and not negative; 0 means never.")
    return sorted(step for step in steps if step)


def last_step(
    observation: str,
    verdict: str,
    success: bool | None,
    judgement: Judgement | None = None,
    *,
    reward: float | None = None,
    truncated: bool = False,
) -> StepResult:
    """The last step of an episode; a reward that is not given is 1 for a success, else 0."""
    info: dict[str, Any] = {"verdict": verdict, "success": success}
    if judgement is not None:
        info["judgement"] = judgement
    return observation, float(success or False) if reward is None else reward, not truncated, truncated, info


def choices_listed(choices: Iterable[str]) -> str:
    """The choices as they stand at the end of an observation."""
    return "\n".join([CHOICES, *(CHOICE_MARK + choice for choice in choices)])


# --- the usual layout of an episode as the text of an experience ------------------------------------------------------

DONE = "Steps taken:"
LONGEST_REPLY = 2_000
LONGEST_ACTION = 200
NOT_DONE_IN_TIME = "it was not done in time."


def layout(intent: str, turns: Sequence[Turn], outcome: Outcome) -> str:
    """What was done, under a heading that says how it ended; after a failure with the last that was observed.

    A reply that was stopped was never acted on: it stands only where somebody judged it.
    """
    acted = [turn.reply.text for turn in turns if outcome != "unrated" or not turn.reply.stopped]
    done = [line for text in acted for line in action_lines(text)]
    head = f"{TASK_LINE}{intent}\n"
    if outcome != "failure":
        return head + block(STEPS_THAT_WORKED if outcome == "success" else DONE, done)
    last = turns[-1].observation.strip().splitlines() if turns else []
    return f"{head}{WHAT_WENT_WRONG}{last[0] if last else NOT_DONE_IN_TIME}\n{block(AVOID, done)}"


def script(
    intent: str,
    outcome: Outcome,
    kept: Sequence[str],
    *,
    wrong: str = "",
    avoid: Sequence[str] = (),
    tried: Sequence[str] = (),
) -> str:
    """An experience of the actions that are worth to be `kept`, or else of those that were `tried`.

    After a failure what went wrong and what to avoid come first, and those kept are what to try instead.
    """
    blame = (f"{WHAT_WENT_WRONG}{wrong}\n" if wrong else "") + (block(AVOID, avoid) if avoid else "")
    title = TRY_INSTEAD if outcome == "failure" else STEPS_THAT_WORKED if outcome == "success" else DONE
    steps = block(title, kept) if kept else block(DONE, tried) if tried else ""
    return f"{TASK_LINE}{intent}\n" + (blame + steps if outcome == "failure" else steps + blame)


def action_lines(reply: str) -> list[str]:
    """The lines of a reply that are not empty, without the marks of answers and choices."""
    bare = (line.strip().removeprefix(ANSWER_MARK).removeprefix(CHOICE_MARK) for line in reply.splitlines())
    return [line.strip() for line in bare if line.strip()]


def spoken(reply: str) -> str:
    """The action in a reply: its first line that is not empty, without marks, control characters and double spaces."""
    first = printable(next(iter(action_lines(reply[:LONGEST_REPLY])), ""))
    return " ".join(first.split()).rstrip(".")[:LONGEST_ACTION]


def block(title: str, lines: Sequence[str]) -> str:
    """A heading and, under it, lines marked as answers; each line ends with a line break."""
    return title + "\n" + "".join(f"{ANSWER_MARK}{line}\n" for line in lines)
