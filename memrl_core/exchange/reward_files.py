"""Rewards of people as one file: what its lines would do, given as one action, and written again.

What a file does not have says nothing: a reward that is the same keeps its reason and scale. The file is CSV or JSON
Lines. Its columns or keys: `step` (or `step_id`) and `reward`, and as needed `run`, `rater`, `reason`, `scale` and
`given`, which is JSON of what was chosen on the scale. `created`, `batch` and `gold` are written and not read: when it
was given, the batches in which the step was the rater's, and the reward that is known where it was a gold item.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, NoReturn

from memrl_core.bank import MemoryBank
from memrl_core.bank.people.batches import Batch
from memrl_core.bank.people.ratings import LONGEST_REASON, Rating
from memrl_core.bank.people.roles import Role, person_name
from memrl_core.bank.people.undo import REDOES, TOGETHER, UNDOES
from memrl_core.errors import InputError
from memrl_core.exchange.spreadsheet import csv_bytes
from memrl_core.exchange.whole_files import opened
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


Kind = Literal["csv", "jsonl"]


# --- the file: its lines, and what each field of a line says ----------------------------------------------------------

COLUMNS = ("run", "step", "rater", "reward", "reason", "scale", "given", "created", "batch", "gold")
KNOWN = frozenset({*COLUMNS, "step_id"})
BY = "by"
OF_THE_LEDGER = frozenset({BY, TOGETHER, UNDOES, REDOES})
"""What a reward's payload says beside the choice on a scale."""
LONGEST_CELL = 131_072
MOST_LINES = 100_000
LARGEST = 20_000_000
# Far more than any scale needs, and too short to be nested deeper than JSON can be written.
LONGEST_GIVEN = 1000
NOTHING = "Nothing was saved"

