"""Whether what was handed in solves a database task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memrl_core.environments.databases import showing
from memrl_core.environments.databases.results import Tied, content_differs, differs, differs_beyond_ties, other_count
from memrl_core.environments.databases.sandbox import Ran, Sandbox
from memrl_core.environments.databases.statements import split
from memrl_core.environments.databases.task import DatabaseTask
from memrl_core.environments.databases.ties import tied_rows
from memrl_core.errors import InputError
from memrl_core.records import Judgement

MOST_CHARACTERS = 4_000

Translate = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class HandedIn:
    """The state in which statements left a database.

    `answer` is the result of the last statement that returned rows (None when none did), `failed` what was wrong with
    the last statement ("" when it ran), and `content` the rows of every table, where a task asks for a change; `unread`
    says why they cannot be read. `ties` are the rows of a reference that its ORDER BY leaves level, () where the order
    does not count or each row has its place.
    """

    answer: Ran | None
    failed: str
    content: Mapping[str, Sequence[Sequence[Any]]]
    unread: str = ""
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
        return came.unread or content_differs(expected.content, came.content)
    assert expected.answer is not None
    if came.answer is None:
        return "no statement returned rows"
    wanted, rows = expected.answer, came.answer
    if rows.cut:
        return f"more than {showing.counted(len(rows.rows))} came, {len(wanted.rows):,} were expected"
    told = other_count(len(wanted.columns), len(rows.columns), "column")
    if told or not expected.ties:
        return told or differs(wanted.rows, rows.rows, task.ordered)
    return differs_beyond_ties(wanted.rows, expected.ties, rows.rows)


def judgement(task: DatabaseTask, expected: HandedIn, came: HandedIn | None, why: str) -> Judgement:
    """Both sides as text; `came` is None when nothing was handed in."""
    told = f"{task.reference}\n\n{_shown(task, expected, came)}"
    got = "Nothing was handed in." if came is None else came.unread or _shown(task, came, expected)
    return Judgement(told[:MOST_CHARACTERS], got[:MOST_CHARACTERS], why[:MOST_CHARACTERS])


def _shown(task: DatabaseTask, state: HandedIn, other: HandedIn | None) -> str:
    """The rows of the answer, or the tables, where both sides are known those that differ."""
    if task.kind == "query":
        if state.answer is None:
            return state.failed or "No statement returned rows."
        return showing.result(state.answer, "")
    tables = state.content
    if other is not None:
        there = {name.lower(): rows for name, rows in other.content.items()}
        differing = {n: r for n, r in tables.items() if differs(there.get(n.lower(), ()), r, ordered=False)}
        tables = differing or tables
    return showing.content(tables)
