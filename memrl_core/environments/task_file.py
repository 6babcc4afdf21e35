"""A person's own tasks: one question, one answer, judged by the rule that the task names; or SQL on its own tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import ascii_uppercase
from typing import Any

from memrl_core.environments.answers import chosen, judge
from memrl_core.environments.base import Environment, EnvironmentSpec
from memrl_core.environments.conversation import ANSWER, JUDGED_BY_A_PERSON
from memrl_core.environments.databases.task import DatabaseTask, database_data, database_task
from memrl_core.environments.databases.world import Sql
from memrl_core.environments.own_data import SQL, checker_of, faults_of
from memrl_core.errors import InputError
from memrl_core.prompting import ANSWER_MARK, AVOID, CHOICE_MARK, CHOICES, STEPS_THAT_WORKED, TASK_LINE, WHAT_WENT_WRONG
from memrl_core.records import Judgement, Outcome, RewardSource, Task, Turn

ANSWERING = (
    "You answer what you are asked, with the answer alone and nothing around it. Where lines are offered, answer with "
    "exactly one of them, without the dash. If memories of earlier answers are given, keep to what was right and away "
    "from what was wrong."
)
ANSWER_ONLY = "Give the answer alone."
BADLY_JUDGED = "a person judged this answer badly."
LONGEST_TEXT = 4_000
"""Characters of an answer that a memory or a judgement keeps."""


class TaskFile(Environment):
    """Tasks of `own_data`'s form. One without a checker and a reference gets no verdict: `success` is then None."""

    name = "task_file"
    spec = EnvironmentSpec(
        title="Your own tasks",
        idea="A file of yours, a task a line: a question and its answer, or SQL on tables that the task sets up.",
        judged="By the rule that each task names: equal text, a number within a tolerance, a pattern, one of some "
        "choices, or what a statement of SQL does. A person judges tasks that come without an answer.",
        source="Your file, in JSON Lines; it stays on this machine.",
    )
    reward_source: RewardSource = "environment"
    instructions = ANSWERING
    max_turns = Sql.max_turns

    def __init__(self) -> None:
        self._task: Task | None = None
        self._database: Sql | None = None

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        """Begin `task`. Raises `InputError` when it is none of its own, and `EnvironmentFailed`."""
        self._task = None
        checker = checker_of(task.data)
        if told := faults_of(task.data):
            raise InputError(f"Task {task.id[:80]} cannot be used: {' '.join(told)[:500]} Nothing was started.")
        self.instructions = Sql.instructions if checker == SQL else ANSWERING
        self._task = task
        if checker == SQL:
            return self._world().reset(_of_a_database(task), seed=seed, at_step=at_step)
        if not task.data.get("choices"):
            return ANSWER_ONLY
        return f"{CHOICES}\n" + "\n".join(CHOICE_MARK + " ".join(one.split()) for one in task.data["choices"])

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """The answer ends the episode; where there are tables, what their world says."""
        task, checker = self._task, checker_of(self._task.data) if self._task else ""
        if task is None:
            raise InputError("This episode has ended. Begin the next task.")
        if checker == SQL:
            return self._world().step(action)
        if not checker:
            self._task = None
            return "", 0.0, True, False, {"verdict": JUDGED_BY_A_PERSON, "success": None}
        verdict = judge(action, {**task.data, "checker": checker})
        self._task = None
        judgement = Judgement(_expected(task.data), action[:LONGEST_TEXT], verdict.why)
        info = {"verdict": verdict.told, "success": verdict.success, "judgement": judgement}
        return verdict.told, float(verdict.success), True, False, info

    def distil(self, task: Task, turns: Sequence[Turn], outcome: Outcome) -> str:
        """The task and the answer, under a heading that says how it was judged; never the reference."""
        if checker_of(task.data) == SQL:
            return self._world().distil(_of_a_database(task), turns, outcome)
        told = "\n".join(turn.reply.text.strip()[:LONGEST_TEXT] for turn in turns)
        answer = "\n".join(ANSWER_MARK + line for line in told.splitlines() if line.strip())
        head = f"{TASK_LINE}{task.intent}\n"
        if outcome != "failure":
            return f"{head}{STEPS_THAT_WORKED if outcome == 'success' else ANSWER}\n{answer}"
        # A person may have overruled the world.
        judged = turns and turns[-1].observation and not turns[-1].reward
        why = turns[-1].observation if judged else BADLY_JUDGED
        return f"{head}{WHAT_WENT_WRONG}{why}\n{AVOID}\n{answer}"

    def close(self) -> None:
        """Give the database back, where there was one."""
        if self._database is not None:
            self._database.close()

    @classmethod
    def faults(cls, task: Task) -> list[str]:
        """What is wrong with a task, a sentence each; its reference is judged by its own checker."""
        found = faults_of(task.data)
        if found or checker_of(task.data) != SQL:
            return found
        try:
            return Sql.faults(_of_a_database(task))
        except InputError as error:
            return [str(error)]

    def _world(self) -> Sql:
        if self._database is None:
            self._database = Sql()
        return self._database


def left_to_people(task: Task) -> bool:
    """Whether nothing but a person can judge the answers to a task."""
    return task.environment == TaskFile.name and not checker_of(task.data)


def as_database_task(task: Task) -> DatabaseTask | None:
    """What a task asks of a database, where its checker is `sql`. Raises `InputError` and `EnvironmentFailed`."""
    if task.environment != TaskFile.name or checker_of(task.data) != SQL:
        return None
    return database_task(_of_a_database(task))


def _expected(data: Mapping[str, Any]) -> str:
    """The reference for people; a choice in full, where only its letter was given."""
    reference = str(data["reference"])
    if data.get("choices") is None:
        return reference[:LONGEST_TEXT]
    named = chosen(reference, data["choices"])
    return reference if named is None else f"{ascii_uppercase[named]}) {data['choices'][named].strip()}"


def _of_a_database(task: Task) -> Task:
    data: Mapping[str, Any] = database_data(task.data["setup"], task.data["reference"])
    return replace(task, environment=Sql.name, data=data)
