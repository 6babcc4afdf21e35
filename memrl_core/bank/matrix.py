"""A bank's embeddings in memory as a float32 matrix, its rows in the order of age, and the memories' texts by id."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memrl_core.bank.storage import codec
from memrl_core.bank.storage.vectors import Vectors
from memrl_core.errors import BankDamaged, InputError
from memrl_core.learning import Fold, unmoved
from memrl_core.records import Memory, Utility
from memrl_core.retrieval.view import Embeddings, MemoryView

UNIT_TOLERANCE = 1e-3
MOST_TEXTS = 2**26
"""Characters of new memories that are kept here; what is stored beyond is read again when somebody asks for it."""
_READ = ("id", "intent_key", "seq", "place")
_TEXTS = ("id", "intent", "experience", "outcome", "intent_key", "parents", "origin", "step", "task", "created")


class Matrix(Mapping[str, Memory]):
    """All memories of a bank, read when first asked for; as a mapping, their texts by id, oldest first.

    `rows` maps ids to rows; `new` are the memories that were written and are not stored yet. Also here are memories
    that no committed step names: nobody sees them.
    """

    def __init__(self, vectors: Vectors) -> None:
        self.dimension = vectors.dimension
        self.new: list[tuple[Memory, npt.NDArray[np.float32], codec.Inserted]] = []
        self._vectors = vectors
        self.forget()

    def forget(self) -> None:
        """Let go of everything, to be read again."""
        self.is_read = False
        self._ids: list[str] = []
        self._rows: dict[str, int] = {}
        self._keys: dict[str, int] = {}
        self._embeddings = Embeddings([], self.dimension)
        self._groups = np.zeros(0, np.int64)
        self._youngest, self._is_in_order = (0, 0, ""), True
        self._forget_texts()

    def _forget_texts(self) -> None:
        self._made: dict[str, Memory] = {}
        self._texts: pa.Table | None = None
        self._text_rows: dict[str, int] = {}
        self._stored = 0

    @property
    def ids(self) -> list[str]:
        """The ids of all memories, oldest first."""
        self.read()
        return self._ids

    @property
    def rows(self) -> dict[str, int]:
        """The row of each memory by its id."""
        self.read()
        return self._rows

    def checked(self, vector: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """The vector (d,) as it is stored; raises `InputError` when it is not a finite unit vector of this size."""
        if vector.shape != (self.dimension,):
            raise InputError(
                f"An embedding of {vector.size} numbers does not fit a bank of {self.dimension}. Nothing was stored."
            )
        if not np.isfinite(vector).all() or abs(float(np.linalg.norm(vector)) - 1) > UNIT_TOLERANCE:
            raise InputError("An embedding is not a finite vector of length 1. Nothing was stored.")
        return vector.astype(np.float32)

    # --- taking in ----------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Read all embeddings, unless that was done."""
        if self.is_read:
            return
        table, vectors = self._vectors.matrix(_READ)
        ids = table["id"].to_pylist()
        if len(set(ids)) < len(ids):
            table, vectors = _newest_of_each(self._vectors)
            ids = table["id"].to_pylist()
        try:
            groups, keys = _numbered(table["intent_key"])
            order = _by_age(table, ids)
        except codec.UNREADABLE as error:
            raise BankDamaged(
                "The memories of this bank cannot be read. Nothing was changed; run memrl doctor."
            ) from error
        if order is not None:
            vectors = Embeddings([vectors[order]], self.dimension)
            groups, ids = groups[order], [ids[row] for row in order]
        self._embeddings, self._groups, self._ids = vectors, groups, ids
        self._rows = dict(zip(ids, range(len(ids)), strict=True))
        self._youngest = _youngest(table)
        self._keys = {key: number for number, key in enumerate(keys)}
        self.is_read = True
        for one in self.new:
            if one[0].id not in self._rows:
                self.add(*one)

    def write(self, memory: Memory, vector: npt.NDArray[np.float32], inserted: codec.Inserted) -> None:
        """Add a memory, to be stored by `store`."""
        self.add(memory, vector, inserted)
        self.new.append((memory, vector, inserted))

    def store(self) -> None:
        """Store what is `new`; a view in use stays as it is."""
        if self.new:
            rows = (codec.table_row(*one) for one in self.new)
            self._vectors.append(codec.arrow(rows, codec.table_schema(self.dimension)))
            self._stored += sum(len(memory.experience) for memory, _, _ in self.new)
            self.new = []
            if self._stored > MOST_TEXTS:
                self._forget_texts()

    def add(self, memory: Memory, vector: npt.NDArray[np.float32], inserted: codec.Inserted) -> None:
        """Add a memory with its embedding (d,), behind all others, even where it is `inserted` before them."""
        self.read()
        age = inserted.seq, inserted.position, memory.id
        self._is_in_order &= age > self._youngest
        self._youngest = max(age, self._youngest)
        row = len(self._ids)
        if row >= len(self._groups):
            self._groups = np.concatenate([self._groups, np.zeros(max(64, row), np.int64)])
        self._embeddings.append(vector)
        self._groups[row] = self._keys.setdefault(memory.intent_key, len(self._keys))
        self._made[memory.id] = memory
        self._rows[memory.id] = row
        self._ids.append(memory.id)

    def put_in_order(self) -> None:
        """Let everything be read again where a memory came after younger ones: a view in use stays as it is."""
        if not self._is_in_order:
            self.forget()

    def take(self, ids: Iterable[str]) -> None:
        """Read the memories of these ids that are not here yet: those that other processes have added."""
        if not self.is_read:
            return
        new = [memory_id for memory_id in dict.fromkeys(ids) if memory_id not in self._rows]
        if new:
            found = sorted(codec.rows_of(self._vectors.read(ids=new)), key=itemgetter("created"))
            rows = {row["id"]: row for row in found}
            for memory_id in new:
                if row := rows.get(memory_id):
                    born = codec.Inserted(row["seq"], row["place"])
                    self.add(codec.memory_of(row), row["embedding"], born)

    # --- texts --------------------------------------------------------------------------------------------------------

    def __getitem__(self, memory_id: str) -> Memory:
        found = self._made.get(memory_id)
        if found is None:
            if memory_id not in self.rows:
                raise KeyError(memory_id)
            if self._texts is None:
                self._texts = self._vectors.read(_TEXTS)
                created = self._texts["created"].to_pylist()
                for row in sorted(range(len(created)), key=created.__getitem__):
                    self._text_rows[self._texts["id"][row].as_py()] = row
            row = self._text_rows[memory_id]
            found = self._made[memory_id] = codec.memory_of({name: self._texts[name][row].as_py() for name in _TEXTS})
        return found

    def __contains__(self, memory_id: object) -> bool:
        return memory_id in self.rows

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    # --- views --------------------------------------------------------------------------------------------------------

    def embedding(self, memory_id: str) -> npt.NDArray[np.float32]:
        """A copy of the memory's vector (d,); raises `KeyError` for an unknown id."""
        copy: npt.NDArray[np.float32] = self._embeddings[self.rows[memory_id]].copy()
        return copy

    def view(self, fold: Fold) -> MemoryView:
        """The memories of a fold as arrays: a slice of the matrix, with a mask where other runs' rows lie between."""
        return self.view_of(
            list(fold.utilities),
            np.array([utility.q for utility in fold.utilities.values()], dtype=np.float64),
            np.array([utility.visits for utility in fold.utilities.values()], dtype=np.int64),
        )

    def view_of(
        self, memory_ids: Sequence[str], q: npt.NDArray[np.float64], visits: npt.NDArray[np.int64]
    ) -> MemoryView:
        """The same of these memories (n), with q (n,) and visits (n,)."""
        self.read()
        try:
            rows = np.fromiter(map(self._rows.__getitem__, memory_ids), dtype=np.int64, count=len(memory_ids))
        except KeyError as missing:
            raise BankDamaged(
                f"The memory {missing} has no row in the table of vectors. Nothing was changed; run `memrl doctor "
                "--bank` on the bank, or restore a copy."
            ) from None
        if len(rows) == 0:
            empty = np.zeros(0, np.int64)
            return MemoryView([], self._embeddings[:0], np.zeros(0), empty, empty, self._rows, memories=self)
        first, last = int(rows.min()), int(rows.max()) + 1
        all_q, all_visits = np.zeros(last - first), np.zeros(last - first, dtype=np.int64)
        all_q[rows - first], all_visits[rows - first] = q, visits
        visible = None
        if last - first != len(rows):
            visible = np.zeros(last - first, dtype=bool)
            visible[rows - first] = True
        return MemoryView(
            ids=self._ids[first:last],
            embeddings=self._embeddings[first:last],
            q=all_q,
            visits=all_visits,
            intent_groups=self._groups[first:last],
            rows=self._rows,
            first_row=first,
            visible=visible,
            memories=self,
        )

    def changed(self, view: MemoryView, fold: Fold, moved: Collection[str]) -> MemoryView | None:
        """What `view` has become when the memories that have `moved` are as in `fold`; None where it has to be read.

        It is made at the cost of copying three arrays; rows that are gone at either end may still be in it.
        """
        at = sorted(self._rows.get(memory_id, -1) for memory_id in moved)
        first, last = view.first_row, view.first_row + len(view.ids)
        if not at:
            return view
        if first == last or view.rows is not self._rows or at[0] < first:
            return None
        last = max(last, at[-1] + 1)
        more = last - first - len(view.ids)
        q, visits = np.append(view.q, np.zeros(more)), np.append(view.visits, np.zeros(more, np.int64))
        visible = np.ones(len(view.ids), dtype=bool) if view.visible is None else view.visible
        visible = np.append(visible, np.zeros(more, dtype=bool))
        for row in at:
            known = fold.utilities.get(self._ids[row])
            visible[row - first] = known is not None
            if known is not None:
                q[row - first], visits[row - first] = known.q, known.visits
        return replace(
            view,
            ids=[*view.ids, *self._ids[last - more : last]],
            embeddings=self._embeddings[first:last],
            q=q,
            visits=visits,
            intent_groups=self._groups[first:last],
            visible=None if visible.all() else visible,
        )


