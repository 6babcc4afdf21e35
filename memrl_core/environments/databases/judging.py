"""What a database task holds, and whether what was handed in solves it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memrl_core.environments.databases.results import (
    Tied,
    content_differs,
    differs,
    differs_beyond_ties,
    other_count,
    tied_rows,
)
from memrl_core.environments.databases.sandbox import Ran, Sandbox, Table
from memrl_core.environments.databases.statements import Dialect, joined, on_one_line, split
from memrl_core.errors import InputError
from memrl_core.records import Judgement, Task
from memrl_core.settings import sentence_of

MOST_ROWS = 20
LONGEST_CELL = 60
LONGEST_LINE = 400
LONGEST_BLOCK = 3_000
"""Characters of one result in an observation."""

_CHANGES = ("insert", "update", "delete", "replace", "with")


def result_text(ran: Ran, statement: str) -> str:
    """What became of a statement: a line, and below it the rows that came, each line set in by two blanks."""
    if ran.error:
        return f"failed: {on_a_line(ran.error)[:LONGEST_LINE]}"
    if ran.columns:
        return f"{_count(ran)}\n{rows_below(ran.columns, ran.rows)}"
    if ran.changed or on_one_line(statement).lower().startswith(_CHANGES):
        return f"{counted(ran.changed)} changed"
    return "done"


def table_text(create: str, ran: Ran, rows: int) -> str:
    """A table as a task begins: its CREATE statement, how many rows it has, and those in `ran`."""
    shown = f"{counted(rows)}{f', the first {len(ran.rows)}' if rows > len(ran.rows) else ''}"
    return f"{create.strip().rstrip(';')};\n{shown}{':' if rows else ''}\n{rows_below(ran.columns, ran.rows)}"


def rows_below(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """The names of the columns and the first rows, a line each, set in by two blanks."""
    lines = [columns, *rows[:MOST_ROWS]] if columns else rows[:MOST_ROWS]
    block = "\n".join("  " + " | ".join(map(cell, line))[:LONGEST_LINE] for line in lines)
    return block if len(block) <= LONGEST_BLOCK else block[:LONGEST_BLOCK].rpartition("\n")[0] + "\n  …"


def content_text(tables: Mapping[str, Sequence[Sequence[Any]]]) -> str:
    """The rows of tables, each under its name."""
    return "\n".join(f"{name}: {counted(len(rows))}\n{rows_below((), rows)}".rstrip() for name, rows in tables.items())


def cell(value: Any) -> str:
    """A value on one line, cut."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"X'{_cut(value[:LONGEST_CELL].hex())}'"
    return _cut(on_a_line(value)) if isinstance(value, str) else repr(value)


def counted(rows: int) -> str:
    """A number of rows in words."""
    return "1 row" if rows == 1 else f"{rows:,} rows"


def _count(ran: Ran) -> str:
    number = f"more than {counted(len(ran.rows))}" if ran.cut else counted(len(ran.rows))
    return f"{number}, the first {MOST_ROWS}" if len(ran.rows) > MOST_ROWS else number


