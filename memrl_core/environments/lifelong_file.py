"""The file of DB-bench tasks of LifelongAgentBench, as published with the official MemRL code, read into tasks.

It is one JSON object: an entry for each task, under the number of its sample.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sqlglot import exp

from memrl_core.environments.databases.mysql import CHILD, create_table, is_ordered, parsed
from memrl_core.environments.databases.mysql_dates import stored_moment
from memrl_core.environments.databases.mysql_values import MOMENTS, Columns, kind_of_type
from memrl_core.environments.databases.near_misses import near_misses, normal
from memrl_core.environments.databases.sandbox import Sandbox
from memrl_core.environments.databases.task import DatabaseTask
from memrl_core.environments.lifelong_entry import AnswerInfo, Rows, read_entry
from memrl_core.environments.lifelong_trial import APPEARANCE, AS_STORED, OPEN, TIES, Trial, notes_on
from memrl_core.environments.tasks import LONGEST_INTENT, check_intent
from memrl_core.errors import InputError
from memrl_core.records import Task

ENVIRONMENT = "lifelong_db"
MOST_BYTES = 200_000_000
LONGEST_KEY = 80
LONGEST_DATA = 100_000
"""Characters of a task's table, answer and statements as JSON: they are stored with every step."""

NEAR_MISSES = 3
TRIED = 24
"""Near misses that are tried until `NEAR_MISSES` of them fail the task."""

_CLAUSES = (
    ("subquery", "sub-select"),
    ("having", "having"),
    ("group_by", "group by"),
    ("limit", "limit"),
    ("order_by", "order by"),
    ("where", "where"),
)


class Reported(NamedTuple):
    """An entry that cannot be used: where it stands, and why."""

    where: str
    reason: str


class Noted(NamedTuple):
    """What is worth knowing of an entry that can be used."""

    where: str
    sentence: str


@dataclass(frozen=True, slots=True)
class LifelongFile:
    """The tasks of a file, the entries that cannot be used, and notes about those that can."""

    tasks: tuple[Task, ...]
    reported: tuple[Reported, ...]
    notes: tuple[Noted, ...]


def is_lifelong(value: object) -> bool:
    """Whether a JSON value is laid out as such a file: an object of objects, one with a question and a table."""
    if not isinstance(value, dict):
        return False
    return any(isinstance(entry, dict) and {"instruction", "table_info"} <= set(entry) for entry in value.values())


def read_lifelong(source: Path | str | bytes | Mapping[str, object]) -> LifelongFile:
    """Every entry that can be used, as a task, tried with its own statement; the others with the reason.

    `source` is a file, its text, or the JSON object that it holds. Raises `InputError` when it cannot be read as a
    whole (not there, too large, not UTF-8, not one JSON object), and `EnvironmentFailed` when nothing can be tried.
    """
    tasks: dict[str, Task] = {}
    reported: list[Reported] = []
    notes: list[Noted] = []
    with closing(Sandbox(child=CHILD)) as sandbox:
        for key, value in source.items() if isinstance(source, Mapping) else _entries(_text(source)):
            where = f"entry {key[:LONGEST_KEY]}"
            try:
                if f"lifelong-db-{key}" in tasks:
                    raise InputError("An entry before it has the same number.")
                task, told = _task(key, value, sandbox)
            except InputError as error:
                reported.append(Reported(where, str(error)))
                continue
            except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
                reported.append(Reported(where, f"It holds something that cannot be read ({type(error).__name__})."))
                continue
            tasks[task.id] = task
            notes += [Noted(where, sentence) for sentence in told]
    return LifelongFile(tuple(tasks.values()), tuple(reported), tuple(notes))


def family_of(kind: str, skills: Iterable[str]) -> str:
    """What groups tasks of one sort: the kind of the statement and the weightiest clause among the skills.

    A sub-select weighs most, then HAVING, GROUP BY, LIMIT, ORDER BY and WHERE, because the later ones come along with
    the earlier; a change is told apart by having a sub-select or not.
    """
    known = list(skills)
    clauses = _CLAUSES if kind == "select" else _CLAUSES[:1]
    found = next((word for start, word in clauses if any(skill.startswith(start) for skill in known)), "")
    return f"{kind} {found}" if found else kind


def _entries(text: str) -> Sequence[tuple[str, object]]:
    """The entries of the outermost object under their keys, also those whose key stands twice."""
    pairs: list[tuple[str, object]] = []

    def kept(found: list[tuple[str, object]]) -> dict[str, object]:
        pairs[:] = found  # The outermost object comes last.
        return dict(found)

    try:
        value = json.loads(text, object_pairs_hook=kept)
    except (ValueError, RecursionError) as error:
        told = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply, or a number is too long"
        raise InputError(f"The file is not JSON ({told}). Nothing was read; check the file.") from None
    if not isinstance(value, dict) or not value:
        raise InputError("The file is not a JSON object with an entry for each task. Nothing was read; check the file.")
    return pairs


