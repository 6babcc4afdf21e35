"""The tables of a large bank, read one behind the other while what came before is looked through."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memrl_core.bank import codec
from memrl_core.bank.mirror import with_room
from memrl_core.bank.store import Store
from memrl_core.errors import BankDamaged
from memrl_core.logs import logger, said

MOST = 0.8
"""Of a table of which a copy holds less, the rows are quicker to read as columns than the later ones one by one."""

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Rows:
    """The first rows of a table without their embeddings, and, of memories, these (at least as many, d).

    `ids_differ` says that no id is there twice: whoever made a flat copy has looked.
    """

    columns: pa.Table
    embeddings: npt.NDArray[np.float32] | None = None
    ids_differ: bool = False


class Coming:
    """Tables that are being read, in the order in which they are wanted: none is read before the one ahead of it.

    Where a table has a flat copy that holds most of it, only the rows in there come, and those of memories need not
    wait: what they are told of is read afterwards.
    """

    def __init__(self, store: Store, dimension: int, names: Iterable[str]) -> None:
        self._store, self._dimension = store, dimension
        memories = store.schemas["memories"]
        self._bare = memories.remove(memories.get_field_index("embedding"))
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="read-flat")
        self._memories_copied = self._beside.submit(self._copied, "memories")
        self._beside.shutdown(wait=False)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="read")
        self._read: dict[str, Future[Rows]] = {name: self._reader.submit(self._rows, name) for name in names}
        self._reader.shutdown(wait=False)

    def __contains__(self, name: object) -> bool:
        return name in self._read

    def take(self, name: str) -> Rows:
        """The rows of a table, once. Raises what reading them has raised."""
        return self._read.pop(name).result()

    def end(self) -> None:
        """Read nothing more, and wait for what is being read."""
        self._reader.shutdown(wait=True, cancel_futures=True)
        self._beside.shutdown(wait=True)

    def _rows(self, name: str) -> Rows:
        copied = self._memories_copied.result() if name == "memories" else self._copied(name)
        if copied is not None:
            return copied
        if name == "memories":
            try:
                return self._memories()
            except BankDamaged:
                # Another process may have cleared this version away: there is a newer one then.
                return self._memories()
        return Rows(self._store.read(name, list(codec.STEP_COLUMNS) if name == "steps" else None))

    def _copied(self, name: str) -> Rows | None:
        copy = self._store.flat_copy(name)
        if copy is None or len(copy) < MOST * self._store.count(name):
            return None
        if name != "memories":
            return Rows(copy.columns, ids_differ=True)
        try:
            return Rows(copy.columns, copy.matrix(self._dimension), ids_differ=True)
        except (OSError, ValueError) as error:
            log.warning("the flat copy of memories cannot be used: %s", said(error))
            return None

    def _memories(self) -> Rows:
        filled = 0
        with self._store.in_portions("memories") as (rows, portions):
            matrix = with_room((rows, self._dimension), np.float32)
            texts = pa.BufferOutputStream()
            # Written apart: a column of a portion keeps all of that in memory, embeddings included.
            with pa.ipc.new_stream(texts, self._bare) as written:
                for portion in portions:
                    last = filled + portion.num_rows
                    matrix[filled:last] = codec.matrix_of(portion["embedding"], self._dimension)
                    written.write_batch(portion.select(self._bare.names).cast(self._bare))
                    filled = last
        return Rows(pa.ipc.open_stream(texts.getvalue()).read_all(), matrix)
