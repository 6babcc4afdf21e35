"""Banks, traces and reports in and out of files, and banks with other vectors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from memrl_core.agent import workspace
from memrl_core.bank import MemoryBank
from memrl_core.cli.console import BankOption, RunOption, at_work, cancelled, console, run_of
from memrl_core.embedders.base import texts_cut
from memrl_core.exchange.archive import write_bank
from memrl_core.exchange.bring_in import Arrival, bring_in, read_any
from memrl_core.exchange.new_banks import merge, reembed

LINES = 20


def import_file(
    path: Annotated[
        Path, typer.Argument(help="A bank's zip, or a checkpoint, trace or run of the official MemRL code.")
    ],
    bank: BankOption,
) -> None:
    """Import a file or a checkpoint folder into a bank, all of it or nothing, and list what was skipped."""
    _report(bring_in(read_any(path), bank))


def export_bank(
    out: Annotated[Path, typer.Argument(help="Ends in .zip (a backup), .jsonl, .parquet or .csv.")],
    bank: BankOption,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file of that name.")] = False,
) -> None:
    """Write a bank to one file."""
    with console.status("Writing …"), MemoryBank.open(bank) as memory:
        write_bank(memory, out, overwrite)
    console.print(f"Wrote {escape(str(out))}.")


def merge_banks(
    first: Annotated[str, typer.Argument(help="A bank.")],
    second: Annotated[str, typer.Argument(help="Another bank with vectors of the same embedder.")],
    bank: Annotated[str, typer.Option("--bank", help="The new bank that holds both.")],
    first_run: Annotated[str, typer.Option(help="The run of the first; its newest when left out.")] = "",
    second_run: Annotated[str, typer.Option(help="The run of the second; its newest when left out.")] = "",
) -> None:
    """Make one bank of two: all their runs, and a run that begins with the memories of one of each."""
    with MemoryBank.open(first) as one, MemoryBank.open(second) as other:
        merged = merge(one, other, bank, first_run, second_run)
    for run, memories in merged.sources:
        console.print(f"{memories:,} memories of run {escape(run)}")
    _list("Worth knowing", merged.notes)
    _renamed({**merged.renamed_runs, **merged.renamed_memories})
    console.print(
        f"Run {escape(merged.run)} knows {merged.memories:,} memories; {merged.shared:,} were known to both, of which "
        f"{merged.disputed:,} with another q. All of it is in {escape(merged.uri)}."
    )


def report_step(
    step: Annotated[int, typer.Argument(help="Number of the step.", min=1)],
    out: Annotated[Path, typer.Argument(help="The file to write, such as step-12.html.")],
    bank: BankOption,
    run: RunOption = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file of that name.")] = False,
) -> None:
    """Write one step as a single HTML file that opens without a network."""
    from memrl_core.figures.report.document import write_report
    from memrl_core.figures.report.step import step_report

    with MemoryBank.open(bank) as memory:
        write_report(step_report(memory, run_of(memory, run), step), out, overwrite)
    console.print(f"Wrote {escape(str(out))}.")


def write_run_player(
    out: Annotated[Path, typer.Argument(help="The file to write, such as run.html.")],
    bank: BankOption,
    run: RunOption = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file of that name.")] = False,
) -> None:
    """Write all steps of a run as one HTML file that plays them, with no server and no network."""
    from memrl_core.figures.stage.player import write_player

    with MemoryBank.open(bank) as memory:
        size = write_player(memory, run_of(memory, run), out, overwrite)
    console.print(f"Wrote {escape(str(out))} ({size / 1e6:.1f} MB).")


def _report(arrival: Arrival) -> None:
    account = arrival.account
    console.print(f"Read {escape(account.source)}:")
    for sentence in account.read:
        console.print(f"  {escape(sentence)}")
    _list("What it lacks", account.lacks)
    _list("Faults in it", account.faults)
    _list("Skipped", [f"{skipped.where}: {skipped.why}" for skipped in account.skipped])
    _renamed({**arrival.renamed_runs, **arrival.renamed_memories})
    console.print(
        f"{arrival.memories:,} memories, {arrival.steps:,} steps and {arrival.events:,} events are new in "
        f"{escape(arrival.uri)}."
    )


def _renamed(names: Mapping[str, str]) -> None:
    _list("Renamed, because the bank had others of that name", [f"{old} is now {new}" for old, new in names.items()])


def _list(title: str, lines: tuple[str, ...] | list[str]) -> None:
    if not lines:
        return
    console.print(f"{title}:")
    for line in lines[:LINES]:
        console.print(f"  - {escape(line)}")
    if len(lines) > LINES:
        console.print(f"  … and {len(lines) - LINES:,} more.")


def reembed_bank(
    bank: BankOption,
    embedder: Annotated[
        str, typer.Option(help="Who makes the vectors: wordllama, hashing, fastembed:NAME, or an Ollama model.")
    ],
    to: Annotated[
        Path | None, typer.Option("--to", help="Folder of the new bank; beside the old one when left out.")
    ] = None,
) -> None:
    """Make a new bank with the vectors of another embedder, or of its new weights. Ctrl-C leaves nothing behind."""
    made = workspace.make_embedder(embedder, workspace.load_preferences())
    target = str(to) if to else f"{bank.rstrip('/')}-{re.sub(r'[^A-Za-z0-9.]+', '-', made.name).strip('-.')}"
    with MemoryBank.open(bank) as memory, at_work("texts") as (on_progress, stop):
        done = reembed(memory, made, target, on_progress, stop)
    if done is None:
        cancelled("Cancelled. The bank is as it was, and no new one was made.")
    console.print(
        f"{done.memories:,} memories and {done.steps:,} steps have vectors of {escape(made.name)} in "
        f"{escape(done.uri)}; {escape(bank)} is as it was."
    )
    console.print(
        "q, visits, ledger and traces are the same. Similarities that steps recorded are those of "
        f"{escape(memory.embedder.name)}: these steps cannot be decided again. δ has another scale now (memrl doctor "
        "proposes one), and a map is laid out when it is opened."
    )
    if cut := texts_cut(made):
        console.print(
            f"{escape(made.name)} takes less text than {cut:,} of these have: their vectors are those of the beginning."
        )
    if done.runs:
        console.print(f"Learned again from the vectors: q of {escape(', '.join(done.runs))}.")
