"""Checksums of rows, by which a bit that flipped is found and its row named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


def digest(row: Mapping[str, Any]) -> str:
    """A checksum of every cell of a row but its `digest`, by which a bit that flipped is found."""
    found = hashlib.blake2b(digest_size=16)
    for name in sorted(row):
        if name != "digest":
            found.update(name.encode())
            found.update(_bytes(row[name]))
    return found.hexdigest()


def chained(before: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """The checksum of a table that had the checksum `before` ("" without rows) and got these rows, in this order.

    It changes with every cell, and with a row that is added, removed or moved.
    """
    for row in rows:
        before = digest({**row, "digest of the rows before": before})
    return before


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, np.ndarray):
        return value.astype("<f4").tobytes()
    if isinstance(value, float):
        value += 0.0  # SQLite keeps −0 as 0.
    return json.dumps(value).encode()
