"""`python -m tests.fuzz.reader`: reads the banks that the standard input names, and says what it stumbled over."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from pathlib import Path
from typing import Any

from memrl_core.bank import MemoryBank, knowledge
from memrl_core.bank.codec import schemas
from memrl_core.bank.integrity import check
from memrl_core.bank.journal import Journal
from memrl_core.bank.store import Store
from memrl_core.errors import MemRLError
from tests.builders import DIMENSION
from tests.fuzz.running import place_of
from tests.fuzz.sources import can_be_looked_at, is_a_sentence
from tests.fuzz.tables import is_whole_or_damaged

BY_TABLES = 10**9


def main() -> None:
    """Answer every line, which says how to read a bank and where it is: null, or the place of a fault and its words."""
    # Each copy that cannot be used is a line, and most cannot.
    logging.disable()
    print("ready", flush=True)
    for line in sys.stdin:
        how, uri = json.loads(line)
        fault = None
        try:
            READ[how](uri)
        except Exception as error:  # A fault of any kind is what is looked for.
            fault = place_of(error), "".join(traceback.format_exception(error))
        print(json.dumps(fault), flush=True)


def journal(uri: str) -> None:
    """What was read of a journal is in the tables once it is emptied, and the bank is the same."""
    if not is_whole_or_damaged(uri):
        return
    before = by_tables(uri)
    Store.open(uri)[0].empty_journal()
    assert not Journal(Path(uri), schemas(DIMENSION)).is_moving()
    assert by_tables(uri) == before


def flat_copies(uri: str) -> None:
    """They are used where they are whole, and change nothing."""
    assert by_copies(uri) == by_tables(uri)


def forged_flat_copies(uri: str) -> None:
    """Rows that were changed with their checksum are those of the tables, or the doctor finds them."""
    try:
        is_the_same = by_copies(uri) == by_tables(uri)
    except MemRLError as error:
        is_a_sentence(error)
        is_the_same = False
    assert is_the_same or any(not finding.ok for finding in check(uri)), (
        "other rows, and the doctor finds nothing amiss"
    )


def by_copies(uri: str) -> Any:
    """The q of all runs as who opens a large bank reads it."""
    before, knowledge.MANY = knowledge.MANY, 1
    try:
        bank = MemoryBank.open(uri)
        can_be_looked_at(bank)
        return utilities(bank)
    finally:
        knowledge.MANY = before


def by_tables(uri: str) -> Any:
    """The q of all runs as tables and journal alone say."""
    before, knowledge.MANY = knowledge.MANY, BY_TABLES
    try:
        return utilities(MemoryBank.open(uri))
    finally:
        knowledge.MANY = before


def utilities(bank: MemoryBank) -> dict[str, Any]:
    """The q of all runs."""
    return {info.id: bank.utilities(info.id) for info in bank.runs()}


READ = {"a journal": journal, "flat copies": flat_copies, "forged flat copies": forged_flat_copies}


if __name__ == "__main__":
    main()
