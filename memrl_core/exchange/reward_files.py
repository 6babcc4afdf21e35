"""Rewards of people as one file: what its lines would do, given as one action, and written again.

What a file does not have says nothing: a reward that is the same keeps its reason and scale. See `reward_records` for
the columns.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from memrl_core.bank import MemoryBank
from memrl_core.bank.people.batches import Batch
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.people.roles import Role, person_name
from memrl_core.errors import InputError
from memrl_core.exchange.reward_records import (
    BY,
    COLUMNS,
    KNOWN,
    NOTHING,
    OF_THE_LEDGER,
    Kind,
    Record,
    choice_in,
    guarded,
    kind_of,
    printable,
    quoted,
    reason_in,
    records,
    refuse,
    reward_in,
    step_in,
    text_in,
)
from memrl_core.exchange.spreadsheet import csv_bytes
from memrl_core.records import LedgerEvent

__all__ = ["Effect", "Kind", "RewardFile", "RewardLine", "apply_rewards", "export_rewards", "kind_of", "read_rewards"]


class Effect(StrEnum):
    """What becomes of a line."""

    NEW = "new"
    CHANGED = "changed"
    SAME = "same"
    DOUBLED = "doubled"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class RewardLine:
    """One line of a file, by its number there: a heading is line 1.

    `then` says in words what it would do. A bad line has no rating: `problem` says why, and `said` what stands there.
    """

    number: int
    effect: Effect
    rating: Rating | None = None
    then: str = ""
    problem: str = ""
    cells: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RewardFile:
    """What a file of rewards would do; `unknown` are columns that mean nothing here and are passed over."""

    lines: tuple[RewardLine, ...]
    unknown: tuple[str, ...] = ()

    @property
    def counts(self) -> Mapping[Effect, int]:
        """How many lines have each effect."""
        found = Counter(line.effect for line in self.lines)
        return {effect: found[effect] for effect in Effect}

    def rows(self) -> list[dict[str, Any]]:
        """The lines as a table: line, run, step, rater, reward, reason, then, problem.

        The step and the reward of a bad line are None where they are no numbers.
        """
        return [_table_row(line) for line in self.lines]


def read_rewards(
    data: bytes | Path, kind: Kind | None, bank: MemoryBank, default_run: str = "", default_rater: str = ""
) -> RewardFile:
    """What the rewards in a file would do in `bank`; nothing is appended. Without `kind`, the path's suffix says it.

    The defaults hold for lines that name no run or no rater; a bank's only run needs no name. Raises `InputError` for a
    file that cannot be read at all and for an impossible default, `UnknownRun`.
    """
    judge = _Judge(bank, default_run, default_rater)
    lines: list[RewardLine] = []
    keys: dict[str, None] = {}
    for record in records(data, kind):
        keys.update(dict.fromkeys(record.fields))
        lines.append(judge.line(record))
    return RewardFile(_last_counts(lines), tuple(printable(key) for key in keys if key and key not in KNOWN))


def apply_rewards(bank: MemoryBank, file: RewardFile, by: str = "") -> list[LedgerEvent]:
    """Append the good lines that change something, as one action of `by`; without a name, each rater's own role counts.

    Raises `InputError` when no line is good or one no longer fits the bank, and `NotAllowed`: rewards in the name of
    others are for those who may manage the bank.
    """
    if not any(line.rating for line in file.lines):
        raise InputError(f"No line of the file can be taken. {NOTHING}; mend the lines and import it again.")
    ratings = [line.rating for line in file.lines if line.rating and line.effect in (Effect.NEW, Effect.CHANGED)]
    if not ratings:
        return []
    if by:
        person = person_name(by)
        own = all(rating.rater == person for rating in ratings)
        bank.people.must_be(person, Role.RATE if own else Role.MANAGE)
        ratings = [r if r.rater == person else replace(r, given={**r.given, BY: person}) for r in ratings]
    return bank.ratings.rate_all(ratings)


def export_rewards(bank: MemoryBank, kind: Kind, run: str = "") -> bytes:
    """Every person's reward that stands, of one run or of all, by run, step and rater; `read_rewards` reads it back.

    Raises `UnknownRun`.
    """
    rows = []
    for name in [bank.run(run).id] if run else sorted(info.id for info in bank.runs()):
        batches = bank.batches.of(name)
        for step in bank.step_rows(name):
            people = [event for event in bank.ratings.of(name, step.step) if event.source == "person"]
            rows += [_file_row(event, batches) for event in sorted(people, key=lambda event: event.rater)]
    if kind == "jsonl":
        return "".join(f"{_json(row)}\n" for row in rows).encode()
    return csv_bytes(({key: _cell(value) for key, value in row.items()} for row in rows), COLUMNS, exact=True)


class _Judge:
    """Says of each record what it would do in the bank as it is now."""

    def __init__(self, bank: MemoryBank, default_run: str, default_rater: str) -> None:
        runs = [info.id for info in bank.runs()]
        self._bank = bank
        self._default_run = bank.run(default_run).id if default_run else runs[0] if len(runs) == 1 else ""
        self._default_rater = person_name(default_rater) if default_rater.strip() else ""
        self._scales = {run: bank.ratings.scales(run) for run in runs}
        self._steps = {run: {row.step: row.id for row in bank.step_rows(run)} for run in runs}
        self._by_id = {step_id: (run, step) for run, steps in self._steps.items() for step, step_id in steps.items()}

    def line(self, record: Record) -> RewardLine:
        try:
            if record.problem:
                refuse(record.problem)
            return self._good(record.number, record.fields)
        except InputError as error:
            why = str(error).removesuffix(f" {NOTHING}.")
            return RewardLine(record.number, Effect.BAD, problem=why, cells=_cells(record.fields))

    def _good(self, number: int, fields: Mapping[str, Any]) -> RewardLine:
        run, step = self._place(fields)
        rater, value = self._rater(fields), reward_in(fields)
        standing = self._bank.ratings.mine(run, step, rater)
        agreed = standing if standing is not None and standing.value == value else None
        reason = reason_in(fields) if agreed is None or "reason" in fields else agreed.reason
        choice = choice_in(fields) if agreed is None or {"scale", "given"} & fields.keys() else _choice(agreed)
        rating = Rating(run, step, value, rater, reason, choice)
        if agreed is not None and agreed.reason == reason and _choice(agreed) == choice:
            return RewardLine(number, Effect.SAME, rating, "same as now")
        low, high = self._scales[run].bounds(*self._bank.ratings.bounds(run, step))
        if not low - 1e-9 <= value <= high + 1e-9:
            refuse(f"{value:g} is outside the scale of run {run}: give {low:g} to {high:g}.")
        if standing is None:
            return RewardLine(number, Effect.NEW, rating, "new")
        if agreed is None:
            then = f"changes {_signed(standing.value or 0.0)} to {_signed(value)}"
        else:
            then = f"same reward, another {'reason' if agreed.reason != reason else 'choice on the scale'}"
        return RewardLine(number, Effect.CHANGED, rating, then)

    def _place(self, fields: Mapping[str, Any]) -> tuple[str, int]:
        run, step_id = text_in(fields, "run"), text_in(fields, "step_id")
        step = step_in(fields) if text_in(fields, "step") or not step_id else None
        if step_id:
            if step_id not in self._by_id:
                refuse(f"No finished step of this bank has the id {quoted(step_id)}.")
            named = self._by_id[step_id]
            if run not in ("", named[0]) or step not in (None, named[1]):
                refuse(f"Its step_id is that of step {named[1]} of run {named[0]}: leave one of the two out.")
            return named
        run = run or self._default_run
        if not run:
            refuse("It names no run, and the bank has several: name one here or for the whole file.")
        if run not in self._steps:
            refuse(f"This bank has no run {quoted(run)}.")
        if step is None or step not in self._steps[run]:
            refuse(f"Run {run} has no finished step {step}.")
        return run, step

    def _rater(self, fields: Mapping[str, Any]) -> str:
        text = printable(text_in(fields, "rater")).strip()
        if not text and not self._default_rater:
            refuse("It has no rater: name one here or for the whole file.")
        return person_name(text) if text else self._default_rater


def _last_counts(lines: list[RewardLine]) -> tuple[RewardLine, ...]:
    """Of several good lines about one step by one rater, let the last one count."""
    counting: dict[tuple[str, int, str], int] = {}
    kept = []
    for line in reversed(lines):
        if line.rating is not None:
            about = line.rating.run, line.rating.step, line.rating.rater
            last = counting.setdefault(about, line.number)
            if last != line.number:
                line = replace(line, effect=Effect.DOUBLED, then=f"line {last:,} counts instead")
        kept.append(line)
    return tuple(reversed(kept))


def _table_row(line: RewardLine) -> dict[str, Any]:
    cells = line.cells
    if line.rating is not None:
        given = line.rating
        cells = {"run": given.run, "step": given.step, "rater": given.rater, "reward": given.value}
        cells["reason"] = given.reason
    return {"line": line.number, **cells, "then": line.then, "problem": line.problem}


def _cells(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What stands in a bad line, as far as a table can show it."""
    cells: dict[str, Any] = {"run": "", "step": None, "rater": "", "reward": None, "reason": ""}
    for key in cells:
        try:
            if key == "step":
                cells[key] = step_in(fields)
            elif key == "reward":
                cells[key] = reward_in(fields)
            else:
                cells[key] = printable(text_in(fields, key))[:80]
        except InputError:
            continue
    return cells


