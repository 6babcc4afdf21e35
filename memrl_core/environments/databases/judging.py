"""What a database task holds, and whether what was handed in solves it.

Two integers are equal when they are the same. An integer and a float, or two floats, are equal within 1e-6, absolutely
or relative to the larger: the same sum in another order may differ in its last digits. NULL equals NULL and nothing
else, and text is never a number. Names of columns do not count.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

import numpy as np
import sqlglot
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from sqlglot import exp

from memrl_core.environments.databases.mysql import Reading, is_ordered, parsed
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

Rows = Sequence[Sequence[Any]]
Translate = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Tied:
    """Rows that an ORDER BY leaves level: an answer holds `places` of them next to one another, in any order."""

    rows: Rows
    places: int


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
    return message or differs(wanted.rows, rows.rows, task.ordered, expected.ties)


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


def unusable(task: DatabaseTask, expected: HandedIn) -> str:
    """Why what the reference of a task hands in is no standard for others, as a sentence; "" when it is one."""
    if expected.failed:
        return f"its reference does not run ({expected.failed[:200]})."
    if task.kind == "modification":
        return expected.unreadable
    if expected.answer is None:
        return "its reference returns no rows, not even none."
    return "its reference returns more rows than can be compared." if expected.answer.cut else ""


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
        raise InputError(
            f"Task {task.id[:80]} is no database task: {message} Correct it; nothing was started."
        ) from None


_MADE = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"
_GENERATED = re.compile(r"\bas\s*\(", re.IGNORECASE)
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]""")


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
    """Whether the last statement has an ORDER BY of its own."""
    try:
        return is_ordered(sqlglot.parse_one(split(script)[-1], read="sqlite"))
    except (sqlglot.errors.SqlglotError, RecursionError):
        return False


# --- whether two results are the same ---------------------------------------------------------------------------------

TOLERANCE = 1e-6


def differs(expected: Rows, came: Rows, ordered: bool, ties: Sequence[Tied] = ()) -> str:
    """Why the rows that came are not those expected; "" when they are.

    Unless `ordered`, each row that came must find a partner of its own among those expected, in any order. Where `ties`
    are given, of which `expected` are one answer, the rows that are level may change places.
    """
    if message := _other_shape(expected, came):
        return message
    ties = ties or ([Tied([row], 1) for row in expected] if ordered else [Tied(expected, len(expected))])
    at = 0
    for tied in ties:
        first, at = at + 1, at + tied.places
        missing, surplus = _without_partner(tied.rows, came[first - 1 : at])
        if surplus is None:
            continue
        if len(ties) > 1 and _without_partner(expected, came) == (None, None):
            return "the rows are right, their order is not"
        where = "" if len(ties) == 1 else f"row {at}: " if tied.places == 1 else f"rows {first} to {at}: "
        return f"{where}came {_row(surplus)}, expected {_row(missing)}"
    return "" if at == len(came) else f"{len(came):,} rows came, {at:,} were expected"


def content_differs(expected: Mapping[str, Rows], came: Mapping[str, Rows]) -> str:
    """Why the tables that came are not as expected; "" when they are.

    Both map a table's name to its rows, whose order does not count; nor do further tables that came, nor the case of
    names.
    """
    found = {name.lower(): rows for name, rows in came.items()}
    for name, rows in expected.items():
        if name.lower() not in found:
            return f"the table {name[:80]} is missing"
        if message := differs(rows, found[name.lower()], ordered=False):
            return f"table {name[:80]}: {message}"
    return ""


def other_count(expected: int, came: int, what: str) -> str:
    """That another number of rows or columns (`what`) came than expected; "" when it is the same."""
    if expected == came:
        return ""
    were = "was" if expected == 1 else "were"
    return f"{came:,} {what}{'' if came == 1 else 's'} came, {expected:,} {were} expected"


def _other_shape(expected: Rows, came: Rows) -> str:
    message = other_count(len(expected), len(came), "row")
    pairs = zip(expected, came, strict=False)
    return message or next(filter(None, (other_count(len(one), len(other), "column") for one, other in pairs)), "")


