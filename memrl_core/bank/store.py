"""LanceDB at arm's length: six tables that are only appended to, and its failures as sentences.

In a folder of this machine few rows at a time go to the journal first and move into their tables together. Who reads a
table here gets both, and the same rows before, while and after they are moved.
"""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from filelock import FileLock, Timeout
from lancedb.index import IvfSq

from memrl_core.bank.addresses import connect, plain, remote_failure
from memrl_core.bank.addresses import is_local as is_local
from memrl_core.bank.codec import SCHEMA_VERSION, arrow, schemas
from memrl_core.bank.flat import COPIED, FlatCopies, FlatCopy
from memrl_core.bank.flat import LOCK as FLAT_LOCK
from memrl_core.bank.journal import JOURNALED, Journal, Waiting
from memrl_core.errors import BankDamaged, BankError, BankFull, BankMissing, BankReadOnly, BankTooNew, NotABank
from memrl_core.logs import logger, said

FEW = 64
"""So many rows at a time are worth a commit of LanceDB's own, and do not go to the journal."""
JOURNAL_BYTES = 2**21
"""A journal of this size is emptied into the tables: some two hundred steps."""
APPENDS_PER_COMPACTION = 300
MANY_FRAGMENTS = 100
"""Tables with fewer are quick to read as they are."""
KEEP_VERSIONS = timedelta(minutes=1)
KEEP_AT_CLOSE = timedelta(seconds=5)
"""Versions are kept for those who are reading them; who takes longer reads once more."""
LOCK_FILE = ".writer.lock"
LOCK_PATIENCE = 60.0
LOCK_POLL = 0.005
TABLES = ("meta", "memories", "steps", "ledger", "q_values", "layouts")
FIRST_MADE = TABLES[1:]
"""The tables that are made before `meta`, which says that the bank is whole."""
LARGEST_DIMENSION = 65536
INDEX = "embedding_idx"
ROWS_IN_A_PARTITION = 4096
PARTITIONS_SEARCHED = 16
"""On clustered vectors of 384 numbers recall@10 was 1.0: of a million with these, of 400,000 with a quarter of them."""
PANICS = ("PanicException", "RustPanic")
"""What a damaged file makes Lance raise where it had not reckoned with it; the classes cannot be imported."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)

log = logger(__name__)
T = TypeVar("T")


class Store:
    """The tables of one bank. How its rows lie says nothing of their age: compactions move them."""

    def __init__(self, uri: str, database: Any, tables: dict[str, Any], dimension: int) -> None:
        self.uri = uri
        self._database = database
        self._tables = tables
        self.schemas = schemas(dimension)
        self._appends = 0
        self._compaction: threading.Thread | None = None
        self._compacting = threading.Lock()
        self._lock = FileLock(Path(uri) / LOCK_FILE if is_local(uri) else LOCK_FILE)
        self._journal = Journal(Path(uri), self.schemas) if is_local(uri) else None
        self._flat = FlatCopies(Path(uri), self.schemas) if is_local(uri) else None

    @classmethod
    def create(cls, uri: str, meta: Mapping[str, Any], dimension: int) -> Store:
        """Make a new, empty database.

        Raises `NotABank` when something is there, `BankUnreachable`, `BankReadOnly`, `BankFull`.
        """
        uri = plain(uri)
        begun = False
        if is_local(uri):
            path = Path(uri)
            begun = path.is_dir() and any(path.iterdir())
            if (path.exists() and not path.is_dir()) or (begun and not _was_begun(path)):
                raise NotABank(f"Something is already stored at {uri}. Nothing was changed; choose another place.")
        with _sentences(uri, "the bank"):
            if is_local(uri):
                Path(uri).mkdir(parents=True, exist_ok=True)
            database = connect(uri)
            if not is_local(uri) and database.list_tables().tables:
                raise NotABank(f"Something is already stored at {uri}. Nothing was changed; choose another place.")
            made = schemas(dimension)
            mode = "overwrite" if begun else "create"
            tables = {name: database.create_table(name, schema=made[name], mode=mode) for name in FIRST_MADE}
            rows = [{"key": key, "value": json.dumps(value)} for key, value in meta.items()]
            tables["meta"] = database.create_table("meta", data=arrow(rows, made["meta"]))
        return cls(uri, database, tables, dimension)

    @classmethod
    def open(cls, uri: str) -> tuple[Store, dict[str, Any]]:
        """The database at `uri` and its meta data.

        Raises `BankMissing`, `BankUnreachable`, `NotABank`, `BankTooNew` or `BankDamaged`.
        """
        uri = plain(uri)
        if is_local(uri):
            path = Path(uri)
            if not path.exists():
                raise BankMissing(f"There is no bank at {uri}. Check the place, or start a run to make one there.")
            if not path.is_dir():
                raise NotABank(f"{uri} is a file, not a bank. Nothing was changed; choose the folder of a bank.")
            if not (path / "meta.lance").is_dir() or not (path / "memories.lance").is_dir():
                raise NotABank(f"The folder {uri} holds no bank. Nothing was changed; choose the folder of a bank.")
        with _sentences(uri, "its description"):
            database = connect(uri)
            if not is_local(uri):
                there = database.list_tables().tables
                if not there:
                    raise BankMissing(f"There is no bank at {uri}. Check the place, or start a run to make one there.")
                if "meta" not in there or "memories" not in there:
                    raise NotABank(f"What lies at {uri} is no bank. Nothing was changed; give the address of a bank.")
            rows = database.open_table("meta").to_arrow().to_pylist()
            meta = {row["key"]: json.loads(row["value"]) for row in rows}
            version, dimension = int(meta["schema_version"]), int(meta["dimension"])
            if not 1 <= dimension <= LARGEST_DIMENSION or not isinstance(meta["embedder"], str):
                raise ValueError("The description is not that of a bank.")
        if version > SCHEMA_VERSION:
            raise BankTooNew(
                f"The bank at {uri} was written by a newer version of this program (format {version}, this one reads "
                f"{SCHEMA_VERSION}). Nothing was changed; update MemRL Inspector to open it."
            )
        tables = {}
        for name in TABLES:
            with _sentences(uri, f"the table {name}"):
                tables[name] = database.open_table(name)
        return cls(uri, database, tables, dimension), meta

    @property
    def has_journal(self) -> bool:
        """Whether few rows are appended to a journal, one append after the other, under the bank's lock."""
        return self._journal is not None

    def append(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows; they are on disk when this returns. Raises `BankFull`, `BankReadOnly`, `BankDamaged`."""
        with _sentences(self.uri, f"the table {name}"):
            data = arrow(rows, self.schemas[name])
        if self._journal is None or name not in JOURNALED or data.num_rows >= FEW:
            self.commit(name, data)
            return
        with self.locked(), _sentences(self.uri, "the journal"):
            self._journal.append(name, data)
            if self._journal.size >= JOURNAL_BYTES:
                self.empty_journal()

    def commit(self, name: str, rows: pa.Table) -> None:
        """Append rows to a table in a commit of LanceDB's own. Raises `BankFull`, `BankReadOnly`, `BankDamaged`."""
        with _sentences(self.uri, f"the table {name}"):
            self._tables[name].add(rows)
        self._appends += 1
        if self._appends >= APPENDS_PER_COMPACTION:
            self._appends = 0
            self._compact_in_background()

    def empty_journal(self) -> None:
        """Move what waits in the journal into its tables. Raises `BankFull`, `BankReadOnly`, `BankDamaged`."""
        if self._journal is None:
            return
        with _sentences(self.uri, "the journal"):
            if self._journal.waiting().identity is None and not self._journal.is_moving():
                return
        with self.locked(), _sentences(self.uri, "the journal"):
            self._journal.begin_moving()
            self._move(self._journal.moving())

    def count(self, name: str) -> int:
        """How many rows there are now, other processes' included."""
        return self._read(name, lambda table, waiting: int(table.count_rows()) + int(waiting.num_rows))

    def read(self, name: str, columns: Iterable[str] | None = None, offset: int = 0) -> pa.Table:
        """The rows from `offset` on, as they lie: a compaction puts those it joins behind what came meanwhile."""
        wanted = self.schemas[name].names if columns is None else list(columns)

        def rows(table: Any, waiting: pa.Table) -> pa.Table:
            there = int(table.count_rows())
            query = table.search().select(wanted).limit(max(1, there - offset)).offset(min(offset, there))
            return _joined(query.to_arrow(), waiting.slice(max(0, offset - there)).select(wanted))

        return self._read(name, rows)

    def flat_copy(self, name: str) -> FlatCopy | None:
        """The first rows of a large table as a file that needs no reading; None where there is no such copy."""
        flat = self._flat
        return None if flat is None else self._read(name, lambda table, waiting: flat.of(name, table))

    def differing_flat_copies(self) -> list[str]:
        """The tables that have a flat copy in use which does not say what they say."""
        flat = self._flat
        if flat is None:
            return []
        return [name for name in COPIED if not flat.agrees(name, self._database.open_table(name))]

    def refresh_flat_copies(self) -> None:
        """Make flat copies of large tables that have none, or one that lacks many rows. Failures are logged."""
        if self._flat is not None:
            for name in COPIED:
                # A handle of its own: it stays at one version, whatever others append and compact meanwhile.
                self._flat.refresh(name, partial(self._database.open_table, name))

    @contextmanager
    def in_portions(self, name: str) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        """How many rows a table has now, and these rows, some thousand at a time."""
        with _sentences(self.uri, f"the table {name}"):
            table, waiting, rows = self._read(name, lambda table, waiting: (table, waiting, int(table.count_rows())))
            portions = table.search().limit(max(1, rows)).to_batches()
            yield rows + waiting.num_rows, chain(portions, waiting.to_batches())

    def find(
        self,
        name: str,
        column: str,
        value: str,
        columns: Iterable[str] | None = None,
        steps: tuple[int, int] | None = None,
    ) -> pa.Table:
        """The rows whose `column` is `value`, of the first to the last of `steps`; all columns, or those named."""
        quoted = value.replace("'", "''")
        within = "" if steps is None else f" AND step BETWEEN {steps[0]} AND {steps[1]}"
        wanted = self.schemas[name].names if columns is None else list(columns)
        fits = pc.field(column) == value
        if steps is not None:
            fits &= (pc.field("step") >= steps[0]) & (pc.field("step") <= steps[1])

        def rows(table: Any, waiting: pa.Table) -> pa.Table:
            query = table.search().where(f"{column} = '{quoted}'{within}").select(wanted)
            return _joined(query.to_arrow(), waiting.filter(fits).select(wanted))

        return self._read(name, rows)

    def index_vectors(self) -> None:
        """Index the memories by their embeddings, anew where that was done before; a million take minutes.

        The index holds the numbers of each vector as bytes, in partitions around centres. Memories appended later are
        found too, by reading them all until a compaction takes them in.
        """
        self.empty_journal()
        partitions = self.count("memories") // ROWS_IN_A_PARTITION
        # A compaction meanwhile would move the rows that are being indexed.
        with self._compacting, _sentences(self.uri, "the index of its memories"):
            config = IvfSq(distance_type="cosine", num_partitions=max(1, partitions))
            self._tables["memories"].create_index("embedding", config=config, name=INDEX)

    def indexed(self) -> int:
        """How many memories are in the index; 0 without one."""
        stats = self._read("memories", lambda table, waiting: table.index_stats(INDEX))
        return 0 if stats is None else int(stats.num_indexed_rows)

    def nearest(self, query: npt.NDArray[np.float32], count: int) -> list[str]:
        """The ids of about the `count` memories nearest to `query` (d,), by the index where there is one.

        They are ranked by rounded numbers and some may be missed: who needs their order measures them again. Fewer come
        where the partitions that are searched hold fewer; what waits in the journal comes always.
        """
        waiting = self._waiting("memories").tables["memories"]["id"].to_pylist() if self._journal else []
        with _sentences(self.uri, "the index of its memories"):
            found = self._tables["memories"].search(query, vector_column_name="embedding").distance_type("cosine")
            # Without the distance LanceDB writes a warning for every search.
            rows = found.nprobes(PARTITIONS_SEARCHED).select(["id", "_distance"]).limit(count).to_arrow()
            ids: list[str] = rows["id"].to_pylist()
            return [*ids, *waiting]

    def drop(self) -> None:
        """Delete every table."""
        with _sentences(self.uri, "its tables"):
            self._database.drop_all_tables()
            if self._journal is not None:
                self._journal.delete()
            if self._flat is not None:
                self._flat.delete()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the bank's lock file, where the bank is a folder of this machine.

        Elsewhere there is no lock: what several processes append all arrives, each append whole, but nothing keeps two
        of them from numbering one step of one run alike.
        """
        if not is_local(self.uri):
            yield
            return
        try:
            with _sentences(self.uri, "its lock"):
                self._lock.acquire(timeout=LOCK_PATIENCE, poll_interval=LOCK_POLL)
        except Timeout:
            raise BankError(
                f"Another process has been writing to {self.uri} for more than {LOCK_PATIENCE:.0f} seconds. "
                "Nothing was written; wait for it, or end it, and try again."
            ) from None
        try:
            self._end_moving()
            yield
        finally:
            self._lock.release()

    def overwrite(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Replace a derived table whole."""
        self.empty_journal()
        with _sentences(self.uri, f"the table {name}"):
            data = arrow(rows, self.schemas[name])
            self._tables[name] = self._database.create_table(name, data=data, mode="overwrite")

    def compact(self, keep: timedelta | None = None) -> None:
        """Join the fragments of tables that have many, and drop versions older than `keep`, or `KEEP_VERSIONS`.

        Nothing is done where another process compacts too, or copies.

        Failures are logged: nothing is lost.
        """
        # Elsewhere every fragment is a request of each who reads.
        many = MANY_FRAGMENTS if self.has_journal else 2
        # Two compactions at a time would undo each other's work.
        with self._compacting, self._nobody_copies() as alone:
            for name in TABLES if alone else ():
                try:
                    # What another handle has compacted meanwhile cannot be compacted again as it was.
                    self._tables[name].checkout_latest()
                    # LanceDB writes all rows of the table anew; of a single fragment, it only clears old versions away.
                    if self._tables[name].stats()["fragment_stats"]["num_fragments"] in range(2, many):
                        continue
                    self._tables[name].optimize(cleanup_older_than=KEEP_VERSIONS if keep is None else keep)
                except Exception as error:
                    told = said(error) if is_local(self.uri) else type(error).__name__
                    log.warning("compaction of %s was put off: %s", name, told)

    @contextmanager
    def _nobody_copies(self) -> Iterator[bool]:
        """Whether nobody else copies the tables or compacts them now; nobody begins to within it."""
        if not is_local(self.uri):
            yield True
            return
        lock = FileLock(Path(self.uri) / FLAT_LOCK)
        try:
            lock.acquire(timeout=0)
        except OSError:  # A `Timeout` is one.
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def close(self) -> None:
        """Wait for the compaction under way."""
        if self._compaction is not None:
            self._compaction.join()

    def _compact_in_background(self) -> None:
        if self._compaction is None or not self._compaction.is_alive():
            # No daemon: where Python ends under its feet, Lance ends the process with an abort.
            self._compaction = threading.Thread(target=self.compact, name="compaction", daemon=False)
            self._compaction.start()

    # --- the journal --------------------------------------------------------------------------------------------------

    def _move(self, rows: Mapping[str, pa.Table]) -> None:
        """Append what is being moved to its tables, and forget it."""
        assert self._journal is not None
        for name, waiting in rows.items():
            if waiting.num_rows:
                self.commit(name, waiting)
        self._journal.end_moving()

    def _end_moving(self) -> None:
        """Move what another process had begun to move when it ended."""
        if self._journal is not None and self._journal.is_moving():
            with _sentences(self.uri, "the journal"):
                self._move({name: self._not_arrived(name, rows) for name, rows in self._journal.moving().items()})

    def _not_arrived(self, name: str, rows: pa.Table) -> pa.Table:
        table = self._tables[name]
        table.checkout_latest()
        named = (row_id for row_id in rows["id"].to_pylist() if row_id is not None)
        ids = ", ".join("'" + row_id.replace("'", "''") + "'" for row_id in named)
        if not ids:
            return rows
        there = table.search().where(f"id IN ({ids})").select(["id"]).to_arrow()
        return rows.filter(pc.invert(pc.is_in(rows["id"], value_set=there["id"].combine_chunks())))

    def _waiting(self, name: str) -> Waiting:
        """What waits in the journal for a table."""
        assert self._journal is not None
        seen = self._journal.waiting()
        # Looked at afterwards: rows set apart before may not have reached their table when that is read.
        if not self._journal.is_moving():
            return seen
        try:
            with self.locked():
                return self._journal.waiting()
        except (BankReadOnly, BankFull):
            # Nobody moves these for now.
            late, waiting = self._not_arrived(name, self._journal.moving()[name]), self._journal.waiting()
            return Waiting(waiting.identity, {name: pa.concat_tables([late, waiting.tables[name]])})

    def _read(self, name: str, reader: Callable[[Any, pa.Table], T]) -> T:
        """What `reader` makes of a table and of the rows that wait for it."""
        with _sentences(self.uri, f"the table {name}"):
            if self._journal is None or name not in JOURNALED:
                return self._read_newest(name, reader, self.schemas[name].empty_table())
            waiting = self._waiting(name)
            found = self._read_newest(name, reader, waiting.tables[name])
            if self._journal.stands(waiting):
                return found
        try:
            # Rows were moved while they were read.
            with self.locked(), _sentences(self.uri, f"the table {name}"):
                return self._read_newest(name, reader, self._journal.waiting().tables[name])
        except (BankReadOnly, BankFull):
            return found

    def _read_newest(self, name: str, reader: Callable[[Any, pa.Table], T], waiting: pa.Table) -> T:
        table = self._tables[name]
        table.checkout_latest()
        try:
            return reader(table, waiting)
        except (OSError, RuntimeError, ValueError):
            # Another process may have cleared this version away: there is a newer one then.
            table.checkout_latest()
            return reader(table, waiting)


def _joined(rows: pa.Table, waiting: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, waiting.cast(rows.schema)]) if waiting.num_rows else rows


