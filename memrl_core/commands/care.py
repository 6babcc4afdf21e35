"""Care of a bank: other vectors, and an index of what has grown large."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from memrl_core.agent import workspace
from memrl_core.bank import MemoryBank
from memrl_core.bank.reading import INDEX_PAYS_FROM
from memrl_core.commands.console import BankOption, console, progress
from memrl_core.commands.interrupt import CtrlC
from memrl_core.embedders.base import texts_cut
from memrl_core.errors import InputError
from memrl_core.exchange.reembedding import reembed


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
