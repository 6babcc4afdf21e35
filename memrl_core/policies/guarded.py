"""A policy of another package, whose failures become sentences."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, get_args

from memrl_core.errors import MemRLError, PolicyFailed, SettingsError
from memrl_core.policies.base import Policy, When, Written
from memrl_core.policies.contract import decision_breaks
from memrl_core.policies.spec import PolicySpec
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

    Raises `SettingsError` when it is not a policy at all.
    """
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise _unusable(name, "offers no subclass of memrl_core.policies.base.Policy")
    if not isinstance(getattr(found, "spec", None), PolicySpec):
        raise _unusable(name, "offers a policy whose `spec` is no PolicySpec")
    if not (isinstance(found.Settings, type) and issubclass(found.Settings, PolicySettings)):
        raise _unusable(name, "offers a policy whose `Settings` are no subclass of PolicySettings")
    hooks: dict[str, Any] = {hook: _told(name, hook, getattr(found, hook), check) for hook, check in HOOKS.items()}
    rule = staticmethod(_told(name, "rule", found.rule, _number))
    own = {"rule": rule, "spec": replace(found.spec, name=name), "__doc__": found.__doc__}
    return type(found.__name__, (found,), {**hooks, **own})


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


def _several(kind: type) -> Check:
    return lambda given, *_, **__: "" if _are(kind, given) else _wrong(given, f"a tuple of {kind.__name__}")


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


def _decision(given: Any, policy: Policy[Any], recalled: RecallRecord, view: MemoryView, seed: int) -> str:
    return decision_breaks(recalled, given) if isinstance(given, Decision) else _wrong(given, "a Decision")


def _credits(given: Any, policy: Policy[Any], decision: Decision) -> str:
    strangers = [memory_id for memory_id in given if memory_id not in decision.selected]
    return f"it credited “{strangers[0][:80]}”, which was not in the prompt" if strangers else ""


def _anything(given: Any, *_: Any, **__: Any) -> str:
    return ""


HOOKS: Mapping[str, Check] = {
    "__init__": _anything,
    "when": _one(When),
    "key": _one(str),
    "excluded_task": _one(str),
    "recall": _one(RecallRecord),
    "consult": _one(Mapping),
    "select": _decision,
    "render": _prompt,
    "render_turn": _one(str),
    "reward_of": _number,
    "outcome_of": _outcome,
    "review": _anything,
    "credited": _credits,
    "step_size": _number,
    "update": _several(ValueChange),
    "write": _several(Written),
    "forget": _several(MemoryOperation),
    "start": _anything,
    "learn": _several(ValueChange),
    "remember": _anything,
    "values": _values,
}
"""The hooks of a policy with what each may give back; `rule` is guarded too."""
