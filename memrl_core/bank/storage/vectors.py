"""The table `memories` of a bank: LanceDB in a folder or an object store, or Arrow in memory.

A row counts once a committed step or event names its id. Rows lie in no order; a row that nobody names is left over
from a step that never ended.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from memrl_core.bank.storage.addresses import connect, is_local, remote_failure, shown
from memrl_core.bank.storage.codec import embeddings_apart, table_schema
from memrl_core.bank.storage.connecting import chunks
from memrl_core.bank.storage.failures import CLOSED, FULL, HARD_LINKS, lacks, misplaced
from memrl_core.bank.storage.lance_files import LeadsElsewhere, must_stay_inside
from memrl_core.errors import BankDamaged, BankFull, BankReadOnly, NotABank
from memrl_core.logs import loggable, logger
from memrl_core.retrieval.view import Embeddings

TABLE = "memories"
FOLDER = "vectors"
APPENDS_PER_COMPACTION = 300
MANY_FRAGMENTS = 100
"""Tables with fewer are quick to read as they are."""
KEEP_VERSIONS = timedelta(seconds=5)
"""Versions are kept for those who are reading them; who takes longer reads once more."""
PANICS = ("PanicException", "RustPanic")
"""What a damaged file makes Lance raise where it had not reckoned with it; the classes cannot be imported."""

log = logger(__name__)
T = TypeVar("T")


class Vectors(Protocol):
    """The rows of `memories`, whatever holds them (`codec.table_schema`)."""

    dimension: int

    def append(self, rows: pa.Table) -> None:
        """Append rows; they are stored when this returns."""

    def read(self, columns: Sequence[str] | None = None, ids: Collection[str] | None = None) -> pa.Table:
        """All rows, or those of these ids; all columns, or those named."""

    def matrix(self, columns: Sequence[str]) -> tuple[pa.Table, Embeddings]:
        """These columns of all rows, and beside them their embeddings (n, dimension)."""

    def delete(self, ids: Collection[str]) -> None:
        """Delete the rows of these ids."""

    def drop(self) -> None:
        """Delete the whole table."""

    def tidy(self) -> None:
        """Join the fragments of many appends; call it when no transaction is open."""


class ArrowVectors:
    """Rows in memory, for banks that nobody keeps."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._parts = [table_schema(dimension).empty_table()]

    def append(self, rows: pa.Table) -> None:
        """Append rows."""
        self._parts.append(rows)

    def read(self, columns: Sequence[str] | None = None, ids: Collection[str] | None = None) -> pa.Table:
        """All rows, or those of these ids; all columns, or those named."""
        self._parts = [pa.concat_tables(self._parts)]
        table = self._parts[0] if columns is None else self._parts[0].select(list(columns))
        return table if ids is None else table.filter(self._have(ids))

    def matrix(self, columns: Sequence[str]) -> tuple[pa.Table, Embeddings]:
        """These columns of all rows, and beside them their embeddings (n, dimension)."""
        table = self.read([*columns, "embedding"])
        return embeddings_apart(table.to_batches(), table.schema)

    def delete(self, ids: Collection[str]) -> None:
        """Delete the rows of these ids."""
        self._parts = [self.read().filter(pc.invert(self._have(ids)))]

    def drop(self) -> None:
        """Delete all rows."""
        self._parts = self._parts[:0]

    def tidy(self) -> None:
        """Nothing to join."""

    def _have(self, ids: Collection[str]) -> Any:
        return pc.is_in(self._parts[0]["id"], value_set=pa.array(list(ids), pa.string()))


