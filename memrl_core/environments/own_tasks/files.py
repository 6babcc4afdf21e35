"""A person's file of tasks: what it is, which of its tasks can be used, and why the others cannot.

It is one of four: JSON Lines or a JSON array of own tasks (`intent`, and perhaps id, family, reference, checker,
choices, tolerance, setup), the same in the program's own form (`environment` and `data` beside `intent`), a CSV table
of own tasks with these names in its first line, or the JSON object of LifelongAgentBench's DB-bench.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from memrl_core.environments import environment_class, why_unusable
from memrl_core.environments.databases.lifelong_db import ENVIRONMENT as LIFELONG
from memrl_core.environments.databases.lifelong_db import is_lifelong, read_lifelong
from memrl_core.environments.own_tasks.environment import (
    KEYS,
    TaskFile,
    check_keys,
    check_text,
    checker_of,
    left_to_people,
)
from memrl_core.environments.tasks import OTHER_KINDS, CheckedFile, Noted, Reported, check_intent, not_utf8, stem_of
from memrl_core.errors import InputError, MemRLError
from memrl_core.records import Task

MOST_BYTES = 200_000_000
LARGEST_OBJECT = 50_000_000
"""Bytes of a file that is one JSON value: it is held as a whole."""

LONGEST_LINE = 1_000_000
LONGEST_NAME = 200
"""Characters of an id and of a family."""

ONE_VALUE = "The file is one JSON object, and not DB-bench's. Write its tasks as a JSON array, or each on a line."
SEPARATORS = {".csv": ",;\t", ".tsv": "\t"}
"""By which a table's cells may be apart; Excel writes semicolons wherever the decimal sign is a comma."""
BETWEEN_CHOICES = "|"
_OWN_KEYS = ("id", "intent", "family", *KEYS)
_PROGRAM_KEYS = ("id", "intent", "environment", "family", "data")


def check_file(path: Path) -> CheckedFile:
    """Tell what the file is, and try every task in it.

    Raises `InputError` when it cannot be read as a whole: nothing is there, a folder, too large, empty.
    """
    raw = _read(path)
    name = "".join(filter(str.isprintable, path.stem)) or "tasks"
    whole = _plain_json(raw) if len(raw) <= LARGEST_OBJECT else None
    if isinstance(whole, list | dict) and (fault := not_utf8(raw)):
        return CheckedFile(name, "", (), (fault,))
    if is_lifelong(whole):
        found = read_lifelong(raw)
        return CheckedFile(name, LIFELONG if found.tasks else "", found.tasks, found.reported, found.notes)
    if isinstance(whole, dict) and len(raw.strip().splitlines()) > 1:
        listed = [key for key, value in whole.items() if isinstance(value, list)]
        how = f" The list under “{listed[0][:80]}” alone can be the file." if len(listed) == 1 else ""
        return CheckedFile(name, "", (), (Reported("line 1", ONE_VALUE + how),))
    try:
        if path.suffix.lower() in SEPARATORS:
            return _tried(name, _rows(raw, SEPARATORS[path.suffix.lower()]))
        if isinstance(whole, list):
            return _tried(name, _entries(raw))
    except _Unreadable as error:
        return CheckedFile(name, "", (), (Reported(error.where, str(error)),))
    return _tried(name, _lines(raw))


def _read(path: Path) -> bytes:
    """The file without a byte order mark."""
    if path.is_dir():
        raise InputError(f"{path} is a folder. Nothing was read; name a file in it.")
    if not path.is_file():
        raise InputError(f"There is no file {path}. Nothing was read; check the name.")
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise InputError(
                f"{path.name} has {size / 1e6:,.0f} MB; at most {MOST_BYTES / 1e6:,.0f} MB are read. Nothing was read; "
                "split it."
            )
        raw = path.read_bytes()
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise InputError(f"{path.name} cannot be read ({why}). Nothing was read; check the file.") from None
    for begin, what, remedy in OTHER_KINDS:
        if raw.startswith(begin):
            raise InputError(f"{path.name} {what}. Nothing was read; {remedy}.")
    begin = raw[:1000]
    if max(begin[::2].count(0), begin[1::2].count(0)) > len(begin) / 4 and b"{" in begin:
        raise InputError(f"{path.name} is written in UTF-16, without a mark. Nothing was read; save it as UTF-8.")
    raw = raw.removeprefix(codecs.BOM_UTF8)
    if not raw.strip():
        raise InputError(f"{path.name} is empty. Nothing was read; write one task per line.")
    return raw


