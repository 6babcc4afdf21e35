"""What the table `meta` of a bank says, beside format and embedder: which memories a repair could not bring back,
and who made its vectors before they were made anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LOST_MEMORIES = "lost_memories"
EMBEDDERS_BEFORE = "embedders_before"


def lost_memories(meta: Mapping[str, Any]) -> frozenset[str]:
    """The ids of memories that are known to be lost, so that nobody looks for them again."""
    listed = meta.get(LOST_MEMORIES, ())
    return frozenset(str(one) for one in listed) if isinstance(listed, list) else frozenset()


def embedders_before(meta: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the embedders whose vectors were made anew, oldest first."""
    listed = meta.get(EMBEDDERS_BEFORE, ())
    return tuple(str(one) for one in listed) if isinstance(listed, list) else ()
