"""Memory of a process that lives for hours: large blocks that are free go back to the system."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Once a block of 16 MiB was freed, glibc by itself takes the next one from its heap, which it does not give back.
MAPPED_AFTER_A_FREE = """
import ctypes
from memrl_core.allocator import return_large_blocks

class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keep")]

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
libc.mallinfo2.restype = Mallinfo2
{0}
libc.free(libc.malloc(16 << 20))
before = libc.mallinfo2().hblks
libc.malloc(16 << 20)
print(libc.mallinfo2().hblks - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of glibc")
@pytest.mark.parametrize(("setting", "apart"), [("assert return_large_blocks()", 1), ("", 0)], ids=["set", "by itself"])
def test_a_large_block_is_kept_apart_so_that_freeing_it_returns_it(setting: str, apart: int) -> None:
    # Dask leaves such a setting in the environment of whoever started its workers, and any of them fixes the size.
    untouched = {
        name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))
    }
    script = MAPPED_AFTER_A_FREE.format(setting)
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=untouched
    ).stdout
    assert int(printed) == apart
