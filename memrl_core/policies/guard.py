"""A policy of another package with its hooks guarded: what fails there is a sentence, and nothing of it is stored."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from memrl_core.errors import PolicyFailed, SettingsError
from memrl_core.plugins import Breach, hook, read_again, shortened
from memrl_core.policies.base import Policy, When, Written
from memrl_core.policies.contract import decision_breaks, sound_spec
from memrl_core.records import (
    Decision,
    MemoryOperation,
    MemorySpan,
    Message,
    Outcome,
    RecallRecord,
    ValueChange,
)
from memrl_core.settings import PolicySettings

NOT_MADE = "Settings were not changed; set other values, or mend the policy."

HOOKS: Mapping[str, Any] = {
    "when": When,
    "key": str,
    "excluded_task": str,
    "recall": RecallRecord,
    "consult": dict[str, Any],
    "select": Decision,
    "render": tuple[tuple[Message, ...], tuple[MemorySpan, ...]],
    "render_turn": str,
    "reward_of": float,
    "outcome_of": Outcome,
    "review": None,
    "credited": tuple[str, ...],
    "rule": float,
    "step_size": float,
    "update": tuple[ValueChange, ...],
    "write": tuple[Written, ...],
    "forget": tuple[MemoryOperation, ...],
    "start": None,
    "learn": tuple[ValueChange, ...],
    "remember": None,
    "values": dict[str, float],
}
"""The hooks of a policy and what each gives (None: anything): no other type passes, and no infinite number or NaN."""


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
            kind = HOOKS[name]
            if kind is None:
                return given
            kept = _written(given) if name == "write" else read_again(kind, given)
            if name in _FITTING:
                _FITTING[name](given, *args[1:])
            return kept

    return call


def _written(given: Any) -> tuple[Written, ...]:
    if not all(isinstance(one, Written) for one in given):
        raise Breach(f"{shortened(given)} is not a tuple of Written")
    return tuple(replace(one, operation=read_again(MemoryOperation, one.operation)) for one in given)


def _chosen(given: Decision, recalled: RecallRecord, *_: Any) -> None:
    if broken := decision_breaks(recalled, given):
        raise Breach(broken)


def _credits(given: Sequence[str], decision: Decision) -> None:
    if strangers := [i for i in given if i not in decision.selected]:
        raise Breach(f"it credited “{strangers[0][:80]}”, which was not in the prompt")


def _moves(given: Sequence[ValueChange], credited: Sequence[str], *_: Any) -> None:
    if strangers := [change.memory_id for change in given if change.memory_id not in credited]:
        raise Breach(f"it moved “{strangers[0][:80]}”, which was not credited")


def _forgets(given: Sequence[MemoryOperation], *_: Any) -> None:
    if others := [one.op for one in given if one.op != "DELETE"]:
        raise Breach(f"it gave {others[0]} instead of DELETE")


_FITTING: Mapping[str, Callable[..., None]] = {
    "select": _chosen,
    "credited": _credits,
    "update": _moves,
    "forget": _forgets,
}
"""What each hook's result must fit, beyond its type, by what the hook was called with."""