def _was_begun(path: Path) -> bool:
    """Whether a folder holds nothing but the empty tables of a bank whose making was cut short."""
    names = {entry.name.removesuffix(".lance") for entry in path.iterdir()}
    if not names <= set(FIRST_MADE):
        return False
    try:
        database = connect(str(path))
        return all(database.open_table(name).count_rows() == 0 for name in names)
    except Exception:
        return not any(data.is_file() for data in path.glob("*.lance/data/*"))


@contextmanager
def _sentences(uri: str, part: str) -> Any:
    try:
        yield
    except Timeout:
        raise
    except BaseException as error:
        if not isinstance(error, _FAILURES) and type(error).__name__ not in PANICS:
            raise
        if not is_local(uri):
            raise remote_failure(error, uri) or _damaged(uri, part) from None
        if _is_about(error, FULL, ("no space", "file too large", "quota exceeded")):
            raise BankFull(
                f"The disk is full: {part} of {uri} could not be written. What was saved before is safe; free some "
                "space and try again."
            ) from error
        if _is_about(error, CLOSED, ("permission denied", "not permitted", "read-only")):
            raise BankReadOnly(
                f"The bank at {uri} cannot be written. Nothing was changed; make the place writable, or copy the bank."
            ) from error
        raise _damaged(uri, part) from error


def _damaged(uri: str, part: str) -> BankDamaged:
    return BankDamaged(
        f"In the bank at {uri}, {part} cannot be read or written. Nothing was changed; run `memrl doctor --bank` "
        "on it, or restore a copy."
    )


_FAILURES = (OSError, RuntimeError, ValueError, KeyError, TypeError, pa.ArrowException)


def _is_about(error: BaseException, numbers: tuple[int, ...], words: Iterable[str]) -> bool:
    """Whether the system refused with one of these error numbers: its own, or in the text that Lance gives."""
    text = f"{error}".lower()
    told = (f"os error {number})" in text for number in numbers)
    return (isinstance(error, OSError) and error.errno in numbers) or any(told) or any(word in text for word in words)
