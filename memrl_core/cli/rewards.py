"""Rewards of people in and out of files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.markup import escape
from rich.table import Table

from memrl_core.analysis.people.rating_queue import (
    QueueFilter,
    Show,
    batch_progress,
    drawn_batch,
    facts_of,
    queue,
    ratings_wanted,
)
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.batches import Batch
from memrl_core.cli.console import BankOption, console, plain
from memrl_core.errors import InputError
from memrl_core.exchange.reward_files import Effect, RewardFile, apply_rewards, export_rewards, kind_of, read_rewards
from memrl_core.exchange.safe_files import drafted
from memrl_core.numerals import MINUS, percent

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
            raise InputError(
                f"{lines} cannot be taken. Nothing was saved; correct them, or leave them out by --skip-bad."
            )
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
    """Write every person's reward that holds to one file, which `memrl rewards import` reads."""
    kind = kind_of(out.name)
    with MemoryBank.open(bank) as memory:
        data = export_rewards(memory, kind, run)
    with drafted(out, overwrite) as file:
        file.write(data)
    console.print(f"Wrote {escape(str(out))}.")


@app.command("batch")
def batch(
    bank: BankOption,
    raters: Annotated[str, typer.Option("--raters", help="Their names, separated by commas.")],
    run: Annotated[str, typer.Option("--run", help="The run; not needed where the bank has one.")] = "",
    name: Annotated[str, typer.Option("--name", help="What the batch is called.")] = "batch",
    show: Annotated[
        str, typer.Option("--show", help="Which steps, as in the queue: unrated, all, disputed …")
    ] = "unrated",
    steps: Annotated[int, typer.Option("--steps", min=1, help="At most so many of them are drawn.")] = 40,
    overlap: Annotated[int, typer.Option("--overlap", min=1, help="How many of the raters get each step.")] = 1,
    gold: Annotated[float, typer.Option("--gold", min=0, max=1, help="The share of gold items.")] = 0.0,
    known: Annotated[str, typer.Option("--known", help="Whose rewards gold items have; else the environment's.")] = "",
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed shares out the same.")] = 0,
    by: Annotated[str, typer.Option("--by", help="Who makes it.")] = "",
) -> None:
    """Share steps out among raters, who find their part under Rewards; gold items show how often they are right."""
    with MemoryBank.open(bank) as memory:
        runs = [info.id for info in memory.runs()]
        if not run and len(runs) != 1:
            raise InputError(f"The bank has {len(runs):,} runs. Nothing was saved; name one by --run.")
        run = memory.run(run or runs[0]).id
        chosen, wrong = QueueFilter.from_query({"show": show, "run": run})
        if wrong:
            raise InputError(f"--show {show[:40]} is no queue; choose one of {', '.join(get_args(Show))}.")
        facts, scales = facts_of(memory), memory.ratings.scales(run)
        bounds = memory.ratings.bounds(run, memory.next_step(run))
        found = queue(facts, chosen, by, {run: ratings_wanted(facts, scales.ratings_wanted)}, {run: bounds})
        drawn = drawn_batch(
            name, found, raters.split(","), count=steps, overlap=overlap, gold_share=gold, known=known, seed=seed
        )
        _progress(memory, memory.batches.make(drawn, by))


@app.command("batches")
def batches(bank: BankOption) -> None:
    """Print how far everybody is with each open batch, and how many gold items they judged right."""
    with MemoryBank.open(bank) as memory:
        for one in memory.batches.of():
            if not one.closed:
                _progress(memory, one)


def _progress(bank: MemoryBank, batch: Batch) -> None:
    middle = sum(bank.ratings.bounds(batch.run, bank.next_step(batch.run))) / 2
    table = Table("rater", "rated", "of", "gold", "right", "95 %", box=None, title=_cell(f"{batch.name} · {batch.run}"))
    for part in batch_progress(batch, facts_of(bank), middle):
        low, high = part.gold.low, part.gold.high
        ends = "" if low is None or high is None else f"{percent(low)} – {percent(high)}"
        table.add_row(
            _cell(part.rater), f"{part.done}", f"{part.steps}", f"{part.gold.n}", f"{part.gold.successes}", ends
        )
    console.print(table)


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
    text = plain(value)
    return escape(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")