# The apostrophe of `spreadsheet.csv_of` before what looks like a formula, and before such a text that had one itself.
_GUARDED = re.compile(r"'+([\t\r]|\s*[=+\-@＝＋－＠])")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"([0-9]{1,9})(\.0*)?")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of a line that the file has, as they stand there; a heading is line 1."""

    number: int
    fields: Mapping[str, Any]
    problem: str = ""


def kind_of(name: str) -> Kind:
    """The kind of file that a name says. Raises `InputError` unless it ends in .csv or .jsonl."""
    match Path(name).suffix.lower():
        case ".csv":
            return "csv"
        case ".jsonl":
            return "jsonl"
    raise InputError(f"Rewards stand in files that end in .csv or .jsonl; {quoted(name)} does not. {NOTHING}.")


def records(data: bytes | Path, kind: Kind | None) -> Iterator[Record]:
    """The lines that hold something. Raises `InputError` for a file that cannot be read at all."""
    kind = kind or kind_of(data.name if isinstance(data, Path) else "")
    if isinstance(data, Path):
        with opened(data) as file:
            data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise InputError(f"The file has more than {LARGEST // 10**6} MB. {NOTHING}; make several of it.")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"The file is UTF-16 text. {NOTHING}; save it as UTF-8 (in Excel: “CSV UTF-8”).")
    # Bytes that are not UTF-8 become lone surrogates: they make unreadable the lines that have them, not the file.
    text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
    for count, record in enumerate(_csv_records(text) if kind == "csv" else _json_records(text)):
        if count == MOST_LINES:
            raise InputError(f"The file has more than {MOST_LINES:,} lines. {NOTHING}; make several of it.")
        yield record


def _csv_records(text: str) -> Iterator[Record]:
    # Excel separates by semicolons wherever the decimal sign is a comma.
    sign = max(",;", key=lambda sign: len(KNOWN & set(_heading(text, sign))))
    heading = _heading(text, sign)
    if "reward" not in heading or not {"step", "step_id"} & set(heading):
        raise InputError(f"The first line has to name the columns of the file, “step” and “reward” too. {NOTHING}.")
    twice = [name for name, count in Counter(heading).items() if count > 1 and name in KNOWN]
    if twice:
        raise InputError(f"The file has two columns “{twice[0]}”. {NOTHING}; keep one of them.")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=sign, strict=True)
    number = 1
    try:
        for row in rows:
            # The csv module has such a limit too, but for the whole process, and other libraries lift it.
            if any(len(cell) > LONGEST_CELL for cell in row):
                raise csv.Error(f"field larger than {LONGEST_CELL:,} characters")
            if number > 1 and any(map(str.strip, row)):
                fields = dict(zip(heading, map(_unguarded, row), strict=False))
                yield Record(number, fields, _too_many(row, len(heading)))
            number = rows.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"From line {number:,} on, the file cannot be read as CSV ({error}). {NOTHING}; look there for a quote too "
            "many or too few."
        ) from error


def _heading(text: str, sign: str) -> list[str]:
    try:
        return [_key(cell) for cell in next(csv.reader(io.StringIO(text, newline=""), delimiter=sign), [])]
    except csv.Error:
        return []


def _too_many(row: list[str], columns: int) -> str:
    if not any(row[columns:]):
        return ""
    return f"It has {len(row)} fields, not {columns}: put text with commas in quotes, and write numbers like 0.5."


def _json_records(text: str) -> Iterator[Record]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            yield Record(number, {_key(key): value for key, value in found.items()})
        else:
            yield Record(number, {}, 'It is not a JSON object: write it like {"step": 3, "reward": 0.5}.')


def _key(name: str) -> str:
    return name.strip().lower()


def guarded(text: str) -> str:
    """A text for `csv_bytes` such that, whatever apostrophes it begins with, the cell is read back as it was."""
    return f"'{text}" if _GUARDED.match(text) else text


def _unguarded(cell: str) -> str:
    return cell[1:] if _GUARDED.match(cell) else cell


# --- fields -----------------------------------------------------------------------------------------------------------


def refuse(problem: str) -> NoReturn:
    """Raise `InputError` with what is wrong with a line."""
    raise InputError(problem)


def text_in(fields: Mapping[str, Any], key: str) -> str:
    """A field as text, empty where there is none. Raises `InputError` when it is no text."""
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        refuse(f"Its “{key}” is neither text nor a number.")
    text = "" if value is None else str(value).strip()
    if _SURROGATE.search(text):
        refuse(f"Its “{key}” is not UTF-8 text: save the file as UTF-8 (in Excel: “CSV UTF-8”).")
    return text


def step_in(fields: Mapping[str, Any]) -> int:
    """The number of the step. Raises `InputError`."""
    text = text_in(fields, "step")
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        refuse(f"{quoted(text)} is not the number of a step." if text else "It names no step.")
    return int(whole[1])


def reward_in(fields: Mapping[str, Any]) -> float:
    """The reward, a finite number. Raises `InputError`."""
    text = text_in(fields, "reward").replace("−", "-")
    if not text:
        refuse("It has no reward: give a number such as 0.5.")
    if "," in text:
        refuse(f"{quoted(text)} has a comma: write decimals with a point, such as 0.5.")
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(value):
        refuse(f"{quoted(text)} is not a finite number: give one such as 0.5.")
    return value


def reason_in(fields: Mapping[str, Any]) -> str:
    """The reason, perhaps empty. Raises `InputError`."""
    text = text_in(fields, "reason")
    if len(text) > LONGEST_REASON:
        refuse(f"Its reason has more than {LONGEST_REASON:,} characters: shorten it.")
    return text


def choice_in(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What was chosen on which scale, as a reward's payload says it. Raises `InputError`."""
    scale, given = text_in(fields, "scale"), fields.get("given")
    try:
        if isinstance(given, str):
            given = json.loads(given) if given.strip() else None
        found = {**({} if given is None else given), **({"scale": scale} if scale else {})}
        size = len(json.dumps(found, ensure_ascii=False, allow_nan=False).encode())
    except (ValueError, TypeError, RecursionError):
        refuse('Its “given” is not a JSON object: write it like {"stars": 4}.')
    if size > LONGEST_GIVEN:
        refuse(f"Its “scale” and “given” have more than {LONGEST_GIVEN:,} bytes: shorten them.")
    if OF_THE_LEDGER & found.keys():
        refuse(f"Its “given” holds {quoted(min(OF_THE_LEDGER & found.keys()))}, which is no choice on a scale.")
    return found


def printable(text: str) -> str:
    """The text without what could move a cursor or break a line."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else " " for sign in text)


def quoted(text: str) -> str:
    """Foreign text in a sentence."""
    return f"“{printable(text)[:80]}”"