class MovingView:
    """A view of a run that follows a fold from step to step: the same arrays, changed in place."""

    def __init__(self, matrix: Matrix, ever: Collection[str]) -> None:
        """`ever` are the memories that any step that will be shown knows: they decide the range of rows."""
        self._ever = set(ever)
        whole = matrix.view(Fold(unmoved, utilities=dict.fromkeys(ever, Utility(0.0, 0))))
        n = len(whole.ids)
        self.view = replace(
            whole, q=np.zeros(n), visits=np.zeros(n, np.int64), visible=np.zeros(n, dtype=bool), memories=matrix
        )

    def follow(self, fold: Fold, changed: Collection[str] | None) -> MemoryView:
        """The view of `fold`, in which only `changed` differ from before (None: all may)."""
        view = self.view
        assert view.visible is not None
        if changed is None:
            view.visible[:] = False
        for memory_id in fold.utilities if changed is None else changed:
            known = fold.utilities.get(memory_id)
            if memory_id not in self._ever:
                continue
            position = view.position(memory_id)
            view.visible[position] = known is not None
            if known is not None:
                view.q[position], view.visits[position] = known.q, known.visits
        return view


def _newest_of_each(vectors: Vectors) -> tuple[pa.Table, Embeddings]:
    """The rows, of each id the one that was written last: a step that failed may have left one before."""
    table, embeddings = vectors.matrix([*_READ, "created"])
    last: dict[str, int] = {}
    created = table["created"].to_pylist()
    for row in sorted(range(len(created)), key=created.__getitem__):
        last[table["id"][row].as_py()] = row
    rows = sorted(last.values())
    return table.take(pa.array(rows, pa.int64())), Embeddings([embeddings[rows]], vectors.dimension)


def _numbered(texts: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], list[str]]:
    """The number of each text (n,), and the texts by their numbers."""
    encoded = (
        texts.combine_chunks().dictionary_encode()
        if texts.num_chunks
        else pa.array([], pa.string()).dictionary_encode()
    )
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary.to_pylist()


def _by_age(table: pa.Table, ids: Sequence[str]) -> list[int] | None:
    """The rows, the oldest first; None where they lie so. Memories of one event stand in its order."""
    seq, position = (table[name].to_numpy() for name in ("seq", "place"))
    if (np.diff(seq) > 0).all():
        return None
    numbers, positions = seq.tolist(), position.tolist()
    return sorted(range(len(ids)), key=lambda row: (numbers[row], positions[row], ids[row]))


def _youngest(table: pa.Table) -> tuple[int, int, str]:
    if not table.num_rows:
        return 0, 0, ""
    last = table.filter(pc.equal(table["seq"], pc.max(table["seq"]))).select(["seq", "place", "id"]).to_pylist()
    return max((row["seq"], row["place"], row["id"]) for row in last)
