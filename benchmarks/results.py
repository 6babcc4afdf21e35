"""What was measured as a JSON file: `{"machine": …, "date": …, "rows": […]}`.

A row names what was measured (`benchmark`, `what`, `memories`, `dimension`, `size`), how long it took (`median_s`,
`p95_s`, `min_s`, `max_s`, over `repetitions`), what that is beside its reference, which was measured in turns with it
(`reference`, `reference_median_s`, `ratio_median`, `over_s`), a figure that is no time (`value`, `unit`), the highest
resident memory meanwhile (`peak_mb`, 10⁶ bytes), and the aim in words with whether it is `met`. Times are in seconds.
What a row does not have is null.
"""

from __future__ import annotations

import math
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from benchmarks.measuring import Row
from benchmarks.words import aim_of
from memrl_core.errors import InputError
from memrl_core.exchange.whole_files import drafted
from memrl_core.experiments.machine import Machine

LARGEST = 20_000_000


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class KeptRow(_Read):
    """A row of a file (see above)."""

    benchmark: str
    what: str
    memories: int
    dimension: int | None = None
    size: str = ""
    ratio_median: float | None = None
    median_s: float | None = None
    p95_s: float | None = None
    min_s: float | None = None
    max_s: float | None = None
    repetitions: int = 0
    reference: str | None = None
    reference_median_s: float | None = None
    over_s: float | None = None
    value: float | None = None
    unit: str | None = None
    peak_mb: float | None = None
    aim: str | None = None
    met: bool | None = None


class Results(_Read):
    """A whole file."""

    machine: Machine
    date: datetime
    rows: tuple[KeptRow, ...]


def results_of(rows: Sequence[Row], machine: Machine, date: datetime) -> Results:
    """What was measured, as a file keeps it."""
    return Results(machine=machine, date=date, rows=tuple(map(_kept, rows)))


def must_be_writable(target: Path) -> None:
    """Raise `InputError` when no file can be written at `target`: before anything is measured for it."""
    try:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(target.stat().st_mode):
                raise InputError(
                    f"{_short(target)} is there and is no file. Nothing was measured; choose another name."
                )
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise InputError(
            f"{_short(target)} cannot be written ({why}). Nothing was measured; name a file in a folder that is "
            "there and can be written to."
        ) from error


def write_results(target: Path, results: Results) -> None:
    """Write a file whole, in the place of one that is there. Raises `InputError`, `BankFull`, `BankReadOnly`."""
    with drafted(target, overwrite=True) as file:
        file.write(results.model_dump_json(indent=1).encode() + b"\n")


def read_rows(path: Path) -> Results:
    """A file of `memrl bench --json`, its rows with where and when they were measured.

    Raises `InputError` when it cannot be read, is larger than `LARGEST` bytes, or is something else.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise InputError(f"{_short(path)} cannot be read ({why}). Nothing was compared; check the name.") from error
    if len(content) > LARGEST:
        raise InputError(f"{_short(path)} is too large to be measurements. Nothing was compared; check the name.")
    try:
        return Results.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = " · ".join(str(part)[:80] for part in first["loc"])
        at = f"{place}: " if place else ""
        raise InputError(
            f"{_short(path)} holds no measurements ({at}{first['msg'][:200]}). Nothing was compared; name files that "
            "`memrl bench --json` has written."
        ) from None


def _kept(row: Row) -> KeptRow:
    return KeptRow(
        benchmark=row.benchmark,
        what=row.what,
        memories=row.memories,
        dimension=row.dimension,
        size=row.size,
        ratio_median=_finite(row.ratio),
        median_s=_finite(row.median),
        p95_s=_finite(row.p95),
        min_s=_finite(min(row.seconds)) if row.seconds else None,
        max_s=_finite(max(row.seconds)) if row.seconds else None,
        repetitions=len(row.seconds),
        reference=row.reference or None,
        reference_median_s=_finite(row.reference_median),
        over_s=_finite(row.over_s),
        value=_finite(row.value),
        unit=row.unit or None,
        peak_mb=_finite(row.peak_mb),
        aim=aim_of(row) or None,
        met=row.is_met,
    )


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _short(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 80 else f"…{text[-79:]}"
