"""A person's file of tasks: what it is, which of its tasks can be used, and why the others cannot.

It is one of three: JSON Lines of own tasks (`intent`, and perhaps id, family, reference, checker, choices, tolerance,
setup), JSON Lines in the program's own form (`environment` and `data` beside `intent`), or the JSON object of
LifelongAgentBench's DB-bench.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
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
from memrl_core.environments.tasks import CheckedFile, Noted, Reported, check_intent, stem_of
from memrl_core.errors import InputError, MemRLError
from memrl_core.records import Task

MOST_BYTES = 200_000_000
LARGEST_OBJECT = 50_000_000
"""Bytes of a file that is one JSON value: it is held as a whole."""

LONGEST_LINE = 1_000_000
LONGEST_NAME = 200
"""Characters of an id and of a family."""

ONE_VALUE = "The file is one JSON value, and not DB-bench's. Write each task as an object on one line."
_OWN_KEYS = ("id", "intent", "family", *KEYS)
_PROGRAM_KEYS = ("id", "intent", "environment", "family", "data")


def check_file(path: Path) -> CheckedFile:
    """Tell what the file is, and try every task in it.

    Raises `InputError` when it cannot be read as a whole: nothing is there, a folder, too large, empty.
    """
    raw = _read(path)
    name = "".join(filter(str.isprintable, path.stem)) or "tasks"
    whole = _plain_json(raw) if len(raw) <= LARGEST_OBJECT else None
    if is_lifelong(whole):
        found = read_lifelong(raw)
        return CheckedFile(name, LIFELONG if found.tasks else "", found.tasks, found.reported, found.notes)
    if isinstance(whole, list) or (isinstance(whole, dict) and len(raw.strip().splitlines()) > 1):
        return CheckedFile(name, "", (), (Reported("line 1", ONE_VALUE),))
    return _from_lines(name, raw.splitlines())


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
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{path.name} is written in UTF-16. Nothing was read; save it as UTF-8.")
    raw = raw.removeprefix(codecs.BOM_UTF8)
    if not raw.strip():
        raise InputError(f"{path.name} is empty. Nothing was read; write one task per line.")
    return raw


def _plain_json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _from_lines(name: str, lines: Sequence[bytes]) -> CheckedFile:
    accepted: dict[str, Task] = {}
    places: dict[str, str] = {}
    reported: list[Reported] = []
    environment = ""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"line {number}"
        try:
            task = _task(line, f"{stem_of(name)}-{number:04d}")
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
    where = unjudged[0] if len(unjudged) == 1 else f"{len(unjudged):,} lines, the first is {unjudged[0]}"
    return (Noted(where, "No reference: a person judges the answer."),)


def _task(line: bytes, made_id: str) -> Task:
    """The task on a line. Raises `InputError` with the sentence that is reported."""
    if len(line) > LONGEST_LINE:
        raise InputError(f"The line has {len(line):,} bytes; at most {LONGEST_LINE:,} are read.")
    row = _parsed(line)
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
    try:
        return from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise InputError(f"Not JSON: {str(error)[:200]}.") from None
