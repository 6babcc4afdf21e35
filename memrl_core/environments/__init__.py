"""Worlds that give tasks and rewards, by name."""

from __future__ import annotations

from typing import Any

from memrl_core.environments.base import Environment
from memrl_core.environments.conversation import Conversation
from memrl_core.environments.household import Household
from memrl_core.errors import InputError

ENVIRONMENTS = ("household", "conversation")


def make_environment(name: str, **options: Any) -> Environment:
    """The environment `name`; raises `InputError` for an unknown name or an option it does not have."""
    makers: dict[str, type[Household] | type[Conversation]] = {"household": Household, "conversation": Conversation}
    if name not in makers:
        raise InputError(f"There is no environment “{name}”. Known: {', '.join(ENVIRONMENTS)}.")
    try:
        return makers[name](**options)
    except TypeError:
        raise InputError(f"The environment {name} does not take: {', '.join(options)}.") from None