def _same_row(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(map(_same, one, other))


def _same(one: Any, other: Any) -> bool:
    if not _is_number(one) or not _is_number(other):
        return type(one) is type(other) and bool(one == other)
    if one == other:
        return True
    if isinstance(one, int) and isinstance(other, int):
        return False
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _without_partner(expected: Rows, came: Rows) -> tuple[Sequence[Any] | None, Sequence[Any] | None]:
    """An expected row and one that came, when the rows of both cannot all be paired; all have as many columns.

    "Equal within a tolerance" does not carry over from one pair to the next, so that pairing off greedily, or sorting
    by rounded numbers, can miss a pairing that exists: this looks for a largest one.
    """
    if Counter(map(_key, expected)) == Counter(map(_key, came)):
        return None, None
    groups: dict[Hashable, tuple[list[Sequence[Any]], list[Sequence[Any]]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((expected, came)):
        for row in rows:
            groups[_what_must_be_equal(row)][side].append(row)
    missing: Sequence[Any] | None = None
    surplus: Sequence[Any] | None = None
    for wanted, rows in groups.values():
        partner = _partners(wanted, rows)
        missing = next((one for one, n in zip(wanted, partner, strict=True) if n < 0), missing)
        surplus = next((row for n, row in enumerate(rows) if n not in partner), surplus)
    return missing, surplus


def _key(row: Sequence[Any]) -> Hashable:
    """Equal for rows that are exactly equal."""
    return tuple("nan" if isinstance(v, float) and math.isnan(v) else (_is_number(v), v) for v in row)


def _what_must_be_equal(row: Sequence[Any]) -> Hashable:
    """Equal for rows that can differ in numbers alone."""
    return tuple("a number" if _is_number(value) else (value,) for value in row)


def _partners(wanted: Rows, rows: Rows) -> list[int]:
    """For each wanted row the position of a partner of its own among `rows`, -1 without one: the most pairs."""
    if not wanted or not rows:
        return [-1] * len(wanted)
    equal = np.array([[_same_row(one, row) for row in rows] for one in wanted], dtype=np.int8)
    partners: list[int] = maximum_bipartite_matching(csr_array(equal), perm_type="column").tolist()
    return partners


def _row(row: Sequence[Any] | None) -> str:
    return repr(tuple(row or ()))[:300]


def tied_rows(statement: str, dialect: Dialect, answer: Ran, run: Callable[[str], Ran]) -> tuple[Tied, ...]:
    """The ties of a query in their order, with those that its LIMIT cuts off; () where they are unknown.

    `answer` is what the query gave, and `run` runs another statement on the same tables. A query whose ranks cannot be
    had (it is no plain SELECT or UNION, or has too many rows without its LIMIT) is judged row by row.
    """
    try:
        ranked, first = _with_ranks(statement, dialect)
    except (sqlglot.errors.SqlglotError, ValueError, RecursionError):
        return ()
    came = run(ranked)
    if came.error or came.cut:
        return ()
    ties = _ties(came.rows, first, len(answer.rows))
    return () if differs(answer.rows, answer.rows, True, ties) else ties


def _ties(rows: Sequence[Sequence[object]], first: int, count: int) -> tuple[Tied, ...]:
    """The ties of rows whose last value is their rank, as far as they reach into the places from `first` on."""
    found, start = [], 0
    for _, level in groupby(sorted(rows, key=itemgetter(-1)), key=itemgetter(-1)):
        members = tuple(tuple(row[:-1]) for row in level)
        places = min(start + len(members), first + count) - max(start, first)
        start += len(members)
        if places > 0:
            found.append(Tied(members, places))
    return tuple(found)


def _with_ranks(statement: str, dialect: Dialect) -> tuple[str, int]:
    """The query without LIMIT, with the rank of each row as its last column; and its OFFSET.

    A key that is the name or the number of a column shown stands for what that column holds. Raises `ValueError`, and
    what sqlglot raises.
    """
    grammar = Reading if dialect == "mysql" else "sqlite"
    query = parsed(statement) if dialect == "mysql" else sqlglot.parse_one(statement, read=grammar)
    while isinstance(query, exp.Subquery) and query.args.get("order") is None:
        query = query.this
    order, offset = query.args.get("order"), query.args.get("offset")
    if not isinstance(query, exp.Select | exp.SetOperation) or order is None:
        raise ValueError("it is no query with an order of its own")
    first = int(offset.expression.name) if offset is not None else 0
    for key in ("order", "limit", "offset"):
        query.set(key, None)
    if isinstance(query, exp.SetOperation):
        query = exp.select("*").from_(query.subquery("united"))
    keys = [_rank_key(one.copy(), query) for one in order.expressions]
    rank = exp.Window(this=exp.Anonymous(this="DENSE_RANK"), order=exp.Order(expressions=keys))
    query.append("expressions", exp.alias_(rank, "rank_in_order"))
    return query.sql(dialect=grammar, comments=False), first


def _rank_key(key: exp.Ordered, query: exp.Select) -> exp.Ordered:
    named = next((one for one in query.expressions if one.alias and one.alias == key.this.name), None)
    if key.this.is_int:
        at = int(key.this.name) - 1
        if any(one.is_star for one in query.expressions[: at + 1]) or not 0 <= at < len(query.expressions):
            raise ValueError("its order names a column by a number that cannot be read")
        named = query.expressions[at]
    elif not isinstance(key.this, exp.Column) or key.this.table:
        return key
    if named is not None:
        key.set("this", exp.paren(named.unalias().copy()))
    return key