def _text(source: Path | str | bytes) -> str:
    try:
        size = source.stat().st_size if isinstance(source, Path) else len(source)
        if size > MOST_BYTES:
            raise InputError(
                f"The file has {size / 1e6:,.0f} MB; at most {MOST_BYTES / 1e6:,.0f} MB are read. Nothing was read; "
                "split it."
            )
        raw = source.read_bytes() if isinstance(source, Path) else source
        return raw if isinstance(raw, str) else raw.decode("utf-8-sig")
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise InputError(f"The file cannot be read ({why}). Nothing was read; check its name.") from None
    except UnicodeDecodeError as error:
        at = error.start + 1
        raise InputError(f"The file is not UTF-8, at byte {at:,}. Nothing was read; save it as UTF-8.") from None


def _task(key: str, value: object, sandbox: Sandbox) -> tuple[Task, list[str]]:
    """An entry as a task, and notes about it. Raises `InputError` with the reason why it cannot be used."""
    if len(key) > LONGEST_KEY:
        raise InputError(f"Its number has {len(key):,} characters; at most {LONGEST_KEY} are read.")
    entry = read_entry(value)
    table, reference = entry.table_info, entry.answer_info.sql.strip()
    columns = tuple((column.name, column.type) for column in table.column_info_list)
    asked, read = _instruction(entry.instruction), parsed(reference)
    data: dict[str, Any] = {
        "tables": [
            {"name": table.name, "create": create_table(table.name, columns), "rows": _stored(table.row_list, columns)}
        ],
        **_asked(entry.answer_info, reference, read),
    }
    trial = Trial(sandbox, DatabaseTask.model_validate({**data, "dialect": "mysql"}), columns)
    published = entry.answer_info.direct
    notes = notes_on(read)
    if published is not None and (told := trial.compare(published)):
        notes.append(told)
    if trial.has_ties():
        notes.append(TIES)
    if read.find(exp.Order) is not None and not {APPEARANCE, AS_STORED} & set(notes) and trial.is_open():
        notes.append(OPEN)
    misses = trial.failing(near_misses(reference, TRIED, seed=zlib.crc32(reference.encode())), NEAR_MISSES)
    if len(misses) < NEAR_MISSES:
        notes.append(f"Accepted; {len(misses)} of {NEAR_MISSES} near misses were found to offer beside its statement.")
    own = normal(reference)
    data |= {"near_misses": misses, "drafts": [own if trial.solved_by(own) else reference, *misses]}
    if published is not None:
        data["expected"] = published
    data["skills"] = list(entry.skill_list)
    if len(json.dumps(data)) > LONGEST_DATA:
        raise InputError(
            f"Its table, answer and statements have more than {LONGEST_DATA:,} characters; every step would store them."
        )
    intent = f"{asked} The table {table.name} has the columns {', '.join(n for n, _ in columns)}."
    family = family_of("select" if isinstance(read, exp.Query) else read.key, entry.skill_list)
    return Task(f"lifelong-db-{key}", intent, ENVIRONMENT, family, data), notes


def _stored(rows: Rows, columns: Columns) -> Rows:
    """The rows as MySQL's table holds them: dates are written in one way."""
    kinds = [kind_of_type(written) for _, written in columns]
    return [
        [stored_moment(value, str(kind)) if kind in MOMENTS else value for kind, value in zip(kinds, row, strict=True)]
        for row in rows
    ]


def _instruction(text: str) -> str:
    """The question of an entry. Raises `InputError`."""
    try:
        return check_intent(text)
    except InputError:
        long = f"has more than {LONGEST_INTENT:,} characters" if len(text) > LONGEST_INTENT else "is empty"
        raise InputError(f"Its instruction {long}.") from None


def _asked(answer: AnswerInfo, reference: str, read: exp.Expr) -> dict[str, Any]:
    """The kind of the task, its reference and whether order counts. Raises `InputError`."""
    query = isinstance(read, exp.Query)
    if not query and not isinstance(read, exp.DML):
        raise InputError("Its statement is neither a query nor a change of the table.")
    if query and answer.direct is None:
        raise InputError("Its statement is a query, and no rows stand beside it as the answer (direct).")
    if not query and answer.direct is not None:
        raise InputError("Its statement changes the table, and rows stand beside it as the answer (direct).")
    return {
        "kind": "query" if query else "modification",
        "reference": reference,
        "ordered": query and is_ordered(read),
    }
