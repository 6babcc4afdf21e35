"""Where the memories of a bank lie on its map: decided once, stored in the bank, and moved only by a new layout.

A PCA map places a new memory by its projection, a map of UMAP amid the three most similar to it. UMAP's own transform
needs a model that is gone when the app is opened anew and takes long to fit again, and points would wait or jump.
"""

from __future__ import annotations

import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from memrl_core.analysis.map.projection import (
    Pca,
    Plane,
    TurnedPca,
    aligned,
    as_points,
    near_neighbours,
    trustworthiness,
)
from memrl_core.bank import Layout, MemoryBank
from memrl_core.bank.storage.layouts import Point
from memrl_core.embedders.base import Vectors
from memrl_core.environments.child import Child, ChildFailed
from memrl_core.errors import MemRLError
from memrl_core.logs import logger

KNOWN = 20_000
"""Of a larger map as many memories as this, evenly spread, are looked at to place a new one."""

GROWN = 1.05
"""How much larger the map may be than the one that was looked at."""

PCA, UMAP = "PCA", "UMAP"
PCA_FROM = 5
UMAP_FROM = 15

QUERIES_KEPT = 256
UNSAVED = "unsaved-"
STAYS = "The map stays as it is; “Re-layout” begins again."

log = logger(__name__)


class MapLayout:
    """The map of one bank, for all who look at it; threads may share it.

    A bank gets a PCA map with its first memory, a better one with `PCA_FROM` memories, and once, at `UMAP_FROM`, a UMAP
    map that is fitted in the background; from then on a new layout is only made when `relayout` asks for it, and is a
    `proposal` until somebody takes or drops it. Each new layout is turned to fit the one before it and said in
    `announcement`. `trust` has how trustworthy the old and the proposed map are; `outgrown` says when a new one is
    worth asking for; `go_back` undoes the last one that was taken.
    A memory that came later is placed into the layout there is, where its query was shown, and stays there.
    """

    def __init__(self, bank: MemoryBank) -> None:
        self._bank = bank
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._layout: Layout | None = None
        self._rows = -1
        self._pca_placer: TurnedPca | None = None
        self._umap: Umap | None = None
        self._fitted_since: tuple[int, float] = (0, 0.0)
        self._neighbours: tuple[int, Vectors, Plane] | None = None
        self._all_placed = (-1, "")
        self._queries: dict[bytes, Point] = {}
        self._refused = 0
        self._unstored: dict[str, Point] = {}
        self._fit_error = ""
        self._store_error = ""
        self._former: Layout | None = None
        self.proposal: Layout | None = None
        self.trust: tuple[float, float] = (float("nan"), float("nan"))
        self.announcement = ""

    @property
    def error(self) -> str:
        """What went wrong with the map and still holds; "" when nothing did."""
        return self._fit_error or self._store_error

    @property
    def id(self) -> str:
        """The id of the layout in force; "" when there is none yet."""
        return self._layout.id if self._layout else ""

    @property
    def method(self) -> str:
        """How the layout in force was made."""
        return self._layout.method if self._layout else PCA

    @property
    def outgrown(self) -> bool:
        """Whether most memories came after the layout was fitted, so that a new one would show much that it cannot."""
        layout = self._layout
        return layout is not None and layout.method == UMAP and len(layout.coordinates) > 2 * len(layout.fitted)

    @property
    def fitted(self) -> int:
        """On how many memories the layout in force was fitted."""
        return len(self._layout.fitted) if self._layout else 0

    @property
    def state(self) -> Literal["ready", "fitting"]:
        """Whether a projection is being fitted in the background."""
        return "fitting" if self._thread is not None and self._thread.is_alive() else "ready"

    @property
    def progress(self) -> str:
        """What is being fitted and for how long, in a sentence; "" when nothing is."""
        count, since = self._fitted_since
        if self.state == "ready":
            return ""
        return (
            f"UMAP of {count:,} memories is being fitted in the background, for {time.monotonic() - since:.0f} s now."
        )

    def places(self) -> Mapping[str, Point]:
        """The place of every memory of the bank. New ones are placed and stored."""
        with self._lock:
            self._follow()
            facts = self._bank.facts
            if self._layout is not None and self._all_placed == (facts, self.id):
                return self._layout.coordinates
            ids = self._bank.memory_ids()
            if not ids:
                return {}
            self._keep_up(ids)
            assert self._layout is not None
            new = [memory_id for memory_id in ids if memory_id not in self._layout.coordinates]
            if new:
                self._place_new(new)
            elif self._layout.method == UMAP:
                self._all_placed = facts, self.id
            return self._layout.coordinates

    def place_query(self, vector: npt.NDArray[np.float32]) -> Point:
        """Where a query (d,) lies. Nothing is stored; the memory that becomes of it gets the same place."""
        with self._lock:
            key = vector.tobytes()
            if key not in self._queries:
                if len(self._queries) >= QUERIES_KEPT:
                    del self._queries[next(iter(self._queries))]
                (self._queries[key],) = as_points(self._place(vector[None, :]))
            return self._queries[key]

    def relayout(self) -> None:
        """Fit a new layout on all memories in the background; it is the `proposal` when it is done."""
        with self._lock:
            self._fit_error = ""
            ids = self._bank.memory_ids()
            if len(ids) >= UMAP_FROM:
                self._fit_in_background(ids, proposed=True)
            elif ids:
                self.proposal = self._new(PCA, ids, self._pca(ids))

    def take_proposal(self) -> None:
        """Put the proposal in force; `go_back` undoes it."""
        with self._lock:
            proposal, before = self.proposal, self._layout
            if proposal is None or before is None:
                return
            self._save(proposal)
            # A PCA map of many memories would at once be laid out by UMAP again.
            self._former = before if before.method == proposal.method else None

    def drop_proposal(self) -> None:
        """Stay with the layout in force."""
        with self._lock:
            self.proposal = None

    @property
    def can_go_back(self) -> bool:
        """Whether the layout in force is a proposal that was taken since this program started."""
        return self._former is not None

    def stay(self) -> None:
        """Keep the layout in force for good; what was announced has been read."""
        with self._lock:
            self._former, self.announcement = None, ""

    def go_back(self) -> None:
        """Put the layout in force again that was there before the proposal was taken."""
        with self._lock:
            if former := self._former:
                self._save(replace(former, id=f"{UNSAVED}{former.id}"))
                self.announcement = "The map is again the one from before the last layout."

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the work in the background."""
        if self._thread is not None:
            self._thread.join(timeout)

    def stop(self) -> None:
        """End the fit in the background; the map stays as it is until `relayout`."""
        self._refused += 1
        if self.state == "fitting" and self._umap is not None:
            self._fit_error = f"UMAP was stopped. {STAYS}"
            self._umap.end()

    def close(self) -> None:
        """End the work in the background and what it needs; its result is not stored any more."""
        self._refused += 1
        if self._umap is not None:
            self._umap.end()

    def _follow(self) -> None:
        """Take in a newer layout that this or another process stored."""
        rows = self._bank.layouts.count()
        if rows == self._rows:
            return
        self._rows = rows
        stored = self._bank.layouts.newest()
        if stored is None:
            return
        if stored.id == self.id:
            self._layout = replace(stored, coordinates={**self._unstored, **stored.coordinates})
        else:
            self._take(stored)

    def _take(self, layout: Layout) -> None:
        """Put another layout in force, of this or another process, and say that points moved."""
        if self._layout is not None:
            self.announcement = (
                f"The map was laid out anew with {layout.method} ({len(layout.fitted):,} memories) and turned to fit "
                "the one before. Positions changed once and are frozen again."
            )
        self._layout, self._pca_placer, self._unstored, self._neighbours = layout, None, {}, None
        self._former = self.proposal = None
        self._queries.clear()

    def _keep_up(self, ids: Sequence[str]) -> None:
        """Make the layout that a bank of this size should have, unless somebody made one already."""
        layout = self._layout
        if layout is None or (layout.method == PCA and len(layout.fitted) < PCA_FROM <= len(ids)):
            self._save(self._new(PCA, ids, self._pca(ids)))
        if self._layout is not None and self._layout.method == PCA and len(ids) >= UMAP_FROM and not self._fit_error:
            self._fit_in_background(ids)

    def _place_new(self, new: Sequence[str]) -> None:
        """Decide where new memories lie, for good."""
        layout = self._layout
        assert layout is not None
        vectors = self._vectors(new)
        shown = (self._queries.get(vector.tobytes()) for vector in vectors)
        placed = as_points(self._place(vectors))
        found = {memory_id: at or point for memory_id, at, point in zip(new, shown, placed, strict=True)}
        self._layout = replace(layout, coordinates={**layout.coordinates, **found})
        self._unstored |= found
        self._store(self._write_unstored)

    def _write_unstored(self) -> None:
        """Append what could not be stored before with what is new; a layout that is not in the bank goes first."""
        assert self._layout is not None
        if self._layout.id.startswith(UNSAVED):
            fitted = {memory_id: self._layout.coordinates[memory_id] for memory_id in self._layout.fitted}
            saved = self._bank.write.layouts.save(self._layout.method, fitted)
            self._layout = replace(self._layout, id=saved.id)
            self._rows = -1
        self._bank.write.layouts.add(self._layout, self._unstored)
        # What only this process added need not be read again: that takes as long as the map is large.
        if self._rows >= 0 and self._bank.layouts.count() == self._rows + len(self._unstored):
            self._rows += len(self._unstored)
            self._unstored = {}
            return
        self._unstored, self._rows = {}, -1
        self._follow()

    def _place(self, vectors: Vectors) -> Plane:
        """Places (m, 2) for vectors (m, d) on the map in force."""
        layout = self._layout
        if layout is None:
            return np.zeros((len(vectors), 2))
        if layout.method == PCA:
            if self._pca_placer is None:
                # Fitted again on the same vectors, and turned the way it was stored.
                self._pca_placer = TurnedPca(self._vectors(layout.fitted), _plane(layout, layout.fitted))
            return self._pca_placer.place(vectors)
        size = len(layout.coordinates)
        if self._neighbours is None or size > GROWN * self._neighbours[0]:
            known = list(layout.coordinates)[:: -(-size // KNOWN)]
            self._neighbours = size, self._vectors(known), _plane(layout, known)
        return near_neighbours(vectors, *self._neighbours[1:])

    def _pca(self, ids: Sequence[str]) -> Plane:
        vectors = self._vectors(ids)
        return self._turned(Pca(vectors).place(vectors), ids, self._layout)

    def _fit_in_background(self, ids: Sequence[str], proposed: bool = False) -> None:
        if self.state == "fitting":
            return
        self._umap, self._fitted_since = Umap(), (len(ids), time.monotonic())
        self._thread = threading.Thread(
            target=self._fit_umap, args=(self._umap, ids, proposed), daemon=True, name="map layout"
        )
        self._thread.start()

    def _fit_umap(self, umap: Umap, ids: Sequence[str], proposed: bool) -> None:
        try:
            self._lay_out(umap, ids, proposed)
        except ChildFailed as error:
            self._fit_error = self._fit_error or f"UMAP could not lay out this memory: {str(error)[:80]}. {STAYS}"
        except Exception as error:
            log.exception("the map could not be laid out")
            self._fit_error = f"UMAP could not lay out this memory ({type(error).__name__}). {STAYS}"

    def _lay_out(self, umap: Umap, ids: Sequence[str], proposed: bool) -> None:
        allowed, before = self._refused, self._layout
        places = umap.fit(self._vectors(ids))
        trust = self._trust(ids, before, places) if proposed and before else self.trust
        with self._lock:
            # Another process may have laid the map out in the meantime: two switches would move the points twice.
            self._follow()
            if self._refused != allowed or (before is not None and before.id != self.id):
                return
            layout = self._new(UMAP, ids, self._turned(places, ids, before))
            if proposed:
                self.proposal, self.trust = layout, trust
            else:
                self._save(layout)

    def _trust(self, ids: Sequence[str], before: Layout, places: Plane) -> tuple[float, float]:
        """The trustworthiness of the earlier map and of these places, on the memories that are on both."""
        rows = [row for row, memory_id in enumerate(ids) if memory_id in before.coordinates]
        shared = [ids[row] for row in rows]
        vectors = self._vectors(shared)
        return trustworthiness(vectors, _plane(before, shared)), trustworthiness(vectors, places[rows])

    def _turned(self, places: Plane, ids: Sequence[str], before: Layout | None) -> Plane:
        if before is None:
            return places
        shared = [row for row, memory_id in enumerate(ids) if memory_id in before.coordinates]
        return aligned(places, _plane(before, [ids[row] for row in shared]), np.array(shared, dtype=np.int64))

    def _new(self, method: str, ids: Sequence[str], places: Plane) -> Layout:
        coordinates = dict(zip(ids, as_points(places), strict=True))
        return Layout(f"{UNSAVED}{uuid.uuid4().hex[:8]}", method, coordinates, tuple(ids))

    def _save(self, layout: Layout) -> None:
        """Store a layout and put it in force, unless another process stored a newer one."""

        def write() -> None:
            nonlocal layout
            fitted = {memory_id: layout.coordinates[memory_id] for memory_id in layout.fitted}
            saved = self._bank.write.layouts.save(layout.method, fitted)
            later = {memory_id: at for memory_id, at in layout.coordinates.items() if memory_id not in fitted}
            self._bank.write.layouts.add(saved, later)
            layout = replace(layout, id=saved.id)

        stored = self._store(write)
        self._take(layout)
        if stored:
            self._rows = -1
            self._follow()

    def _store(self, write: Callable[[], object]) -> bool:
        """Places are conveniences: a bank that cannot be written still gets its map, which is then not kept."""
        try:
            write()
        except MemRLError as error:
            self._store_error = f"The map's places could not be stored. {error}"
            return False
        self._store_error = ""
        return True

    def _vectors(self, ids: Sequence[str]) -> Vectors:
        return np.stack([self._bank.embedding(memory_id) for memory_id in ids])


def _plane(layout: Layout, ids: Sequence[str]) -> Plane:
    return np.array([layout.coordinates[memory_id] for memory_id in ids], dtype=np.float64).reshape(-1, 2)


# --- UMAP as a process beside the app: nothing on a screen waits for it -----------------------------------------------

CHILD = "memrl_core.analysis.map.umap_child"
TIME_TO_FIT = 6 * 3600.0
"""Seconds; a person can stop it sooner."""

TIME_TO_START = 120.0


class Umap:
    """UMAP of vectors by cosine and with a fixed seed, for one `fit`; it can be ended from any thread."""

    def __init__(self) -> None:
        self._child = Child(CHILD, shared=False)
        self._ended = False

    def fit(self, vectors: Vectors) -> Plane:
        """Places (n, 2) of `vectors` (n, d), n >= 4. Raises `ChildFailed` when the process died or was ended."""
        with tempfile.TemporaryDirectory(prefix="memrl-map-") as folder:
            given, answer = Path(folder) / "vectors.npy", Path(folder) / "places.npy"
            np.save(given, vectors, allow_pickle=False)
            try:
                self._child.ask({}, TIME_TO_START)
                if not self._ended:
                    self._child.ask({"vectors": str(given), "to": str(answer)}, TIME_TO_FIT)
            finally:
                self._child.close()
            if not answer.exists():
                raise ChildFailed("it was ended")
            places: Plane = np.load(answer, allow_pickle=False)
            return places

    def end(self) -> None:
        """End the process, whatever it is at."""
        self._ended = True
        self._child.close()
