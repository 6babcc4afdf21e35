"""What there is to see of a run at one moment: at its live end, or as it was when an earlier step had ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

from memrl_core.agent import Episode
from memrl_core.bank import MemoryBank
from memrl_core.errors import SettingsError
from memrl_core.learning import rewards_of
from memrl_core.numerals import signed
from memrl_core.policies import outcome_of, update_rule
from memrl_core.records import (
    LedgerEvent,
    Memory,
    Outcome,
    Phase,
    RewardRecord,
    RunInfo,
    StepTrace,
    UpdateRecord,
    Utility,
    ValueChange,
)

RECORDS = {
    Phase.RECALL: "recall",
    Phase.SELECT: "decision",
    Phase.GENERATE: "generate",
    Phase.REWARD: "reward",
    Phase.UPDATE: "update",
    Phase.WRITE: "write",
}
"""Where a trace keeps what each phase did."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A step of a run and what the run believed then.

    `trace` is None before the first step; `next_phase` is the phase that runs next, None when the step has ended.
    `utilities` maps every memory the run could see, oldest first, to its q and visits. `live` is False in a replay.
    """

    run: RunInfo
    trace: StepTrace | None
    next_phase: Phase | None
    utilities: Mapping[str, Utility]
    live: bool

    def reached(self, phase: Phase) -> bool:
        """Whether `phase` has run to its end; of a step from elsewhere or a skipped one, whether it is recorded."""
        if self.trace is None:
            return False
        if self.trace.origin != "agent" or self.trace.skipped:
            return phase is Phase.EMBED or getattr(self.trace, RECORDS[phase]) is not None
        order = list(Phase)
        return self.next_phase is None or order.index(phase) < order.index(self.next_phase)

    @property
    def pool(self) -> tuple[str, ...]:
        """The ids that phase A recalled, most similar first."""
        recall = None if self.trace is None else self.trace.recall
        return () if recall is None else tuple(member.memory_id for member in recall.pool)

    @property
    def selected(self) -> tuple[str, ...]:
        """The ids that were given to the model."""
        return () if self.trace is None or self.trace.decision is None else self.trace.decision.selected


def replayed(bank: MemoryBank, run: str, step: int) -> Moment:
    """The moment when `step` had ended, as it was known then. Raises `InputError` when there is no such step."""
    return Moment(bank.run(run), bank.trace(run, step), None, _Past(bank, run, step), live=False)


class _Past(Mapping[str, Utility]):
    """q and visits of the memories that a run saw when `step` had ended, read when they are asked for: of a step in the
    middle of a long run that takes seconds.
    """

    def __init__(self, bank: MemoryBank, run: str, step: int) -> None:
        self._asked = bank, run, step

    @cached_property
    def _known(self) -> Mapping[str, Utility]:
        bank, run, step = self._asked
        return bank.utilities(run, as_of=step)

    def __getitem__(self, memory_id: str) -> Utility:
        return self._known[memory_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def current(bank: MemoryBank, run: str, episode: Episode | None) -> Moment:
    """The live end of a run: the step under way, else the one that ended last."""
    info, utilities = bank.run(run), dict(bank.utilities(run))
    last = bank.next_step(run) - 1
    if episode is None or (episode.phase is None and episode.trace.step != last):
        return Moment(info, bank.trace(run, last) if last >= info.first_step else None, None, utilities, live=True)
    if episode.phase is Phase.WRITE and episode.trace.update is not None:
        # The step is stored as a whole when it ends; what it has moved so far is in its trace only.
        utilities |= {c.memory_id: Utility(c.after, c.visits) for c in episode.trace.update.of_q}
    return Moment(info, episode.trace, episode.phase, utilities, live=True)


class Texts(Mapping[str, Memory]):
    """Memories of a bank by the ids of `known`, each read when asked for: most screens show a few of thousands."""

    def __init__(self, bank: MemoryBank, known: Mapping[str, Utility]) -> None:
        self._bank = bank
        self._known = known

    def __getitem__(self, memory_id: str) -> Memory:
        if memory_id not in self._known:
            raise KeyError(memory_id)
        return self._bank.memory(memory_id)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def considered(trace: StepTrace) -> set[str]:
    """The memories that phases A and B looked at in a step."""
    seen = {one.memory_id for one in (*trace.recall.pool, *trace.recall.left_out)} if trace.recall else set()
    return seen | {candidate.memory_id for candidate in trace.decision.candidates} if trace.decision else seen


def later_reward(bank: MemoryBank, trace: StepTrace) -> str | None:
    """What a finished step's reward is now and whose, in a sentence, when it is another than the one it ended with.

    None for a step that is not stored yet: what the ledger holds of it does not count before it is.
    """
    if trace.reward is None or not bank.steps.has(trace.run, trace.step):
        return None
    now = bank.ratings.effective(trace.run, trace.step)
    if now == trace.reward.reward:
        return None
    if now is None:
        return "The reward was revoked after this step. It no longer counts."
    parts = rewards_of(bank.ratings.active(trace.run, trace.step, trace.id), bank.settings(trace.run, trace.step))
    reasons = {event.rater: event.reason for event in bank.ratings.active(trace.run, trace.step, trace.id)}
    givers = [
        ", ".join(f"{rater} ({reasons[rater]})" if reasons.get(rater) else rater for rater in part.raters)
        or "the environment"
        for part in parts
    ]
    return f"Since this step ended its reward counts as {signed(now)}, given by {' and '.join(givers)}."


def as_it_counts(bank: MemoryBank, trace: StepTrace) -> StepTrace:
    """A finished step with its reward, and the moves of q that follow from it, as the ledger has them now.

    All else stays as it was recorded, and so does a step that is not stored yet.
    """
    if not bank.steps.has(trace.run, trace.step):
        return trace
    active = bank.ratings.active(trace.run, trace.step, trace.id)
    return replace(trace, reward=_reward_now(bank, trace, active), update=_update_now(bank, trace, active))


def outcome_now(trace: StepTrace, reward: float | None) -> Outcome:
    """What this reward of a finished step means by the step's own rules; unrated where these are not here."""
    try:
        return outcome_of(trace.policy, trace.settings, reward)
    except SettingsError:
        # A step from elsewhere may have been judged by rules that are not here.
        return "unrated"


