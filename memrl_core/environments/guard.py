"""An environment of another package with its methods guarded: what fails there is a sentence, and texts stay texts."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from numbers import Real
from typing import Annotated, Any

from pydantic import Field

from memrl_core.environments.base import Environment, EnvironmentOptions, EnvironmentSpec
from memrl_core.environments.tasks import check_intent
from memrl_core.errors import EnvironmentFailed, InputError
from memrl_core.plugins import LONGEST, Breach, hook, read_again, shortened, storable
from memrl_core.records import Judgement, Outcome, RewardSource, Task, Turn

LONGEST_FOR_PEOPLE = 4_000
"""Characters of a text that people read."""
LONGEST_NAME = 80
MOST_ANSWER_TOKENS = 32_768

Step = tuple[str, float, bool, bool, dict[str, Any]]


def guarded(name: str, found: Any, taken_sets: Sequence[str] = ()) -> type[Environment]:
    """`found` with its methods guarded, known by `name` whatever it calls itself; none of `taken_sets` may be its own.

    An episode ends after `max_turns` actions. Raises `Breach` when it is no environment or could not be shown, and
    `EnvironmentFailed` when it cannot be made as nothing is set.
    """
    if not (isinstance(found, type) and issubclass(found, Environment)):
        raise Breach("it is no subclass of memrl_core.environments.base.Environment")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise Breach("its name is not letters, digits, “-”, “_” and “.” only")
    if found.__abstractmethods__:
        raise Breach(f"it has no {' and '.join(sorted(found.__abstractmethods__))}")
    if found.seed_option and found.seed_option not in found.Options.model_fields:
        raise Breach(f"its `seed_option` “{str(found.seed_option)[:80]}” is none of its `Options`")
    spec = read_again(EnvironmentSpec, getattr(found, "spec", None), "`spec`")
    own = {
        "name": name,
        "spec": replace(spec, answer_tokens=min(spec.answer_tokens, MOST_ANSWER_TOKENS)),
        "sets": _sets(found.sets, taken_sets),
        "simulated_options": _options(found.Options, found.simulated_options),
        "instructions": a_text("`instructions`", getattr(found, "instructions", None)),
        "reward_source": read_again(RewardSource, found.reward_source, "`reward_source`"),
        "own_words": bool(found.own_words),
        "__doc__": found.__doc__,
        "__module__": found.__module__,
    }
    made: type[Environment] = type(found.__name__, (_Guard, found), own)
    if not made.missing():
        made().close()
    return made


def _in(name: str, method: str, kept: str = "What came before is kept") -> AbstractContextManager[None]:
    # An engine's own panic is no Exception; no method here calls back into the program, which may be asked to stop.
    kept = f"{kept}; mend it, then try again, or choose another one."
    return hook(f"environment “{name[:80]}”", method, EnvironmentFailed, kept, BaseException)


class _Guard(Environment):
    """What stands before an environment of another package, among the bases of one class."""

    __turns = 0

    def __init__(self, **options: Any) -> None:
        with _in(self.name, "__init__", "Nothing was started"):
            super().__init__(**options)
            self.__check()

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        with _in(self.name, "reset"):
            observation = super().reset(copy.deepcopy(task), seed=seed, at_step=at_step)  # type: ignore[safe-super]
            self.__check()
            self.__turns = 0
            return a_text("the observation", observation, blank=True)

    def step(self, action: str) -> Step:
        with _in(self.name, "step"):
            given = a_step(super().step(action))  # type: ignore[safe-super]
            self.__turns += 1
            observation, reward, terminated, truncated, _ = given
            if terminated or truncated or self.__turns < self.max_turns:
                return given
            success = False if self.reward_source == "environment" else None
            verdict = f"Failed: not done after {self.__turns} turns."
            return observation, reward, False, True, {"verdict": verdict, "success": success}

    def distil(self, task: Task, turns: Sequence[Turn], outcome: Outcome) -> str:
        with _in(self.name, "distil"):
            return a_text("the experience", super().distil(copy.deepcopy(task), turns, outcome))

    def first_memories(self) -> list[tuple[str, str]]:
        with _in(self.name, "first_memories", "Nothing was started"):
            return [
                (a_text("an intent", intent), a_text("an experience", experience))
                for intent, experience in super().first_memories()
            ]

    def close(self) -> None:
        with _in(self.name, "close"):
            super().close()

    @classmethod
    def missing(cls) -> str:
        with _in(cls.name, "missing"):
            return a_text("what is missing", super().missing(), LONGEST_FOR_PEOPLE, blank=True)

    @classmethod
    def make_tasks(cls, name: str) -> list[Task]:
        if name not in cls.sets:
            raise InputError(
                f"The environment {cls.name} makes no set of tasks “{name[:80]}”. It makes: {', '.join(cls.sets)}."
            )
        with _in(cls.name, "make_tasks"):
            return _tasks(super().make_tasks(name), cls.name)

    @classmethod
    def faults(cls, task: Task) -> list[str]:
        with _in(cls.name, "faults"):
            given = read_again(list[str], super().faults(copy.deepcopy(task)), "its faults")
            return [a_text("a fault", fault, LONGEST_FOR_PEOPLE) for fault in given]

    def __check(self) -> None:
        """An instance may differ from its class, and one task from another."""
        vars(self).pop("name", None)
        self.instructions = a_text("`instructions`", self.instructions)
        self.max_turns = a_count("`max_turns`", self.max_turns)
        self.reward_source = read_again(RewardSource, self.reward_source, "`reward_source`")


# --- what an environment gives, made sound ----------------------------------------------------------------------------


def a_text(what: str, given: Any, longest: int = LONGEST, *, blank: bool = False) -> str:
    """A text that can be stored; nothing but spaces where it may be `blank`. Raises `Breach`, like all of these."""
    if not isinstance(given, str) or not (blank or given.strip()):
        raise Breach(f"{what} is {shortened(given)} instead of a text{'' if blank else ' with something in it'}")
    return storable(given, longest)


def a_count(what: str, given: Any) -> int:
    """A whole number of at least 1."""
    count: int = read_again(Annotated[int, Field(ge=1)], given, what)
    return count


def as_json(what: str, given: Any) -> dict[str, Any]:
    """Values by name, which are the same after they were JSON."""
    kept: dict[str, Any] = read_again(dict[str, Any], given, what)
    if kept != given:
        raise Breach(f"{what} is {shortened(given)}, which is not the same after it was JSON")
    return kept


def a_step(given: Any) -> Step:
    """What `step` gave: at the end with how it ended, before with nothing in `info`."""
    if not isinstance(given, tuple) or len(given) != 5 or not isinstance(given[4], Mapping):
        raise Breach(f"it is {shortened(given)} instead of (observation, reward, terminated, truncated, info)")
    observation, reward, terminated, truncated, info = given
    if not isinstance(reward, Real) or not 0 <= float(reward) <= 1:
        raise Breach(f"the reward is {shortened(reward)} instead of a number from 0 to 1")
    text = a_text("the observation", observation, blank=True)
    return text, float(reward), bool(terminated), bool(truncated), _ending(info) if terminated or truncated else {}


def _ending(info: Mapping[str, Any]) -> dict[str, Any]:
    """Of `info` what people and models may read: anything else in it could give the answer away."""
    success, judgement = info.get("success"), info.get("judgement")
    ending: dict[str, Any] = {
        "verdict": a_text("the verdict", info.get("verdict"), LONGEST_FOR_PEOPLE),
        "success": None if success is None else bool(success),
    }
    if judgement is not None:
        texts = (judgement.expected, judgement.came, judgement.why)
        cut = (a_text("the judgement", text, LONGEST_FOR_PEOPLE, blank=True) for text in texts)
        ending["judgement"] = Judgement(*cut)
    return ending


def _options(given: Any, simulated: Any) -> dict[str, Any]:
    """The options of the simulated model, where each option has a default that a form can show."""
    if not (isinstance(given, type) and issubclass(given, EnvironmentOptions)):
        raise Breach(f"`Options` is {shortened(given)} instead of a subclass of EnvironmentOptions")
    usual = {name: field.get_default(call_default_factory=False) for name, field in given.model_fields.items()}
    if unusable := [name for name, default in usual.items() if not isinstance(default, bool | int | float | str)]:
        raise Breach(f"the option “{unusable[0][:80]}” has no default that is a number, a text, true or false")
    begin_with = as_json("`simulated_options`", simulated)
    for values in (usual, begin_with):
        given.model_validate(values)
    return begin_with


def _sets(given: Any, taken: Sequence[str]) -> tuple[str, ...]:
    names = [_name("a name in `sets`", name) for name in read_again(list[str], given, "`sets`")]
    if doubles := [name for name in names if names.count(name) > 1 or name in taken]:
        raise Breach(f"its set of tasks “{doubles[0]}” is there twice, or comes with the program")
    return tuple(names)


def _tasks(given: Any, environment: str) -> list[Task]:
    tasks: dict[str, Task] = {}
    for task in read_again(list[Task], given, "its tasks"):
        if _name("the id of a task", task.id) in tasks:
            raise Breach(f"two tasks have the id “{task.id}”")
        try:
            tasks[task.id] = replace(task, intent=check_intent(task.intent), environment=environment)
        except InputError as error:
            raise Breach(f"the intent of “{task.id}” cannot be used ({error})") from None
    if not tasks:
        raise Breach("it gave no task")
    return list(tasks.values())


def _name(what: str, given: str) -> str:
    if a_text(what, given, LONGEST_NAME) != given:
        raise Breach(f"{what} is {shortened(given)} instead of a name of at most {LONGEST_NAME} ordinary characters")
    return given
