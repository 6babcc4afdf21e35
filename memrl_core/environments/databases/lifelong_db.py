"""DB-bench of LifelongAgentBench: one table, one question or change, answered in MySQL; the tasks are a person's file.

Judging follows the benchmark. A query is right when its rows are those of the reference statement, numbers within
1e-6, texts exactly; a change is right when the table holds what it holds after the reference statement. Two things
differ. The benchmark is stricter: it compares the rows of every query in their published order; here the order counts
when the reference has an ORDER BY at its top, and rows that this leaves level may come in any order (where a LIMIT cuts
through them, any of them may come), because what MySQL does beyond is promised to nobody. And the benchmark compares a
changed table by a hash that was published; here it is compared by its rows.

The file is the one that was published with the official MemRL code: one JSON object, an entry for each task, under the
number of its sample. `table_info`, `answer_info` and `skill_list` of an entry are texts of Python literals; the same as
JSON is read as well. Every task is tried out: its statement has to run and to give its answer, and near misses have to
fail. MySQL's statements run on SQLite: see `mysql`.
"""

from __future__ import annotations

import ast
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat, ValidationError
from sqlglot import exp

from memrl_core.environments.base import EnvironmentSpec
from memrl_core.environments.databases.judging import DatabaseTask, attempted, differs, expected_of, unusable, why_not
from memrl_core.environments.databases.mysql import (
    CHILD,
    Reading,
    columns_of,
    create_table,
    is_ordered,
    parsed,
    to_sqlite,
)
from memrl_core.environments.databases.sandbox import Sandbox
from memrl_core.environments.databases.sql_world import INSTRUCTIONS, DatabaseWorld
from memrl_core.environments.databases.statements import Dialect
from memrl_core.environments.tasks import Noted, Reported, check_intent
from memrl_core.errors import InputError
from memrl_core.records import Task
from memrl_core.settings import sentence_of

ENVIRONMENT = "lifelong_db"
LONGEST_KEY = 80
LONGEST_DATA = 100_000
"""Characters of a task's table, answer and statements as JSON: they are stored with every step."""

NEAR_MISSES = 3
TRIED = 24
"""Near misses that are tried until `NEAR_MISSES` of them fail the task."""

LONGEST_LITERAL = 200_000
TIES = (
    "Accepted; its order leaves ties open: here tied rows may come in any order, the benchmark wants the published one."
)

_CLAUSES = (
    ("subquery", "sub-select"),
    ("having", "having"),
    ("group_by", "group by"),
    ("limit", "limit"),
    ("order_by", "order by"),
    ("where", "where"),
)


class LifelongFile(NamedTuple):
    """The tasks of a file, the entries that cannot be used, and notes about those that can."""

    tasks: tuple[Task, ...]
    reported: tuple[Reported, ...]
    notes: tuple[Noted, ...]


def is_lifelong(value: object) -> bool:
    """Whether a JSON value is laid out as such a file: an object of objects, one with a question and a table."""
    if not isinstance(value, dict):
        return False
    return any(isinstance(entry, dict) and {"instruction", "table_info"} <= set(entry) for entry in value.values())


def read_lifelong(source: str | bytes) -> LifelongFile:
    """Every entry of a file's text that can be used, as a task, tried with its own statement; the others with a reason.

    Raises `InputError` when it is not one JSON object, and `EnvironmentFailed` when nothing can be tried.
    """
    try:
        entries = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise InputError(f"The file is not JSON ({str(error)[:80]}). Nothing was read; check the file.") from None
    if not isinstance(entries, dict) or not entries:
        raise InputError("The file is not a JSON object with an entry for each task. Nothing was read; check the file.")
    tasks: list[Task] = []
    reported: list[Reported] = []
    notes: list[Noted] = []
    with closing(Sandbox(child=CHILD)) as sandbox:
        for key, value in entries.items():
            where = f"entry {key[:LONGEST_KEY]}"
            try:
                task, has_ties = _task(key, value, sandbox)
            except InputError as error:
                reported.append(Reported(where, str(error)))
            except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
                reported.append(Reported(where, f"It holds something that cannot be read ({type(error).__name__})."))
            else:
                tasks.append(task)
                notes += [Noted(where, TIES)] if has_ties else []
    return LifelongFile(tuple(tasks), tuple(reported), tuple(notes))


def family_of(kind: str, skills: Iterable[str]) -> str:
    """What groups tasks of one sort: the kind of the statement and the weightiest clause among the skills.

    A sub-select weighs most, then HAVING, GROUP BY, LIMIT, ORDER BY and WHERE, because the later ones come along with
    the earlier; a change is known by having a sub-select or not.
    """
    known = list(skills)
    clauses = _CLAUSES if kind == "select" else _CLAUSES[:1]
    weightiest = next((word for start, word in clauses if any(skill.startswith(start) for skill in known)), "")
    return f"{kind} {weightiest}".strip()


