"""What an environment of another package gives, made sound; a `Breach` says in words what keeps it from being so."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from numbers import Real
from typing import Any, get_args

import numpy as np
from pydantic import ValidationError

from memrl_core.environments.base import EnvironmentOptions, EnvironmentSpec
from memrl_core.environments.texts import LONGEST, storable
from memrl_core.records import Judgement, RewardSource

MOST_ANSWER_TOKENS = 32_768
LONGEST_TOLD = 4_000
"""Characters of a text that people read."""

LONGEST_NAME = 80

Step = tuple[str, float, bool, bool, dict[str, Any]]


class Breach(Exception):
    """What was given breaks the contract; the text says how."""


def wrong(what: str, given: Any, wanted: str) -> Breach:
    """`what` is something else than what is `wanted`."""
    return Breach(f"{what} is {storable(repr(given)[:80])} instead of {wanted}")


def a_text(what: str, given: Any, longest: int = LONGEST, *, blank: bool = False) -> str:
    """A text that can be stored; nothing but spaces where it may be `blank`."""
    if not isinstance(given, str):
        raise wrong(what, given, "a text")
    text = storable(given, longest)
    if not (blank or text.strip()):
        raise wrong(what, given, "a text with something in it")
    return text


def a_name(what: str, given: Any) -> str:
    """A short text that is stored as it is."""
    if a_text(what, given) != given or len(given) > LONGEST_NAME:
        raise wrong(what, given, f"a name of at most {LONGEST_NAME} ordinary characters")
    return str(given)


def whole(what: str, given: Any) -> int:
    """A whole number of at least 1."""
    if not isinstance(given, int | np.integer) or isinstance(given, bool) or given < 1:
        raise wrong(what, given, "a whole number of at least 1")
    return int(given)


def listed(what: str, given: Any) -> Sequence[Any]:
    """Several things in order."""
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise wrong(what, given, "a list")
    return given


def as_json(what: str, given: Any) -> dict[str, Any]:
    """Values by name, as they are after they were JSON: the same as before."""
    if not isinstance(given, Mapping):
        raise wrong(what, given, "values by name")
    try:
        told = json.dumps(dict(given), ensure_ascii=False, allow_nan=False)
        kept: dict[str, Any] = json.loads(told.encode())
    except (TypeError, ValueError, RecursionError):
        kept = {}
    if kept != given:
        raise wrong(what, given, "what is the same after it was JSON")
    return kept


def judged_by(given: Any) -> RewardSource:
    """Who judges: the environment or a person."""
    if given not in get_args(RewardSource):
        raise wrong("`reward_source`", given, f"one of {', '.join(get_args(RewardSource))}")
    source: RewardSource = given
    return source


def taken(given: Any) -> Step:
    """What `step` gave: at the end with the verdict, before with nothing in `info`."""
    if not isinstance(given, tuple) or len(given) != 5:
        raise wrong("it", given, "(observation, reward, terminated, truncated, info)")
    observation, reward, terminated, truncated, info = given
    if not isinstance(reward, Real) or not 0 <= float(reward) <= 1:
        raise wrong("the reward", reward, "a number from 0 to 1")
    ended = [_bool("terminated", terminated), _bool("truncated", truncated)]
    if not isinstance(info, Mapping):
        raise wrong("info", info, "values by name")
    told = a_text("the observation", observation, blank=True)
    return told, float(reward), ended[0], ended[1], _ending(info) if any(ended) else {}


def sound_spec(given: Any) -> EnvironmentSpec:
    """What people are told of it: every text is there, and `needs` may be empty."""
    if not isinstance(given, EnvironmentSpec):
        raise wrong("`spec`", given, "an EnvironmentSpec")
    names = [field.name for field in fields(EnvironmentSpec) if field.name != "answer_tokens"]
    return EnvironmentSpec(
        **{n: a_text(f"`spec.{n}`", getattr(given, n), LONGEST_TOLD, blank=n == "needs") for n in names},
        answer_tokens=min(whole("`spec.answer_tokens`", given.answer_tokens), MOST_ANSWER_TOKENS),
    )


def sound_options(given: Any, simulated: Any) -> dict[str, Any]:
    """Options that each have a default that a form can show; gives back those of the simulated model."""
    if not (isinstance(given, type) and issubclass(given, EnvironmentOptions)):
        raise wrong("`Options`", given, "a subclass of EnvironmentOptions")
    for name, field in given.model_fields.items():
        default = field.get_default(call_default_factory=False)
        if not isinstance(default, bool | int | float | str):
            raise Breach(f"the option “{name[:80]}” has no default that is a number, a text, true or false")
    begin_with = as_json("`simulated_options`", simulated)
    usual = {name: field.default for name, field in given.model_fields.items()}
    for what, values in (("its own defaults", usual), ("its `simulated_options`", begin_with)):
        try:
            given.model_validate(values)
        except ValidationError as error:
            raise Breach(f"`Options` does not take {what} ({storable(str(error)[:200])})") from None
    return begin_with


def _bool(what: str, given: Any) -> bool:
    if not isinstance(given, bool | np.bool_):
        raise wrong(what, given, "true or false")
    return bool(given)


def _ending(info: Mapping[str, Any]) -> dict[str, Any]:
    success, judgement = info.get("success"), info.get("judgement")
    told: dict[str, Any] = {
        "verdict": a_text("the verdict", info.get("verdict"), LONGEST_TOLD),
        "success": None if success is None else _bool("success", success),
    }
    if judgement is not None:
        if not isinstance(judgement, Judgement):
            raise wrong("the judgement", judgement, "a Judgement")
        texts = (judgement.expected, judgement.came, judgement.why)
        told["judgement"] = Judgement(*(a_text("the judgement", text, LONGEST_TOLD, blank=True) for text in texts))
    return told
