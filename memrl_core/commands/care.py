"""Care of a bank: repairing what was damaged, indexing what has grown large."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from memrl_core.agent import workspace
from memrl_core.bank import MemoryBank
from memrl_core.bank.reading import INDEX_PAYS_FROM
from memrl_core.bank.repair import repair
from memrl_core.bank.repair_report import Repair
from memrl_core.commands.console import BankOption, console, progress
from memrl_core.commands.interrupt import CtrlC
from memrl_core.embedders.base import texts_cut
from memrl_core.errors import InputError
from memrl_core.exchange.reembedding import reembed

NOT_WHOLE = 2


def repair_bank(
    bank: Annotated[str, typer.Argument(help="Folder of the damaged bank; it is only read.")],
    to: Annotated[
        Path | None, typer.Option("--to", help="Where the repaired copy goes; beside it when left out.")
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Let the repaired bank take its place; a full copy is made first.")
    ] = False,
    embedder: Annotated[str, typer.Option(help="Who made the embeddings, where the bank cannot tell any more.")] = "",
) -> None:
    """Make a whole bank of a damaged one: keep what can be read, set the rest aside, and say what became of it."""
    made = repair(bank, to, in_place, embedder)
    if not made.target:
        console.print(f"Nothing to repair: {escape(bank)} is whole. Nothing was written.")
        return
    _tell(made)
    if made.remaining:
        raise typer.Exit(NOT_WHOLE)


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
    with MemoryBank.open(bank) as memory, progress() as bars, CtrlC() as stop:
        bar = bars.add_task("texts", total=None)
        done = reembed(
            memory, made, target, lambda now, total: bars.update(bar, completed=now, total=total), stop.asked
        )
    if done is None:
        console.print("Cancelled. The bank is as it was, and no new one was made.")
        raise typer.Exit(130)
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
        console.print(f"Learned anew from the vectors: q of {escape(', '.join(done.runs))}.")


def index_bank(bank: Annotated[str, typer.Argument(help="Folder or address of a bank.")]) -> None:
    """Index a large bank's memories, so that phase A asks LanceDB instead of multiplying with all of them."""
    with console.status("Indexing the memories …"), MemoryBank.open(bank) as opened:
        if not opened.memory_ids():
            raise InputError("This bank holds no memories yet: there is nothing to index. Nothing was changed.")
        opened.index()
        used = opened.by_index
    if used:
        console.print("The memories are indexed; from now on they are searched by the index.")
    else:
        console.print(
            f"The memories are indexed. Below {INDEX_PAYS_FROM:,} of them the exact search is as quick and stays."
        )


def _tell(made: Repair) -> None:
    table = Table("table", "read", "kept as they were", "set aside", "made anew", "lost", title="memrl repair")
    for one in made.tables:
        lost = "not known" if one.lost is None else f"{one.lost:,}"
        table.add_row(one.name, f"{one.read:,}", f"{one.kept:,}", f"{one.set_aside:,}", f"{one.rebuilt:,}", lost)
    console.print(table)
    for sentence in made.told:
        console.print(f"  - {escape(sentence)}")
    if made.copy:
        console.print(f"The bank as it was before: {escape(made.copy)}")
    if made.remaining:
        console.print(f"The bank at {escape(made.target)} is still not whole; what was read stays there:", style="red")
        for sentence in made.remaining:
            console.print(f"  - {escape(sentence)}")
    else:
        console.print(f"A whole bank is at {escape(made.target)}, with a report, report.md, in it.")
