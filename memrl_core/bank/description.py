"""What the table `meta` of a bank says, beside format and embedder: which memories a repair could not bring back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LOST_MEMORIES = "lost_memories"


def lost_memories(meta: Mapping[str, Any]) -> frozenset[str]:
    """The ids of memories that are known to be lost, so that nobody looks for them again."""
    listed = meta.get(LOST_MEMORIES, ())
    return frozenset(str(one) for one in listed) if isinstance(listed, list) else frozenset()