def _task(key: str, value: object, sandbox: Sandbox) -> tuple[Task, bool]:
    """An entry as a task, and whether its order leaves ties. Raises `InputError` where it cannot be used."""
    if len(key) > LONGEST_KEY:
        raise InputError(f"Its number has {len(key):,} characters; at most {LONGEST_KEY} are read.")
    entry = read_entry(value)
    table, reference, published = entry.table_info, entry.answer_info.sql.strip(), entry.answer_info.direct
    columns = tuple((column.name, column.type) for column in table.column_info_list)
    asked, tree = check_intent(entry.instruction), parsed(reference)
    is_query = isinstance(tree, exp.Query)
    if is_query != (published is not None):
        raise InputError("It has no rows as its answer (direct) beside a query, or has rows beside a change.")
    data: dict[str, Any] = {
        "tables": [{"name": table.name, "create": create_table(table.name, columns), "rows": table.row_list}],
        "kind": "query" if is_query else "modification",
        "reference": reference,
        "ordered": is_query and is_ordered(tree),
    }
    task, translate = DatabaseTask.model_validate({**data, "dialect": "mysql"}), partial(to_sqlite, columns=columns)
    expected = expected_of(sandbox, task, translate)
    if message := unusable(task, expected):
        raise InputError(f"It cannot be judged: {message}")

    def fails(statements: str, runs: bool = False) -> bool:
        came = attempted(sandbox, task, statements, translate)
        return not (runs and came.failed) and bool(why_not(task, expected, came))

    if published is not None and expected.answer is not None:
        rows, ties = expected.answer.rows, expected.ties
        if message := differs(rows, published, True, ties) if ties else differs(published, rows, task.ordered):
            raise InputError(f"Its statement does not give the answer that stands beside it: {message[:300]}.")
        data["expected"] = published
    elif not fails(""):
        raise InputError("Its statement changes nothing: doing nothing would solve it.")
    tried = near_misses(reference, TRIED, seed=zlib.crc32(reference.encode()))
    misses = list(islice((statement for statement in tried if fails(statement, runs=True)), NEAR_MISSES))
    own = tree.sql(dialect=Reading, comments=False)  # As near misses are written.
    data |= {"near_misses": misses, "drafts": [reference if fails(own) else own, *misses]}
    data["skills"] = list(entry.skill_list)
    if len(json.dumps(data)) > LONGEST_DATA:
        raise InputError(
            f"Its table, answer and statements have more than {LONGEST_DATA:,} characters; every step would store them."
        )
    intent = f"{asked} The table {table.name} has the columns {', '.join(name for name, _ in columns)}."
    family = family_of("select" if is_query else tree.key, entry.skill_list)
    has_ties = any(len({*map(tuple, tied.rows)}) > 1 for tied in expected.ties)
    return Task(f"lifelong-db-{key}", intent, ENVIRONMENT, family, data), has_ties


# --- an entry


def _read(value: Any) -> Any:
    """What a text of Python spells, tuples as lists; anything else as it is. Raises `ValueError`."""
    if not isinstance(value, str):
        return value
    if len(value) > LONGEST_LITERAL:
        raise ValueError(f"it has {len(value):,} characters; at most {LONGEST_LITERAL:,} are read")
    try:
        return _with_lists(ast.literal_eval(value.strip()))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError("it is no Python literal") from None


def _with_lists(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_with_lists(one) for one in value]
    return {key: _with_lists(one) for key, one in value.items()} if isinstance(value, dict) else value


Value = Annotated[int, Field(ge=-(2**63), lt=2**63)] | FiniteFloat | str | None
Rows = list[list[Value]]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class ColumnInfo(_Part):
    """A column and its MySQL type."""

    name: str = Field(min_length=1, max_length=64)
    type: str = Field(min_length=1, max_length=200)


class TableInfo(_Part):
    """The table that the question is about."""

    name: str = Field(min_length=1, max_length=64)
    column_info_list: list[ColumnInfo] = Field(min_length=1, max_length=100)
    row_list: Rows = Field(max_length=1_000)


class AnswerInfo(_Part):
    """The statement that solves the task, and for a question the rows that answer it. The hash is not read."""

    sql: str = Field(min_length=1)
    direct: Annotated[Rows | None, BeforeValidator(_read)] = None


class Entry(_Part):
    """An entry; what else stands in it is not read."""

    instruction: str = Field(min_length=1)
    table_info: Annotated[TableInfo, BeforeValidator(_read)]
    answer_info: Annotated[AnswerInfo, BeforeValidator(_read)]
    skill_list: Annotated[list[str], BeforeValidator(_read)] = Field(default_factory=list, max_length=100)


def read_entry(value: object) -> Entry:
    """The entry in a JSON value. Raises `InputError` with the first thing that is missing or wrong."""
    try:
        return Entry.model_validate(value)
    except ValidationError as error:
        raise InputError(sentence_of(error).removeprefix("Settings were not changed. ")[:300]) from None


# --- near misses: statements that differ from the reference in one thing ----------------------------------------------

