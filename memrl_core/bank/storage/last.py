"""Whether what was stored last is still there: it goes with a write-ahead log (bank.db-wal) that is cut or left behind.

Two marks tell. `bank.db-last`, beside the database, names the newest event and step after each commit; it is written
when they are on the disk, so it never names what a crash prevented. And while the database is in use, `user_version` of
the file itself is 1: a copy of bank.db alone may lack what was in the log.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from memrl_core.bank.storage.database import LAST, Database

TABLES = {"ledger": ("event", "events"), "steps": ("step", "steps")}
LENGTH = 256
"""Bytes of the mark, always as many: it is written in place."""
_HEAD = (
    "SELECT (SELECT max(position) FROM ledger), (SELECT digest FROM ledger ORDER BY position DESC LIMIT 1), "
    "(SELECT max(position) FROM steps), (SELECT digest FROM steps ORDER BY position DESC LIMIT 1)"
)
REMEDY = "put bank.db-wal or a whole copy of the folder back, or run memrl doctor --rebuild to keep the bank as it is"


class LastStored:
    """The marks of one database; one that is no file of this machine has none.

    `missing` is the sentence that something is missing, as it was when the bank was opened, else "".
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._file = Path(f"{database.file}{LAST}") if database.file is not None else None
        self._written: dict[str, Any] = {}
        self._marks_use = self._file is not None and database.raw("PRAGMA journal_mode") == [("wal",)]
        self._begins_use = False
        self.missing = self._missing() if self._file is not None else ""

    def begin(self) -> None:
        """Mark the file as in use, within the transaction of a caller who has something to store."""
        if self._marks_use and self._database.raw("PRAGMA user_version") != [(1,)]:
            self._database.raw("PRAGMA user_version = 1")
            self._begins_use = True

    def stored(self) -> None:
        """Name what was stored last, after a commit; not where something is missing: that it is stays known."""
        if self._file is None:
            return
        if self._begins_use:
            # The file itself has to say so, not only its log.
            self._database.raw("PRAGMA wal_checkpoint(PASSIVE)")
            self._begins_use = False
        if not self.missing:
            self._write(self._head())
        elif not self._file.exists():
            self._write({"cut": self._head()})

    def accept(self) -> None:
        """Take the bank as it is: nothing counts as missing any more."""
        if self._file is not None:
            self.missing = ""
            self._write(self._head())

    def end(self) -> None:
        """Mark the file as no longer in use, as far as this process is concerned."""
        if self._marks_use and self._database.raw("PRAGMA user_version") == [(1,)]:
            with self._database.transaction():
                self._database.raw("PRAGMA user_version = 0")

    def forget(self) -> None:
        """Delete the mark: the bank is gone."""
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)

    def _head(self) -> dict[str, Any]:
        ((event, of_event, step, of_step),) = self._database.raw(_HEAD)
        return {"ledger": [event or 0, of_event or ""], "steps": [step or 0, of_step or ""]}

    def _write(self, head: dict[str, Any]) -> None:
        if self._file is None or head == self._written:
            return
        # A place that cannot take the mark takes no writes either, or soon will not.
        with suppress(OSError):
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                os.write(descriptor, json.dumps(head).ljust(LENGTH).encode())
            finally:
                os.close(descriptor)
            self._written = head

    def _missing(self) -> str:
        assert self._file is not None
        try:
            kept = json.loads(self._file.read_text())
            return self._behind(kept["cut"]) if "cut" in kept else self._gone(kept)
        except FileNotFoundError:
            if self._database.raw("PRAGMA user_version") != [(1,)]:
                return ""
            if not self._database.had_log:
                return self._behind(self._head())
            self._write(self._head())  # Who opens it next finds the log merged, and could no longer tell.
            return ""
        except (OSError, ValueError, KeyError, TypeError):  # A mark that cannot be read says nothing.
            return ""

    def _behind(self, head: dict[str, Any]) -> str:
        return (
            f"The file bank.db of {self._database.shown} was copied by itself while the bank was in use. What was "
            f"stored after event {head['ledger'][0]:,} may be missing, unless SQLite's own backup made the copy. "
            f"Nothing was changed; {REMEDY}."
        )

    def _gone(self, kept: dict[str, Any]) -> str:
        counts, replaced = [], False
        for name, (one, several) in TABLES.items():
            position, digest = kept[name]
            if not position or self._database.raw(f"SELECT digest FROM {name} WHERE position = ?", (position,)) == [
                (digest,)
            ]:
                continue
            ((last,),) = self._database.raw(f"SELECT max(position) FROM {name}")
            if (lost := position - (last or 0)) > 0:
                counts.append(f"{lost:,} {one if lost == 1 else several}")
            else:
                replaced = True
        if not counts and not replaced:
            return ""
        what = " and ".join(counts) or "Events or steps, of which others have the numbers now,"
        are = "is" if what.startswith("1 ") and len(counts) == 1 else "are"
        return (
            f"{what} of the bank at {self._database.shown} {are} missing: its log bank.db-wal was cut, removed or left "
            f"behind, or an older bank.db was put back. Nothing was changed; {REMEDY}."
        )
