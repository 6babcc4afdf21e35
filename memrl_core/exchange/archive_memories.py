"""The memories of a bank as rows: what a Parquet file and the lines of a JSONL file hold of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, Any, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from memrl_core.bank import codec
from memrl_core.errors import InputError
from memrl_core.exchange.archive_format import AGAIN, LARGEST_WHOLE, NOTHING, Header, header_of, memory_of, reason_of
from memrl_core.exchange.archive_limits import Budget, BudgetSpent, must_not_swell
from memrl_core.exchange.contents import Places
from memrl_core.records import Memory, Utility

METADATA = b"memrl-bank"
ROWS_WRITTEN = 1000
# A compressed page may repeat one long text in every row, so that few rows are unfolded before they are counted.
ROWS_READ = 64

Row = Mapping[str, Any]


@dataclass(slots=True)
class Gathered:
    """Memories read so far with their vectors; by id where the map has them (x, y, order); utilities by run and id."""

    memories: list[tuple[Memory, npt.NDArray[np.float32]]] = field(default_factory=list)
    spots: dict[str, tuple[float, float, int | None]] = field(default_factory=dict)
    utilities: dict[str, dict[str, Utility]] = field(default_factory=dict)

    def take(self, values: Row, vector: npt.NDArray[np.float32]) -> None:
        """Take in a row with its vector. Raises `ValueError`."""
        memory = memory_of(values)
        x, y, fitted = values.get("x"), values.get("y"), values.get("fitted")
        if x is not None or y is not None:
            if not (_is_finite(x) and _is_finite(y)):
                raise ValueError("its place on the map is not two finite numbers")
            if fitted is not None and not _is_whole(fitted):
                raise ValueError("its order in the map is not a whole number")
            self.spots[memory.id] = (float(x), float(y), fitted)
        for belief in values.get("believed") or ():
            told = belief if isinstance(belief, Mapping) else {}
            run, q, visits = told.get("run"), told.get("q"), told.get("visits")
            if not (isinstance(run, str) and _is_finite(q) and _is_whole(visits)):
                raise ValueError("its q is not a finite number with a number of visits")
            self.utilities.setdefault(run, {})[memory.id] = Utility(float(q), int(visits))
        self.memories.append((memory, vector))

    def places(self, method: str | None) -> Places | None:
        """The layout that the rows tell of; None when there is none."""
        if method is None or not self.spots:
            return None
        order = {memory_id: spot[2] for memory_id, spot in self.spots.items() if spot[2] is not None}
        return Places(
            method,
            {memory_id: (x, y) for memory_id, (x, y, _) in self.spots.items()},
            tuple(sorted(order, key=lambda memory_id: order[memory_id])),
        )


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_WHOLE


def _is_finite(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def vector_of(numbers: Any) -> npt.NDArray[np.float32]:
    """A list of numbers as float32. Raises `ValueError`."""
    if not isinstance(numbers, list) or not all(_is_finite(number) for number in numbers):
        raise ValueError("its embedding is not a list of finite numbers")
    with np.errstate(over="ignore"):
        return np.asarray(numbers, dtype=np.float64).astype(np.float32)


def schema_of(header: Header) -> pa.Schema:
    """The columns of `memories.parquet`, with the header as metadata."""
    columns = list(codec.memory_schema(header.dimension))
    columns += [pa.field(name, pa.float64()) for name in ("x", "y")]
    columns += [pa.field("fitted", pa.int64()), pa.field("q", pa.float64()), pa.field("visits", pa.int64())]
    belief = pa.struct({"run": pa.string(), "q": pa.float64(), "visits": pa.int64()})
    columns.append(pa.field("believed", pa.list_(belief)))
    return pa.schema(columns, metadata={METADATA: header.model_dump_json().encode()})


def write_parquet(file: IO[bytes], rows: Iterable[Row], schema: pa.Schema) -> None:
    """Write rows with all columns of `schema`, some at a time."""
    remaining = iter(rows)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        while chunk := list(islice(remaining, ROWS_WRITTEN)):
            writer.write_table(codec.arrow(chunk, schema))


def read_parquet(file: IO[bytes], size: int, name: str, budget: Budget) -> tuple[Header, Iterator[tuple[Row, Any]]]:
    """The header of a Parquet file of `size` bytes, and its rows with their vectors (d,), read some at a time.

    Raises `InputError`, also while the rows are read.
    """
    try:
        parquet = pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{name} cannot be read: it is cut short or not a Parquet file. {AGAIN}") from error
    described = (parquet.schema_arrow.metadata or {}).get(METADATA)
    if described is None:
        raise InputError(
            f"{name} does not say which embedder made its vectors. {NOTHING} Choose a bank that was exported here."
        )
    header = header_of(described, name)
    groups = range(parquet.metadata.num_row_groups)
    must_not_swell(name, sum(parquet.metadata.row_group(n).total_byte_size for n in groups), size)
    expected = schema_of(header)
    found = parquet.schema_arrow
    for column in expected:
        if column.name not in found.names:
            raise InputError(f"{name} has no column “{column.name}”. {AGAIN}")
        if not found.field(column.name).type.equals(column.type):
            raise InputError(
                f"{name} has the column “{column.name}” as {str(found.field(column.name).type)[:80]}, where "
                f"{column.type} is needed. {AGAIN}"
            )
    return header, _rows(parquet, expected.names, header.dimension, name, budget)


def _rows(
    parquet: pq.ParquetFile, columns: list[str], dimension: int, name: str, budget: Budget
) -> Iterator[tuple[Row, npt.NDArray[np.float32]]]:
    try:
        for batch in parquet.iter_batches(batch_size=ROWS_READ, columns=columns):
            budget.spend(batch.nbytes)
            table = pa.Table.from_batches([batch])
            if table["embedding"].null_count:
                raise InputError(f"{name} has a memory without a vector. {AGAIN}")
            vectors = codec.matrix_of(table["embedding"], dimension)
            yield from zip(table.drop_columns(["embedding"]).to_pylist(), vectors, strict=True)
    except BudgetSpent as error:
        raise InputError(f"{name} {error}. {NOTHING} Import a smaller bank.") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{name} cannot be read ({reason_of(error)}). {AGAIN}") from error
