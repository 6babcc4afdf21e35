"""Frozen map coordinates, stored beside the memories they belong to."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import func, select

from memrl_core.bank.ledger import now
from memrl_core.bank.storage import schema
from memrl_core.bank.storage.database import Database

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Layout:
    """Frozen map coordinates: id to (x, y). `fitted` are the ids the layout was made from."""

    id: str
    method: str
    coordinates: Mapping[str, Point]
    fitted: tuple[str, ...]


class Layouts:
    """The layouts of one bank, of which the newest is in force; points are appended and never changed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def count(self) -> int:
        """How many points were ever stored: changes whenever `newest` may."""
        return int(self._database.scalar(select(func.count()).select_from(schema.points)))

    def newest(self) -> Layout | None:
        """The layout in force; None before the first."""
        layouts, points = schema.layouts.c, schema.points.c
        found = self._database.rows(select(layouts.id, layouts.method).order_by(layouts.position.desc()).limit(1))
        if not found:
            return None
        ((newest, method),) = found
        query = select(points.memory_id, points.x, points.y, points.fitted).where(points.layout == newest)
        coordinates: dict[str, Point] = {}
        fitted = []
        for memory_id, x, y, was_fitted in self._database.rows(query.order_by(points.position)):
            # The first point of a memory counts: another process may have added one too.
            coordinates.setdefault(memory_id, (x, y))
            if was_fitted:
                fitted.append(memory_id)
        return Layout(newest, method, coordinates, tuple(fitted))


class LayoutsWriter(Layouts):
    """Stores layouts and the points of later memories on them."""

    def save(self, method: str, coordinates: Mapping[str, Point]) -> Layout:
        """Append a new layout, fitted on exactly these memories; it takes the place of the one before."""
        layout = Layout(uuid.uuid4().hex, method, dict(coordinates), tuple(coordinates))
        with self._database.transaction():
            self._database.insert(schema.layouts, [{"id": layout.id, "method": method, "created": now()}])
            self._append(layout, coordinates, fitted=True)
        return layout

    def add(self, layout: Layout, coordinates: Mapping[str, Point]) -> None:
        """Append the points of memories that came after the layout was fitted."""
        with self._database.transaction():
            self._append(layout, coordinates, fitted=False)

    def _append(self, layout: Layout, coordinates: Mapping[str, Point], fitted: bool) -> None:
        rows = [
            {"layout": layout.id, "memory_id": memory_id, "x": float(x), "y": float(y), "fitted": fitted}
            for memory_id, (x, y) in coordinates.items()
        ]
        self._database.insert(schema.points, rows)
        self._database.seal()
