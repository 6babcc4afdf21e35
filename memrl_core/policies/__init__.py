"""Memory methods by name: those that come with the program, and those of packages with an entry point.

A package offers a policy under the entry point group `memrl.policies`; its class must keep `policies.contract`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.fields import FieldInfo

from memrl_core.errors import SettingsError
from memrl_core.learning import UpdateRule, unmoved
from memrl_core.plugins import Registry
from memrl_core.policies.base import Policy
from memrl_core.records import Outcome
from memrl_core.settings import PolicySettings

_OWN: Mapping[str, str] = {
    "memrl": "MemRL",
    "none": "NoMemory",
    "pass_at_k": "PassAtK",
    "rag": "Rag",
    "exprag": "ExpRag",
    "exprecent": "ExpRecent",
    "reflexion": "Reflexion",
    "memp": "Memp",
    "rememberer": "Rememberer",
    "memento": "Memento",
    "empo2_memory": "Empo2Memory",
    "rmm_reranker": "RMMReranker",
    "a_mem": "AMem",
    "webcoach": "WebCoach",
    "awm": "Awm",
    "remem": "ReMem",
    "self_rag": "SelfRag",
    "memory_r1_ops": "MemoryR1Ops",
}
POLICIES = tuple(_OWN)
"""The policies that come with the program, in the order in which they are listed."""


def _guarded(name: str, found: Any) -> type[Policy[Any]]:
    from memrl_core.guards import guarded_policy  # Needed for policies of other packages alone.

    return guarded_policy(name, found)


REGISTRY: Registry[Policy[Any]] = Registry(
    "policy",
    "memrl.policies",
    {name: f"{__name__}.methods.{name}:{found}" for name, found in _OWN.items()},
    _guarded,
    SettingsError,
)


policy_names, usable_policies, policy_class = REGISTRY.names, REGISTRY.usable, REGISTRY.get
"""Every policy that can be had here; those that can be loaded, which lists offer; and the class of one, by name.

The last raises `SettingsError` for an unknown name, or a package that cannot be loaded.
"""


def make_policy(name: str, settings: Mapping[str, Any]) -> Policy[Any]:
    """The policy `name` under `settings`; raises `SettingsError` for an unknown name or a value out of range."""
    return policy_class(name)(settings_of(name, settings))


def settings_of(name: str, values: Mapping[str, Any], preset: str = "") -> PolicySettings:
    """The settings of the policy `name`, validated: `values` over those of a preset, or over the defaults.

    Raises `SettingsError` for a value out of range, and for a preset that the policy does not have.
    """
    return policy_class(name).Settings.of({**preset_of(name, preset), **values})


def preset_of(name: str, preset: str) -> Mapping[str, Any]:
    """The settings of a preset of the policy `name`; none for "". Raises `SettingsError` for an unknown one."""
    presets = policy_class(name).presets
    if preset and preset not in presets:
        known = f"Known: {', '.join(presets)}" if presets else "It has none"
        raise SettingsError(f"The policy {name} has no preset “{preset[:80]}”. {known}. Nothing was changed.")
    return presets[preset] if preset else {}


def settings_fields_of(name: str) -> Mapping[str, FieldInfo]:
    """The settings of a policy by name, with title, range and description; MemRL's for one that is not installed."""
    try:
        return policy_class(name).Settings.model_fields
    except SettingsError:
        return policy_class("memrl").Settings.model_fields


def with_defaults(name: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of a run, with the defaults of those that came to the policy `name` after it; as they are where the
    policy is not installed."""
    if not is_installed(name):
        return settings
    return {key: field.default for key, field in policy_class(name).Settings.model_fields.items()} | dict(settings)


def settings_that_fit(name: str, values: Mapping[str, Any]) -> PolicySettings:
    """The settings of the policy `name` with those of `values` that it knows. Raises `SettingsError`."""
    known = policy_class(name).Settings.model_fields
    return settings_of(name, {key: value for key, value in values.items() if key in known})


def outcome_of(name: str, settings: Mapping[str, Any], reward: float | None) -> Outcome:
    """What a reward means to a policy; where that is not installed here, by its r− and r+ alone.

    Raises `SettingsError` where these are no settings of a policy.
    """
    if is_installed(name):
        return make_policy(name, settings).outcome_of(reward)
    return make_policy("rag", settings_that_fit("rag", settings).model_dump()).outcome_of(reward)


def is_installed(name: str) -> bool:
    """Whether there is a policy of this name here."""
    return name in usable_policies()


def update_rule(name: str) -> UpdateRule:
    """How a policy's rewards move a q; where the policy is not installed here, every q stays as it began."""
    try:
        return policy_class(name).rule
    except SettingsError:
        return unmoved
