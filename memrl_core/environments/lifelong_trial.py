"""A DB-bench task tried out: its statement has to run and to give its answer, and near misses have to fail."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from sqlglot import exp

from memrl_core.environments.databases.checking import order_is_open, unusable
from memrl_core.environments.databases.judging import HandedIn, attempted, why_not
from memrl_core.environments.databases.mysql import to_sqlite
from memrl_core.environments.databases.mysql_values import Columns
from memrl_core.environments.databases.results import differs
from memrl_core.environments.databases.sandbox import Sandbox
from memrl_core.environments.databases.task import DatabaseTask
from memrl_core.environments.lifelong_entry import Rows
from memrl_core.errors import InputError

ANOTHER_ORDER = "Accepted; its rows come in another order than the published ones, and its statement asks for none."
APPEARANCE = (
    "Accepted; its answer rests on an order that the statement does not ask for: MySQL's order of first appearance is "
    "reproduced."
)
AS_STORED = (
    "Accepted; its answer rests on an order that the statement does not ask for: rows are taken as the table holds "
    "them."
)
TIES = "Accepted; its order leaves ties open, and rows are expected as they come here: add a column to ORDER BY."
JOINED = "Accepted; {} … JOIN is rewritten for SQLite and does the same."


class Trial:
    """A task whose reference has been run. Raises `InputError` with the reason why the task cannot be used."""

    def __init__(self, sandbox: Sandbox, task: DatabaseTask, columns: Columns) -> None:
        self._sandbox, self._task = sandbox, task
        self._translate = partial(to_sqlite, columns=columns)
        self._expected = self._handed_in(task.reference)
        if told := unusable(task, self._expected):
            raise InputError(f"It cannot be judged: {told}")
        if task.kind == "modification" and self.solved_by(""):
            raise InputError("Its statement changes nothing: doing nothing would solve it.")

    def compare(self, published: Rows) -> str:
        """A note about the order of the rows, if there is one. Raises `InputError` when other rows were published."""
        rows = () if self._expected.answer is None else self._expected.answer.rows
        if told := differs(published, rows, ordered=self._task.ordered):
            raise InputError(f"Its statement does not give the answer that stands beside it: {told[:300]}.")
        return ANOTHER_ORDER if differs(published, rows, ordered=True) else ""

    def leaves_ties(self) -> bool:
        """Whether its ORDER BY leaves open what it is to give."""
        return order_is_open(self._task, self._sandbox, self._translate)

    def solved_by(self, statements: str) -> bool:
        """Whether statements solve the task."""
        return not why_not(self._task, self._expected, self._handed_in(statements))

    def failing(self, statements: Iterable[str], count: int) -> list[str]:
        """The first `count` that run and do not solve the task."""
        found: list[str] = []
        for statement in statements:
            came = self._handed_in(statement)
            if not came.failed and why_not(self._task, self._expected, came):
                found.append(statement)
            if len(found) == count:
                break
        return found

    def _handed_in(self, statements: str) -> HandedIn:
        return attempted(self._sandbox, self._task, statements, self._translate)


def notes_on(statement: exp.Expr) -> list[str]:
    """What is worth knowing of how a statement is run here."""
    notes = []
    cut = [one for one in statement.find_all(exp.Select, exp.Update, exp.Delete) if one.args.get("limit") is not None]
    unasked = [one for one in cut if one.args.get("order") is None]
    if any(one.args.get("group") is not None for one in unasked):
        notes.append(APPEARANCE)
    elif unasked:
        notes.append(AS_STORED)
    if isinstance(statement, exp.Update | exp.Delete):
        sources = [statement.this, *(statement.args.get("using") or ())]
        if any(isinstance(one, exp.Table) and one.args.get("joins") for one in sources) or len(sources) > 1:
            notes.append(JOINED.format(statement.key.upper()))
    return notes
