"""What is wrong with a database task, told by running it."""

from __future__ import annotations

from memrl_core.environments.databases.judging import HandedIn, Translate, attempted, why_not
from memrl_core.environments.databases.sandbox import Sandbox
from memrl_core.environments.databases.statements import joined, split
from memrl_core.environments.databases.task import DatabaseTask
from memrl_core.errors import InputError


def unusable(task: DatabaseTask, expected: HandedIn) -> str:
    """Why what the reference of a task hands in is no standard for others, as a sentence; "" when it is one."""
    if expected.failed:
        return f"its reference does not run ({expected.failed[:200]})."
    if task.kind == "modification":
        return expected.unread
    if expected.answer is None:
        return "its reference returns no rows, not even none."
    return "its reference returns more rows than can be compared." if expected.answer.cut else ""


def faults_of(task: DatabaseTask, sandbox: Sandbox, translate: Translate) -> list[str]:
    """A sentence for each fault: of the tables, the reference, the near misses and the drafts; all of them are run."""

    def tried(statements: str) -> str:
        return why_not(task, expected, attempted(sandbox, task, statements, translate))

    try:
        expected = attempted(sandbox, task, task.reference, translate)
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
        if len(joined(split(statements)).splitlines()) != 1:
            found.append(f"A statement that may be offered does not fit on one line: {statements[:80]}")
    return found
