"""Worlds that give tasks and rewards, by name: those that come with the program, and those of packages.

A package offers an environment under the entry point group `memrl.environments`: a subclass of
`environments.base.Environment`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from memrl_core.environments.base import Environment
from memrl_core.errors import InputError, MemRLError
from memrl_core.plugins import Registry, words_of
from memrl_core.settings import sentence_of

OWN_WORDS = "own_words"
"""The option that every environment has."""
REPEATS = "repeats"
"""The option that environments with several turns have (`environments.base.TurnsOptions`)."""

_OWN: Mapping[str, str] = {
    "household": "household:Household",
    "helpdesk": "helpdesk:Helpdesk",
    "parametric": "parametric:Parametric",
    "sql": "databases.sql_world:Sql",
    "lifelong_db": "databases.lifelong_db:LifelongDb",
    "scienceworld": "games.scienceworld:ScienceWorld",
    "textworld": "games.textworld:TextWorld",
    "reasoning": "reasoning:Reasoning",
    "task_file": "own_tasks.environment:TaskFile",
    "conversation": "own_tasks.environment:Conversation",
}
ENVIRONMENTS = tuple(_OWN)
"""The environments that come with the program, in the order in which they are listed."""


def _guarded(name: str, found: Any) -> type[Environment]:
    from memrl_core.guards import guarded_environment  # Needed for environments of other packages alone.

    return guarded_environment(name, found, [one for own in ENVIRONMENTS for one in environment_class(own).sets])


REGISTRY: Registry[Environment] = Registry(
    "environment", "memrl.environments", {name: f"{__name__}.{own}" for name, own in _OWN.items()}, _guarded, InputError
)


environment_names, environment_class = REGISTRY.names, REGISTRY.get
"""Every environment that can be had here, the program's own first; and the class of one, by name.

The second raises `InputError` for an unknown name, or a package that cannot be loaded.
"""


def environment_title(name: str) -> str:
    """How people call an environment; its name where it is not here."""
    try:
        return environment_class(name).spec.title
    except InputError:
        return name[:80]


def why_unusable(name: str) -> str:
    """Why an environment cannot be used on this machine, as a sentence; "" when it can."""
    try:
        return environment_class(name).missing()
    except MemRLError as error:
        return str(error)


def make_environment(name: str, **options: Any) -> Environment:
    """The environment `name`; raises `InputError` for an unknown name, or an option it does not have or take."""
    found, given = environment_class(name), options_of(name, options)
    own_words = given.pop(OWN_WORDS, found.Options.model_fields[OWN_WORDS].default)
    repeats = given.pop(REPEATS, 0)
    made = found(**given)
    made.own_words, made.repeats = own_words, repeats
    return made


def options_of(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` as the environment `name` takes them, texts turned into numbers where it takes numbers.

    Raises `InputError` for an unknown name, or an option it does not have or take.
    """
    found = environment_class(name)
    unknown = [option for option in options if option not in found.Options.model_fields]
    if unknown:
        allowed = ", ".join(found.Options.model_fields)
        raise InputError(
            f"The environment {name} has no option “{unknown[0][:80]}”; allowed: {allowed}. Nothing was changed."
        )
    try:
        given = found.Options.model_validate(options)
    except ValidationError as error:
        why = sentence_of(error, found.Options).removeprefix("Settings were not changed. ")
        raise InputError(f"The environment {name} cannot be made so: {why} Nothing was changed.") from None
    except Exception as error:  # A check of a package's own options may fail in any way.
        raise InputError(
            f"The environment {name} cannot be made so ({words_of(error)}). Nothing was changed."
        ) from None
    return {option: getattr(given, option) for option in options}
