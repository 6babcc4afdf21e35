"""LanceDB at arm's length: six tables that are only appended to, and its failures as sentences."""

from __future__ import annotations

import errno
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from filelock import FileLock, Timeout
from lancedb.index import IvfSq

from memrl_core.bank.addresses import connect, remote_failure
from memrl_core.bank.addresses import is_local as is_local
from memrl_core.bank.codec import SCHEMA_VERSION, arrow, schemas
from memrl_core.errors import BankDamaged, BankError, BankFull, BankMissing, BankReadOnly, BankTooNew, NotABank

APPENDS_PER_COMPACTION = 300
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

log = logging.getLogger(__name__)
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

    @classmethod
    def create(cls, uri: str, meta: Mapping[str, Any], dimension: int) -> Store:
        """Make a new, empty database.

        Raises `NotABank` when something is there, `BankUnreachable`, `BankReadOnly`, `BankFull`.
        """
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

    def append(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows; they are on disk when this returns. Raises `BankFull`, `BankReadOnly`, `BankDamaged`."""
        with _sentences(self.uri, f"the table {name}"):
            self._tables[name].add(arrow(rows, self.schemas[name]))
        self._appends += 1
        if self._appends >= APPENDS_PER_COMPACTION:
            self._appends = 0
            self._compact_in_background()

    def count(self, name: str) -> int:
        """How many rows there are now, other processes' included."""
        return self._read(name, lambda table: int(table.count_rows()))

    def read(self, name: str, columns: Iterable[str] | None = None, offset: int = 0) -> pa.Table:
        """The rows from `offset` on, as they lie: a compaction puts those it joins behind what came meanwhile."""

        def rows(table: Any) -> pa.Table:
            query = table.search()
            if columns is not None:
                query = query.select(list(columns))
            return query.limit(max(1, table.count_rows() - offset)).offset(offset).to_arrow()

        return self._read(name, rows)

    @contextmanager
    def in_portions(self, name: str) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        """How many rows a table has now, and these rows, some thousand at a time."""
        with _sentences(self.uri, f"the table {name}"):
            table = self._tables[name]
            table.checkout_latest()
            rows = int(table.count_rows())
            yield rows, iter(table.search().limit(max(1, rows)).to_batches())

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

        def rows(table: Any) -> pa.Table:
            query = table.search().where(f"{column} = '{quoted}'{within}")
            return (query if columns is None else query.select(list(columns))).to_arrow()

        return self._read(name, rows)

    def index_vectors(self) -> None:
        """Index the memories by their embeddings, anew where that was done before; a million take minutes.

        The index holds the numbers of each vector as bytes, in partitions around centres. Memories appended later are
        found too, by reading them all until a compaction takes them in.
        """
        partitions = self.count("memories") // ROWS_IN_A_PARTITION
        # A compaction meanwhile would move the rows that are being indexed.
        with self._compacting, _sentences(self.uri, "the index of its memories"):
            config = IvfSq(distance_type="cosine", num_partitions=max(1, partitions))
            self._tables["memories"].create_index("embedding", config=config, name=INDEX)

    def indexed(self) -> int:
        """How many memories are in the index; 0 without one."""
        stats = self._read("memories", lambda table: table.index_stats(INDEX))
        return 0 if stats is None else int(stats.num_indexed_rows)

    def nearest(self, query: npt.NDArray[np.float32], count: int) -> list[str]:
        """The ids of about the `count` memories nearest to `query` (d,), by the index where there is one.

        They are ranked by rounded numbers and some may be missed: who needs their order measures them again. Fewer come
        where the partitions that are searched hold fewer.
        """
        with _sentences(self.uri, "the index of its memories"):
            found = self._tables["memories"].search(query, vector_column_name="embedding").distance_type("cosine")
            # Without the distance LanceDB writes a warning for every search.
            rows = found.nprobes(PARTITIONS_SEARCHED).select(["id", "_distance"]).limit(count).to_arrow()
            ids: list[str] = rows["id"].to_pylist()
            return ids

    def drop(self) -> None:
        """Delete every table."""
        with _sentences(self.uri, "its tables"):
            self._database.drop_all_tables()

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
            yield
        finally:
            self._lock.release()

    def overwrite(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Replace a derived table whole."""
        with _sentences(self.uri, f"the table {name}"):
            data = arrow(rows, self.schemas[name])
            self._tables[name] = self._database.create_table(name, data=data, mode="overwrite")

    def compact(self, keep: timedelta | None = None) -> None:
        """Join small fragments and drop versions older than `keep`, or `KEEP_VERSIONS`.

        Failures are logged: nothing is lost.
        """
        # Two compactions at a time would undo each other's work.
        with self._compacting:
            for name in TABLES:
                try:
                    # What another handle has compacted meanwhile cannot be compacted again as it was.
                    self._tables[name].checkout_latest()
                    self._tables[name].optimize(cleanup_older_than=KEEP_VERSIONS if keep is None else keep)
                except Exception as error:
                    told = error if is_local(self.uri) else type(error).__name__
                    log.warning("compaction of %s was put off: %s", name, told)

    def close(self) -> None:
        """Wait for the compaction under way."""
        if self._compaction is not None:
            self._compaction.join()

    def _compact_in_background(self) -> None:
        if self._compaction is None or not self._compaction.is_alive():
            self._compaction = threading.Thread(target=self.compact, name="compaction", daemon=True)
            self._compaction.start()

    def _read(self, name: str, reader: Callable[[Any], T]) -> T:
        with _sentences(self.uri, f"the table {name}"):
            table = self._tables[name]
            table.checkout_latest()
            try:
                return reader(table)
            except (OSError, RuntimeError, ValueError):
                # Another process may have cleared this version away: there is a newer one then.
                table.checkout_latest()
                return reader(table)


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
