"""A DB-bench task tried out: its statement has to run and to give its answer, and near misses have to fail."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from sqlglot import exp

from memrl_core.environments.databases.checking import order_is_open, unusable
from memrl_core.environments.databases.judging import HandedIn, attempted, expected_of, why_not
from memrl_core.environments.databases.mysql import to_sqlite
from memrl_core.environments.databases.mysql_values import Columns
from memrl_core.environments.databases.results import differs, differs_beyond_ties
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
TIES = (
    "Accepted; its order leaves ties open: here tied rows may come in any order, the benchmark wants the published one."
)
OPEN = "Accepted; an order within it leaves ties open, and they are broken as they come here: add a column to ORDER BY."
JOINED = "Accepted; {} … JOIN is rewritten for SQLite and does the same."


class Trial:
    """A task whose reference has been run. Raises `InputError` with the reason why the task cannot be used."""

    def __init__(self, sandbox: Sandbox, task: DatabaseTask, columns: Columns) -> None:
        self._sandbox, self._task = sandbox, task
        self._translate = partial(to_sqlite, columns=columns)
        self._expected = expected_of(sandbox, task, self._translate)
        if told := unusable(task, self._expected):
            raise InputError(f"It cannot be judged: {told}")
        if task.kind == "modification" and self.solved_by(""):
            raise InputError("Its statement changes nothing: doing nothing would solve it.")

    def compare(self, published: Rows) -> str:
        """A note about the order of the rows, if there is one. Raises `InputError` when other rows were published."""
        rows = () if self._expected.answer is None else self._expected.answer.rows
        ties = self._expected.ties
        told = differs_beyond_ties(rows, ties, published) if ties else differs(published, rows, self._task.ordered)
        if told:
            raise InputError(f"Its statement does not give the answer that stands beside it: {told[:300]}.")
        return ANOTHER_ORDER if not ties and differs(published, rows, ordered=True) else ""

    def has_ties(self) -> bool:
        """Whether its own ORDER BY leaves rows level that are not the same."""
        return any(len({*map(tuple, tied.rows)}) > 1 for tied in self._expected.ties)

    def is_open(self) -> bool:
        """Whether an order within it leaves open what it is to give."""
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
