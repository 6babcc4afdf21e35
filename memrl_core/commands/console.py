"""The terminal that all commands write to, and the options that they share."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

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