class LanceVectors:
    """A LanceDB database with the table `memories`."""

    def __init__(self, address: str, database: Any, table: Any, dimension: int) -> None:
        self.address = address
        self.dimension = dimension
        self._database = database
        self._table = table
        self._appends = 0
        self._compacting = threading.Lock()

    @classmethod
    def create(cls, address: str, dimension: int) -> LanceVectors:
        """Make an empty table, in the place of an empty one. Raises `NotABank` where there are rows or other tables."""
        with sentences(address):
            _must_be_own(address)
            database = connect(address)
            there = database.list_tables().tables
            if there and (there != [TABLE] or database.open_table(TABLE).count_rows()):
                raise NotABank(f"Something is already stored at {address}. Nothing was changed; choose another place.")
            mode = "overwrite" if there else "create"
            table = database.create_table(TABLE, schema=table_schema(dimension), mode=mode)
        return cls(address, database, table, dimension)

    @classmethod
    def open(cls, address: str, dimension: int) -> LanceVectors:
        """The table at `address`. Raises `BankDamaged`, also where its vectors have another dimension or a folder leads
        elsewhere, `BankUnreachable`.
        """
        with sentences(address):
            _must_be_own(address)
            database = connect(address)
            table = database.open_table(TABLE)
            found = table.schema.field("embedding").type.list_size
        if found != dimension:
            raise BankDamaged(
                f"The vectors at {shown(address)} have {found:,} dimensions; the description of the bank says "
                f"{dimension:,}. Nothing was changed; restore a copy of the bank."
            )
        return cls(address, database, table, dimension)

    def append(self, rows: pa.Table) -> None:
        """Append rows; they are stored when this returns. Raises `BankFull`, `BankReadOnly`, `BankDamaged`."""
        with sentences(self.address):
            self._table.add(rows)
        self._appends += 1

    def read(self, columns: Sequence[str] | None = None, ids: Collection[str] | None = None) -> pa.Table:
        """All rows, or those of these ids; all columns, or those named. Raises `BankDamaged`."""
        wanted = table_schema(self.dimension).names if columns is None else list(columns)
        if ids is None:
            return self._read(lambda table: table.search().select(wanted).limit(max(1, table.count_rows())).to_arrow())
        found = [
            self._read(lambda table, where=where: table.search().where(where).select(wanted).limit(None).to_arrow())  # type: ignore[misc]
            for where in map(_among, chunks(ids))
        ]
        return pa.concat_tables(found) if found else table_schema(self.dimension).empty_table().select(wanted)

    def matrix(self, columns: Sequence[str]) -> tuple[pa.Table, Embeddings]:
        """These columns of all rows, and beside them their embeddings (n, dimension). Raises `BankDamaged`."""

        def read(table: Any) -> tuple[pa.Table, Embeddings]:
            count = table.count_rows()
            query = table.search().select([*columns, "embedding"]).limit(max(1, count))
            # As few and as large as the fragments allow: of a small batch, most time goes into its making.
            found = query.to_batches(batch_size=max(1, count))
            return embeddings_apart(found, found.schema)

        return self._read(read)

    def delete(self, ids: Collection[str]) -> None:
        """Delete the rows of these ids."""
        with sentences(self.address):
            for where in map(_among, chunks(ids)):
                self._table.delete(where)

    def drop(self) -> None:
        """Delete the table, and its folder on this machine where that holds nothing else."""
        if is_local(self.address):
            shutil.rmtree(Path(self.address) / f"{TABLE}.lance", ignore_errors=True)
            with suppress(OSError):
                Path(self.address).rmdir()
            return
        with sentences(self.address):
            self._database.drop_all_tables()

    # --- compaction ---------------------------------------------------------------------------------------------------

    def is_scattered(self) -> bool:
        """Whether the table has so many fragments that a compaction pays."""
        # Elsewhere every fragment is a request of each who reads.
        many = MANY_FRAGMENTS if is_local(self.address) else 2
        return bool(self._read(lambda table: table.stats()["fragment_stats"]["num_fragments"]) >= many)

    def tidy(self) -> None:
        """Compact after every `APPENDS_PER_COMPACTION` appends.

        The caller waits: beside a thread that appends without a pause, Lance retries its commit for 30 s and gives up.
        """
        if self._appends >= APPENDS_PER_COMPACTION:
            self._appends = 0
            self.compact()

    def compact(self) -> None:
        """Join the fragments and drop versions older than `KEEP_VERSIONS`. Failures are logged: nothing is lost."""
        # Two compactions at a time would undo each other's work.
        with self._compacting:
            try:
                self._table.checkout_latest()
                self._table.optimize(cleanup_older_than=KEEP_VERSIONS)
            except Exception as error:
                message = loggable(error) if is_local(self.address) else type(error).__name__
                log.warning("compaction of %s was put off: %s", TABLE, message)

    def _read(self, reader: Callable[[Any], T]) -> T:
        with sentences(self.address):
            self._table.checkout_latest()
            try:
                return reader(self._table)
            except (OSError, RuntimeError, ValueError):
                # Another process may have cleared this version away: there is a newer one then.
                self._table.checkout_latest()
                return reader(self._table)


def _must_be_own(address: str) -> None:
    """Raise `BankDamaged` where the tables in a folder of this machine may lead Lance out of it."""
    if not is_local(address):
        return
    try:
        must_stay_inside(Path(address), TABLE)
    except LeadsElsewhere as error:
        raise BankDamaged(
            f"The vectors at {address} may lead to files or servers elsewhere: {error}. They were not opened, and "
            "nothing was changed; take a copy that was exported (memrl export) by someone you trust."
        ) from None


def _among(ids: Iterable[str]) -> str:
    return "id IN (" + ", ".join("'" + one.replace("'", "''") + "'" for one in ids) + ")"


# --- failures as sentences --------------------------------------------------------------------------------------------


@contextmanager
def sentences(address: str) -> Iterator[None]:
    """What LanceDB raises within it, as `BankError` about the memories at `address`."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, _FAILURES) and type(error).__name__ not in PANICS:
            raise
        if not is_local(address):
            raise remote_failure(error, address) or _damaged(address) from None
        folder = Path(address)
        bank = folder.parent if folder.name == FOLDER else folder  # A TOML file may name a folder elsewhere.
        if _is_about(error, FULL, ("no space", "file too large", "quota exceeded")):
            raise BankFull(
                f"The disk is full: the memories of {bank} could not be written. What was saved before is safe; free "
                "some space and try again."
            ) from error
        if isinstance(error, NotImplementedError) or (_is_about(error, CLOSED, ()) and lacks(folder) == HARD_LINKS):
            raise misplaced(str(bank), HARD_LINKS) from error
        if _is_about(error, CLOSED, ("permission denied", "not permitted", "read-only")):
            raise BankReadOnly(
                f"The bank at {bank} cannot be written. Nothing was changed; make the place writable, or copy the bank."
            ) from error
        raise _damaged(str(bank)) from error


def _damaged(address: str) -> BankDamaged:
    return BankDamaged(
        f"In the bank at {address}, the memories cannot be read or written. Nothing was changed; run "
        "`memrl doctor --bank` on it, or restore a copy."
    )


_FAILURES = (OSError, RuntimeError, ValueError, KeyError, TypeError, pa.ArrowException)


def _is_about(error: BaseException, numbers: tuple[int, ...], words: Iterable[str]) -> bool:
    """Whether the system refused with one of these error numbers: its own, or in the text that Lance gives."""
    text = f"{error}".lower()
    named = (f"os error {number})" in text for number in numbers)
    return (isinstance(error, OSError) and error.errno in numbers) or any(named) or any(word in text for word in words)