def _reward_now(bank: MemoryBank, trace: StepTrace, active: list[LedgerEvent]) -> RewardRecord | None:
    then, parts = trace.reward, rewards_of(active, bank.settings(trace.run, trace.step))
    reward, source = (fmean(part.value for part in parts), parts[-1].source) if parts else (None, None)
    people = [event for event in active if event.source == "person"]
    rater = ", ".join(event.rater for event in people)
    reason = " · ".join(event.reason for event in people if event.reason)
    if then is None:
        if not active:
            return None
        credited = tuple(dict.fromkeys(memory_id for event in active for memory_id in event.memory_ids))
        return RewardRecord(reward, source, outcome_now(trace, reward), "", rater, reason, credited)
    if (reward, source) == (then.reward, then.source):
        return replace(then, rater=rater, reason=reason)
    outcome = outcome_now(trace, reward)
    return replace(then, reward=reward, source=source, outcome=outcome, rater=rater, reason=reason)


def _update_now(bank: MemoryBank, trace: StepTrace, active: list[LedgerEvent]) -> UpdateRecord | None:
    then = trace.update
    settings, rule = bank.settings(trace.run, trace.step), update_rule(trace.policy)
    recorded = {(c.memory_id, c.before, c.after, c.reward): c for c in (then.of_q if then else ())}
    histories = bank.histories(trace.run, (memory_id for event in active for memory_id in event.memory_ids))
    moved = []
    for memory_id, points in histories.items():
        for point in points:
            if point.step == trace.step and point.before is not None and point.reward is not None:
                believed = Utility(point.before, point.visits - 1)
                alpha = rule(believed, point.before + 1, settings) - point.before
                change = ValueChange(memory_id, point.before, point.after, point.visits, point.reward, alpha)
                moved.append(recorded.get((memory_id, point.before, point.after, point.reward), change))
    if then is None:
        return UpdateRecord(tuple(moved)) if moved else None
    return UpdateRecord((*moved, *(change for change in then.changes if change not in then.of_q)))
