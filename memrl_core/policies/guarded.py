"""A policy of another package, whose failures become sentences."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from memrl_core.errors import MemRLError, PolicyFailed, SettingsError
from memrl_core.policies.base import Policy
from memrl_core.policies.contract import decision_breaks
from memrl_core.records import Decision, RecallRecord
from memrl_core.view import MemoryView

HOOKS = (
    "when",
    "key",
    "recall",
    "consult",
    "render",
    "render_turn",
    "reward_of",
    "outcome_of",
    "review",
    "credited",
    "update",
    "write",
    "forget",
    "start",
    "learn",
    "remember",
    "values",
)


def guarded(name: str, found: Any) -> type[Policy[Any]]:
    """`found` with each hook guarded: what it raises becomes a `PolicyFailed`, as does a decision that breaks the
    contract. Raises `SettingsError` when it is not a policy at all.
    """
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise SettingsError(
            f"The package behind “{name[:80]}” offers no subclass of memrl_core.policies.base.Policy. Nothing was "
            "started; mend or remove the package."
        )
    hooks: dict[str, Any] = {hook: _told(name, hook, getattr(found, hook)) for hook in HOOKS}
    select = _told(name, "select", found.select)

    def checked_select(self: Policy[Any], recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        decision: Decision = select(self, recalled, view, seed)
        broken = decision_breaks(recalled, decision)
        if broken:
            raise PolicyFailed(
                f"The policy “{name[:80]}” broke its contract in select: {broken}. What came before is kept; mend the "
                "policy, then try again, or choose another one."
            )
        return decision

    return type(found.__name__, (found,), {**hooks, "select": checked_select, "__doc__": found.__doc__})


def _told(name: str, hook: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except MemRLError:
            raise
        except Exception as error:
            raise PolicyFailed(
                f"The policy “{name[:80]}” failed in {hook} ({type(error).__name__}: {str(error)[:200]}). What came "
                "before is kept; mend the policy, then try again, or choose another one."
            ) from error

    return call
