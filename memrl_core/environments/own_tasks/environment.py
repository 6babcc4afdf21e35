"""A person's own tasks: one question, one answer, judged by the rule that the task names; or SQL on its own tables."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from string import ascii_uppercase
from typing import Any

from memrl_core.environments.base import (
    Environment,
    EnvironmentSpec,
    StepResult,
    TurnsOptions,
    choices_listed,
    last_step,
)
from memrl_core.environments.databases.judging import database_data
from memrl_core.environments.databases.sql_world import Sql
from memrl_core.environments.own_tasks.answers import (
    MOST_CHOICES,
    chosen,
    judge,
    number_alone,
    search,
    tolerance_of,
    without_unseen,
)
from memrl_core.errors import InputError
from memrl_core.prompting import ANSWER_MARK, AVOID, CHOICES, STEPS_THAT_WORKED, TASK_LINE, WHAT_WENT_WRONG
from memrl_core.records import Judgement, Outcome, RewardSource, Task, Turn

EXACT, NUMERIC, REGEX, CHOICE, SQL = "exact", "numeric", "regex", "choice", "sql"
CHECKERS = (EXACT, NUMERIC, REGEX, CHOICE, SQL)
KEYS = ("checker", "reference", "choices", "tolerance", "setup")

LONGEST_REFERENCE = 4_000
LONGEST_CHOICE = 300
LONGEST_SETUP = 20_000

_ONLY_FOR = {"choices": CHOICE, "tolerance": NUMERIC, "setup": SQL}
_NEEDED = {CHOICE: "choices", SQL: "setup"}
_KINDS = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}


def checker_of(data: Mapping[str, Any]) -> str:
    """Who judges: the checker that is named, else choice or exact where there is a reference; "" is a person."""
    named = data.get("checker")
    if named is not None or data.get("reference") is None:
        return str(named or "")
    return CHOICE if data.get("choices") is not None else EXACT


def faults_of(data: Mapping[str, Any]) -> list[str]:
    """What is wrong with `data`, as a sentence in a list. A key that is null counts as left out.

    A pattern is compiled, SQL is run, and the reference is judged by its own checker. Raises `EnvironmentFailed` when
    the process for that cannot be had.
    """
    try:
        _check(data)
    except InputError as error:
        return [str(error)]
    return []


def check_keys(given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises `InputError` for keys that no task has, each with the one that was perhaps meant."""
    faults = []
    for key in given:
        if key not in known:
            near = get_close_matches(key[:80], known, n=1)
            meant = f"is it “{near[0]}”?" if near else f"those are {', '.join(known)}."
            faults.append(f"“{key[:80]}” is no key of a task; {meant}")
    if faults:
        raise InputError(" ".join(faults))


def check_text(key: str, value: Any, longest: int) -> None:
    """Raises `InputError` for a value that is no text that can be used."""
    if not isinstance(value, str):
        raise InputError(f"{key} is a text, not {_KINDS.get(type(value), 'null')}.")
    if not without_unseen(value).strip():
        raise InputError(f"{key} is empty.")
    if len(value) > longest:
        raise InputError(f"{key} has {len(value):,} characters; at most {longest:,} fit.")
    if any(unicodedata.category(sign) in ("Cc", "Cs") and sign not in "\n\t\r" for sign in value):
        raise InputError(f"{key} holds characters that cannot be shown.")


def _check(data: Mapping[str, Any]) -> None:
    check_keys(data, KEYS)
    given = {key: value for key, value in data.items() if value is not None}
    if "checker" in given:
        check_text("checker", given["checker"], LONGEST_CHOICE)
    checker, reference = checker_of(given), given.get("reference")
    if checker not in ("", *CHECKERS):
        raise InputError(f"There is no checker “{checker[:80]}”; known: {', '.join(CHECKERS)}.")
    for key, one in _ONLY_FOR.items():
        if key in given and one != checker:
            raise InputError(f"{key} is for the checker {one} alone.")
    if not checker:
        return
    if reference is None or _NEEDED.get(checker, "reference") not in given:
        raise InputError(f"The checker {checker} needs {'a reference' if reference is None else _NEEDED[checker]}.")
    if checker != NUMERIC or isinstance(reference, bool) or not isinstance(reference, int | float):
        check_text("reference", reference, LONGEST_REFERENCE)
    elif not math.isfinite(reference):
        raise InputError("reference is no finite number.")
    if checker == SQL:
        check_text("setup", given["setup"], LONGEST_SETUP)
        database_data(given["setup"], reference)
        return
    if checker == CHOICE:
        _check_choices(given["choices"])
    if checker == REGEX and (fault := (done := search(str(reference), "")).fault or done.stopped):
        raise InputError(f"The pattern cannot be used: {fault}.")
    if checker == NUMERIC:
        expected = number_alone(str(reference))
        if expected is None:
            raise InputError(f"reference is not one number and nothing else: “{str(reference)[:80]}”.")
        tolerance_of(given.get("tolerance"), expected)
    # A pattern need not match itself.
    if checker != REGEX and not judge(str(reference), {**given, "checker": checker}).success:
        raise InputError("The reference fails its own check.")


