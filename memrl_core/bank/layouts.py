"""Frozen map coordinates, stored beside the memories they belong to."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow.compute as pc

from memrl_core.bank.store import Store

Place = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Layout:
    """Frozen map coordinates: id to (x, y). `fitted` are the ids the layout was made from."""

    id: str
    method: str
    coordinates: Mapping[str, Place]
    fitted: tuple[str, ...]


class Layouts:
    """The layouts of one bank, of which the newest is in force; places are appended and never changed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def count(self) -> int:
        """How many places were ever stored: changes whenever `newest` may."""
        return self._store.count("layouts")

    def newest(self) -> Layout | None:
        """The layout in force; None before the first."""
        table = self._store.read("layouts")
        if not table.num_rows:
            return None
        # Places may still be added to an older layout after another process saved a newer one; ids sort by age.
        newest = pc.max(table["layout"]).as_py()
        members = table.filter(pc.equal(table["layout"], newest))
        ids, x, y = (members[name].to_pylist() for name in ("memory_id", "x", "y"))
        # The first place of a memory counts, which is the last that is written into the dictionary.
        coordinates = dict(zip(reversed(ids), zip(reversed(x), reversed(y), strict=True), strict=True))
        fitted = tuple(members.filter(members["fitted"])["memory_id"].to_pylist())
        return Layout(newest, members["method"][0].as_py(), coordinates, fitted)

    def save(self, method: str, coordinates: Mapping[str, Place]) -> Layout:
        """Append a new layout, fitted on exactly these memories; it takes the place of the one before."""
        number = f"{self.count():08d}-{uuid.uuid4().hex[:8]}"
        layout = Layout(number, method, dict(coordinates), tuple(coordinates))
        self._append(layout, coordinates, fitted=True)
        return layout

    def add(self, layout: Layout, coordinates: Mapping[str, Place]) -> None:
        """Append the places of memories that came after the layout was fitted."""
        self._append(layout, coordinates, fitted=False)

    def _append(self, layout: Layout, coordinates: Mapping[str, Place], fitted: bool) -> None:
        rows = [
            {
                "layout": layout.id,
                "method": layout.method,
                "memory_id": memory_id,
                "x": float(x),
                "y": float(y),
                "fitted": fitted,
            }
            for memory_id, (x, y) in coordinates.items()
        ]
        if rows:
            self._store.append("layouts", rows)
