"""Whatever can be imported, by its content and not by its name."""

from __future__ import annotations

from pathlib import Path

from memrl_core.bank.places import is_bank
from memrl_core.errors import InputError
from memrl_core.exchange.archive_read import is_ours, read_bank
from memrl_core.exchange.contents import Contents
from memrl_core.exchange.official import is_official, read_official


def read_any(path: Path) -> Contents:
    """A bank's own file (zip, JSONL, Parquet), or what the official MemRL code left: checkpoint, trace or run.

    Raises `InputError`, with what can be imported, for anything else; nothing is changed.
    """
    if path.is_file() and is_ours(path):
        return read_bank(path)
    if path.is_dir() and is_bank(path):
        raise InputError(f"{path.name} is a bank itself. Nothing was imported; open it instead.")
    if is_official(path):
        return read_official(path)
    what = "is not something that can be imported" if path.exists() else "is not there"
    raise InputError(
        f"{path.name} {what}. Nothing was imported; choose a bank that was exported here (.zip, .jsonl or .parquet), "
        "or a checkpoint folder, a trace or a run of the official MemRL code."
    )
