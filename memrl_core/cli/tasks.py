"""Tasks: which a command is about, what is wrong with a file of them, and which there are."""

from __future__ import annotations

from collections import Counter
from os.path import exists, isfile  # Those of Path raise for names that are too long.
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from memrl_core.cli.console import console
from memrl_core.environments import environment_class, environment_names, why_unusable
from memrl_core.environments.tasks import (
    damaged_sets,
    keep,
    kept_sets,
    sample_data_path,
    set_names,
    task_count,
    tasks_of_set,
)
from memrl_core.errors import InputError

SUFFIXES = (".json", ".jsonl")
"""Of what is taken for a file even when none is there."""

app = typer.Typer(help="Check a file of tasks of your own, and list the tasks there are.", no_args_is_help=True)


@app.command("check")
def check(file: Annotated[Path, typer.Argument(help="JSON Lines, a task a line; or DB-bench's JSON.")]) -> None:
    """Try every task of a file, and list what cannot be used and why; exit code 1 when there is any."""
    # What parses SQL is slow to import, and few commands need it.
    from memrl_core.environments.own_tasks.files import check_file

    checked = check_file(file)
    _list("reported", [(one.where, one.reason) for one in checked.reported])
    _list("worth knowing", [(one.where, one.sentence) for one in checked.notes])
    if checked.accepted:
        families = Counter(task.family or "no family" for task in checked.accepted)
        counts = ", ".join(f"{family} {count:,}" for family, count in families.most_common())
        console.print(_shown(f"Tasks for {checked.environment}: {counts}"))
    # Not through the console, which would wrap and colour it.
    typer.echo(f"{len(checked.accepted):,} accepted, {len(checked.reported):,} reported")
    if checked.reported:
        raise typer.Exit(1)


@app.command("list")
def list_sets() -> None:
    """List the environments, whether they can be used here, and their sets of tasks."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("environment", "set", "tasks"):
        table.add_column(heading)
    for name in environment_names():
        if why := why_unusable(name):
            table.add_row(_shown(name), _shown(why), "")
            continue
        sets = set_names(name)
        if not sets:
            only_typed = environment_class(name).reward_source == "person"
            table.add_row(_shown(name), "what you type" if only_typed else "none yet: memrl run --env FILE", "")
        for number, one in enumerate(sets):
            count = task_count(one)
            shown = "made when asked for" if count is None else f"{count:,}"
            table.add_row(_shown(name if number == 0 else ""), _shown(one), shown)
    console.print(table)
    _list("damaged", [(one.where, one.reason) for one in damaged_sets()])
    if kept_sets():
        console.print("Sets whose names end in eight hex digits are yours: made of a file that you loaded.")
    console.print("A file of your own: memrl tasks check FILE, then memrl run --env FILE.")


@app.command("example")
def example() -> None:
    """Print an example file with a task of every kind; save it by `memrl tasks example > tasks.jsonl`."""
    typer.echo((sample_data_path() / "task_files" / "example.jsonl").read_text(encoding="utf-8"), nl=False)


def environment_and_set(environment: str, task_set: str) -> tuple[str, str]:
    """The environment, and the name of its set of tasks ("" where a person types them).

    Either may be a file of tasks, where it is no name: it is checked, what can be used is kept under a name, and the
    rest is listed, and how many only people can judge. Raises `InputError` for names that do not exist, a file
    without a task, a file for another environment, and a set beside a file.
    """
    # What parses SQL is slow to import, and few commands need it.
    from memrl_core.environments.own_tasks.environment import TaskFile, left_to_people

    if environment not in environment_names() and _is_file(environment):
        if task_set:
            raise InputError(
                f"The tasks are those of the file {environment[:80]}; there is no set “{task_set[:80]}” in it. Nothing "
                "was run; leave --set out, or name an environment by --env."
            )
        environment, task_set = _kept(Path(environment))
    else:
        world, sets = environment_class(environment), set_names(environment)
        if task_set not in sets and _is_file(task_set):
            theirs, name = _kept(Path(task_set))
            if theirs != environment:
                raise InputError(
                    f"The tasks of {task_set[:80]} are for {theirs}, not for {environment}. Nothing was run."
                )
            task_set = name
        elif not task_set and not sets and world.reward_source == "environment":
            raise InputError(
                f"{world.spec.title} has no tasks of its own. Give a file of them: memrl run --env FILE. Nothing was "
                "run."
            )
        task_set = task_set or (sets[0] if sets else "")
    tasks = tasks_of_set(task_set) if environment == TaskFile.name else []
    if count := sum(map(left_to_people, tasks)):
        console.print(
            f"Tasks without a reference: {count:,} of {len(tasks):,}. People must judge the answers, in the app or by "
            "`memrl rewards import`."
        )
    return environment, task_set


def _kept(path: Path) -> tuple[str, str]:
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


def _is_file(name: str) -> bool:
    return Path(name).suffix.lower() in SUFFIXES or isfile(name) or ("/" in name and exists(name))


def _list(title: str, rows: list[tuple[str, str]]) -> None:
    if not rows:
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("where", style="bold")
    table.add_column(title, overflow="fold")
    for where, counts in rows:
        table.add_row(_shown(where), _shown(counts))
    console.print(table)


def _shown(text: str) -> Text:
    """Foreign text as plain text: nothing in it counts as markup or steers the terminal."""
    return Text("".join(sign if sign.isprintable() else " " for sign in text))
