"""A policy of another package with its hooks guarded: what fails there is a sentence, and nothing of it is stored."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import isroutine
from types import NoneType
from typing import Any, get_type_hints

from memrl_core.errors import PolicyFailed, SettingsError
from memrl_core.plugins import Breach, hook, read_again, shortened
from memrl_core.policies.base import Policy, Written
from memrl_core.policies.contract import decision_breaks, sound_spec
from memrl_core.records import MemoryOperation
from memrl_core.settings import PolicySettings

NOT_MADE = "Settings were not changed; set other values, or mend the policy."

HOOKS: Mapping[str, Any] = {
    name: get_type_hints(getattr(Policy, name))["return"]
    for name, found in vars(Policy).items()
    if isroutine(found) and not name.startswith("_") and name not in ("ranked", "wide_recall")
}
"""The hooks of a policy and what each gives: no other type passes, and no infinite number or NaN."""


def guarded(name: str, found: Any) -> type[Policy[Any]]:
    """`found` with each hook guarded, known by `name` whatever its card says.

    Raises `Breach` when it is no policy or could not be shown, `SettingsError` when its defaults fail.
    """
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise Breach("it is no subclass of memrl_core.policies.base.Policy")
    if not (isinstance(found.Settings, type) and issubclass(found.Settings, PolicySettings)):
        raise Breach("its `Settings` are no subclass of PolicySettings")
    if not isinstance(found.ignored, tuple | list) or not {*found.ignored} <= found.Settings.model_fields.keys():
        raise Breach("its `ignored` is no tuple of names of its settings")
    spec, plugin = sound_spec(getattr(found, "spec", None), name), f"policy “{name[:80]}”"

    def make(policy: Policy[Any], settings: PolicySettings) -> None:
        with hook(plugin, "__init__", SettingsError, NOT_MADE):
            found.__init__(policy, settings)
            policy.spec = sound_spec(policy.spec, name)

    def of(cls: type[PolicySettings], values: Mapping[str, Any]) -> PolicySettings:
        with hook(plugin, "its settings", SettingsError, NOT_MADE):
            valid: PolicySettings = super(guarded_settings, cls).of(values)
            return valid

    guarded_settings: Any = type(
        found.Settings.__name__, (found.Settings,), {"of": classmethod(of), "__module__": found.__module__}
    )
    own: dict[str, Any] = {name: _guarded_hook(plugin, name, getattr(found, name)) for name in HOOKS}
    own |= {"rule": staticmethod(own["rule"]), "__init__": make, "spec": spec, "Settings": guarded_settings}
    made: type[Policy[Any]] = type(found.__name__, (found,), {**own, "__doc__": found.__doc__})
    made(made.Settings.of({}))
    return made


def _guarded_hook(plugin: str, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The hook, which gives what it gave as that will be read from the bank."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with hook(plugin, name, PolicyFailed):
            given = function(*args, **kwargs)
            if HOOKS[name] in (Any, NoneType):
                return given
            kept = _written(given) if name == "write" else read_again(HOOKS[name], given)
            if misfit := _misfit(name, given, *args[1:]):
                raise Breach(misfit)
            return kept

    return call


def _written(given: Any) -> tuple[Written, ...]:
    if not all(isinstance(one, Written) for one in given):
        raise Breach(f"{shortened(given)} is not a tuple of Written")
    return tuple(replace(one, operation=read_again(MemoryOperation, one.operation)) for one in given)


def _misfit(name: str, given: Any, *called_with: Any) -> str:
    """What of a hook's result does not fit what the hook was called with."""
    strangers: list[str] = []
    if name == "select":
        return decision_breaks(called_with[0], given)
    if name == "forget":
        return next((f"it gave {one.op} instead of DELETE" for one in given if one.op != "DELETE"), "")
    if name == "credited":
        strangers = [i for i in given if i not in called_with[0].selected]
    elif name == "update":
        strangers = [change.memory_id for change in given if change.memory_id not in called_with[0]]
    return f"it named “{strangers[0][:80]}”, to which no reward goes" if strangers else ""
