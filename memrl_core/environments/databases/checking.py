"""What is wrong with a database task, told by running it."""

from __future__ import annotations

import re

from memrl_core.environments.databases.judging import HandedIn, Translate, attempted, expected_of, why_not
from memrl_core.environments.databases.sandbox import Sandbox
from memrl_core.environments.databases.statements import joined, split
from memrl_core.environments.databases.task import DatabaseTask
from memrl_core.errors import InputError

_ROW_KEY = re.compile(r"\bINTEGER(\s+PRIMARY\s+KEY)(?:\s+ASC\b)?(?:\s+AUTOINCREMENT\b)?", re.IGNORECASE)


def unusable(task: DatabaseTask, expected: HandedIn) -> str:
    """Why what the reference of a task hands in is no standard for others, as a sentence; "" when it is one."""
    if expected.failed:
        return f"its reference does not run ({expected.failed[:200]})."
    if task.kind == "modification":
        return expected.unread
    if expected.answer is None:
        return "its reference returns no rows, not even none."
    return "its reference returns more rows than can be compared." if expected.answer.cut else ""


def order_is_open(task: DatabaseTask, sandbox: Sandbox, translate: Translate) -> bool:
    """Whether what the reference gives depends on the order in which the rows of the tables are stored.

    It is run on the tables and on the same tables with their rows reversed; the second result is judged by the first
    like any answer. So a LIMIT without an ORDER BY is told, and ties of an ORDER BY that is not the answer's own. False
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
    if told := unusable(task, expected):
        return [f"It cannot be judged: {told}"]
    found = []
    if told := tried(task.reference):
        found.append(f"Its reference fails when it is run again: {told[:200]}.")
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
