"""What `Task.data` of a database task holds."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memrl_core.environments.databases.sandbox import Table
from memrl_core.environments.databases.statements import Dialect
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
        told = sentence_of(error).removeprefix("Settings were not changed. ")[:300]
        raise InputError(f"Task {task.id[:80]} is no database task: {told} Mend it; nothing was started.") from None
