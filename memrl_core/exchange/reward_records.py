"""A file of rewards as it stands there: its lines as CSV or JSON Lines, and what each field of a line says.

Columns or keys: `step` (or `step_id`) and `reward`, and as needed `run`, `rater`, `reason`, `scale` and `given`, which
is JSON of what was chosen on the scale. `created`, `batch` and `gold` are written and not read: when it was given, the
batches in which the step was the rater's, and the reward that is known where it was a gold item.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from memrl_core.bank.people.ratings import LONGEST_REASON
from memrl_core.bank.people.undo import REDOES, TOGETHER, UNDOES
from memrl_core.errors import InputError
from memrl_core.exchange.whole_files import opened

Kind = Literal["csv", "jsonl"]

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