def _file_row(event: LedgerEvent, batches: Sequence[Batch]) -> dict[str, Any]:
    choice, scale = _choice(event), ""
    if choice.get("scale") and choice["scale"] == str(choice["scale"]).strip():
        scale = choice.pop("scale")
    mine = [batch for batch in batches if event.step in batch.parts.get(event.rater, ())]
    gold = next((batch.gold[event.step] for batch in mine if event.step in batch.gold), None)
    names = "; ".join(batch.name for batch in mine)
    cells = (event.run, event.step, event.rater, event.value, event.reason, scale, choice, event.created, names, gold)
    return dict(zip(COLUMNS, cells, strict=True))


def _choice(event: LedgerEvent) -> dict[str, Any]:
    """What a reward's payload says of the scale, as JSON would give it back."""
    chosen = {key: value for key, value in event.payload.items() if key not in OF_THE_LEDGER}
    choice: dict[str, Any] = json.loads(json.dumps(chosen))
    return choice


def _cell(value: Any) -> Any:
    if isinstance(value, dict):
        return _json(value) if value else ""
    return guarded(value) if isinstance(value, str) else value


def _json(value: Any) -> str:
    # A payload may hold half a character, which UTF-8 cannot: as an escape it stays readable JSON.
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace").decode()


def _signed(value: float) -> str:
    text = f"{value:+.2f}" if value == round(value, 2) else f"{value:+}"
    return text.replace("-", "−")
