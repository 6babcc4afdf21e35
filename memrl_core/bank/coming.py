"""The tables of a large bank, read one behind the other while what came before is looked through."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memrl_core.bank import codec
from memrl_core.bank.mirror import with_room
from memrl_core.bank.store import Store
from memrl_core.errors import BankDamaged


@dataclass(frozen=True, slots=True)
class MemoriesRead:
    """The rows of `memories` without their embeddings, and these (at least as many, d)."""

    columns: pa.Table
    matrix: npt.NDArray[np.float32]


class Coming:
    """Tables that are being read, in the order in which they are wanted: none is read before the one ahead of it."""

    def __init__(self, store: Store, dimension: int, names: Iterable[str]) -> None:
        self._store, self._dimension = store, dimension
        memories = store.schemas["memories"]
        self._bare = memories.remove(memories.get_field_index("embedding"))
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="read")
        self._read: dict[str, Future[Any]] = {name: self._reader.submit(self._table, name) for name in names}
        self._reader.shutdown(wait=False)

    def __contains__(self, name: object) -> bool:
        return name in self._read

    def take(self, name: str) -> Any:
        """The rows of a table, once: `MemoriesRead`, or a table. Raises what reading it has raised."""
        return self._read.pop(name).result()

    def end(self) -> None:
        """Read nothing more, and wait for what is being read."""
        self._reader.shutdown(wait=True, cancel_futures=True)

    def _table(self, name: str) -> Any:
        if name == "memories":
            try:
                return self._memories()
            except BankDamaged:
                # Another process may have cleared this version away: there is a newer one then.
                return self._memories()
        return self._store.read(name, list(codec.STEP_COLUMNS) if name == "steps" else None)

    def _memories(self) -> MemoriesRead:
        filled = 0
        with self._store.in_portions("memories") as (rows, portions):
            matrix = with_room((rows, self._dimension), np.float32)
            texts = pa.BufferOutputStream()
            # Written apart: a column of a portion keeps all of that in memory, embeddings included.
            with pa.ipc.new_stream(texts, self._bare) as written:
                for portion in portions:
                    last = filled + portion.num_rows
                    matrix[filled:last] = codec.matrix_of(portion["embedding"], self._dimension)
                    written.write_batch(portion.drop_columns(["embedding"]).cast(self._bare))
                    filled = last
        return MemoriesRead(pa.ipc.open_stream(texts.getvalue()).read_all(), matrix)
