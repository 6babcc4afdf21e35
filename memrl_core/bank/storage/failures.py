"""What databases and file systems raise, as the errors of this program."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from memrl_core.bank.storage import connecting
from memrl_core.errors import (
    BankDamaged,
    BankError,
    BankFull,
    BankMisplaced,
    BankMissing,
    BankReadOnly,
    BankUnreachable,
)
from memrl_core.settings import home

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)
"""How a system says that a disk is full, and that a place cannot be written."""
HARD_LINKS = "hard links, by which LanceDB stores a change whole or not at all (exFAT and many FUSE folders have none)"
SHARED_LOG = (
    "memory shared by processes, which SQLite's write-ahead log needs (network folders and WSL's /mnt have none)"
)
LOCKS = "locks on files, which SQLite needs (some network folders have none)"
NOT_SHARED = (
    sqlite3.SQLITE_IOERR_SHMOPEN,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_SHMLOCK,
    sqlite3.SQLITE_IOERR_SHMMAP,
    sqlite3.SQLITE_IOERR_LOCK,
    sqlite3.SQLITE_IOERR_RDLOCK,
    sqlite3.SQLITE_IOERR_UNLOCK,
)
"""What SQLite raises where a file system cannot share a write-ahead log, or lock a file."""


@contextmanager
def sentences(shown: str, part: str, folder: Path | None = None) -> Iterator[None]:
    """Within it, what a database raises about `part` of the bank at `shown` becomes a sentence (`BankError`)."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        if isinstance(cause, sqlite3.Error):
            raise _of_sqlite(cause, shown, part, folder) from error
        raise _of_server(cause, shown, part) from None


def _of_sqlite(error: sqlite3.Error, shown: str, part: str, folder: Path | None) -> BankError:
    extended = getattr(error, "sqlite_errorcode", 0)
    code = extended & 0xFF
    no_room = folder is not None and folder.is_dir() and shutil.disk_usage(folder).free < 2**16
    if code == sqlite3.SQLITE_FULL or (code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and no_room):
        return BankFull(
            f"The disk is full: {part} of {shown} could not be written. What was saved before is safe; free some "
            "space and try again."
        )
    if extended in NOT_SHARED or code in (sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOLFS):
        return misplaced(shown, SHARED_LOG)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return BankReadOnly(
            f"The bank at {shown} cannot be written. Nothing was changed; make the place writable, or copy the bank."
        )
    if code == sqlite3.SQLITE_INTERRUPT:
        return BankDamaged(f"Reading {part} of {shown} was ended: it takes more work than a bank of its size needs.")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        if folder is not None and (lacking := lacks(folder)) == LOCKS:
            return misplaced(shown, lacking)
        return BankError(
            f"Another process has been writing to {shown} for more than {connecting.PATIENCE:.0f} seconds. Nothing was "
            "written; wait for it, or end it, and try again."
        )
    return damaged(shown, part)


def _of_server(error: BaseException | None, shown: str, part: str) -> BankError:
    if "NUL (0x00)" in str(error):
        return BankError(
            f"A text holds the character NUL, which the server of {shown} does not store. Nothing was written; take it "
            "out and try again."
        )
    state = str(getattr(error, "sqlstate", None) or "")
    if state.startswith("53"):
        return BankFull(
            f"The server has no room: {part} of {shown} could not be written. What was saved before is safe; free some "
            "space there and try again."
        )
    if state in ("25006", "42501"):
        return BankReadOnly(f"The server does not let this be written at {shown}. Nothing was changed; ask its owner.")
    if state == "55P03":
        return BankError(
            f"Another process has been writing to {shown} for more than {connecting.PATIENCE:.0f} seconds. Nothing was "
            "written; wait for it, or end it, and try again."
        )
    if not state or state[:2] in ("08", "28", "3D", "57"):
        return BankUnreachable(
            f"The database of {shown} does not answer or does not let this program in. What was saved before is safe; "
            "check its address, user and password, and try again."
        )
    return damaged(shown, part)


def lacks(folder: Path) -> str:
    """What the file system of `folder` has not got of what a bank needs; "" when nothing, or nothing can be written."""
    with suppress(OSError), TemporaryDirectory(prefix=".memrl-", dir=folder) as made:
        file = Path(made, "file")
        file.touch()
        try:
            os.link(file, file.with_name("link"))
        except OSError:
            return HARD_LINKS
        with suppress(ImportError), file.open("w") as opened:
            import fcntl  # Windows has locks of its own.

            try:
                fcntl.lockf(opened, fcntl.LOCK_EX)
            except OSError:
                return LOCKS
    return ""


def misplaced(shown: str, lacking: str) -> BankMisplaced:
    """What to raise where the file system of a place is `lacking` something."""
    elsewhere = "set MEMRL_HOME to a folder" if Path(shown).is_relative_to(home()) else "use a folder"
    return BankMisplaced(
        f"No bank can be written at {shown}: the file system there has no {lacking}. Nothing was changed; {elsewhere} "
        "on a local disk, or copy the bank to one."
    )


def damaged(shown: str, part: str) -> BankDamaged:
    """What to raise where a part of a bank cannot be read or written."""
    return BankDamaged(
        f"In the bank at {shown}, {part} cannot be read or written. Nothing was changed; run `memrl doctor --bank` on "
        "it, or restore a copy."
    )


def missing(shown: str) -> BankMissing:
    """What to raise where there is no bank."""
    return BankMissing(f"There is no bank at {shown}. Check the place, or start a run to make one there.")
