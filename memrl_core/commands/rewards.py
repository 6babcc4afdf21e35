"""Rewards of people in and out of files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from memrl_core.bank import MemoryBank
from memrl_core.commands.console import BankOption, console
from memrl_core.errors import InputError
from memrl_core.exchange.reward_files import (
    Effect,
    RewardFile,
    apply_rewards,
    export_rewards,
    kind_of,
    read_rewards,
)
from memrl_core.exchange.whole_files import drafted
from memrl_core.numerals import MINUS

app = typer.Typer(help="Rewards that people gave to finished steps, as CSV or JSON Lines.", no_args_is_help=True)
LINES = 20
LONGEST = 60


@app.command("import")
def import_rewards(
    file: Annotated[Path, typer.Argument(help="Ends in .csv or .jsonl; has step, reward and perhaps run and rater.")],
    bank: BankOption,
    run: Annotated[str, typer.Option("--run", help="The run of lines that name none.")] = "",
    rater: Annotated[str, typer.Option("--rater", help="Who imports; also the rater of lines that name none.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be saved.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Save the good lines where others are bad.")] = False,
) -> None:
    """Give the rewards in a file: all of it or nothing, as one action, and each line's effect is listed."""
    with MemoryBank.open(bank) as memory:
        found = read_rewards(file, None, memory, run, rater)
        _preview(found)
        bad = found.counts[Effect.BAD]
        if bad and not skip_bad:
            lines = "1 line" if bad == 1 else f"{bad:,} lines"
            raise InputError(f"{lines} cannot be taken. Nothing was saved; mend them, or leave them out by --skip-bad.")
        if dry_run:
            console.print("Nothing was saved: this was a dry run.")
            return
        saved = apply_rewards(memory, found, rater)
    console.print(f"Saved {len(saved):,} {'reward' if len(saved) == 1 else 'rewards'} in {escape(bank)}.")


@app.command("export")
def export(
    bank: BankOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write; ends in .csv or .jsonl.")],
    run: Annotated[str, typer.Option("--run", help="The run; all of them when left out.")] = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file of that name.")] = False,
) -> None:
    """Write every person's reward that stands to one file, which `memrl rewards import` reads."""
    kind = kind_of(out.name)
    with MemoryBank.open(bank) as memory:
        data = export_rewards(memory, kind, run)
    with drafted(out, overwrite) as file:
        file.write(data)
    console.print(f"Wrote {escape(str(out))}.")


def _preview(found: RewardFile) -> None:
    rows = found.rows()
    good, bad = [row for row in rows if not row["problem"]], [row for row in rows if row["problem"]]
    columns = ("line", "run", "step", "rater", "reward", "reason", "then")
    if good:
        table = Table(*columns, box=None)
        for row in good[:LINES]:
            reward = f"{row['reward']:+g}".replace("-", MINUS)
            table.add_row(*(_cell({**row, "reward": reward}[column]) for column in columns))
        console.print(table)
        _how_many_more(len(good))
    for row in bad[:LINES]:
        console.print(f"Line {row['line']:,}: {escape(row['problem'])}", style="red")
    _how_many_more(len(bad))
    if found.unknown:
        console.print(f"Passed over: {_cell(', '.join(found.unknown))}, which no reward has.")
    counts = found.counts
    console.print(
        f"{counts[Effect.NEW]:,} new, {counts[Effect.CHANGED]:,} changed, {counts[Effect.SAME]:,} same as now, "
        f"{counts[Effect.DOUBLED]:,} doubled, {counts[Effect.BAD]:,} bad."
    )


def _how_many_more(lines: int) -> None:
    if lines > LINES:
        console.print(f"… and {lines - LINES:,} more.")


def _cell(value: object) -> str:
    text = "".join(sign if sign.isprintable() else " " for sign in str(value))
    return escape(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")
