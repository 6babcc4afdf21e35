"""Two folders that change their names in one step, so that neither name is ever without one."""

from __future__ import annotations

import ctypes
import os
import sys
import uuid
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def exchange(one: Path, other: Path) -> None:
    """Let two folders of one file system change names. Raises `OSError`.

    Linux does it at once. Elsewhere, and on file systems that cannot, `other` is for an instant without a folder.
    """
    if sys.platform == "linux" and _exchanged_at_once(one, other):
        return
    between = other.with_name(f".{other.name}-{uuid.uuid4().hex[:8]}")
    other.rename(between)
    try:
        one.rename(other)
    except OSError:
        between.rename(other)
        raise
    between.rename(one)


def _exchanged_at_once(one: Path, other: Path) -> bool:
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    done = rename(
        _AT_FDCWD,
        ctypes.c_char_p(os.fsencode(one)),
        _AT_FDCWD,
        ctypes.c_char_p(os.fsencode(other)),
        ctypes.c_uint(_RENAME_EXCHANGE),
    )
    return bool(done == 0)
