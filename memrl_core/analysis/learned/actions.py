"""What Rememberer has learned: the states it knows, the value of every action in them, and its last targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from memrl_core.analysis.learned.watching import Watching
from memrl_core.policies.methods.rememberer import Advice, State, Table, advice_for
from memrl_core.policies.texts import exchanges
from memrl_core.prompting import ENCOURAGED
from memrl_core.records import ValueChange
from memrl_core.retrieval.view import Asked

Said = Literal["encouraged", "discouraged", ""]


@dataclass(frozen=True, slots=True)
class KnownAction:
    """An action of a state: its learned value `q` after `tries`, its mean immediate `reward`, and what advice says.

    Advice that was `invented` is a row of its own: action and value are made up, and nothing was learned of them.
    """

    text: str
    q: float
    tries: int
    reward: float
    said: Said
    invented: bool = False


@dataclass(frozen=True, slots=True)
class KnownState:
    """A state of the table with its actions, those with the highest q first, what was invented last.

    `turn` is the turn of the step looked at that met it first, from 1; None where it met others.
    """

    memory_id: str
    task: str
    observation: str
    actions: tuple[KnownAction, ...]
    turn: int | None


def known_states(watching: Watching) -> list[KnownState]:
    """The states known when the step had ended: first those that it met, in their order, then the newest.

    The advice is that which the step after it would be given at its beginning. Raises `SettingsError`.
    """
    table, trace = watching.after(), watching.trace
    settings: Any = watching.method().settings
    assert isinstance(table, Table)
    met: dict[tuple[str, str], int] = {}
    for turn, exchange in enumerate(exchanges(trace), start=1):
        met.setdefault((trace.task.intent, exchange.observation), turn)
    asked = Asked(np.zeros(0, dtype=np.float32), step=trace.step + 1)
    found = [
        KnownState(
            state.memory_id,
            state.task,
            state.observation,
            tuple(_actions(state, advice_for(state, asked, not settings.norandom))),
            met.get((state.task, state.observation)),
        )
        for state in reversed(table.states.values())
        if state.actions
    ]
    return sorted(found, key=lambda state: len(met) + 1 if state.turn is None else state.turn)


def targets(watching: Watching) -> tuple[ValueChange, ...]:
    """What the step taught: each action's value before and after, its target as `reward`, and the sum behind it.

    Nothing where the step has no reward. Raises `SettingsError`.
    """
    return watching.method().learn(watching.before(), watching.lesson())


def _actions(state: State, advice: Sequence[Advice]) -> Iterator[KnownAction]:
    recorded = {text: _said(one) for one in advice if not one.invented for text in one.actions}
    for action in sorted(state.actions.values(), key=lambda one: -one.q):
        yield KnownAction(action.text, action.q, action.visits, action.reward, recorded.get(action.text, ""))
    for one in advice:
        if one.invented:
            yield KnownAction(one.actions[0], one.value, 0, 0.0, _said(one), invented=True)


def _said(advice: Advice) -> Said:
    return "encouraged" if advice.heading == ENCOURAGED else "discouraged"
