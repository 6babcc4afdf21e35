"""`python -m benchmarks`: measures what has to be fast, on a synthetic bank in a temporary folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks import suite
from benchmarks.measuring import Sizes
from memrl_core.cli.main import main

app = typer.Typer(add_completion=False)


@app.command()
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Such as retrieval; those that take minutes and no browser when left out."),
    ] = None,
    memories: Annotated[int, typer.Option(help="Memories of the synthetic bank.", min=1)] = 10_000,
    steps: Annotated[int, typer.Option(help="Steps of the synthetic run.", min=1)] = 10_000,
    repeat: Annotated[int, typer.Option(help="Repetitions.", min=1)] = 5,
    dimension: Annotated[int, typer.Option(help="Numbers of an embedding.", min=1, max=10_000)] = 384,
    json: Annotated[Path | None, typer.Option(help="A file for the rows, replaced when it is there.")] = None,
) -> None:
    """Measure what has to be fast, on a synthetic bank in a temporary folder."""
    suite.main(names or (), Sizes(memories, steps, repeat, dimension), json)


if __name__ == "__main__":
    main(app)
