"""Which environment and which tasks a command is about: by name, or by a file of tasks."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape

from memrl_core.commands.console import console
from memrl_core.environments import environment_class, environment_names
from memrl_core.environments.task_files import check_file
from memrl_core.environments.task_sets import keep, set_names
from memrl_core.errors import InputError

SUFFIXES = (".json", ".jsonl")


def environment_and_set(environment: str, task_set: str) -> tuple[str, str]:
    """The environment, and the name of its set of tasks ("" where a person types them).

    Either may be a file of tasks: it is checked, what can be used is kept under a name, and the rest is told. Raises
    `InputError` for names that do not exist, a file without a task, and a file for another environment.
    """
    if environment not in environment_names() and _is_file(environment):
        return kept_file(Path(environment))
    found = environment_class(environment)
    if _is_file(task_set):
        theirs, name = kept_file(Path(task_set))
        if theirs != environment:
            raise InputError(f"The tasks of {task_set[:80]} are for {theirs}, not for {environment}. Nothing was run.")
        return environment, name
    sets = set_names(environment)
    if not task_set and not sets and found.reward_source == "environment":
        raise InputError(
            f"{found.spec.title} has no tasks of its own. Give a file of them: memrl run --env FILE. Nothing was run."
        )
    return environment, task_set or (sets[0] if sets else "")


def kept_file(path: Path) -> tuple[str, str]:
    """A file of tasks, checked and kept: its environment and the name of the set. Raises `InputError`."""
    checked = check_file(path)
    name = keep(checked)
    told = f"{path.name}: {len(checked.accepted)} accepted, {len(checked.reported)} reported; kept as {name}."
    console.print(escape(told))
    if checked.reported:
        console.print(f"Why: memrl tasks check {escape(str(path))}")
    return checked.environment, name


def _is_file(name: str) -> bool:
    return Path(name).suffix.lower() in SUFFIXES or ("/" in name and Path(name).exists())
