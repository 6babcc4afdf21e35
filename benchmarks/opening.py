"""What it takes to open a large bank, and to open it and recall once, against reading the vectors' bytes from disk.

A bank is open when its handle can be asked anything; what is first read after that, the first question pays, so the
first recall has a row of its own.

Every opening is one of a new process (whose imports are not counted), with nothing of the bank's files left in the
system's page cache; so is every reading of the vectors, which lie in one flat file. A second row opens with all files
in the cache, in turns with LanceDB's own reading of the column, which is of a new process too: memory that is touched
for the first time costs both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.measuring import Aim, Row, Sizes, give_back, peak, seconds
from benchmarks.synthetic import RUN, SETTINGS, rated_bank, vectors
from memrl_core.bank import MemoryBank
from memrl_core.bank.storage.vectors import FOLDER, LanceVectors
from memrl_core.policies.methods.memrl import MemRL

NAME = "open"
AIM = Aim("ratio", 4)
AIM_RECALL = Aim("ratio", 1.5)
PORTION = 1 << 22
PATIENCE = 600


def measure(sizes: Sizes) -> list[Row]:
    """Openings of a bank with `sizes.memories` memories and `sizes.steps` steps, a repetition each."""
    with rated_bank(sizes.memories, sizes.steps, dimension=sizes.dimension) as bank:
        folder = Path(bank.uri)
        bank.close()
        flat = folder.parent / "vectors.bin"
        np.asarray(bank.view(RUN).embeddings).tofile(flat)
        give_back()
        cold, warm, lance, bytes_read = [], [], [], []
        for _ in range(sizes.repeat):
            _forget(folder, flat)
            bytes_read.append(seconds(partial(_read, flat)))
            cold.append(opened(folder))
            warm.append(opened(folder))
            lance.append(opened(folder, only_vectors=True)["vectors"])
    size = f"{sizes.steps:,} steps"

    def row(what: str, values: list[Mapping[str, float]], key: str, against: str, reference: tuple[float, ...],
            aim: Aim | None = None) -> Row:  # fmt: skip
        taken = tuple(one[key] for one in values)
        highest = max(one["peak_mb"] for one in values)
        return Row(NAME, what, sizes.memories, sizes.dimension, taken, against, reference, aim=aim, peak_mb=highest,
                   size=size)  # fmt: skip

    from_disk, from_cache = "the vectors' bytes from disk", "LanceDB reads the vectors"
    return [
        row("opening a bank", cold, "open", from_disk, tuple(bytes_read), AIM),
        row("opening it, and the first recall", cold, "recall", from_disk, tuple(bytes_read)),
        row("opening a bank, files in the cache", warm, "open", from_cache, tuple(lance), AIM),
        row("the same, and the first recall", warm, "recall", from_cache, tuple(lance), AIM_RECALL),
    ]


def _read(flat: Path) -> None:
    with flat.open("rb", buffering=0) as file:
        buffer = bytearray(PORTION)
        while file.readinto(buffer):
            pass


def _forget(folder: Path, flat: Path) -> None:
    """Write files to the disk and drop them from the system's page cache, where it lets us."""
    for path in (flat, *(path for path in folder.rglob("*") if path.is_file())):
        with suppress(OSError, AttributeError), path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def opened(folder: Path, only_vectors: bool = False) -> Mapping[str, float]:
    """One opening in a process of its own: its seconds, those until the first recall, and the peak of its memory.

    With `only_vectors`, the seconds in which LanceDB reads them.
    """
    command = [sys.executable, "-m", "benchmarks.opening", str(folder), *(["vectors"] if only_vectors else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    found: Mapping[str, float] = json.loads(done.stdout)
    return found


def _open_once(folder: str) -> None:
    import lancedb  # noqa: F401 - the imports of a process are not counted.

    policy = MemRL(SETTINGS)
    with peak() as highest:
        opened: list[MemoryBank] = []
        taken = seconds(lambda: opened.append(MemoryBank.open(folder)))
        bank = opened[0]
        # Of no memory: to ask for one reads them all, and that is the first recall's to do.
        query = vectors(1, np.random.default_rng(0), bank.embedder.dimension)[0]
        recalled = seconds(lambda: policy.recall(query, bank.view(RUN)))
    print(json.dumps({"open": taken, "recall": taken + recalled, "peak_mb": highest.mb}))


def _read_once(folder: str) -> None:
    import lancedb  # noqa: F401

    with MemoryBank.open(folder) as bank:
        dimension = bank.embedder.dimension
    taken = seconds(lambda: LanceVectors.open(f"{folder}/{FOLDER}", dimension).read(["embedding"]))
    print(json.dumps({"vectors": taken}))


if __name__ == "__main__":
    (_read_once if "vectors" in sys.argv[2:] else _open_once)(sys.argv[1])
