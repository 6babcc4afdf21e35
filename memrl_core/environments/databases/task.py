"""What `Task.data` of a database task holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memrl_core.environments.databases.sandbox import Ran, Sandbox, Table
from memrl_core.environments.databases.statements import Dialect, on_one_line, split
from memrl_core.errors import InputError
from memrl_core.records import Task
from memrl_core.settings import sentence_of


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
