"""Labels of recall: whether a memory was, or was not, right to recall in a step; and whether anything was.

A label is a fact in the ledger beside the rewards. It is no reward and never moves a q. Each rater has one label per
memory of a step and source, which is given, changed and withdrawn; `undo` takes back what a person gave here. Beside it
a person may say what the answer made of a memory: recalled is not used.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from memrl_core.bank.facts import locked
from memrl_core.bank.ledger import Part, WritingPart
from memrl_core.bank.people.ratings import LONGEST_REASON
from memrl_core.bank.people.roles import person_name
from memrl_core.bank.people.undo import TOGETHER, label_key
from memrl_core.errors import InputError
from memrl_core.learning import in_ledger
from memrl_core.records import EventKind, LedgerEvent

LabelSource = Literal["person", "derived", "judge", "import"]
"""People by hand; an environment that knows what its tasks are about; a language model; a file."""
HIGHEST_GRADE = 3
MEANING = ("irrelevant", "related", "relevant", "exactly right")
"""What the grades of a memory mean, from 0 on; from 1 on a memory counts as relevant."""
GRADES_IN_WORDS: Mapping[str, int] = {
    "irrelevant": 0, "not relevant": 0, "unrelated": 0, "no": 0, "related": 1, "partially relevant": 1, "relevant": 2,
    "yes": 2, "missing": 2, "exact": 3, "exactly right": 3,
}  # fmt: skip
"""Words for grades, in a terminal and in files; a memory that is missing should have come and did not."""

LABELS = (EventKind.MEMORY_JUDGED, EventKind.QUERY_JUDGED)
Used = Literal["used", "ignored", "contradicted"]
USES: Mapping[Used, float] = {"used": 1.0, "ignored": 0.0, "contradicted": -1.0}
"""What an answer may make of a memory in its prompt, with the values in the ledger."""


@dataclass(frozen=True, slots=True)
class Use:
    """What the answer of a step made of a memory, as a person says; `used` None withdraws it."""

    run: str
    step: int
    memory_id: str
    used: Used | None
    rater: str
    reason: str = ""
    created: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """How relevant a memory is to what a step asked for, 0 … `HIGHEST_GRADE`.

    Without a `memory_id` it is about the query itself: 0 says that nothing should come, 1 that something should.
    `grade` None withdraws the label. `rater` is a person, or what gave the label: an environment, a model, a file. `by`
    is the person who brought in the labels of others, `prompt` that by which a model was asked.
    """

    run: str
    step: int
    memory_id: str
    grade: int | None
    rater: str
    source: LabelSource = "person"
    reason: str = ""
    by: str = ""
    created: str = ""
    prompt: str = ""


class Judgements(Part):
    """What was said about the recall of steps."""

    @locked
    def standing(self, run: str | None = None, step: int | None = None) -> list[Label]:
        """The labels that stand, of the whole bank, of a run or of a step, oldest first: each rater's newest.

        Raises `UnknownRun`.
        """
        return [_label(event) for event in self._standing(run, step, LABELS)]

    @locked
    def uses(self, run: str | None = None, step: int | None = None) -> list[Use]:
        """What people say of the use of memories, as `standing`. Raises `UnknownRun`."""
        return [
            Use(e.run, e.step, e.memory_ids[0], _USED[e.value], e.rater, e.reason, e.created)
            for e in self._standing(run, step, (EventKind.USE_JUDGED,))
            if e.value in _USED
        ]

    def _standing(self, run: str | None, step: int | None, kinds: Sequence[EventKind]) -> list[LedgerEvent]:
        if run is not None:
            self._facts.run(run)
        events = self._facts.at(run, step) if run is not None and step is not None else self._facts.of_kind(*kinds)
        newest: dict[tuple[object, ...], LedgerEvent] = {}
        for event in sorted((e for e in events if e.kind in kinds and run in (None, e.run)), key=in_ledger):
            newest.pop(label_key(event), None)
            newest[label_key(event)] = event
        return [event for event in newest.values() if event.value is not None]


class JudgementsWriter(Judgements, WritingPart):
    """Gives, changes and withdraws labels; every change is an event, and what it replaces stays in the ledger."""

    def judge(self, label: Label) -> LedgerEvent:
        """Append a label in the place of an earlier one of the same rater and source; the same again changes nothing.

        Raises `InputError` for a grade that there is not, and a step or a memory that is not in the bank; `NotAllowed`,
        `UnknownRun`.
        """
        return self.judge_all([label])[0]

    def judge_all(self, labels: Sequence[Label]) -> list[LedgerEvent]:
        """Append several labels in one write, as one action; of each, the event that stands now. Raises as `judge`."""
        with self._alone():
            steps = {(label.run, label.step) for label in labels}
            given = (event for at in steps for event in self._facts.at(*at) if event.kind in LABELS)
            before = {label_key(event): event for event in sorted(given, key=in_ledger)}
            standing, new = list[LedgerEvent](), list[LedgerEvent]()
            together = {TOGETHER: uuid.uuid4().hex} if len(labels) > 1 else {}
            for label in labels:
                event = self._event(label, together)
                known = before.get(label_key(event))
                if known is None or (known.value, known.reason) != (event.value, event.reason):
                    new.append(event)
                    before[label_key(event)] = known = event
                standing.append(known)
            stored = {event.id: event for event in self._ledger.append_in_order(new)} if new else {}
            return [stored.get(event.id, event) for event in standing]

    def judge_use(self, use: Use) -> LedgerEvent:
        """Append what a person says of a memory's use in the place of what they said before.

        Raises `InputError` for another word and for a step or a memory that is not there; `NotAllowed`, `UnknownRun`.
        """
        if use.used is not None and use.used not in USES:
            raise InputError(f"“{str(use.used)[:40]}” is no use: say {', '.join(USES)}. Nothing was saved.")
        value = None if use.used is None else USES[use.used]
        with self._alone():
            self._must_be_there(use.run, use.step, use.memory_id, use.reason)
            return self._ledger.by_person(
                use.rater, use.run, use.step, "", EventKind.USE_JUDGED, memory_ids=(use.memory_id,), value=value,
                reason=use.reason.strip(),
            )  # fmt: skip

    def _event(self, label: Label, together: dict[str, str]) -> LedgerEvent:
        self._must_be_there(label.run, label.step, label.memory_id, label.reason)
        highest = HIGHEST_GRADE if label.memory_id else 1
        if label.grade is not None and not 0 <= label.grade <= highest:
            raise InputError(f"{label.grade} is no grade: give 0 to {highest}. Nothing was saved.")
        if label.source not in get_args(LabelSource):
            raise InputError(f"“{str(label.source)[:80]}” is no source of labels. Nothing was saved.")
        by = {"by": person_name(label.by)} if label.by and label.source != "person" else {}
        return self._ledger.event(
            label.run,
            label.step,
            "",
            EventKind.MEMORY_JUDGED if label.memory_id else EventKind.QUERY_JUDGED,
            memory_ids=(label.memory_id,) if label.memory_id else (),
            value=None if label.grade is None else float(label.grade),
            source="person" if label.source == "person" else None,
            rater=person_name(label.rater),
            reason=label.reason.strip(),
            payload={"from": label.source, **by, **({"prompt": label.prompt} if label.prompt else {}), **together},
        )

    def _must_be_there(self, run: str, step: int, memory_id: str, reason: str) -> None:
        """Raise `InputError` where a step or a memory is not there, or a reason is too long."""
        if self._facts.step_row(run, step) is None:
            raise InputError(f"Run {run[:80]} has no finished step {step}. Nothing was saved.")
        if memory_id and memory_id not in self._facts.memories:
            raise InputError(f"This bank holds no memory “{memory_id[:80]}”. Nothing was saved.")
        if len(reason) > LONGEST_REASON:
            raise InputError(f"A reason has at most {LONGEST_REASON:,} characters: shorten it. Nothing was saved.")


_USED = {value: used for used, value in USES.items()}


def _label(event: LedgerEvent) -> Label:
    return Label(
        event.run,
        event.step,
        event.memory_ids[0] if event.memory_ids else "",
        None if event.value is None else int(event.value),
        event.rater,
        event.payload.get("from", "person"),
        event.reason,
        str(event.payload.get("by", "")),
        event.created,
        str(event.payload.get("prompt", "")),
    )
