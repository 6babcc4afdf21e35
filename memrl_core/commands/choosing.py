"""Which environment and which tasks a command is about: by name, or by a file of tasks."""

from __future__ import annotations

from os.path import exists, isfile  # Those of Path raise for names that are too long.
from pathlib import Path

from rich.markup import escape

from memrl_core.commands.console import console
from memrl_core.environments import environment_class, environment_names
from memrl_core.environments.tasks import keep, set_names, tasks_of_set
from memrl_core.errors import InputError

SUFFIXES = (".json", ".jsonl")
"""Of what is taken for a file even when none is there."""


def environment_and_set(environment: str, task_set: str) -> tuple[str, str]:
    """The environment, and the name of its set of tasks ("" where a person types them).

    Either may be a file of tasks, where it is no name: it is checked, what can be used is kept under a name, and the
    rest is listed, and how many only people can judge. Raises `InputError` for names that do not exist, a file
    without a task, a file for another environment, and a set beside a file.
    """
    found = _environment_and_set(environment, task_set)
    _say_who_judges(*found)
    return found


def _environment_and_set(environment: str, task_set: str) -> tuple[str, str]:
    if environment not in environment_names() and _is_file(environment):
        if task_set:
            raise InputError(
                f"The tasks are those of the file {environment[:80]}; there is no set “{task_set[:80]}” in it. Nothing "
                "was run; leave --set out, or name an environment by --env."
            )
        return _kept(Path(environment))
    found = environment_class(environment)
    if task_set not in set_names(environment) and _is_file(task_set):
        theirs, name = _kept(Path(task_set))
        if theirs != environment:
            raise InputError(f"The tasks of {task_set[:80]} are for {theirs}, not for {environment}. Nothing was run.")
        return environment, name
    sets = set_names(environment)
    if not task_set and not sets and found.reward_source == "environment":
        raise InputError(
            f"{found.spec.title} has no tasks of its own. Give a file of them: memrl run --env FILE. Nothing was run."
        )
    return environment, task_set or (sets[0] if sets else "")


def _kept(path: Path) -> tuple[str, str]:
    # What parses SQL is slow to import, and few commands need it.
    from memrl_core.environments.own_tasks.files import check_file

    checked = check_file(path)
    if not checked.accepted:
        raise InputError(f"No task of {path.name[:80]} can be used. Nothing was kept. Why: memrl tasks check {path}")
    name = keep(checked)
    sentence = f"{path.name}: {len(checked.accepted):,} accepted, {len(checked.reported):,} reported; kept as {name}."
    console.print(escape(sentence))
    if checked.reported:
        console.print(f"Why: memrl tasks check {escape(str(path))}")
    return checked.environment, name


def _say_who_judges(environment: str, task_set: str) -> None:
    from memrl_core.environments.own_tasks.environment import TaskFile, left_to_people

    if environment != TaskFile.name:
        return
    tasks = tasks_of_set(task_set)
    if count := sum(map(left_to_people, tasks)):
        console.print(
            f"Tasks without a reference: {count:,} of {len(tasks):,}. People must judge the answers, in the app or by "
            "`memrl rewards import`."
        )


def _is_file(name: str) -> bool:
    return Path(name).suffix.lower() in SUFFIXES or isfile(name) or ("/" in name and exists(name))