def _check_choices(choices: Any) -> None:
    if not isinstance(choices, list) or not all(isinstance(one, str) for one in choices):
        raise InputError("choices is a list of texts.")
    if not 2 <= len(choices) <= MOST_CHOICES:
        raise InputError(f"choices holds {len(choices):,} texts; 2 to {MOST_CHOICES} are allowed.")
    for number, one in enumerate(choices, start=1):
        check_text(f"choice {number}", one, LONGEST_CHOICE)
        if len(one.splitlines()) > 1 or CHOICES in one:
            raise InputError(f"choice {number} is not one line of plain text.")
        if chosen(one, choices) != number - 1:
            raise InputError(f"choice {number} says the same as another.")


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
        idea="A file of yours, a task per line: a question and its answer, or SQL on tables that the task sets up.",
        judged="By the rule that each task names: equal text, a number within a tolerance, a pattern, one of some "
        "choices, or what a statement of SQL does. A person judges tasks that come without an answer.",
        source="Your file, in JSON Lines; it stays on this machine.",
    )
    Options = TurnsOptions
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
        if faults := faults_of(task.data):
            raise InputError(f"Task {task.id[:80]} cannot be used: {' '.join(faults)[:500]} Nothing was started.")
        self.instructions = Sql.instructions if checker == SQL else ANSWERING
        self._task = task
        if checker == SQL:
            return self._world().reset(_of_a_database(task), seed=seed, at_step=at_step)
        if not task.data.get("choices"):
            return ANSWER_ONLY
        return choices_listed(" ".join(one.split()) for one in task.data["choices"])

    def step(self, action: str) -> StepResult:
        """The answer ends the episode; where there are tables, what their world says."""
        task, checker = self._task, checker_of(self._task.data) if self._task else ""
        if task is None:
            raise InputError("This episode has ended. Begin the next task.")
        if checker == SQL:
            return self._world().step(action)
        if not checker:
            self._task = None
            return last_step("", JUDGED_BY_A_PERSON, None)
        verdict = judge(action, {**task.data, "checker": checker})
        self._task = None
        judgement = Judgement(_expected(task.data), action[:LONGEST_TEXT], verdict.why)
        return last_step(verdict.sentence, verdict.sentence, verdict.success, judgement)

    def distil(self, task: Task, turns: Sequence[Turn], outcome: Outcome) -> str:
        """The task and the answer, under a heading that says how it was judged; never the reference."""
        if checker_of(task.data) == SQL:
            return self._world().distil(_of_a_database(task), turns, outcome)
        # A person may have overruled the world.
        judged = turns and turns[-1].observation and not turns[-1].reward
        return _answered(task, turns, outcome, turns[-1].observation if judged else BADLY_JUDGED)

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


ANSWER = "The answer:"
JUDGED_BY_A_PERSON = "A person judges this answer."


class Conversation(Environment):
    """One question, one answer, no verdict of its own."""

    name = "conversation"
    spec = EnvironmentSpec(
        title="Conversation",
        idea="A person asks, the agent answers in free text, once.",
        judged="By a person: until somebody gives a reward, no q moves.",
        source="What you type, or a short list of questions written for this program.",
    )
    sets = ("conversation",)
    reward_source: RewardSource = "person"
    instructions = (
        "You answer what a person asks, briefly. If memories of earlier answers are given, keep to what was judged "
        "well and away from what was judged badly."
    )
    max_turns = 1

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        """There is nothing to observe but the task itself."""
        return "Answer in your own words."

    def step(self, action: str) -> StepResult:
        """The answer ends the episode."""
        return last_step("", JUDGED_BY_A_PERSON, None)

    def distil(self, task: Task, turns: Sequence[Turn], outcome: Outcome) -> str:
        """The task and the answer, under a heading that says how it was judged."""
        return _answered(task, turns, outcome, BADLY_JUDGED)


def _answered(task: Task, turns: Sequence[Turn], outcome: Outcome, why: str) -> str:
    """The task and the answer as a memory; `why` says what was wrong after a failure."""
    text = "\n".join(turn.reply.text.strip()[:LONGEST_TEXT] for turn in turns)
    answer = "\n".join(ANSWER_MARK + line for line in text.splitlines() if line.strip())
    head = f"{TASK_LINE}{task.intent}\n"
    if outcome == "failure":
        return f"{head}{WHAT_WENT_WRONG}{why}\n{AVOID}\n{answer}"
    return f"{head}{STEPS_THAT_WORKED if outcome == 'success' else ANSWER}\n{answer}"
