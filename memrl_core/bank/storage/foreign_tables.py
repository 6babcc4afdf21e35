"""LanceDB and SQLite tables of other programs, as rows: read, and never written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from memrl_core.bank.storage.addresses import connect, is_local, remote_failure, shown
from memrl_core.bank.storage.lance_files import LeadsElsewhere, must_not_be_a_clone
from memrl_core.errors import BankUnreachable, InputError

ROWS_AT_ONCE = 1000


def lance_tables(uri: str) -> list[str]:
    """The names of the tables in a folder, or of the only one where the folder is one; at an address, all of them.

    Raises `InputError`, `BankUnreachable`.
    """
    if is_local(uri):
        folder = Path(uri)
        if folder.suffix == ".lance":
            return [folder.stem]
        return sorted(path.stem for path in folder.glob("*.lance") if path.is_dir())
    try:
        return sorted(connect(uri).list_tables().tables)
    except (RuntimeError, ValueError, OSError) as error:
        raise remote_failure(error, uri) or BankUnreachable(
            f"{shown(uri)[:80]} cannot be read. Nothing was imported; check the address."
        ) from None


class LanceTable:
    """One table; `count` rows. Raises `InputError` where it cannot be read, or leads out of its folder."""

    def __init__(self, uri: str, name: str) -> None:
        self.name = name
        if is_local(uri):
            folder = Path(uri)
            uri = str(folder.parent if folder.suffix == ".lance" else folder)
            try:
                must_not_be_a_clone(Path(uri), name)
            except LeadsElsewhere as error:
                raise InputError(
                    f"The table {name} cannot be read: it is damaged, of another version of LanceDB, or names files "
                    f"outside its folder ({error}). Nothing was imported; copy the table as a whole, or write it anew."
                ) from None
        try:
            self._table: Any = connect(uri).open_table(name)
            self.count: int = self._table.count_rows()
        except (RuntimeError, ValueError, OSError) as error:
            raise self._damaged() from error

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every row by its columns."""
        try:
            for batch in self._table.search().limit(None).to_batches(ROWS_AT_ONCE):
                yield from batch.to_pylist()
        except (RuntimeError, ValueError, OSError) as error:
            raise self._damaged() from error

    def _damaged(self) -> InputError:
        return InputError(f"The table {self.name} cannot be read. Nothing was imported; take another copy of it.")


def sqlite_tables(path: Path) -> dict[str, int]:
    """The tables of a SQLite file, without views, which may compute without end, and how many rows each has.

    One that cannot be read, as of a module that is not installed (sqlite-vec), has 0. Raises `InputError`.
    """
    with closing(_connected(path)) as database:
        try:
            found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        except sqlite3.Error as error:
            raise InputError(
                f"{path.name} cannot be read as SQLite ({error}). Nothing was imported. Take another copy."
            ) from None
        return {str(name): _count(database, name) for (name,) in found if not str(name).startswith("sqlite_")}


def sqlite_rows(path: Path, table: str) -> Iterator[dict[str, Any]]:
    """Every row of a table by its columns. Raises `InputError` where the file is damaged."""
    with closing(_connected(path)) as database:
        database.row_factory = sqlite3.Row
        try:
            yield from map(dict, database.execute(f"SELECT * FROM {_quoted(table)}"))
        except sqlite3.Error as error:
            raise InputError(
                f"{path.name} is damaged ({error}). Nothing was imported. Take another copy of it."
            ) from None


def _count(database: sqlite3.Connection, table: str) -> int:
    try:
        return int(database.execute(f"SELECT count(*) FROM {_quoted(table)}").fetchone()[0])
    except sqlite3.Error:
        return 0


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _connected(path: Path) -> sqlite3.Connection:
    # Read only, and without making the files of a write-ahead log beside another program's database.
    escaped = path.absolute().as_posix().replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return sqlite3.connect(f"file:{escaped}?mode=ro", uri=True)
