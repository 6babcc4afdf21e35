"""What people have taught a run: q now beside what it would be without their rewards, and what follows from it.

All else stays as it is: which memories there are, what was recalled, the rewards of everybody else. A selection is made
again from the pool and under the settings and seed that its step recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from memrl_core.agent.rerun import Rerunner
from memrl_core.analysis.memory.provenance import refolded
from memrl_core.analysis.people.later_selections import Choices, Differing, Histories, differing
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import actor_of, person_name
from memrl_core.learning import REWARDING
from memrl_core.models.base import Cancelled
from memrl_core.records import LedgerEvent, Outcome, StepTrace, UtilityPoint


@dataclass(frozen=True, slots=True, eq=False)
class RewardEffect:
    """What rewarding events did to a run.

    `moved` maps the memories that the run sees now to their q (without the events, now) where these differ, the largest
    difference first. `without` and `now` are the histories that differ, of memories that it no longer sees too. `q` is
    what every memory has now, seen or not.
    """

    moved: Mapping[str, tuple[float, float]]
    without: Histories
    now: Histories
    q: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class AnsweredBothWays:
    """A task answered again with the memories selected without the people's rewards, and with them.

    `answers` are what the model said then, in the same order; `before` and `after` what became of it.
    """

    step: int
    intent: str
    before: Outcome
    after: Outcome
    answers: tuple[str, str]


def actions_since(bank: MemoryBank, person: str, created_from: datetime | None = None) -> list[LedgerEvent]:
    """What a person did about rewards from a moment on (None: ever), oldest first; a time without zone is local.

    That is all from the first such event that was created then or later, in the order of the ledger: a clock that is
    set back leaves nothing out. Raises `InputError` for an impossible name.
    """
    name = person_name(person)
    theirs = [event for event in bank.events() if event.kind in REWARDING and actor_of(event) == name]
    if created_from is None:
        return theirs
    # What is stored has whole milliseconds.
    moment = created_from.astimezone(UTC)
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    first = next((n for n, event in enumerate(theirs) if _created(event) >= moment), len(theirs))
    return theirs[first:]


def _created(event: LedgerEvent) -> datetime:
    """When an event was created; a time without zone is UTC, and none at all was long ago."""
    created = datetime.fromisoformat(event.created) if event.created else datetime.min
    return created if created.tzinfo else created.replace(tzinfo=UTC)


# --- q ----------------------------------------------------------------------------------------------------------------


def reward_effect(bank: MemoryBank, run: str, event_ids: Collection[str]) -> RewardEffect:
    """What the rewarding events among `event_ids`, of this run or of one it started from, have done to its q.

    Other events are left as they are. Raises `UnknownRun`.
    """
    seen, away, now = bank.utilities(run), bank.away(run), bank.histories(run)
    then = _histories(bank, run, frozenset(event_ids))
    differ = [memory_id for memory_id, points in now.items() if points != then[memory_id]]
    moved = {i: (then[i][-1].after, seen[i].q) for i in differ if i in seen and then[i][-1].after != seen[i].q}
    return RewardEffect(
        dict(sorted(moved.items(), key=lambda item: -abs(item[1][1] - item[1][0]))),
        {memory_id: then[memory_id] for memory_id in differ},
        {memory_id: now[memory_id] for memory_id in differ},
        {memory_id: utility.q for memory_id, utility in (*away.items(), *seen.items())},
    )


def _histories(bank: MemoryBank, run: str, left_out: Collection[str]) -> dict[str, Sequence[UtilityPoint]]:
    """`bank.histories` without some rewarding events."""

    def kept(event: LedgerEvent) -> LedgerEvent | None:
        return None if event.id in left_out and event.kind in REWARDING else event

    fold, before = refolded(bank, run, kept), bank.run(run).first_step - 1
    found: dict[str, Sequence[UtilityPoint]] = {}
    for memory_id, points in fold.histories.items():
        given = fold.inherited.get(memory_id, 0)
        found[memory_id] = [*(replace(point, step=before) for point in points[:given]), *points[given:]]
    return found


# --- selections -------------------------------------------------------------------------------------------------------


def selections_changed(choices: Choices, reward_effect: RewardEffect, last: int) -> list[Differing]:
    """Of the last `last` steps of `choices`, those whose tasks would now get other memories, in order.

    `selected` is made with q as it would be now without the events, `would` with q as it is now: neither is what the
    step itself had.
    """
    steps = sorted(choices.of_step)[-last:] if last > 0 else []
    latest = {step: choices.of_step[step] for step in steps}
    steps_of = {i: [step for step in where if step in latest] for i, where in choices.steps_of.items()}
    without = {memory_id: points[-1].after for memory_id, points in reward_effect.without.items()}
    return differing(Choices(latest, steps_of, {}), _ever({**reward_effect.q, **without}), _ever(reward_effect.q))


def _ever(q: Mapping[str, float]) -> Histories:
    """Histories in which every memory has had this q since before the first step."""
    return {i: [UtilityPoint(i, -1, None, value, 0, None, None, ())] for i, value in q.items()}


def rerun_tasks(
    bank: MemoryBank,
    run: str,
    steps: Sequence[Differing],
    rerunner_of: Callable[[StepTrace], Rerunner],
    report: Callable[[int, int], None] | None = None,
    cancelled: Cancelled | None = None,
) -> list[AnsweredBothWays]:
    """The tasks of steps answered again, each with `selected` and with `would` in the prompt; nothing is stored.

    Memories that the run no longer sees are used as stored. `report` gets the answers made and those to make. When
    `cancelled()` turns true, the tasks that were answered twice until then are returned. Raises what `rerunner_of`
    raises, `InputError` for a step that is not there, and `ModelError` when the model cannot be had.
    """
    found: list[AnsweredBothWays] = []
    for number, step in enumerate(steps):
        trace = bank.trace(run, step.step)
        rerunner = rerunner_of(trace)
        made = []
        for memories in (step.selected, step.would):
            if cancelled is not None and cancelled():
                return found
            again = rerunner.rerun(memories, cancelled=cancelled)
            if again.stopped:
                return found
            made.append(again)
            if report is not None:
                report(2 * number + len(made), 2 * len(steps))
        before, after = made
        answers = before.answer, after.answer
        found.append(AnsweredBothWays(step.step, trace.task.intent, before.outcome, after.outcome, answers))
    return found


# --- in words ---------------------------------------------------------------------------------------------------------


def moves_sentence(reward_effect: RewardEffect) -> str:
    """How many q moved, and how far: "5 q moved, by up to 0.42"."""
    if not reward_effect.moved:
        return "No q moved"
    furthest = max(abs(now - without) for without, now in reward_effect.moved.values())
    return f"{len(reward_effect.moved):,} q moved, by up to {furthest:.2g}"


def selections_sentence(found: Sequence[Differing], last: int) -> str:
    """How many of the `last` tasks get other memories: "3 of the last 20 tasks would get other memories"."""
    return f"{len(found) or 'None'} of the last {last:,} tasks would get other memories"


def reruns_sentence(found: Sequence[AnsweredBothWays]) -> str:
    """What became of the tasks: "1 of 3 re-run tasks is solved now and was not, 0 the other way round"."""
    if not found:
        return "No task was re-run"
    solved = [(one.before == "success", one.after == "success") for one in found]
    gained, lost = solved.count((False, True)), solved.count((True, False))
    is_, was = ("is", "was") if 1 in (gained, len(found)) else ("are", "were")
    tasks = f"{len(found):,} re-run task{'s' * (len(found) != 1)}"
    return f"{gained:,} of {tasks} {is_} solved now and {was} not, {lost:,} the other way round"