def on_a_line(text: str) -> str:
    """The beginning of a text, with codes in the place of what cannot be printed."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text[:LONGEST_LINE])


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "…"


MOST_CHARACTERS = 4_000

Translate = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class HandedIn:
    """The state in which statements left a database.

    `answer` is the result of the last statement that returned rows (None when none did), `failed` what was wrong with
    the last statement ("" when it ran), and `content` the rows of every table, where a task asks for a change;
    `unreadable` says why they cannot be read. `ties` are the rows of a reference that its ORDER BY
    leaves level, () where the order does not count or each row has its place.
    """

    answer: Ran | None
    failed: str
    content: Mapping[str, Sequence[Sequence[Any]]]
    unreadable: str = ""
    ties: tuple[Tied, ...] = ()


def run(sandbox: Sandbox, statement: str, translate: Translate) -> Ran:
    """Run one statement in the words of the task; what cannot be translated is an error like any other."""
    try:
        return sandbox.run(translate(statement))
    except InputError as error:
        return Ran(error=str(error))


def handed_in(sandbox: Sandbox, task: DatabaseTask, answer: Ran | None, failed: str) -> HandedIn:
    """The state of the sandbox as it is now."""
    if task.kind == "query":
        return HandedIn(answer, failed, {})
    try:
        return HandedIn(answer, failed, sandbox.content({table.name for table in task.tables}))
    except InputError as error:
        return HandedIn(answer, failed, {}, str(error))


def attempted(sandbox: Sandbox, task: DatabaseTask, statements: str, translate: Translate) -> HandedIn:
    """What `statements` would hand in from the beginning of the task; the first that fails is the last that is run."""
    sandbox.begin(task.made)
    answer: Ran | None = None
    for statement in split(statements, task.dialect):
        ran = run(sandbox, statement, translate)
        if ran.error:
            return handed_in(sandbox, task, answer, ran.error)
        answer = ran if ran.columns else answer
    return handed_in(sandbox, task, answer, "")


def expected_of(sandbox: Sandbox, task: DatabaseTask, translate: Translate) -> HandedIn:
    """What the reference of a task hands in, the standard for all others."""
    expected = attempted(sandbox, task, task.reference, translate)
    if not task.ordered or task.kind != "query" or expected.failed or expected.answer is None or expected.answer.cut:
        return expected
    last = split(task.reference, task.dialect)[-1]
    ties = tied_rows(last, task.dialect, expected.answer, lambda statement: run(sandbox, statement, translate))
    return replace(expected, ties=ties)


def why_not(task: DatabaseTask, expected: HandedIn, came: HandedIn) -> str:
    """Why what came does not solve the task, for people; "" when it does."""
    if task.kind == "modification":
        return came.unreadable or content_differs(expected.content, came.content)
    assert expected.answer is not None
    if came.answer is None:
        return "no statement returned rows"
    wanted, rows = expected.answer, came.answer
    if rows.cut:
        return f"more than {counted(len(rows.rows))} came, {len(wanted.rows):,} were expected"
    message = other_count(len(wanted.columns), len(rows.columns), "column")
    if message or not expected.ties:
        return message or differs(wanted.rows, rows.rows, task.ordered)
    return differs_beyond_ties(wanted.rows, expected.ties, rows.rows)


def judgement(task: DatabaseTask, expected: HandedIn, came: HandedIn | None, why: str) -> Judgement:
    """Both sides as text; `came` is None when nothing was handed in."""
    wanted = f"{task.reference}\n\n{_shown(task, expected, came)}"
    got = "Nothing was handed in." if came is None else came.unreadable or _shown(task, came, expected)
    return Judgement(wanted[:MOST_CHARACTERS], got[:MOST_CHARACTERS], why[:MOST_CHARACTERS])


def _shown(task: DatabaseTask, state: HandedIn, other: HandedIn | None) -> str:
    """The rows of the answer, or the tables, where both sides are known those that differ."""
    if task.kind == "query":
        if state.answer is None:
            return state.failed or "No statement returned rows."
        return result_text(state.answer, "")
    tables = state.content
    if other is not None:
        there = {name.lower(): rows for name, rows in other.content.items()}
        differing = {n: r for n, r in tables.items() if differs(there.get(n.lower(), ()), r, ordered=False)}
        tables = differing or tables
    return content_text(tables)


_ROW_KEY = re.compile(r"\bINTEGER(\s+PRIMARY\s+KEY)(?:\s+ASC\b)?(?:\s+AUTOINCREMENT\b)?", re.IGNORECASE)


def unusable(task: DatabaseTask, expected: HandedIn) -> str:
    """Why what the reference of a task hands in is no standard for others, as a sentence; "" when it is one."""
    if expected.failed:
        return f"its reference does not run ({expected.failed[:200]})."
    if task.kind == "modification":
        return expected.unreadable
    if expected.answer is None:
        return "its reference returns no rows, not even none."
    return "its reference returns more rows than can be compared." if expected.answer.cut else ""


def order_is_open(task: DatabaseTask, sandbox: Sandbox, translate: Translate) -> bool:
    """Whether what the reference gives depends on the order in which the rows of the tables are stored.

    It is run on the tables and on the same tables with their rows reversed; the second result is judged by the first
    like any answer. So a LIMIT without an ORDER BY is found, and ties of an ORDER BY that is not the answer's. False
    for a reference that is no standard for others. Raises `EnvironmentFailed`.
    """
    try:
        expected = expected_of(sandbox, task, translate)
        if unusable(task, expected):
            return False
        return bool(why_not(task, expected, attempted(sandbox, _reversed(task), task.reference, translate)))
    except InputError:
        return False


def _reversed(task: DatabaseTask) -> DatabaseTask:
    """The task with the rows of its tables in the opposite order.

    SQLite stores rows by their INTEGER PRIMARY KEY. A query reads the same with an INT there, which stores them as they
    come; a change may need the numbers that only INTEGER PRIMARY KEY gives.
    """
    tables = [
        table.model_copy(
            update={
                "rows": table.rows[::-1],
                "create": _ROW_KEY.sub(r"INT\1", table.create) if task.kind == "query" else table.create,
            }
        )
        for table in task.tables
    ]
    return task.model_copy(update={"tables": tables})


def faults_of(task: DatabaseTask, sandbox: Sandbox, translate: Translate) -> list[str]:
    """A sentence for each fault: of the tables, the reference, the near misses and the drafts; all of them are run."""

    def tried(statements: str) -> str:
        return why_not(task, expected, attempted(sandbox, task, statements, translate))

    try:
        expected = expected_of(sandbox, task, translate)
    except InputError as error:
        return [str(error)]
    if message := unusable(task, expected):
        return [f"It cannot be judged: {message}"]
    found = []
    if message := tried(task.reference):
        found.append(f"Its reference fails when it is run again: {message[:200]}.")
    if task.kind == "modification" and not tried(""):
        found.append("It is solved by doing nothing.")
    for number, statements in enumerate(task.near_misses, start=1):
        if not tried(statements):
            found.append(f"Near miss {number} solves it: {statements[:80]}")
    if task.drafts and all(map(tried, task.drafts)):
        found.append("None of its drafts solves it.")
    for statements in task.offered:
        if len(joined(split(statements, task.dialect), task.dialect).splitlines()) != 1:
            found.append(f"A statement that may be offered does not fit on one line: {statements[:80]}")
    return found


class GivenTable(BaseModel):
    """A table as JSON has it."""

    model_config = ConfigDict(frozen=True, strict=True)

    name: str = Field(min_length=1, max_length=100)
    create: str = Field(min_length=1, max_length=10_000)
    rows: list[list[Any]] = Field(default_factory=list, max_length=1_000)


class DatabaseTask(BaseModel):
    """Tables, and the statements that solve the task, that nearly do, and that are offered.

    `dialect` is the world's, whatever the task says: the one in which its statements and the model's are written.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    tables: list[GivenTable] = Field(min_length=1, max_length=20)
    kind: Literal["query", "modification"]
    reference: str = Field(min_length=1)
    ordered: bool = False
    near_misses: list[str] = Field(default_factory=list)
    drafts: list[str] = Field(default_factory=list)
    dialect: Dialect = "sqlite"

    @property
    def made(self) -> list[Table]:
        """The tables for a sandbox."""
        return [Table(table.name, table.create, table.rows) for table in self.tables]

    @property
    def offered(self) -> list[str]:
        """What is offered where drafts are: one of them solves the task."""
        return self.drafts or [self.reference, *self.near_misses]


