"""The episode of a task about a database: the model types SQL, sees what comes of it, and hands in with COMMIT."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from memrl_core.environments.base import (
    Environment,
    EnvironmentSpec,
    StepResult,
    TurnsOptions,
    choices_listed,
    last_step,
)
from memrl_core.environments.databases.judging import (
    DatabaseTask,
    HandedIn,
    database_task,
    expected_of,
    faults_of,
    handed_in,
    judgement,
    on_a_line,
    result_text,
    run,
    table_text,
    unusable,
    why_not,
)
from memrl_core.environments.databases.sandbox import CHILD, Ran, Sandbox
from memrl_core.environments.databases.statements import (
    BACK,
    COMMIT,
    FAILED,
    HANDED_IN,
    OPEN,
    Dialect,
    control_of,
    experience,
    joined,
    on_one_line,
    read,
    split,
)
from memrl_core.errors import EnvironmentFailed, InputError
from memrl_core.records import Outcome, RewardSource, Task, Turn

FIRST_ROWS = 3
MAX_TURNS = 8

SECONDS = 10.0
"""After so long no further statement of an answer is begun."""

INSTRUCTIONS = (
    "You work on an SQLite database. Answer with SQL alone: one or more statements, each ended by a semicolon; you are "
    "then told what came of them. Where the task asks for data, the rows of your last statement that returns rows are "
    "your answer; where it asks for a change, the tables are. Hand it in with COMMIT, in the same answer or a later "
    "one. ROLLBACK puts the tables back to how they were at the start. "
    f"You have {MAX_TURNS} turns, and an answer that is no SQL costs one. "
    "If memories of earlier tasks are given, use them."
)

OFFERED = "You can also answer with one of the lines that are offered, without the dash."

_LAST_WORD = re.compile(r"\s(commit|rollback)\Z", re.IGNORECASE)


class DatabaseOptions(TurnsOptions):
    """How much of the work is done for the model."""

    drafts: bool = Field(
        False,
        title="Offer drafts",
        description="The model chooses among ready statements, one of which solves the task, instead of writing SQL: "
        "for the simulated model.",
    )


@dataclass(frozen=True, slots=True)
class _SoFar:
    """What stays of the turns: their number, the last result with rows, and what was wrong with the last statement."""

    turns: int = 0
    answer: Ran | None = None
    failed: str = ""


class DatabaseWorld(Environment):
    """Tables, a task about them, and a sandbox in which the model's SQL runs.

    What a task holds is laid down in `DatabaseTask`. With `drafts` its statements are offered, each on one line.
    `sandbox_child` is the module that runs as the sandbox's process.
    """

    Options = DatabaseOptions
    simulated_options: ClassVar[Mapping[str, Any]] = {"drafts": True}
    reward_source: RewardSource = "environment"
    instructions = INSTRUCTIONS
    max_turns = MAX_TURNS
    sandbox_child: ClassVar[str] = CHILD
    dialect: ClassVar[Dialect] = "sqlite"

    def __init__(self, drafts: bool = False) -> None:
        self.drafts = drafts
        if drafts:
            self.instructions = f"{type(self).instructions} {OFFERED}"
        self._sandbox = Sandbox(child=self.sandbox_child)
        self._ended = True

    def translate(self, statement: str) -> str:
        """A statement of the model or of a task's reference and drafts, as SQLite has it.

        Raises `InputError` with a sentence for one that cannot be translated.
        """
        return statement

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        """Begin `task`: its tables are made, and its reference tells what is expected.

        Raises `InputError` when either cannot be done, and `EnvironmentFailed`.
        """
        self._ended = True
        self._task = database_task(task, self.dialect)
        self._expected = expected_of(self._sandbox, self._task, self.translate)
        if message := unusable(self._task, self._expected):
            raise InputError(f"Task {task.id[:80]} cannot be judged: {message} Correct it; nothing was started.")
        self._sandbox.begin(self._task.made)
        tables = "\n".join(self._introduced(number) for number in range(len(self._task.tables)))
        self._choices = _choices(self._task, seed) if self.drafts else ""
        self._so_far = _SoFar()
        self._ended = False
        return f"The tables:\n{tables}{self._choices}"

    def step(self, action: str) -> StepResult:
        """Run the statements of a reply in their order, up to a COMMIT."""
        if self._ended:
            raise InputError("This episode has ended. Begin the next task.")
        begun = self._sandbox.changes
        try:
            return self._step(action)
        except EnvironmentFailed:
            self._sandbox.changes = begun
            raise

    def _step(self, action: str) -> StepResult:
        statements, left_out = read(action, self.dialect)
        answer, failed, report = self._so_far.answer, self._so_far.failed, []
        turns = self._so_far.turns + 1
        deadline = time.monotonic() + SECONDS
        for number, statement in enumerate(statements, start=1):
            if number > 1 and time.monotonic() >= deadline:
                left_out = f"the statements from [{number}] on were not run: those before took {SECONDS:g} seconds"
                break
            control = control_of(statement, self.dialect)
            if control == "commit":
                report.append(f"[{number}] {HANDED_IN}")
                return self._handed_in(report, turns, answer, failed)
            if control == "rollback":
                self._sandbox.begin(self._task.made)
                failed = ""
            elif not control:
                ran = run(self._sandbox, statement, self.translate)
                answer, failed = ran if ran.columns else answer, ran.error
            message = {"rollback": BACK, "begin": OPEN}.get(control) or result_text(ran, statement)
            report.append(f"[{number}] {message}")
            if not control and (word := _LAST_WORD.search(on_one_line(statement, self.dialect))):
                report.append(f"(If {word.group(1).upper()} was not part of this, put a semicolon before it.)")
        report += [f"({left_out})"] if left_out else [] if statements else ["There was no SQL in the answer."]
        self._so_far = _SoFar(turns, answer, failed)
        left = self.max_turns - turns
        if left > 0:
            report.append(f"Nothing is handed in yet; {left} turn{'' if left == 1 else 's'} left.")
            return "\n".join(report) + self._choices, 0.0, False, False, {}
        why = f"nothing was handed in within {self.max_turns} turns."
        return self._end(report, None, f"{FAILED}{why}", why, truncated=True)

    def _handed_in(self, report: list[str], turns: int, answer: Ran | None, failed: str) -> StepResult:
        came = handed_in(self._sandbox, self._task, answer, failed)
        why = why_not(self._task, self._expected, came)
        if not why:
            return self._end(report, came, f"Solved in {turns} turn{'' if turns == 1 else 's'}.", "")
        if failed:
            message = f"the last statement failed: {on_a_line(failed)[:200].rstrip('.')}."
        elif self._task.kind == "modification":
            message = "the tables are not as they should be."
        else:
            message = "the result is not the expected one." if answer else "nothing was handed in."
        return self._end(report, came, FAILED + message, why)

    def _end(
        self, report: list[str], came: HandedIn | None, verdict: str, why: str, truncated: bool = False
    ) -> StepResult:
        self._ended = True
        judged = judgement(self._task, self._expected, came, why or "it is what was expected")
        return last_step("\n".join([*report, verdict]), verdict, not why, judged, truncated=truncated)

    def distil(self, task: Task, turns: Sequence[Turn], outcome: Outcome) -> str:
        """The statements that mattered, each a line that can be typed as it stands."""
        return experience(task.intent, str(task.data.get("kind", "query")), turns, outcome, self.dialect)

    def close(self) -> None:
        """Give the sandbox's process to whoever needs one next."""
        self._ended = True
        self._sandbox.close()

    @classmethod
    def faults(cls, task: Task) -> list[str]:
        """What is wrong with a task: its reference and its near misses are run."""
        world = cls()
        try:
            world._task = database_task(task, cls.dialect)
            return faults_of(world._task, world._sandbox, world.translate)
        except InputError as error:
            return [str(error)]
        finally:
            world.close()

    def _introduced(self, number: int) -> str:
        given = self._task.tables[number]
        name = given.name.replace('"', '""')
        first = self._sandbox.run(f'SELECT * FROM "{name}" LIMIT {FIRST_ROWS}')
        return table_text(given.create, first, len(given.rows))


def _choices(task: DatabaseTask, seed: int) -> str:
    """What is offered, in an order that the seed decides."""
    one_by_one = (split(statements, task.dialect) for statements in task.offered)
    lines = list(dict.fromkeys(f"{joined(statements, task.dialect)}; {COMMIT}" for statements in one_by_one))
    order = np.random.default_rng(seed).permutation(len(lines))
    return "\n" + choices_listed(lines[n] for n in order)


class Sql(DatabaseWorld):
    """The tasks about databases that come with the program."""

    name = "sql"
    spec = EnvironmentSpec(
        title="SQL",
        idea="Answer a question about a few tables, or change them as asked, by typing SQL; hand in with COMMIT. The "
        "simulated model chooses among ready statements instead.",
        judged="By running it: 1 when the rows, or for a change the tables, are those that the task's own solution "
        "gives; 0 when they are not, or when nothing was handed in. Where order counts, rows that its ORDER BY leaves "
        "level may come in any order.",
        source="Tables and tasks written for this program, in plain SQLite; no model is needed to judge them.",
        answer_tokens=400,
    )
    sets = ("sql-train", "sql-heldout")
