"""A database of SQLite in a process of its own, for statements that nobody has read before they run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from memrl_core.environments.child import Child, ChildFailed
from memrl_core.environments.databases.sandbox_child import sent, stored
from memrl_core.errors import EnvironmentFailed, InputError

Value = None | int | float | str | bytes
Row = Sequence[Value]

CHILD = "memrl_core.environments.databases.sandbox_child"
STARTING = 60.0
"""Seconds that a new process may take until it answers."""

SLACK = 3.0
"""Seconds beyond a statement's own limit after which its process is ended."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table as a task gives it: its name, its CREATE statement, and its rows in the order of its columns.

    A blob in `rows` is bytes, or {"blob": "<hex digits>"} as JSON has it.
    """

    name: str
    create: str
    rows: Sequence[Sequence[Any]] = ()


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a statement.

    `columns` are empty when it returns no rows by its kind; `changed` counts rows inserted, updated and deleted;
    `error` is "" when it ran; `cut` tells that there were more rows than `rows`.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Value, ...], ...] = ()
    changed: int = 0
    error: str = ""
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one statement may have.

    `instructions` are those of SQLite's machine, so that the same statement is stopped at the same place everywhere;
    `seconds` is for what one instruction can take. `rows` and `characters` bound what comes back, `value` the bytes of
    one value and so what one instruction can take to search it, `statement` its own characters, `pages` (4 kB each) the
    tables.
    """

    seconds: float = 5.0
    instructions: int = 20_000_000
    rows: int = 1_000
    characters: int = 1_000_000
    value: int = 100_000
    statement: int = 50_000
    pages: int = 4_096


class Sandbox:
    """One database at a time; its process is shared with whoever comes after `close`.

    When the process dies or hangs, the tables are made anew and the statements that had changed them, `changes`, are
    repeated: the tables are then as they were before the statement that was running. `child` is the module that runs as
    its process.
    """

    def __init__(self, limits: Limits | None = None, child: str = CHILD) -> None:
        self.limits = limits or Limits()
        self._child = Child(child)
        self._tables: list[dict[str, Any]] | None = None
        self.changes: tuple[str, ...] = ()
        self._made_in: int | None = None

    def begin(self, tables: Sequence[Table]) -> None:
        """A new database with these tables and nothing else.

        Raises `InputError` when they cannot be made, and `EnvironmentFailed` when there is no process to hold them.
        """
        self._tables = [
            {"name": table.name, "create": table.create, "rows": [[sent(value) for value in row] for row in table.rows]}
            for table in tables
        ]
        self.changes = ()
        try:
            self._make()
        except ChildFailed:  # One that nobody used may have ended meanwhile.
            self._make_again("The database could not be started ({}). Nothing was changed; try again.")

    def run(self, statement: str) -> Ran:
        """Run one statement. Whatever is wrong with it is an `error` in words; the tables are then as before it.

        Raises `InputError` before the first `begin`, and `EnvironmentFailed` when the process cannot be started again.
        """
        if len(statement) > self.limits.statement:
            most = self.limits.statement
            return Ran(error=f"the statement has {len(statement):,} characters; at most {most:,} are read")
        answer = self._ask({"do": "run", "statement": statement})
        if "error" in answer:
            return Ran(error=str(answer["error"]))
        ran = Ran(
            columns=tuple(answer["columns"]),
            rows=tuple(tuple(map(stored, row)) for row in answer["rows"]),
            changed=int(answer["changed"]),
            cut=bool(answer["cut"]),
        )
        if ran.changed or not ran.columns:
            self.changes = (*self.changes, statement)
        return ran

    def content(self, needed: Collection[str] | None = None) -> dict[str, list[list[Value]]]:
        """The rows of every table that there is now, in the order in which they are stored.

        Where the tables `needed` are named, others that are too large are left out. Raises `InputError` when one that
        is needed holds more than `limits` lets back (None: any), and what `run` raises.
        """
        question = {"do": "content", "needed": None if needed is None else list(needed)}
        answer = self._ask(question)
        if "stopped" in answer:
            answer = self._ask(question)
        if "error" in answer:
            raise InputError(f"The tables cannot be compared: {answer['error']}.")
        return {name: [list(map(stored, row)) for row in rows] for name, rows in answer["content"].items()}

    def close(self) -> None:
        """Give the process back. `begin` can be called again."""
        self._child.close()
        self._tables = None

    def _make(self) -> None:
        """Start from the tables, and repeat what had changed them."""
        answer = self._answer({"do": "begin", "tables": self._tables, "limits": asdict(self.limits)})
        if "error" in answer:
            raise InputError(
                f"The tables cannot be made: {str(answer['error'])[:300]}. Correct them; nothing was started."
            )
        for statement in self.changes:
            self._answer({"do": "run", "statement": statement})
        self._made_in = self._child.pid

    def _make_again(self, sentence: str) -> None:
        try:
            self._make()
        except ChildFailed as error:
            raise EnvironmentFailed(sentence.replace("{}", str(error))) from None

    def _ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to it by a process that has the tables."""
        if self._tables is None:
            raise InputError("There is no database yet. Begin one with its tables.")
        try:
            if self._child.pid != self._made_in:  # Another process may hold somebody else's tables.
                self._make()
            answer = self._answer(question)
            if "lost" in answer:
                self._make()
                answer = self._answer(question)
            return answer
        except ChildFailed as error:
            message = str(error)
        self._make_again(f"The database stopped ({message}) and could not be started again ({{}}). Try again.")
        return {"error": f"it was stopped: {message}", "stopped": True}

    def _answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        if not self._child.running:
            self._child.ask({"do": "start"}, STARTING)
        return self._child.ask(question, self.limits.seconds + SLACK)
