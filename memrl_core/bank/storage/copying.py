"""Copies of a bank's database: the facts of one moment in a file of SQLite, whoever writes meanwhile."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import select

from memrl_core.bank.storage import schema
from memrl_core.bank.storage.database import Database
from memrl_core.bank.storage.failures import sentences


def copy_database(database: Database, path: Path) -> None:
    """Write all tables of a bank, as they are at this moment, into a new file of SQLite that has no log beside it.

    Raises `BankFull`, `BankReadOnly`, `BankUnreachable`, `BankDamaged`.
    """
    if database.is_sqlite:
        with database.lock, sentences(database.shown, "a table", path.parent), closing(sqlite3.connect(path)) as target:
            database.driver.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
            target.execute("PRAGMA user_version = 0")
        return
    with closing(Database.at(str(path), str(path))) as copy:
        copy.create({})
        with database.snapshot():
            found = database.described()
            for table in schema.SEALED:
                last, checksum = schema.sealed(found, table)
                found[table.name] = f"{sum(at <= last for at, _ in database.numbered(table))} {checksum}"
            copy.describe(found)
            # Numbered anew: a transaction that a server did not commit leaves a gap.
            for table in filter(lambda one: one is not schema.meta, schema.metadata.sorted_tables):
                columns = [column for column in table.c if column.name != "position"]
                rows = database.rows(select(*columns).order_by(*table.primary_key))
                copy.insert(table, [dict(row._mapping) for row in rows])
        copy.raw("PRAGMA journal_mode = DELETE")