def _plain_json(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


class _Unreadable(InputError):
    """Why nothing from a place of the file on can be read; `where` is the place."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(why)
        self.where = where


Row = tuple[str, int, Callable[[], Any]]
"""Where a task stands, its number, and what reads it: raises `InputError` with the sentence that is reported."""


def _lines(raw: bytes) -> Iterator[Row]:
    """The lines of JSON Lines that hold something."""
    for number, line in enumerate(raw.splitlines(), start=1):
        if line.strip():
            yield f"line {number}", number, partial(_parsed_line, line)


def _entries(raw: bytes) -> Iterator[Row]:
    """The entries of a JSON array. Raises `_Unreadable` for what means nothing everywhere alike."""
    try:
        entries = _parsed(raw)
    except InputError as error:
        raise _Unreadable("line 1", str(error)) from None
    for number, entry in enumerate(entries, start=1):
        yield f"entry {number}", number, partial(_itself, entry)


def _rows(raw: bytes, separators: str) -> Iterator[Row]:
    """The rows of a table under its heading. Raises `_Unreadable` where it is none."""
    # What is no UTF-8 spoils its own row only.
    text = raw.decode("utf-8", "surrogateescape")
    heading: list[str] = []
    separator = max(separators, key=text.partition("\n")[0].count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    begin = 1
    try:
        for cells in rows:
            number, begin = begin, rows.line_num + 1
            if not any(map(str.strip, cells)):
                continue
            if heading:
                yield f"line {number}", number, partial(_fields, heading, cells)
                continue
            heading = [cell.strip().lower() for cell in cells]
            try:
                check_keys(dict.fromkeys(heading), _OWN_KEYS)
            except InputError as error:
                raise _Unreadable(f"line {number}", f"The first line names the columns. {error}") from None
            if "intent" not in heading or len(set(heading)) < len(heading):
                why = "two columns of one name" if "intent" in heading else "no column “intent”"
                raise _Unreadable(f"line {number}", f"The first line names the columns; there are {why}.")
    except csv.Error as error:
        raise _Unreadable(
            f"line {begin}", f"From here on it cannot be read as CSV ({error}): look for a quote."
        ) from None


def _fields(heading: list[str], cells: list[str]) -> dict[str, Any]:
    """The task of a row; an empty cell is left out."""
    for cell in cells:
        _must_be_utf8(cell.encode("utf-8", "surrogateescape"))
    if any(cells[len(heading) :]):
        raise InputError(f"It has {len(cells)} cells, not {len(heading)}: put text with separators in quotes.")
    row: dict[str, Any] = {key: cell for key, cell in zip(heading, cells, strict=False) if cell.strip()}
    if "choices" in row:
        row["choices"] = [choice.strip() for choice in row["choices"].split(BETWEEN_CHOICES)]
    if "tolerance" in row:
        try:
            row["tolerance"] = float(row["tolerance"])
        except ValueError:
            raise InputError(f"tolerance is a number like 0.5, not “{row['tolerance'][:80]}”.") from None
    return row


def _itself(entry: Any) -> Any:
    return entry


def _tried(name: str, rows: Iterator[Row]) -> CheckedFile:
    """Every task tried. Raises `_Unreadable` where no row can be had."""
    accepted: dict[str, Task] = {}
    places: dict[str, str] = {}
    reported: list[Reported] = []
    environment = ""
    for where, number, read in rows:
        try:
            task = _task(read(), f"{stem_of(name)}-{number:04d}")
            if why := why_unusable(task.environment):
                raise InputError(why)
            if environment not in ("", task.environment):
                raise InputError(f"It is for {task.environment}, the tasks before it are for {environment}.")
            if task.id in places:
                raise InputError(f"The id “{task.id}” stands at {places[task.id]} already.")
            if faults := environment_class(task.environment).faults(task):
                raise InputError(" ".join(faults))
        except MemRLError as error:
            reported.append(Reported(where, str(error)))
            continue
        environment = task.environment
        accepted[task.id], places[task.id] = task, where
    notes = _unjudged(accepted, places)
    return CheckedFile(name, environment, tuple(accepted.values()), tuple(reported), notes)


def _unjudged(accepted: Mapping[str, Task], places: Mapping[str, str]) -> tuple[Noted, ...]:
    unjudged = [places[task.id] for task in accepted.values() if left_to_people(task)]
    if not unjudged:
        return ()
    where = unjudged[0] if len(unjudged) == 1 else f"{len(unjudged):,} tasks, the first is {unjudged[0]}"
    return (Noted(where, "No reference: a person judges the answer."),)


def _parsed_line(line: bytes) -> Any:
    if len(line) > LONGEST_LINE:
        raise InputError(f"The line has {len(line):,} bytes; at most {LONGEST_LINE:,} are read.")
    return _parsed(line)


def _task(row: Any, made_id: str) -> Task:
    """The task of a row. Raises `InputError` with the sentence that is reported."""
    if not isinstance(row, dict):
        raise InputError("A task is a JSON object, in curly brackets.")
    programs = "environment" in row
    check_keys(row, _PROGRAM_KEYS if programs else _OWN_KEYS)
    row = {key: value for key, value in row.items() if value is not None}
    for key in ("id", "family", "environment"):
        if key in row and (key, row[key]) != ("family", ""):
            check_text(key, row[key], LONGEST_NAME)
    environment = row.get("environment", TaskFile.name)
    data = row.get("data", {}) if programs else _own_data(row)
    if not isinstance(data, dict):
        raise InputError("data is an object.")
    return Task(row.get("id", made_id), _intent(row.get("intent")), environment, row.get("family", ""), data)


def _own_data(row: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: row[key] for key in KEYS if key in row}
    return {"checker": checker_of(given), **given} if checker_of(given) else given


def _intent(given: Any) -> str:
    if given is None:
        raise InputError("intent is missing: what is asked, as a text.")
    if not isinstance(given, str):
        raise InputError("intent is a text: what is asked.")
    try:
        return check_intent(given)
    except InputError as error:
        raise InputError(f"intent: {str(error).partition('. ')[0]}.") from None


def _parsed(raw: bytes) -> Any:
    """The JSON value of some bytes. Raises `InputError` for what is none, or means nothing everywhere alike."""
    _must_be_utf8(raw)
    try:
        return from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise InputError(f"Not JSON: {str(error)[:200]}.") from None


def _must_be_utf8(raw: bytes) -> None:
    if fault := not_utf8(raw):
        raise InputError(fault.reason)
