"""Learned numbers: q of every memory over its uses, Rememberer's values of actions, and what is only counted.

Another method's q is the run's ledger folded again under its rule: the same prompts and rewards, but only the memories
that this method credits, each from its own q0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from memrl_core.analysis.run.learned.deciding import Watching
from memrl_core.learning import Fold, beginning, folded
from memrl_core.models.base import Cancelled, Progress, never, unheard
from memrl_core.policies import settings_that_fit
from memrl_core.policies.methods.memory_r1_ops import UNUSABLE
from memrl_core.policies.methods.pass_at_k import Tries
from memrl_core.policies.methods.rememberer import Advice, State, Table, advice_for
from memrl_core.policies.texts import exchanges
from memrl_core.prompting import ENCOURAGED
from memrl_core.records import EventKind, LedgerEvent, UtilityPoint, ValueChange
from memrl_core.retrieval.view import Asked

OPERATIONS = ("ADD", "UPDATE", "DELETE", "NOOP", UNUSABLE)


def operations_by_epoch(
    watching: Watching, on_progress: Progress = unheard, cancelled: Cancelled = never
) -> pd.DataFrame:
    """A row per epoch: how often each of `OPERATIONS` was done in its steps; the last are replies of no use."""
    counts: dict[int, Counter[str]] = {}
    for trace in watching.traces(on_progress, cancelled):
        tally = counts.setdefault(trace.epoch, Counter())
        for one in trace.write.operations if trace.write is not None else ():
            tally[UNUSABLE if one.op == "NOOP" and one.why.startswith(UNUSABLE) else one.op] += 1
    rows = [(epoch, *(tally[name] for name in OPERATIONS)) for epoch, tally in sorted(counts.items())]
    return pd.DataFrame(rows, columns=["epoch", *OPERATIONS])


def solved_within(tries: Tries) -> pd.DataFrame:
    """A row for each k up to the most tries: k, tasks solved within k tries, tasks whose k tries are over, share.

    `share` (pass@k) is of all tasks tried. It is too low where k tries are not over for all of them: an unsolved task
    may be solved at a try that has not come yet.
    """
    tasks, rows = len(tries.tries), []
    waiting = [n for task, n in tries.tries.items() if task not in tries.solved]
    for k in range(1, max(tries.tries.values(), default=0) + 1):
        solved, over = tries.solved_within(k), len(tries.solved) + sum(n >= k for n in waiting)
        rows.append((k, solved, over, tasks, solved / tasks))
    return pd.DataFrame(rows, columns=["k", "solved", "over", "tasks", "share"])


AdviceKind = Literal["encouraged", "discouraged", ""]


@dataclass(frozen=True, slots=True)
class KnownAction:
    """An action of a state: its learned value `q` after `tries`, its mean immediate `reward`, and what advice says.

    Advice that was `invented` is a row of its own: action and value are made up, and nothing was learned of them.
    """

    text: str
    q: float
    tries: int
    reward: float
    advice: AdviceKind
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
            tuple(_actions(state, advice_for(state, asked))),
            met.get((state.task, state.observation)),
        )
        for state in reversed(table.states.values())
        if state.actions
    ]
    return sorted(found, key=lambda state: len(met) + 1 if state.turn is None else state.turn)


def targets(watching: Watching) -> tuple[ValueChange, ...]:
    """What the step changed: each action's value before and after, its target as `reward`, and the sum behind it.

    Nothing where the step has no reward. Raises `SettingsError`.
    """
    return watching.method().learn(watching.before(), watching.lesson())


def _actions(state: State, advice: Sequence[Advice]) -> Iterator[KnownAction]:
    recorded = {text: _kind_of(one) for one in advice if not one.invented for text in one.actions}
    for action in sorted(state.actions.values(), key=lambda one: -one.q):
        yield KnownAction(action.text, action.q, action.visits, action.reward, recorded.get(action.text, ""))
    for one in advice:
        if one.invented:
            yield KnownAction(one.actions[0], one.value, 0, 0.0, _kind_of(one), invented=True)


def _kind_of(advice: Advice) -> AdviceKind:
    return "encouraged" if advice.heading == ENCOURAGED else "discouraged"


COLUMNS = ("memory", "use", "step", "before", "q", "reward")
SETTLING = (EventKind.RUN_STARTED, EventKind.SETTINGS_CHANGED)


def values_over_uses(watching: Watching, on_progress: Progress = unheard, cancelled: Cancelled = never) -> pd.DataFrame:
    """A row for each q that a memory had: memory, use (0: never yet), step, q before, q, and the reward that moved it.

    Rewards that came later count as they stand now. Raises `SettingsError`.
    """
    if watching.own:
        histories: Mapping[str, Sequence[UtilityPoint]] = watching.bank.histories(watching.run)
    else:
        histories = _under_its_rule(watching, on_progress, cancelled)
    rows = [
        (memory_id, point.visits, point.step, point.before, point.after, point.reward)
        for memory_id, points in histories.items()
        for point in points
        if point.step <= watching.step
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _under_its_rule(
    watching: Watching, on_progress: Progress, cancelled: Cancelled
) -> Mapping[str, Sequence[UtilityPoint]]:
    bank, run, method = watching.bank, watching.run, watching.method()
    info = bank.run(run)
    begun = Fold(type(method).rule, method.settings.model_dump())
    if info.base is not None:
        begun.utilities = dict(bank.utilities(info.base, info.base_step))
        for memory_id, known in begun.utilities.items():
            begun.histories[memory_id] = [beginning(memory_id, info.first_step - 1, known)]
    credited = {
        trace.id: method.credited(trace.decision) if trace.decision is not None else ()
        for trace in watching.traces(on_progress, cancelled)
    }
    events = [_as_credited(event, watching, credited) for event in bank.events(run)]
    return folded(begun, events, credited).histories


def _as_credited(event: LedgerEvent, watching: Watching, credited: Mapping[str, tuple[str, ...]]) -> LedgerEvent:
    """An event of the ledger as it would be if the run went by the method, with whom that credits by the step's id."""
    if event.kind is EventKind.REWARD_GIVEN:
        return replace(event, memory_ids=credited.get(event.step_id, ()))
    if event.kind in SETTLING:
        settings = settings_that_fit(watching.policy, event.payload["settings"]).model_dump()
        return replace(event, payload={**event.payload, "settings": settings})
    if event.kind is EventKind.MEMORY_WRITTEN:
        return replace(event, value=_first_q(event, watching))
    return event


def _first_q(event: LedgerEvent, watching: Watching) -> float:
    """q of a memory nobody has used yet: MemRL's q0 of its outcome, 0 where the method has none."""
    settings = watching.bank.settings(watching.run, event.step)
    named = "q0_failure" if watching.bank.memory(event.memory_ids[0]).outcome == "failure" else "q0_success"
    return float(getattr(settings_that_fit(watching.policy, settings), named, 0.0))


def values_moved(watching: Watching) -> pd.DataFrame:
    """A row for each learned value that the method names: its name, and the value before and after the step.

    Raises `SettingsError`.
    """
    method, states = watching.method(), (watching.before(), watching.after())
    before, after = ({} if state is None else dict(method.values(state)) for state in states)
    rows = [(name, before.get(name), after.get(name)) for name in {**before, **after}]
    return pd.DataFrame(rows, columns=["value", "before", "after"])
