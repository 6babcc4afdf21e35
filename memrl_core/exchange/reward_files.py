"""Rewards of people as one file: what its lines would do, given as one action, and written again.

The file is CSV or JSON Lines. Its columns or keys are `step` (or `step_id`) and `reward`, and as needed `run`,
`rater`, `reason`, `scale` and `given`, which is JSON of what was chosen on the scale. A missing field says nothing: a
reward that is the same keeps its reason and scale. `created`, `batch` and `gold` are written and not read: when it was
given, the batches in which the step was the rater's, and the known reward of a gold item.
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
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from memrl_core.bank import MemoryBank
from memrl_core.bank.people.batches import Batch
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.people.roles import Role, person_name
from memrl_core.bank.people.undo import REDOES, TOGETHER, UNDOES
from memrl_core.errors import InputError, printable
from memrl_core.exchange.safe_files import csv_bytes, opened
from memrl_core.records import LedgerEvent

Kind = Literal["csv", "jsonl"]
Fields = Mapping[str, Any]
Line = tuple[int, Fields | str]
"""The number of a line (a heading is line 1) with its fields, or the sentence of why it cannot be read."""
COLUMNS = ("run", "step", "rater", "reward", "reason", "scale", "given", "created", "batch", "gold")
KNOWN = frozenset({*COLUMNS, "step_id"})
BY = "by"
OF_THE_LEDGER = frozenset({BY, TOGETHER, UNDOES, REDOES})
"""What a reward's payload says beside the choice on a scale."""
MOST_LINES = 100_000
LARGEST = 20_000_000
# Far more than any scale needs, and too short to be nested deeper than JSON can be written.
LONGEST_GIVEN = 1000
NOTHING = "Nothing was saved"

