"""Which methods an environment can serve, and what it lacks for the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memrl_core.environments import make_environment
from memrl_core.environments.base import Environment
from memrl_core.policies import make_policy
from memrl_core.policies.spec import Need

_WORDS: Mapping[Need, str] = {
    "episode reward": "a reward at the end of a task",
    "step reward": "a reward after each action",
    "next state": "what the world looks like after an action",
}
"""What only an environment can give; what else a method needs, the model and the program give everywhere."""


def fits(policy: str, environment: str, settings: Mapping[str, Any] | None = None, people_reward: bool = False) -> str:
    """What is missing for a policy to learn in an environment, as a sentence; "" when nothing is.

    The reward at the end of a task counts as missing where a person would have to give it, unless `people_reward`.
    Raises `SettingsError` and `InputError` for names and
    settings that do not exist.
    """
    spec = make_policy(policy, settings or {}).spec
    given = _given_by(make_environment(environment))
    if people_reward:
        given.add("episode reward")
    missing = [words for need, words in _WORDS.items() if need in spec.needs and need not in given]
    if not missing:
        return ""
    return f"{spec.title} needs {' and '.join(missing)}, which {environment} does not give by itself."


def _given_by(environment: Environment) -> set[Need]:
    given: set[Need] = set()
    judged, goes_on = environment.reward_source == "environment", environment.max_turns > 1
    if judged:
        given.add("episode reward")
    if judged and goes_on:
        given.add("step reward")
    if goes_on:
        given.add("next state")
    return given
