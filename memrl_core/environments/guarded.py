"""An environment of another package, whose failures become sentences."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from memrl_core.environments import ENVIRONMENTS, environment_class
from memrl_core.environments.base import Environment
from memrl_core.environments.breaks import (
    LONGEST_TOLD,
    Breach,
    Step,
    a_name,
    a_text,
    as_json,
    judged_by,
    listed,
    sound_options,
    sound_spec,
    taken,
    whole,
    wrong,
)
from memrl_core.environments.tasks import check_intent
from memrl_core.environments.texts import words_of
from memrl_core.errors import EnvironmentFailed, InputError, MemRLError
from memrl_core.records import Outcome, Task, Turn

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def guarded(name: str, found: Any) -> type[Environment]:
    """`found` with its methods guarded: what one raises becomes an `EnvironmentFailed`, as does a breach of contract.

    It is known by `name`, whatever it calls itself, and an episode ends after `max_turns` actions, whatever it does.
    Raises `InputError` when it is no environment at all, or one that could not be shown or made when nothing is set.
    """
    if not (isinstance(found, type) and issubclass(found, Environment)):
        raise _unusable(name, "offers no subclass of memrl_core.environments.base.Environment")
    if not _NAME.fullmatch(name):
        raise _unusable(name, "gives it a name that is not letters, digits, “-”, “_” and “.” only")
    if found.__abstractmethods__:
        raise _unusable(name, f"offers an environment without {' and '.join(sorted(found.__abstractmethods__))}")
    try:
        own = {
            "name": _Known(name),
            "spec": sound_spec(getattr(found, "spec", None)),
            "sets": _sets(found.sets),
            "seed_option": _seed_option(found),
            "simulated_options": sound_options(found.Options, found.simulated_options),
            "reward_source": judged_by(found.reward_source),
            "instructions": a_text("`instructions`", getattr(found, "instructions", None)),
            "__doc__": found.__doc__,
            "__module__": found.__module__,
        }
        made: Any = type(found.__name__, (_Guard, found), own)
        if not made.missing():
            made().close()
    except Breach as breach:
        raise _unusable(name, f"offers an environment that breaks the contract: {breach}") from breach
    except MemRLError as error:
        raise InputError(str(error)) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _unusable(name, f"offers an environment that cannot be used ({words_of(error)})") from error
    environment: type[Environment] = made
    return environment


class _Known:
    """A name that stays what it is."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, one: object, kind: object = None) -> str:
        return self._name

    def __set__(self, one: object, value: object) -> None:
        """What an environment calls itself does not count."""


class _Guard(Environment):
    """What stands before an environment of another package, among the bases of one class."""

    __turns = 0

    def __init__(self, **options: Any) -> None:
        with _failing(self.name, "__init__", "Nothing was started"):
            super().__init__(**options)
            self.__sound()

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        with _failing(self.name, "reset"):
            observation = super().reset(copy.deepcopy(task), seed=seed, at_step=at_step)  # type: ignore[safe-super]
            self.__sound()
            self.__turns = 0
            return a_text("the observation", observation, blank=True)

    def step(self, action: str) -> Step:
        with _failing(self.name, "step"):
            given = taken(super().step(action))  # type: ignore[safe-super]
            self.__turns += 1
            observation, reward, terminated, truncated, _ = given
            if terminated or truncated or self.__turns < self.max_turns:
                return given
            success = False if self.reward_source == "environment" else None
            verdict = f"Failed: not done after {self.__turns} turns."
            return observation, reward, False, True, {"verdict": verdict, "success": success}

    def distil(self, task: Task, turns: Sequence[Turn], outcome: Outcome) -> str:
        with _failing(self.name, "distil"):
            return a_text("the experience", super().distil(copy.deepcopy(task), turns, outcome))

    def first_memories(self) -> list[tuple[str, str]]:
        with _failing(self.name, "first_memories", "Nothing was started"):
            given = listed("it", super().first_memories())
            pairs = [listed("a memory", pair) for pair in given]
            if any(len(pair) != 2 for pair in pairs):
                raise Breach("a memory is not a pair of an intent and an experience")
            return [(a_text("an intent", one), a_text("an experience", other)) for one, other in pairs]

    def close(self) -> None:
        with _failing(self.name, "close"):
            super().close()

    @classmethod
    def missing(cls) -> str:
        with _failing(cls.name, "missing"):
            return a_text("what is missing", super().missing(), LONGEST_TOLD, blank=True)

    @classmethod
    def make_tasks(cls, name: str) -> list[Task]:
        if name not in cls.sets:
            raise InputError(
                f"The environment {cls.name} makes no set of tasks “{name[:80]}”. It makes: {', '.join(cls.sets)}."
            )
        with _failing(cls.name, "make_tasks"):
            return _tasks(super().make_tasks(name), cls.name)

    @classmethod
    def faults(cls, task: Task) -> list[str]:
        with _failing(cls.name, "faults"):
            return [a_text("a fault", told, LONGEST_TOLD) for told in listed("it", super().faults(copy.deepcopy(task)))]

    def __sound(self) -> None:
        """An instance may differ from its class, and one task from another."""
        self.instructions = a_text("`instructions`", self.instructions)
        self.max_turns = whole("`max_turns`", self.max_turns)
        self.reward_source = judged_by(self.reward_source)


@contextmanager
def _failing(name: str, method: str, kept: str = "What came before is kept") -> Iterator[None]:
    """Within it, what a method of the environment raises, or gives in breach of the contract, becomes a sentence."""
    then = f"{kept}; mend the environment, then try again, or choose another one."
    try:
        yield
    except (MemRLError, KeyboardInterrupt):
        raise
    except Breach as breach:
        raise EnvironmentFailed(
            f"The environment “{name[:80]}” broke its contract in {method}: {breach}. {then}"
        ) from breach
    except BaseException as error:
        raise EnvironmentFailed(
            f"The environment “{name[:80]}” failed in {method} ({words_of(error)}). {then}"
        ) from error


def _unusable(name: str, how: str) -> InputError:
    return InputError(f"The package behind “{name[:80]}” {how}. Nothing was started; mend or remove the package.")


def _sets(given: Any) -> tuple[str, ...]:
    names = tuple(a_name("a name in `sets`", name) for name in listed("`sets`", given))
    for position, name in enumerate(names):
        if any(name in environment_class(own).sets for own in ENVIRONMENTS):
            raise Breach(f"its set of tasks “{name}” has the name of one that comes with the program")
        if name in names[:position]:
            raise Breach(f"its set of tasks “{name}” stands twice in `sets`")
    return names


def _seed_option(found: type[Environment]) -> str:
    name = found.seed_option
    if name and name not in found.Options.model_fields:
        raise Breach(f"its `seed_option` “{str(name)[:80]}” is none of its `Options`")
    return name


def _tasks(given: Any, environment: str) -> list[Task]:
    tasks: dict[str, Task] = {}
    for task in listed("it", given):
        if not isinstance(task, Task):
            raise wrong("a task", task, "a Task")
        name = a_name("the id of a task", task.id)
        if name in tasks:
            raise Breach(f"two tasks have the id “{name}”")
        try:
            intent = check_intent(a_text(f"the intent of “{name}”", task.intent))
        except InputError as error:
            raise Breach(f"the intent of “{name}” cannot be used ({error})") from None
        family = a_text(f"the family of “{name}”", task.family, blank=True)
        data = as_json(f"the data of “{name}”", task.data)
        tasks[name] = replace(task, intent=intent, environment=environment, family=family, data=data)
    if not tasks:
        raise Breach("it gave back no task")
    return list(tasks.values())
