"""How this process takes memory from the system, for those that live for hours."""

from __future__ import annotations

import ctypes
import sys

M_MMAP_THRESHOLD = -3
"""The number of this setting in glibc's malloc.h."""
LARGE = 2**20


def return_large_blocks() -> bool:
    """Let blocks of a MiB and more go back to the system as soon as they are free; False where that cannot be set.

    By itself glibc raises that size as far as 32 MiB once such blocks were freed. Large and small ones then share its
    heaps, one a thread, which Lance's buffers leave full of holes: over hours of steps the process grows and grows.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(M_MMAP_THRESHOLD, LARGE))
