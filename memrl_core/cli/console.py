"""The terminal that all commands write to, the options that they share, and Ctrl-C as a request to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from types import FrameType
from typing import Annotated, Any, NoReturn, Self

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from memrl_core.agent.live import Waiting
from memrl_core.agent.preferences import discard_bank, load_preferences
from memrl_core.agent.run_parts import create_bank, default_embedder, embedder_name, hosts_of
from memrl_core.bank import MemoryBank
from memrl_core.errors import BankMissing, EmbedderMismatch, InputError, SettingsError, one_line, printable
from memrl_core.models.hosts import MOST_AT_ONCE, Hosts

console = Console()

SLOW = 1.0
"""Seconds after which a person wonders whether anything happens."""
PERIOD = 600.0
"""Seconds that the speed is a mean of: a step of a real model takes up to a minute."""
EVERY = 60.0
"""Seconds between two lines on what is done, where the output is a file and no bar moves."""

BankOption = Annotated[str, typer.Option("--bank", help="Folder of the bank, or a TOML file that names one elsewhere.")]
RunOption = Annotated[str, typer.Option("--run", help="The run; the newest when left out.")]
ModelHost = Annotated[
    str,
    typer.Option(help="Hosts that have the model, such as gpu1,gpu2:11434; one that fails is passed over and named."),
]
PerHost = Annotated[int, typer.Option(help="How many answers at once at each --model-host.", min=1, max=MOST_AT_ONCE)]


class AtWork(ProgressColumn):
    """What a step waits for: its turn, the tokens so far, their speed, and the seconds since it began."""

    def __init__(self, waiting: Waiting) -> None:
        super().__init__(table_column=Column(no_wrap=True, overflow="ellipsis"))
        self._waiting = waiting

    def render(self, task: Task) -> Text:
        """Nothing while all goes quickly."""
        if self._waiting.seconds < SLOW or task.finished:
            return Text("")
        return Text(self._waiting.line, style="progress.remaining")


class Pace(ProgressColumn):
    """How many seconds one takes; nothing until the second is done."""

    def render(self, task: Task) -> Text:
        """The first of `_pace`."""
        return Text(next(iter(_pace(task)), ""), style="progress.remaining")


def _pace(task: Task) -> list[str]:
    """How long one takes and what is left, in words; nothing while that is unknown."""
    if not task.speed:
        return []
    left = [] if task.time_remaining is None else [f"{timedelta(seconds=int(task.time_remaining))} left"]
    seconds = 1 / task.speed
    return [f"{seconds:,.{1 if seconds >= 1 else 3}f} s each", *left]


class _Progress(Progress):
    """A bar in a terminal, and a line per minute in a file."""

    _printed = 0.0

    def update(self, task_id: TaskID, *args: Any, **fields: Any) -> None:
        super().update(task_id, *args, **fields)
        task = self.tasks[task_id]
        if not self.console.is_terminal and task.completed and monotonic() - self._printed >= EVERY:
            self._printed = monotonic()
            done = f"{task.completed:g} of {task.total:g}" if task.total else f"{task.completed:g}"
            parts = [f"{task.description}: {done} after {task.elapsed or 0:.0f} s", *_pace(task)]
            self.console.print(", ".join(parts), markup=False)


def progress(*columns: ProgressColumn) -> Progress:
    """A bar with what is done, how long it took and how long it will take, and `columns` behind it."""
    return _Progress(
        TextColumn("[progress.description]{task.description}"),
        BarColumn(bar_width=20 if columns else 40),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        *columns,
        console=console,
        speed_estimate_period=PERIOD,
    )


@contextmanager
def at_hosts(model: str, given: str | Sequence[str], per_host: int, trusted: bool = True) -> Iterator[Hosts | None]:
    """The hosts that a person named for a model, with a line printed for each that is skipped; None if none is named.

    Raises `InputError`.
    """
    named = given.split(",") if isinstance(given, str) else given
    named = [one.strip() for one in named if one.strip()]
    if not named:
        yield None
        return
    with TemporaryDirectory(prefix="memrl-hosts-") as folder:
        hosts = hosts_of(model, named, per_host, Path(folder), trusted)
        with hosts.reporting(lambda sentence: console.print(escape(sentence), style="yellow")):
            yield hosts


@contextmanager
def open_or_create(uri: str, embedder: str = "", default: str = "") -> Iterator[MemoryBank]:
    """The bank at `uri`; where nothing is there a new one, made with `embedder`, or with `default` where none is named.

    A new one that is left by an error before it has a run is deleted. Raises `EmbedderMismatch` when a bank is there
    whose vectors another embedder made than the one that is named.
    """
    made = False
    try:
        bank = MemoryBank.open(uri)
    except BankMissing:
        chosen = embedder or default or default_embedder()
        bank, made = create_bank(uri, chosen, load_preferences()), True
    used = True
    try:
        with bank:
            theirs = bank.embedder.name
            if embedder and embedder_name(embedder) != theirs:
                raise EmbedderMismatch(
                    f"The vectors of this bank were made by {theirs}, so {one_line(embedder)} cannot embed for it. "
                    "Nothing was run; leave --embedder out, name another bank, which is then made with it, or make one "
                    "of this with memrl reembed."
                )
            try:
                yield bank
            finally:
                used = not made or bool(bank.runs())
    finally:
        if not used:
            discard_bank(uri)


class CtrlC:
    """Within it the first Ctrl-C is noted and not raised; the second ends the program."""

    def __init__(self) -> None:
        self.pressed = False
        self._before = signal.getsignal(signal.SIGINT)

    def asked(self) -> bool:
        """Whether it was pressed."""
        return self.pressed

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *failure: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True


@contextmanager
def at_work(what: str) -> Iterator[tuple[Callable[[int, int], None], Callable[[], bool]]]:
    """What moves a bar for long work, and what says whether Ctrl-C was pressed, which asks to stop."""
    with progress() as bars, CtrlC() as stop:
        bar = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total), stop.asked


def cancelled(sentence: str) -> NoReturn:
    """Print what is left of work that Ctrl-C ended, and end the command."""
    console.print(sentence)
    raise typer.Exit(130)


def run_of(bank: MemoryBank, asked: str) -> str:
    """The run that is named, or the newest. Raises `UnknownRun`, and `InputError` for a bank without one."""
    runs = bank.runs()
    if not runs:
        raise InputError("This bank has no run yet. Start one with `memrl run`.")
    return bank.run(asked).id if asked else runs[-1].id


def pairs(given: Sequence[str], kind: str, example: str) -> dict[str, str]:
    """What was given as name=value. Raises `SettingsError` for anything else."""
    found = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals:
            raise SettingsError(f"“{one[:80]}” is not {kind}: write it as name=value, such as {example}.")
        found[key.strip()] = value.strip()
    return found


def plain(text: object) -> str:
    """Foreign text in which nothing steers the terminal; it may still hold markup."""
    return printable(str(text))