# The apostrophe of `safe_files.csv_of` before what looks like a formula, and before such a text that had one itself.
_GUARDED = re.compile(r"'+([\t\r]|\s*[=+\-@＝＋－＠])")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"([0-9]{1,9})(\.0*)?")
_SURROGATE = re.compile("[\ud800-\udfff]")


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

    `then` says in words what it would do. A bad line has no rating, and `problem` says why.
    """

    number: int
    effect: Effect
    rating: Rating | None = None
    then: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RewardFile:
    """What a file of rewards would do; `unknown` are columns that mean nothing here and are ignored."""

    lines: tuple[RewardLine, ...]
    unknown: tuple[str, ...] = ()

    @property
    def counts(self) -> Mapping[Effect, int]:
        """How many lines have each effect."""
        found = Counter(line.effect for line in self.lines)
        return {effect: found[effect] for effect in Effect}

    def rows(self) -> list[dict[str, Any]]:
        """The lines as a table: line, run, step, rater, reward, reason, then, problem; step and reward may be None."""
        rows = []
        for line in self.lines:
            names = ("run", "step", "rater", "value", "reason")
            run, step, rater, reward, reason = (
                [getattr(line.rating, name) for name in names] if line.rating else ("", None, "", None, "")
            )
            rows.append(
                {"line": line.number, "run": run, "step": step, "rater": rater, "reward": reward, "reason": reason,
                 "then": line.then, "problem": line.problem}
            )  # fmt: skip
        return rows


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
    for number, fields in _lines(data, kind):
        keys.update({} if isinstance(fields, str) else dict.fromkeys(fields))
        lines.append(judge.line(number, fields))
    # Of several good lines about one step by one rater the last one counts.
    last = {(r.run, r.step, r.rater): line.number for line in lines if (r := line.rating)}
    for index, line in enumerate(lines):
        if (r := line.rating) and (counts := last[r.run, r.step, r.rater]) != line.number:
            lines[index] = replace(line, effect=Effect.DOUBLED, then=f"line {counts:,} counts instead")
    return RewardFile(tuple(lines), tuple(printable(key) for key in keys if key and key not in KNOWN))


def apply_rewards(bank: MemoryBank, file: RewardFile, by: str = "") -> list[LedgerEvent]:
    """Append the good lines that change something, as one action of `by`; without a name, each rater's own role counts.

    Raises `InputError` when no line is good or one no longer fits the bank, and `NotAllowed`: rewards in the name of
    others are for those who may manage the bank.
    """
    if not any(line.rating for line in file.lines):
        raise InputError(f"No line of the file can be taken. {NOTHING}; correct the lines and import it again.")
    ratings = [line.rating for line in file.lines if line.rating and line.effect in (Effect.NEW, Effect.CHANGED)]
    if not ratings:
        return []
    if by:
        person = person_name(by)
        own = all(rating.rater == person for rating in ratings)
        bank.people.must_be(person, Role.RATE if own else Role.MANAGE)
        ratings = [r if r.rater == person else replace(r, given={**r.given, BY: person}) for r in ratings]
    return bank.write.ratings.rate_all(ratings)


def export_rewards(bank: MemoryBank, kind: Kind, run: str = "") -> bytes:
    """Every person's reward that holds, of one run or of all, by run, step and rater; `read_rewards` reads it back.

    Raises `UnknownRun`.
    """
    rows = []
    for name in [bank.run(run).id] if run else sorted(info.id for info in bank.runs()):
        batches = [batch for batch in bank.batches.of(name) if batch.kind == "reward"]
        for step in bank.steps.rows(name):
            people = [event for event in bank.ratings.of(name, step.step) if event.source == "person"]
            rows += [_file_row(event, batches) for event in sorted(people, key=lambda event: event.rater)]
    if kind == "jsonl":
        return "".join(f"{_json(row)}\n" for row in rows).encode()
    return csv_bytes(({key: _cell(value) for key, value in row.items()} for row in rows), COLUMNS, exact=True)


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
    # An apostrophe more, so that a text that begins like a guarded formula is read back as it was.
    return f"'{value}" if isinstance(value, str) and _GUARDED.match(value) else value


def _json(value: Any) -> str:
    # A payload may hold half a character, which UTF-8 cannot: as an escape it stays readable JSON.
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace").decode()


class _Judge:
    """Says of each line what it would do in the bank as it is now."""

    def __init__(self, bank: MemoryBank, default_run: str, default_rater: str) -> None:
        runs = [info.id for info in bank.runs()]
        self._bank = bank
        self._default_run = bank.run(default_run).id if default_run else runs[0] if len(runs) == 1 else ""
        self._default_rater = person_name(default_rater) if default_rater.strip() else ""
        self._runs = set(runs)
        self._by_id = {row.id: (run, row.step) for run in runs for row in bank.steps.rows(run)}
        self._finished = set(self._by_id.values())

    def line(self, number: int, fields: Fields | str) -> RewardLine:
        """What a line would do; `fields` is the sentence of what is wrong where it cannot be read."""
        try:
            if isinstance(fields, str):
                raise InputError(fields)
            return self._good(number, fields)
        except InputError as error:
            return RewardLine(number, Effect.BAD, problem=str(error).removesuffix(f" {NOTHING}."))

    def _good(self, number: int, fields: Fields) -> RewardLine:
        run, step = self._place(fields)
        rater = printable(_text(fields, "rater")).strip()
        if not rater and not self._default_rater:
            raise InputError("It has no rater: name one here or for the whole file.")
        rater, value = person_name(rater) if rater else self._default_rater, _reward(fields)
        standing = self._bank.ratings.mine(run, step, rater)
        agreed = standing if standing is not None and standing.value == value else None
        reason = _text(fields, "reason") if agreed is None or "reason" in fields else agreed.reason
        choice = _given(fields) if agreed is None or {"scale", "given"} & fields.keys() else _choice(agreed)
        rating = Rating(run, step, value, rater, reason, choice)
        if agreed is not None and agreed.reason == reason and _choice(agreed) == choice:
            return RewardLine(number, Effect.SAME, rating, "same as now")
        rating = self._bank.ratings.checked(rating)
        if standing is None:
            return RewardLine(number, Effect.NEW, rating, "new")
        if agreed is None:
            then = f"changes {_signed(standing.value or 0.0)} to {_signed(value)}"
        else:
            then = f"same reward, another {'reason' if agreed.reason != reason else 'choice on the scale'}"
        return RewardLine(number, Effect.CHANGED, rating, then)

    def _place(self, fields: Fields) -> tuple[str, int]:
        run, text, step_id = _text(fields, "run"), _text(fields, "step"), _text(fields, "step_id")
        whole = _WHOLE.fullmatch(text)
        if whole is None and (text or not step_id):
            raise InputError(f"{_quoted(text)} is not the number of a step." if text else "It names no step.")
        step = int(whole[1]) if whole else None
        if step_id:
            if step_id not in self._by_id:
                raise InputError(f"No finished step of this bank has the id {_quoted(step_id)}.")
            named = self._by_id[step_id]
            if run not in ("", named[0]) or step not in (None, named[1]):
                raise InputError(f"Its step_id is that of step {named[1]} of run {named[0]}: leave one of the two out.")
            return named
        run = run or self._default_run
        if not run:
            raise InputError("It names no run, and the bank has several: name one here or for the whole file.")
        if run not in self._runs:
            raise InputError(f"This bank has no run {_quoted(run)}.")
        if step is None or (run, step) not in self._finished:
            raise InputError(f"Run {run} has no finished step {step}.")
        return run, step


def _signed(value: float) -> str:
    text = f"{value:+.2f}" if value == round(value, 2) else f"{value:+}"
    return text.replace("-", "−")


# --- the file and its lines -------------------------------------------------------------------------------------------


def kind_of(name: str) -> Kind:
    """The kind of file that a name says. Raises `InputError` unless it ends in .csv or .jsonl."""
    match Path(name).suffix.lower():
        case ".csv":
            return "csv"
        case ".jsonl":
            return "jsonl"
    raise InputError(f"Files of rewards end in .csv or .jsonl; {_quoted(name)} does not. {NOTHING}.")


def _lines(data: bytes | Path, kind: Kind | None) -> Iterator[Line]:
    """The lines that hold something. Raises `InputError` for a file that cannot be read at all."""
    kind = kind or kind_of(data.name if isinstance(data, Path) else "")
    if isinstance(data, Path):
        with opened(data) as file:
            data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise InputError(f"The file has more than {LARGEST // 10**6} MB. {NOTHING}; split it.")
    # Bytes that are not UTF-8 become lone surrogates, which make only their own lines unreadable.
    text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
    for count, line in enumerate(_csv_lines(text) if kind == "csv" else _json_lines(text)):
        if count == MOST_LINES:
            raise InputError(f"The file has more than {MOST_LINES:,} lines. {NOTHING}; split it.")
        yield line


def _csv_lines(text: str) -> Iterator[Line]:
    # Excel separates by semicolons wherever the decimal sign is a comma.
    sign = max(",;", key=lambda sign: len(KNOWN & set(_heading(text, sign))))
    heading = _heading(text, sign)
    if "reward" not in heading or not {"step", "step_id"} & set(heading):
        raise InputError(
            f"The first line has to name the columns of the file, “step” and “reward” too. {NOTHING}; in Excel, save "
            "it as “CSV UTF-8”."
        )
    twice = [name for name, count in Counter(heading).items() if count > 1 and name in KNOWN]
    if twice:
        raise InputError(f"The file has two columns “{twice[0]}”. {NOTHING}; keep one of them.")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=sign, strict=True)
    number = 1
    try:
        for row in rows:
            if number > 1 and any(map(str.strip, row)):
                fields = {
                    name: cell[1:] if _GUARDED.match(cell) else cell for name, cell in zip(heading, row, strict=False)
                }
                too_many = f"It has {len(row)} fields, not {len(heading)}: put text with commas in quotes, and write "
                yield number, f"{too_many}numbers like 0.5." if any(row[len(heading) :]) else fields
            number = rows.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"From line {number:,} on, the file cannot be read as CSV ({error}). {NOTHING}; look there for a quote too "
            "many or too few."
        ) from error


def _heading(text: str, sign: str) -> list[str]:
    try:
        first = next(csv.reader(io.StringIO(text, newline=""), delimiter=sign), [])
    except csv.Error:
        return []
    return [cell.strip().lower() for cell in first]


def _json_lines(text: str) -> Iterator[Line]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, {key.strip().lower(): value for key, value in json.loads(line).items()}
            except (ValueError, RecursionError, AttributeError):
                yield number, 'It is not a JSON object: write it like {"step": 3, "reward": 0.5}.'


# --- fields: each raises `InputError` with what is wrong with the line ------------------------------------------------


def _text(fields: Fields, key: str) -> str:
    """A field as text, empty where there is none."""
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        raise InputError(f"Its “{key}” is neither text nor a number.")
    text = "" if value is None else str(value).strip()
    if _SURROGATE.search(text):
        raise InputError(f"Its “{key}” is not UTF-8 text: save the file as UTF-8 (in Excel: “CSV UTF-8”).")
    return text


def _reward(fields: Fields) -> float:
    text = _text(fields, "reward").replace("−", "-")
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(value):
        raise InputError(f"Its reward {_quoted(text)} is not a finite number: give one with a point, such as 0.5.")
    return value


def _given(fields: Fields) -> dict[str, Any]:
    """What was chosen on which scale, as a reward's payload says it."""
    scale, given = _text(fields, "scale"), fields.get("given")
    try:
        if isinstance(given, str):
            given = json.loads(given) if given.strip() else None
        choice = {**({} if given is None else given), **({"scale": scale} if scale else {})}
        size = len(json.dumps(choice, ensure_ascii=False, allow_nan=False).encode())
    except (ValueError, TypeError, RecursionError):
        raise InputError('Its “given” is not a JSON object: write it like {"stars": 4}.') from None
    if size > LONGEST_GIVEN:
        raise InputError(f"Its “scale” and “given” have more than {LONGEST_GIVEN:,} bytes: shorten them.")
    if own := OF_THE_LEDGER & choice.keys():
        raise InputError(f"Its “given” holds {_quoted(min(own))}, which is no choice on a scale.")
    return choice


def _quoted(text: str) -> str:
    """Foreign text in a sentence."""
    return f"“{printable(text)[:80]}”"