def database_task(task: Task, dialect: Dialect = "sqlite") -> DatabaseTask:
    """What a task is about. Raises `InputError` with the first value that is missing or cannot be used."""
    try:
        return DatabaseTask.model_validate({**task.data, "dialect": dialect})
    except ValidationError as error:
        message = sentence_of(error).removeprefix("Settings were not changed. ")[:300]
        raise InputError(f"Task {task.id[:80]} is no database task: {message} Mend it; nothing was started.") from None


_MADE = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]""")
_INNERMOST = re.compile(r"\([^()]*\)")
_GENERATED = re.compile(r"\bas\s*\(", re.IGNORECASE)
_ORDER = re.compile(r"\border\s+by\b", re.IGNORECASE)


@lru_cache(maxsize=256)
def database_data(setup: str, reference: str) -> Mapping[str, Any]:
    """The `Task.data` of a database task: what `setup` leaves, and `reference` with what it shows of itself.

    It is a query when it only returns rows, and their order counts when it ends with an ORDER BY of its own. Raises
    `InputError` with the statement that does not run, or that makes something else than tables of plain columns, and
    `EnvironmentFailed`. Indexes that only make it faster are left out.
    """
    with closing(Sandbox()) as sandbox:
        sandbox.begin([])
        _run(sandbox, setup, "setup")
        made = [(str(kind), str(name), str(create)) for kind, name, create in sandbox.run(_MADE).rows]
        for kind, name, create in made:
            if message := _faults_of_made(kind, name, create):
                raise InputError(f"setup makes {message}")
        content = sandbox.content()
        tables = [
            {"name": name, "create": create, "rows": content[name]} for kind, name, create in made if kind == "table"
        ]
        if not tables:
            raise InputError("setup makes no table.")
        changes = any(ran.changed or not ran.columns for ran in _run(sandbox, reference, "reference"))
    kind = "modification" if changes else "query"
    return {"tables": tables, "kind": kind, "reference": reference, "ordered": not changes and _ordered(reference)}


def _faults_of_made(kind: str, name: str, create: str) -> str:
    if kind == "index":
        unique = create.upper().startswith("CREATE UNIQUE")
        return f"the unique index {name[:80]}; write UNIQUE in the table instead." if unique else ""
    if kind != "table":
        return f"the {kind} {name[:80]}; it can only make tables."
    if _GENERATED.search(_QUOTED.sub(" ", on_one_line(create))):
        return f"the table {name[:80]} with a column that is computed; make it a plain column with its values."
    return ""


def _run(sandbox: Sandbox, script: str, what: str) -> list[Ran]:
    done: list[Ran] = []
    for statement in split(script):
        ran = sandbox.run(statement)
        if ran.error:
            raise InputError(f"{what}: “{on_one_line(statement)[:80]}” does not run: {ran.error[:200].rstrip('.')}.")
        done.append(ran)
    if not done:
        raise InputError(f"{what} holds no statement.")
    return done


def _ordered(script: str) -> bool:
    """Whether the last statement has an ORDER BY that is not within brackets."""
    left = _QUOTED.sub(" ", on_one_line(split(script)[-1]))
    while (inner := _INNERMOST.sub(" ", left)) != left:
        left = inner
    return _ORDER.search(left) is not None
