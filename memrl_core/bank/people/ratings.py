"""The one door for a person's reward, whoever calls: screen, key, file of rewards, or a program.

Each person has one active reward per step, which is given, changed and taken back. Bounds, role, the rater's name,
repeats and credit are decided here; `undo` takes back what was given here.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sqlalchemy import select

from memrl_core.bank.facts import locked
from memrl_core.bank.ledger import Part, WritingPart
from memrl_core.bank.people.roles import person_name
from memrl_core.bank.people.undo import TOGETHER
from memrl_core.bank.storage import schema
from memrl_core.bank.storage.codec import StepRow
from memrl_core.errors import InputError
from memrl_core.learning import active_rewards, effective_reward, in_ledger
from memrl_core.learning.scales import RatingScales, pairwise_rewards
from memrl_core.records import EventKind, LedgerEvent, UtilityPoint

LONGEST_REASON = 2000
_LEDGER = schema.ledger.c


@dataclass(frozen=True, slots=True)
class Rating:
    """A person's reward for a step; `given` says on which scale and what they chose there.

    Of a step that has not ended, `attempt` is the id and `credited` are the memories in its prompt; of one that has,
    both are known.
    """

    run: str
    step: int
    value: float
    rater: str
    reason: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    attempt: str = ""
    credited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Supposed:
    """What a reward would do: q of each memory that moves, now and then, and all that is known of them then.

    `histories` maps the same memories to their entries, as `MemoryBank.histories` does.
    """

    moved: Mapping[str, tuple[float, float]]
    histories: Mapping[str, Sequence[UtilityPoint]]


class Ratings(Part):
    """What people make of steps, and how their ratings become rewards."""

    @locked
    def of(self, run: str, step: int) -> list[LedgerEvent]:
        """The rewards that stand for a finished step: the environment's and each person's. Raises `InputError`."""
        return self.active(run, step, self._row(run, step).id)

    def mine(self, run: str, step: int, rater: str) -> LedgerEvent | None:
        """The person's reward that stands for a finished step."""
        name = person_name(rater)
        return next((e for e in self.of(run, step) if e.source == "person" and e.rater == name), None)

    @locked
    def active(self, run: str, step: int, step_id: str, as_of: int | None = None) -> list[LedgerEvent]:
        """The rewards that stand for an attempt at a step, finished or not: the environment's and each person's.

        With `as_of`, those that stood when that step had ended and the next had not begun.
        """
        events = self._facts.at(run, step) if run in self._facts.ids() else ()
        known = (e for e in events if e.step_id == step_id and (as_of is None or e.known_at <= as_of))
        return active_rewards(sorted(known, key=in_ledger))

    @locked
    def effective(self, run: str, step: int) -> float | None:
        """The reward that a finished step has now, by the run's rules."""
        row = self._facts.step_row(run, step)
        if row is None:
            return None
        return effective_reward(self.active(run, step, row.id), self._facts.settings_at(run)(step))

    @locked
    def steps(self, run: str) -> list[int]:
        """The finished steps about which a person has ever said something, in order."""
        steps = schema.steps.c
        about = _LEDGER.run == run, _LEDGER.source == "person", steps.id == _LEDGER.step_id, steps.step == _LEDGER.step
        query = select(_LEDGER.step).where(*about, steps.run == run).distinct()
        return sorted(step for (step,) in self._facts.database.rows(query))

    @locked
    def raters(self, run: str) -> set[str]:
        """Everybody in whose name there has ever been a reward in a run, whether it stands or not."""
        given = _LEDGER.run == run, _LEDGER.kind == EventKind.REWARD_GIVEN, _LEDGER.source == "person"
        return {rater for (rater,) in self._facts.database.rows(select(_LEDGER.rater).where(*given).distinct())}

    @locked
    def supposed(self, rating: Rating | None = None, withdrawn: LedgerEvent | None = None) -> Supposed:
        """What giving a reward, or taking one back, would change from its step on. Nothing is appended.

        Raises as `rate`.
        """
        if rating is not None:
            event = self._giving(self._placed(self.checked(rating)), {})
        else:
            assert withdrawn is not None
            event = self._ledger.revoking(withdrawn, withdrawn.rater)
        then = self._q.supposed(event)
        now = self._q.histories(event.run, then)
        moved = {i: (now[i][-1].after, points[-1].after) for i, points in then.items() if points}
        return Supposed(moved, self._q.beginning_before(event.run, then))

    @locked
    def checked(self, rating: Rating) -> Rating:
        """A rating as it would be stored. Raises `InputError` for a value that no scale of the run gives, a reason that
        is too long and an impossible name, and `UnknownRun`.
        """
        self._ledger.must_be_reward(rating.run, rating.step, rating.value)
        if len(rating.reason) > LONGEST_REASON:
            raise InputError(f"A reason has at most {LONGEST_REASON:,} characters: shorten it. Nothing was saved.")
        name, reason = person_name(rating.rater), rating.reason.strip()
        return replace(rating, value=float(rating.value), rater=name, reason=reason)

    @locked
    def scales(self, run: str) -> RatingScales:
        """How ratings of a run become rewards now. Raises `UnknownRun`."""
        return self._ledger.scales(run)

    @locked
    def bounds(self, run: str, step: int) -> tuple[float, float]:
        """r− and r+ in force at a step. Raises `UnknownRun`."""
        return self._ledger.bounds(run, step)

    # --- within -------------------------------------------------------------------------------------------------------

    def _row(self, run: str, step: int) -> StepRow:
        row = self._facts.step_row(run, step)
        if row is None:
            raise InputError(f"Run {run} has no finished step {step}. Nothing was saved.")
        return row

    def _placed(self, rating: Rating) -> Rating:
        """A rating with the attempt that it is about and the memories that it credits."""
        if rating.attempt and self._facts.step_row(rating.run, rating.step) is None:
            return rating
        row = self._row(rating.run, rating.step)
        if rating.attempt not in ("", row.id):
            raise InputError(
                f"Step {row.step} of run {row.run} has ended as another attempt. Nothing was saved; rate that one."
            )
        return replace(rating, attempt=row.id, credited=self._facts.credited(row.run, row.step))

    def _giving(self, rating: Rating, together: Mapping[str, str]) -> LedgerEvent:
        return self._ledger.event(
            rating.run,
            rating.step,
            rating.attempt,
            EventKind.REWARD_GIVEN,
            memory_ids=tuple(rating.credited),
            value=rating.value,
            source="person",
            rater=rating.rater,
            reason=rating.reason,
            payload={**rating.given, **together},
        )