_OTHERS: Mapping[type[exp.Expr], type[exp.Expr]] = {
    one: other
    for pair in (
        (exp.GT, exp.GTE),
        (exp.LT, exp.LTE),
        (exp.EQ, exp.NEQ),
        (exp.And, exp.Or),
        (exp.Sum, exp.Avg),
        (exp.Max, exp.Min),
        (exp.Add, exp.Sub),
        (exp.Mul, exp.Div),
    )
    for one, other in (pair, pair[::-1])
}
_CLAUSES_DROPPED = ("where", "having", "distinct", "order", "limit", "offset")


def near_misses(statement: str, count: int, seed: int) -> Iterator[str]:
    """At most `count` statements of MySQL that differ from one in one thing each, as the seed decides.

    Some may give what the statement gives, or fail: they are to be tried. Raises `InputError` for a statement that
    cannot be read.
    """
    tree = parsed(statement)
    made = {tree.sql(dialect=Reading, comments=False)}
    for at in np.random.default_rng(seed).permutation(sum(1 for _ in _changes(tree))):
        copy = tree.copy()
        next(islice(_changes(copy), int(at), None))()
        one = copy.sql(dialect=Reading, comments=False)
        if one in made:
            continue
        if len(made) > count:
            return
        made.add(one)
        yield one


def _changes(tree: exp.Expr) -> Iterator[Callable[[], object]]:
    """Every change that a statement allows; the same ones in the same order for a copy of it."""
    for node in tree.walk():
        clause = node.find_ancestor(exp.Where, exp.Having, exp.Case, exp.If)
        if type(node) in _OTHERS and (clause is not None or not isinstance(node, exp.Predicate)):
            kept = {key: node.args[key] for key in ("this", "expression") if key in node.args}
            if not isinstance(node.this, exp.Distinct):
                yield partial(node.replace, _OTHERS[type(node)](**{key: one.copy() for key, one in kept.items()}))
        if isinstance(node, exp.Connector):  # One side of AND or OR is dropped.
            yield partial(node.replace, node.this.copy())
            yield partial(node.replace, node.expression.copy())
        if isinstance(node, exp.Ordered):
            yield partial(node.set, "desc", not node.args.get("desc"))
        if isinstance(node, exp.Literal) and node.is_int and not isinstance(node.parent, exp.DataTypeParam):
            yield partial(node.replace, exp.convert(int(node.name) + 1))
            yield partial(node.replace, exp.convert(max(0, int(node.name) - 1)))
        if isinstance(node, exp.Select | exp.Update | exp.Delete):
            for key in _CLAUSES_DROPPED:
                if node.args.get(key) is not None:
                    yield partial(node.set, key, None)
    yield from _of_lists(tree)


def _of_lists(tree: exp.Expr) -> Iterator[Callable[[], object]]:
    """A column that is shown, assigned or inserted is left out, or changes places with the one before it."""
    lists: list[exp.Expr] = [tree] if isinstance(tree, exp.Select | exp.Update) else []
    if isinstance(tree, exp.Insert) and isinstance(tree.this, exp.Schema):
        values = tree.expression
        lists = [tree.this, *(values.expressions if isinstance(values, exp.Values) else [values])]
    length = min((len(one.expressions) for one in lists), default=0)
    for at in range(length if length > 1 else 0):
        yield partial(_leave_out, lists, at)
        if at and not isinstance(tree, exp.Update):
            yield partial(_swap, lists[-1], at)


def _leave_out(lists: Sequence[exp.Expr], at: int) -> None:
    for one in lists:
        one.expressions[at].pop()


def _swap(listed: exp.Expr, at: int) -> None:
    one, other = listed.expressions[at - 1 : at + 1]
    first, second = one.copy(), other.copy()
    one.replace(second)
    other.replace(first)


class LifelongDb(DatabaseWorld):
    """The tasks of a file of DB-bench."""

    name = "lifelong_db"
    spec = EnvironmentSpec(
        title="LifelongAgentBench: databases",
        idea="Answer a question about one table, or change it as asked, by typing MySQL; hand in with COMMIT. The "
        "simulated model chooses among ready statements instead.",
        judged="By running it: 1 when the rows, or for a change the table, are those that the published statement "
        "gives; 0 when they are not, or when nothing was handed in. The order counts where the statement has an ORDER "
        "BY, up to its ties; the benchmark itself is stricter and wants every row in its published place.",
        source="The DB-bench tasks of LifelongAgentBench, as published with the official MemRL code (MIT licence). "
        "The file is not part of this program. Load it below, or in a terminal: memrl tasks check FILE, then "
        "memrl run --env FILE. Its MySQL runs on SQLite.",
        answer_tokens=400,
    )
    instructions = INSTRUCTIONS.replace("an SQLite database", "a MySQL database")
    sandbox_child: ClassVar[str] = CHILD
    dialect: ClassVar[Dialect] = "mysql"

    def translate(self, statement: str) -> str:
        """A statement of MySQL as SQLite has it. Raises `InputError` for one that cannot be translated."""
        columns = [column for table in self._task.tables for column in columns_of(table.create)]
        return to_sqlite(statement, tuple(columns))
