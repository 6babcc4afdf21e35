"""What people's rewards did to a run: q now beside what it would be without them, and what follows from that.

All else stays as it is: which memories there are, what was recalled, the rewards of everybody else. The q before a step
is the fold of the ledger up to it; a reward given late, revoked or only supposed changes that fold from its step on.
The pool (phase A) knows no q, so a selection is made again from the recorded pool, settings and seed, with another q.
Recorded steps are never rewritten.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Any

from memrl_core.agent.rerun import Rerunner
from memrl_core.analysis.memory.provenance import refolded
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import actor_of, person_name
from memrl_core.bank.step_search import StepQuery
from memrl_core.errors import SettingsError
from memrl_core.learning import REWARDING
from memrl_core.models.base import Cancelled, Progress, never, unheard
from memrl_core.policies import make_policy
from memrl_core.policies.base import Policy
from memrl_core.policies.decide import decide, view_of_pool
from memrl_core.records import Decision, LedgerEvent, Outcome, RecallRecord, StepTrace, UtilityPoint

Histories = Mapping[str, Sequence[UtilityPoint]]
"""Every memory's entries in the order of their steps, as `bank.histories` gives them."""

FROM_A_FILE = "read from files of another program"
NOT_RECORDED = "recorded without pool, q or selection"
OTHER_RULES = "selected by rules that are not known here"
NOT_BY_Q = "selected by rules that do not go by q"
POOL_BY_Q = "recalled by q too, which a late reward may change"


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One selection and what it was made from: `q` and `visits` are those recorded, in the order of the pool."""

    policy: Policy[Any]
    recall: RecallRecord
    seed: int
    q: Mapping[str, float]
    visits: tuple[int, ...]
    selected: tuple[str, ...]

    def decided(self, q: Mapping[str, float]) -> Decision:
        """The policy's decision with this q of the pool; the same seed makes the same draw.

        Raises `InputError` when a q is not finite.
        """
        view = view_of_pool(self.recall, q, self.visits)
        return decide(self.policy, view, self.seed, pool=self.recall).decision


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """The selections of a run that can be made again by q alone.

    `of_step` maps steps to them, in order; `steps_of` each memory to the steps whose pool holds it; `left_out` every
    other step to the reason why it cannot be decided again.
    """

    of_step: Mapping[int, Choice]
    steps_of: Mapping[str, Sequence[int]]
    left_out: Mapping[int, str]

    @property
    def why_left_out(self) -> str:
        """A sentence on the steps that are left out; empty when there are none."""
        if not self.left_out:
            return ""
        every = len(self.left_out) + len(self.of_step)
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in Counter(self.left_out.values()).most_common())
        return f"{len(self.left_out):,} of {every:,} steps cannot be decided again by q alone: {reasons}."


@dataclass(frozen=True, slots=True)
class Differing:
    """A step that selects `selected` with one q and `would` with another, each in the order of the prompt."""

    step: int
    selected: tuple[str, ...]
    would: tuple[str, ...]


def compiled(
    bank: MemoryBank,
    run: str,
    steps: tuple[int, int] | None = None,
    known: Choices | None = None,
    on_progress: Progress = unheard,
    cancelled: Cancelled = never,
) -> Choices | None:
    """The selections of a run, or of the first to the last of `steps`; None when `cancelled()` turned true.

    With what is `known` of the whole run, only the steps that have ended since are read. Left out is a step without a
    recorded decision, from a file, or whose recorded selection does not follow from what was recorded: another agent's,
    or one made under settings that are no longer valid. `on_progress` gets the steps read and those to read. Raises
    `UnknownRun`, `BankDamaged`.
    """
    known = known or Choices({}, {}, {})
    read = max((*known.of_step, *known.left_out), default=bank.run(run).first_step - 1)
    first, last = steps or (read + 1, bank.next_step(run) - 1)
    policies: dict[str, Policy[Any]] = {}
    of_step, left_out = dict(known.of_step), dict(known.left_out)
    steps_of = {memory_id: list(where) for memory_id, where in known.steps_of.items()}
    for trace in bank.each_trace(run, (first, last)):
        if cancelled():
            return None
        choice = _choice(trace, policies)
        if isinstance(choice, Choice):
            of_step[trace.step] = choice
            for memory_id in choice.q:
                steps_of.setdefault(memory_id, []).append(trace.step)
        else:
            left_out[trace.step] = choice
        on_progress(trace.step - first + 1, last - first + 1)
    return Choices(of_step, steps_of, left_out)


def selections_with(
    choices: Choices, histories: Histories, steps: Iterable[int] | None = None
) -> dict[int, tuple[str, ...]]:
    """What each of `steps` (None: every one that can be decided) would have selected with the q of `histories` then.

    Where a memory has no entry before the step, as one that was imported anew, the q recorded stays. Raises
    `InputError` when a q is not finite.
    """
    selections = {}
    for step in choices.of_step if steps is None else steps:
        choice = choices.of_step[step]
        q = {i: _q_before(histories.get(i, ()), step, recorded) for i, recorded in choice.q.items()}
        selections[step] = choice.selected if q == choice.q else choice.decided(q).selected
    return selections


def _q_before(points: Sequence[UtilityPoint], step: int, recorded: float) -> float:
    earlier = bisect_left(points, step, key=attrgetter("step"))
    return points[earlier - 1].after if earlier else recorded


def differing(choices: Choices, one: Histories, two: Histories) -> list[Differing]:
    """The steps that select other memories with the histories `two` than with `one`, in order.

    Both hold all memories of the run. Only steps are decided whose pool holds a memory with two different histories.
    """
    changed = [memory_id for memory_id in choices.steps_of if one.get(memory_id) != two.get(memory_id)]
    steps = sorted({step for memory_id in changed for step in choices.steps_of[memory_id]})
    return _other(*(selections_with(choices, histories, steps) for histories in (one, two)))


def differing_after(
    bank: MemoryBank, run: str, step: int, one: Histories, two: Histories, cancelled: Cancelled = never
) -> list[Differing] | None:
    """The steps after `step` that select other memories with the histories `two` than with `one`, in order.

    Both hold the same memories, and all others have the histories that the bank has. Only the steps are read whose pool
    holds a memory with two different histories. None when `cancelled()` turned true. Raises what `compiled` raises.
    """
    later = step + 1, bank.next_step(run) - 1
    changed = [memory_id for memory_id in one if one[memory_id] != two.get(memory_id)]
    pooled = (bank.steps.matching(run, StepQuery(memory=memory_id, steps=later)) for memory_id in changed)
    of_step: dict[int, Choice] = {}
    for at in sorted(set(chain.from_iterable(pooled))):
        choices = compiled(bank, run, (at, at), cancelled=cancelled)
        if choices is None:
            return None
        of_step |= choices.of_step
    members = {memory_id for choice in of_step.values() for memory_id in choice.q}
    known, choices = bank.histories(run, members), Choices(of_step, {}, {})
    return _other(*(selections_with(choices, {**known, **histories}) for histories in (one, two)))


def refolded_later(one: Histories, two: Histories, step: int) -> list[int]:
    """The steps after `step` in which a q moves from or to another value in the histories `two` than in `one`."""

    def moves(histories: Histories) -> set[tuple[str, int, float | None, float]]:
        points = ((name, point) for name, known in histories.items() for point in known if point.step > step)
        return {(name, point.step, point.before, point.after) for name, point in points}

    return sorted({at for _, at, _, _ in moves(one) ^ moves(two)})


def marked(choices: Choices, histories: Histories) -> list[Differing]:
    """The steps that select other memories with the q of `histories` than they did when they ran, in order."""
    recorded = {step: choice.selected for step, choice in choices.of_step.items()}
    return _other(recorded, selections_with(choices, histories))


def _other(one: Mapping[int, tuple[str, ...]], two: Mapping[int, tuple[str, ...]]) -> list[Differing]:
    return [Differing(step, one[step], would) for step, would in two.items() if set(one[step]) != set(would)]


def _choice(trace: StepTrace, policies: dict[str, Policy[Any]]) -> Choice | str:
    """The choice of a step, or why it cannot be made again; `policies` keeps those made so far."""
    recall, decision = trace.recall, trace.decision
    if trace.origin == "import":
        return FROM_A_FILE
    weighed = {} if decision is None else {one.memory_id: one for one in decision.candidates}
    if recall is None or decision is None or any(member.memory_id not in weighed for member in recall.pool):
        return NOT_RECORDED
    rules = f"{trace.policy} {trace.settings}"
    try:
        policy = policies.get(rules) or policies.setdefault(rules, make_policy(trace.policy, trace.settings))
    except SettingsError:
        return OTHER_RULES
    if not policy.spec.keeps_q:
        return NOT_BY_Q
    if getattr(policy.settings, "least_q", None) is not None:
        return POOL_BY_Q
    pool = [weighed[member.memory_id] for member in recall.pool]
    choice = Choice(
        policy,
        replace(recall, left_out=()),
        decision.seed,
        {one.memory_id: one.q for one in pool},
        tuple(one.visits for one in pool),
        decision.selected,
    )
    return choice if set(choice.decided(choice.q).selected) == set(decision.selected) else OTHER_RULES


@dataclass(frozen=True, slots=True, eq=False)
class RewardEffect:
    """What rewarding events did to a run.

    `moved` maps the memories that the run sees now to their q (without the events, now) where these differ, the largest
    difference first. `without` are the histories that would differ, of memories that it no longer sees too. `q` is what
    every memory has now, seen or not.
    """

    moved: Mapping[str, tuple[float, float]]
    without: Histories
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


def actions_since(bank: MemoryBank, person: str, created_from: str = "") -> list[LedgerEvent]:
    """What a person did about rewards from a moment on (ISO 8601 in UTC; "" for ever), oldest first.

    Raises `InputError` for an impossible name.
    """
    name = person_name(person)
    rewarding = (event for event in bank.events() if event.kind in REWARDING and event.created >= created_from)
    return [event for event in rewarding if actor_of(event) == name]


# --- q ----------------------------------------------------------------------------------------------------------------


def reward_effect(bank: MemoryBank, run: str, event_ids: Collection[str]) -> RewardEffect:
    """What the rewarding events among `event_ids`, of this run or of one it started from, have done to its q.

    Other events are left as they are. Raises `UnknownRun`.
    """
    seen, now = bank.utilities(run), bank.histories(run)
    left_out = frozenset(event_ids)

    def kept(event: LedgerEvent) -> LedgerEvent | None:
        return None if event.id in left_out and event.kind in REWARDING else event

    fold, before = refolded(bank, run, kept), bank.run(run).first_step - 1
    without: dict[str, Sequence[UtilityPoint]] = {}
    for memory_id, points in fold.histories.items():
        inherited = fold.inherited.get(memory_id, 0)
        then = [*(replace(point, step=before) for point in points[:inherited]), *points[inherited:]]
        if then != now[memory_id]:
            without[memory_id] = then
    moved = {i: (points[-1].after, seen[i].q) for i, points in without.items() if i in seen}
    return RewardEffect(
        dict(sorted(((i, q) for i, q in moved.items() if q[0] != q[1]), key=lambda one: -abs(one[1][1] - one[1][0]))),
        without,
        {memory_id: utility.q for memory_id, utility in (*bank.editing.away(run).items(), *seen.items())},
    )


# --- selections -------------------------------------------------------------------------------------------------------


def selections_changed(choices: Choices, reward_effect: RewardEffect, last: int) -> list[Differing]:
    """Of the last `last` steps of `choices`, those whose tasks would now get other memories, in order.

    `selected` is made with q as it would be now without the events, `would` with q as it is now: neither is what the
    step itself had.
    """
    steps = sorted(choices.of_step)[-last:] if last > 0 else []
    without = {memory_id: points[-1].after for memory_id, points in reward_effect.without.items()}
    always = ({**reward_effect.q, **without}, reward_effect.q)
    return _other(*(selections_with(choices, _ever(q), steps) for q in always))


def _ever(q: Mapping[str, float]) -> Histories:
    """Histories in which every memory has had this q since before the first step."""
    return {i: [UtilityPoint(i, -1, None, value, 0, None, None, ())] for i, value in q.items()}


def rerun_tasks(
    bank: MemoryBank,
    run: str,
    steps: Sequence[Differing],
    rerunner_of: Callable[[StepTrace], Rerunner],
    report: Progress = unheard,
    cancelled: Cancelled = never,
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
            if cancelled():
                return found
            again = rerunner.rerun(memories, cancelled=cancelled)
            if again.stopped:
                return found
            made.append(again)
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
    """What became of the tasks: "Of 3 tasks re-run, 1 solved now and not before, 0 the other way round"."""
    if not found:
        return "No task was re-run"
    solved = [(one.before == "success", one.after == "success") for one in found]
    gained, lost = solved.count((False, True)), solved.count((True, False))
    return f"Of {len(found):,} tasks re-run, {gained:,} solved now and not before, {lost:,} the other way round"
