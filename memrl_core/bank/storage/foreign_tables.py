"""LanceDB tables of other programs, as rows: read, and never written."""

from __future__ import annotations

from collections.abc import Iterator
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
                    f"The table {name} names files outside its folder ({error}). Nothing was imported; copy the table "
                    "as a whole."
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
