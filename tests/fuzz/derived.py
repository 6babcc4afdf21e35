"""Files in a bank's folder that stand beside its tables: the journal, and the flat copies.

They are read as they lie in memory, and a fault may end the process: another one reads them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from memrl_core.bank import flat
from memrl_core.bank.codec import schemas
from memrl_core.bank.journal import HEAD, JOURNAL, JOURNALED, MOVING, PREFIX, RECORD, parsed
from tests.builders import DIMENSION
from tests.fuzz.mutations import Cut, cut, cuts
from tests.fuzz.sources import copied, flat_path, journaled_path
from tests.fuzz.tables import TableCase, added, rows_of


class Stumbled(AssertionError):
    """The process that read a case found a fault at `place`, or ended."""

    def __init__(self, place: str, told: str) -> None:
        super().__init__(told)
        self.place = place


class _Reader:
    """A process that reads one bank after the other, begun anew when one has ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        """Have a process that can read: on a busy machine that takes longer than a case may."""
        self._process = self._begun()

    def _begun(self) -> subprocess.Popen[str]:
        if self._process is not None:
            return self._process
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.reader"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return process

    def read(self, how: str, uri: Path) -> None:
        """Let it read a bank, and raise what it stumbled over."""
        process, self._process = self._begun(), None
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps([how, str(uri)]) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BaseException:
            process.kill()
            raise
        if not answer:
            raise Stumbled(f"the process that reads {how}", f"it ended with {process.wait()}")
        self._process = process
        if fault := json.loads(answer):
            raise Stumbled(*fault)


READER = _Reader()


@dataclass(frozen=True, slots=True)
class JournalCase:
    """Rows appended to a journal, changes to one of its records, whose checksums are then right, and to its bytes."""

    rows: TableCase | None
    record: int
    inside: list[Cut]
    cuts: list[Cut]
    is_moving: bool


JOURNAL_CASES = st.builds(
    JournalCase,
    st.none() | st.one_of(*map(rows_of, JOURNALED)),
    st.integers(0, 50),
    st.just([]) | cuts(2),
    st.just([]) | cuts(2),
    st.booleans(),
)


def check_journal(case: JournalCase, folder: Path) -> None:
    """The journal, or what was being moved: its rows are there and stay, or the bank is damaged and says so."""
    uri = copied(journaled_path(), folder)
    whole = (uri / JOURNAL).read_bytes()
    found = parsed(whole, schemas(DIMENSION))
    records = [(name, batch) for name in JOURNALED for batch in found.batches[name]]
    if case.rows is not None:
        records += [(case.rows.table, batch) for batch in added(case.rows).to_batches()]
    payloads = [(name, batch.serialize().to_pybytes()) for name, batch in records]
    at = case.record % len(payloads)
    payloads[at] = (payloads[at][0], cut(payloads[at][1], case.inside))
    data = whole[:PREFIX] + b"".join(_sealed(name, payload) for name, payload in payloads)
    (uri / JOURNAL).unlink()
    (uri / (MOVING if case.is_moving else JOURNAL)).write_bytes(cut(data, case.cuts))
    READER.read("a journal", uri)


def _sealed(table: str, payload: bytes) -> bytes:
    head = HEAD.pack(RECORD, JOURNALED.index(table), len(payload), zlib.crc32(payload), 0)[:-4]
    return head + zlib.crc32(head).to_bytes(4, "little") + payload


@dataclass(frozen=True, slots=True)
class FlatCase:
    """Changes to the bytes of one flat copy, by its number, or bytes written over; with a forged checksum, or not."""

    file: int
    cuts: list[Cut]
    over: list[tuple[int, bytes]]
    is_forged: bool


_OVER = st.tuples(
    st.integers(0, 10**6), st.sampled_from([b"\xff", b"\x7f\xff\xff\xff", bytes(8), b"\x01"]) | st.binary(max_size=8)
)
FLAT_CASES = st.builds(FlatCase, st.integers(0, 20), st.just([]) | cuts(2), st.lists(_OVER, max_size=4), st.booleans())


def check_flat(case: FlatCase, folder: Path) -> None:
    """A flat copy: the bank is as its tables say. Where one was forged, it is that or damaged, and the doctor tells."""
    uri = copied(flat_path(), folder)
    files = sorted(flat.flat_files(uri))
    path = files[case.file % len(files)]
    data = bytearray(cut(path.read_bytes(), case.cuts))
    for place, what in case.over:
        at = place % (len(data) + 1)
        data[at : at + len(what)] = what
    if case.is_forged and not path.name.startswith("embeddings"):
        rows = data[flat.HEADER :]
        data[: flat.HEADER] = f"memrl flat copy {flat.FORMAT} {zlib.crc32(rows):08x}".encode().ljust(flat.HEADER)
    path.write_bytes(data)
    READER.read("forged flat copies" if case.is_forged else "flat copies", uri)
