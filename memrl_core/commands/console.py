"""The terminal that all commands write to, and the options that they share."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from memrl_core import workspace
from memrl_core.bank import MemoryBank
from memrl_core.errors import BankMissing

console = Console()

BankOption = Annotated[str, typer.Option("--bank", help="Folder of the bank, or any LanceDB URI.")]
RunOption = Annotated[str, typer.Option("--run", help="The run; the newest when left out.")]


def progress() -> Progress:
    """A bar with what is done, how long it took and how long it will take."""
    return Progress(
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )


def open_or_create(uri: str, embedder: str = workspace.EMBEDDED_EMBEDDER) -> MemoryBank:
    """The bank at `uri` with its own embedder; a new one with the named embedder when nothing is there."""
    try:
        return MemoryBank.open(uri)
    except BankMissing:
        made = workspace.make_embedder(embedder, workspace.load_preferences())
        return MemoryBank.create(uri, made.name, made.dimension)
