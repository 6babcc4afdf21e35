"""What processes and folders take, and a witness: a new process that opens a bank only to see what it takes.

    python -m benchmarks.soak_watch URI

is the witness.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measuring import MB, give_back, resident_mb
from memrl_core.analysis.map_layout import MapLayout
from memrl_core.bank import MemoryBank
from memrl_core.bank.store import TABLES, Store
from memrl_core.errors import BankError, InputError

PATIENCE = 300.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What a process and all that it started took, `at` so many seconds."""

    of: str
    at: float
    resident_mb: float
    files: int
    threads: int


@dataclass(frozen=True, slots=True)
class Witness:
    """The memory of this process and of a new one that has two handles on the same bank; the bytes of all its rows."""

    at: float
    resident_mb: float
    fresh_mb: float
    facts: int


@dataclass(frozen=True, slots=True)
class Disk:
    """The bytes of a bank's folder, and how many there are for each byte of its rows."""

    at: float
    bytes: int
    share: float


def sampled(of: str, at: float, process: int | None = None) -> Sample:
    """What a process (this one, when none is given) and its children take now.

    Raises `InputError` on a system that does not tell.
    """
    if not Path("/proc/self/status").exists():
        raise InputError("A soak reads /proc, which this system does not have. Nothing was measured; run it on Linux.")
    taken = [_taken(one) for one in ([None] if process is None else _family(process))]
    return Sample(of, at, *(sum(column) for column in zip(*taken, strict=True)))


def _family(process: int) -> Iterator[int]:
    yield process
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            for child in children.read_text(encoding="ascii").split():
                yield from _family(int(child))


def _taken(process: int | None) -> tuple[float, int, int]:
    """Resident MB, open files and threads; nothing of a process that has just ended."""
    folder = Path(f"/proc/{'self' if process is None else process}")
    with suppress(OSError):
        told = dict(line.split(":", 1) for line in (folder / "status").read_text(encoding="utf-8").splitlines())
        files = len(list((folder / "fd").iterdir()))
        return float(told.get("VmRSS", "0").split()[0]) * 1024 / MB, files, int(told["Threads"])
    return 0.0, 0, 0


def disk_of(folder: Path, witnessed: Witness) -> Disk:
    """What a bank's folder takes now."""
    size = 0
    for file in folder.rglob("*"):
        with suppress(OSError):
            size += file.stat().st_size
    return Disk(witnessed.at, size, size / max(1, witnessed.facts))


def witness(uri: str, at: float) -> Witness:
    """Let a new process open the bank at `uri`. Raises `BankError` when it cannot."""
    done = subprocess.run([sys.executable, "-m", __name__, uri], capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode:
        raise BankError(f"A new process could not open the bank: {done.stderr.strip()[-300:]}")
    give_back()
    here = resident_mb()
    told = json.loads(done.stdout)
    return Witness(at, here or 0.0, float(told["fresh_mb"]), int(told["facts"]))


def main(uri: str) -> None:
    """Open the bank at `uri` twice, and its map, as who uses it does; print the memory it takes and its rows' bytes."""
    long_open, reopened = (MemoryBank.open(uri) for _ in range(2))
    for bank in (long_open, reopened):
        for info in bank.runs():
            bank.view(info.id)
            bank.histories(info.id)
    # A handle that has followed the bank from its beginning holds records, where one just opened holds columns.
    long_open.events()
    long_open.memories()
    layout = MapLayout(reopened)
    if layout.places():
        layout.place_query(reopened.embedding(reopened.memory_ids()[-1]))
    give_back()
    fresh = resident_mb()
    layout.close()
    layout.wait()
    opened, _ = Store.open(uri)
    facts = sum(int(opened.read(name).nbytes) for name in TABLES)
    print(json.dumps({"fresh_mb": fresh, "facts": facts}))


if __name__ == "__main__":
    main(sys.argv[1])