class RatingsWriter(Ratings, WritingPart):
    """Gives rewards and takes them back. Every change is an event; what it replaces stays in the ledger."""

    def rate(self, rating: Rating) -> LedgerEvent:
        """Append a reward, in the place of an earlier one of the same person for the same step.

        The same reward again changes nothing and returns the one that stands, so that a click that comes twice, or
        after a doubt whether the first was saved, counts once. Raises `InputError` for a step that is not there and a
        value outside the run's scale, `NotAllowed`, `UnknownRun`.
        """
        return self.rate_all([rating])[0]

    def rate_all(self, ratings: Sequence[Rating]) -> list[LedgerEvent]:
        """Append several rewards in one write, as one action; of each, the event that stands now. Raises as `rate`."""
        checked = [self.checked(rating) for rating in ratings]
        with self._alone():
            standing: dict[tuple[str, str], LedgerEvent] = {}
            new: list[LedgerEvent] = []
            keys = []
            together = {TOGETHER: uuid.uuid4().hex} if len(ratings) > 1 else {}
            for rating in map(self._placed, checked):
                key = rating.attempt, rating.rater
                keys.append(key)
                before = standing.get(key) or self._standing(rating)
                if before is None or not _same(before, rating):
                    new.append(self._giving(rating, together))
                    before = new[-1]
                standing[key] = before
            if new:
                stored = {event.id: event for event in self._ledger.append_in_order(new)}
                standing = {key: stored.get(event.id, event) for key, event in standing.items()}
            return [standing[key] for key in keys]

    def rate_pair(
        self,
        first: tuple[str, int],
        second: tuple[str, int],
        better: Literal["first", "second", "tie"],
        rater: str,
        reason: str = "",
    ) -> tuple[LedgerEvent, LedgerEvent]:
        """Compare two answers to one intent: each step, (run, number), gets the reward that its run's scale says.

        The better of two failures and the worse of two successes count as `pairwise_rewards` says.
        Raises `InputError` for two steps of different tasks or one step given twice, and as `rate`.
        """
        rows = self._row(*first), self._row(*second)
        if rows[0].task != rows[1].task or first == second:
            raise InputError("A pair is two answers to one task. Nothing was saved; choose another step.")
        both = rows[0].outcome if rows[0].outcome == rows[1].outcome else ""
        pairs = [
            pairwise_rewards(self.scales(run), better, *self.bounds(run, step), both) for run, step in (first, second)
        ]
        values = pairs[0][0], pairs[1][1]
        choices = ("better", "worse") if better == "first" else ("worse", "better")
        one, two = self.rate_all(
            [
                Rating(
                    *run_step,
                    value,
                    rater,
                    reason,
                    {"scale": "pairwise", "choice": "equal" if better == "tie" else choice, "other": other.id},
                )
                for run_step, value, choice, other in zip((first, second), values, choices, rows[::-1], strict=True)
            ]
        )
        return one, two

    def revoke(self, event_id: str, rater: str) -> LedgerEvent:
        """Append that a reward no longer counts; of one that was taken back before, the event that did it.

        Raises `InputError` when there is no such reward, `NotAllowed`.
        """
        with self._alone():
            given = self._facts.event(event_id)
            if given is None or given.kind is not EventKind.REWARD_GIVEN:
                raise InputError("That reward is not in this bank. Nothing was changed.")
            at_step = self._facts.at(given.run, given.step)
            revoked = next((e for e in at_step if e.revokes == event_id), None)
            if revoked is None:
                revoked = self._ledger.revoking(given, rater)
                self._ledger.append(revoked)
            return revoked

    def change_scales(self, run: str, scales: RatingScales, by: str) -> None:
        """Append how ratings become rewards from now on; rewards that were given stay.

        Raises `SettingsError` where a better rating would be worth less, `NotAllowed`, `UnknownRun`.
        """
        with self._alone():
            newest = self._facts.of(run).newest or 0
            scales.must_rise(*self.bounds(run, newest + 1))
            given = {"scales": scales.model_dump(mode="json")}
            self._ledger.by_person(by, run, newest, "", EventKind.SCALES_CHANGED, payload=given)

    def _standing(self, rating: Rating) -> LedgerEvent | None:
        standing = self.active(rating.run, rating.step, rating.attempt)
        return next((e for e in standing if e.source == "person" and e.rater == rating.rater), None)


def _same(event: LedgerEvent, rating: Rating) -> bool:
    given = {key: value for key, value in event.payload.items() if key in rating.given}
    return event.value == rating.value and event.reason == rating.reason and given == dict(rating.given)
