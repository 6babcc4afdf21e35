"""A policy of another package, whose failures become sentences."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, get_args

from memrl_core.errors import MemRLError, PolicyFailed, SettingsError
from memrl_core.policies.base import Policy, When, Written
from memrl_core.policies.breaks import decision_breaks, json_breaks, record_breaks, sound_spec
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
from memrl_core.view import MemoryView

Check = Callable[..., str]
"""What is wrong with what a hook gave back, in words; called with that, then with what the hook was called with."""


def guarded(name: str, found: Any) -> type[Policy[Any]]:
    """`found` with each hook guarded: what it raises becomes a `PolicyFailed`, as does what breaks the contract.

    It is known by `name`, whatever its card says. Raises `SettingsError` when it is not a policy at all, or one that
    could not be shown: its card is not sound, or it cannot be made when nothing is set. One that cannot be made under
    other settings raises it then.
    """
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise _unusable(name, "offers no subclass of memrl_core.policies.base.Policy")
    if not (isinstance(found.Settings, type) and issubclass(found.Settings, PolicySettings)):
        raise _unusable(name, "offers a policy whose `Settings` are no subclass of PolicySettings")
    if not _are(str, found.ignored) or not set(found.ignored) <= found.Settings.model_fields.keys():
        raise _unusable(name, "offers a policy whose `ignored` is no tuple of names of its settings")
    try:
        spec = sound_spec(getattr(found, "spec", None), name)
    except ValueError as error:
        raise _unusable(name, f"offers a policy whose {error}") from error
    hooks: dict[str, Any] = {hook: _told(name, hook, getattr(found, hook), check) for hook, check in HOOKS.items()}
    own = {
        "__init__": _made(name, found),
        "rule": staticmethod(_told(name, "rule", found.rule, _number)),
        "spec": spec,
        "Settings": _settings(name, found.Settings),
        "__doc__": found.__doc__,
    }
    made: type[Policy[Any]] = type(found.__name__, (found,), {**hooks, **own})
    made(made.Settings.of({}))
    return made


def _made(name: str, found: type[Policy[Any]]) -> Callable[..., None]:
    """How it is made, with the card that it then has."""

    @functools.wraps(found.__init__)
    def make(policy: Policy[Any], settings: PolicySettings) -> None:
        try:
            found.__init__(policy, settings)
            policy.spec = sound_spec(policy.spec, name)
        except SettingsError:
            raise
        except Exception as error:
            raise SettingsError(
                f"The policy “{name[:80]}” cannot be made under these settings ({type(error).__name__}: "
                f"{str(error)[:200]}). Nothing was changed; set other values, or mend the policy."
            ) from error

    return make


def _settings(name: str, found: type[PolicySettings]) -> type[PolicySettings]:
    """Its settings, whose own validators may fail in any way."""

    def of(cls: type[PolicySettings], values: Mapping[str, Any]) -> PolicySettings:
        try:
            valid: PolicySettings = super(guarded_settings, cls).of(values)
            return valid
        except SettingsError:
            raise
        except Exception as error:
            raise SettingsError(
                f"The settings of the policy “{name[:80]}” cannot be checked ({type(error).__name__}: "
                f"{str(error)[:200]}). Settings were not changed; set other values, or mend the policy."
            ) from error

    guarded_settings: Any = type(found.__name__, (found,), {"of": classmethod(of), "__module__": found.__module__})
    made: type[PolicySettings] = guarded_settings
    return made


def _told(name: str, hook: str, function: Callable[..., Any], check: Check) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = function(*args, **kwargs)
            broken = check(given, *args, **kwargs)
        except MemRLError:
            raise
        except Exception as error:
            raise PolicyFailed(
                f"The policy “{name[:80]}” failed in {hook} ({type(error).__name__}: {str(error)[:200]}). What came "
                "before is kept; mend the policy, then try again, or choose another one."
            ) from error
        if broken:
            raise PolicyFailed(
                f"The policy “{name[:80]}” broke its contract in {hook}: {broken}. What came before is kept; mend the "
                "policy, then try again, or choose another one."
            )
        return given

    return call


def _unusable(name: str, how: str) -> SettingsError:
    return SettingsError(f"The package behind “{name[:80]}” {how}. Nothing was started; mend or remove the package.")


# --- what the hooks may give back -------------------------------------------------------------------------------------


def _wrong(given: Any, wanted: str) -> str:
    return f"it gave back {str(given)[:80]!r} instead of {wanted}"


def _one(kind: type) -> Check:
    return lambda given, *_, **__: "" if isinstance(given, kind) else _wrong(given, f"a {kind.__name__}")


def _record(kind: type) -> Check:
    return lambda given, *_, **__: _found(given) if isinstance(given, kind) else _wrong(given, f"a {kind.__name__}")


def _several(kind: type) -> Check:
    return lambda given, *_, **__: _found(*given) if _are(kind, given) else _wrong(given, f"a tuple of {kind.__name__}")


def _found(*records: Any) -> str:
    """What is wrong with the first of these records that cannot be stored."""
    return next((f"it gave back {broken}" for broken in map(record_breaks, records) if broken), "")


def _are(kind: type, given: Any) -> bool:
    listed = isinstance(given, Sequence) and not isinstance(given, str)
    return listed and all(isinstance(one, kind) for one in given)


def _number(given: Any, *_: Any, **__: Any) -> str:
    return "" if isinstance(given, Real) and math.isfinite(given) else _wrong(given, "a finite number")


def _outcome(given: Any, *_: Any, **__: Any) -> str:
    return "" if given in get_args(Outcome) else _wrong(given, f"one of {', '.join(get_args(Outcome))}")


def _prompt(given: Any, *_: Any, **__: Any) -> str:
    fits = len(given) == 2 and _are(Message, given[0]) and _are(MemorySpan, given[1])
    return "" if fits else _wrong(given, "messages and spans")


def _values(given: Any, *_: Any, **__: Any) -> str:
    return "" if all(isinstance(key, str) and not _number(given[key]) for key in given) else _wrong(given, "numbers")


def _consulted(given: Any, *_: Any, **__: Any) -> str:
    return json_breaks("answer", given) if isinstance(given, Mapping) else _wrong(given, "a Mapping")


def _decision(given: Any, policy: Policy[Any], recalled: RecallRecord, view: MemoryView, seed: int) -> str:
    if not isinstance(given, Decision):
        return _wrong(given, "a Decision")
    return decision_breaks(recalled, given) or _found(given)


def _credits(given: Any, policy: Policy[Any], decision: Decision) -> str:
    strangers = [memory_id for memory_id in given if memory_id not in decision.selected]
    return f"it credited “{strangers[0][:80]}”, which was not in the prompt" if strangers else ""


def _updated(
    given: Any, policy: Policy[Any], credited: Sequence[str] = (), reward: float = 0.0, values: object = None
) -> str:
    wrong = _several(ValueChange)(given)
    strangers = [] if wrong else [change.memory_id for change in given if change.memory_id not in credited]
    return wrong or (f"it moved “{strangers[0][:80]}”, which was not credited" if strangers else "")


def _written(given: Any, *_: Any, **__: Any) -> str:
    if not _are(Written, given):
        return _wrong(given, "a tuple of Written")
    return _several(MemoryOperation)([one.operation for one in given])


def _forgotten(given: Any, *_: Any, **__: Any) -> str:
    wrong = _several(MemoryOperation)(given)
    others = [] if wrong else [one.op for one in given if one.op != "DELETE"]
    return wrong or (f"it gave back {others[0]} instead of DELETE" if others else "")


def _anything(given: Any, *_: Any, **__: Any) -> str:
    return ""


HOOKS: Mapping[str, Check] = {
    "when": _record(When),
    "key": _one(str),
    "excluded_task": _one(str),
    "recall": _record(RecallRecord),
    "consult": _consulted,
    "select": _decision,
    "render": _prompt,
    "render_turn": _one(str),
    "reward_of": _number,
    "outcome_of": _outcome,
    "review": _anything,
    "credited": _credits,
    "step_size": _number,
    "update": _updated,
    "write": _written,
    "forget": _forgotten,
    "start": _anything,
    "learn": _several(ValueChange),
    "remember": _anything,
    "values": _values,
}
"""The hooks of a policy with what each may give back; `__init__` and `rule` are guarded too."""
