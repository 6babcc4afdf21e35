"""The folder of an experiment: finished cells, results, what they came from, and the machine they were measured on."""

from __future__ import annotations

import errno
import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from memrl_core import __version__
from memrl_core.errors import InputError
from memrl_core.experiments.cells import Cell
from memrl_core.experiments.plan import Plan

LIBRARIES = ("numpy", "scipy", "scikit-learn", "lancedb", "pyarrow", "pandas", "joblib")
RESULTS, STEPS, COSTS, DESCRIPTION = "results.parquet", "steps.parquet", "costs.parquet", "experiment.json"
REPORT, PICTURES = "report.md", "report.html"


class ResultFolder:
    """The folder `out` of one experiment, while this process alone works in it.

    `results.parquet` has a row per epoch of each cell, `steps.parquet` a row per step, `costs.parquet` how long each
    step took, `experiment.json` the plan with the versions, seeds and digests, `cells/` a file for each finished cell.
    Every file is written whole or not at all; all but `costs.parquet` and the clock are the same for the same plan.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self._lock = FileLock(out / ".lock")

    def __enter__(self) -> Self:
        with self._sentences():
            (self.out / "cells").mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire(timeout=0)
            except Timeout:
                raise InputError(
                    f"Another process is working on the experiment in {self.out}. Nothing was started; wait for it, or "
                    "choose another folder."
                ) from None
        return self

    def __exit__(self, *failure: object) -> None:
        self._lock.release()

    def kept(self, cell: Cell) -> pa.Table | None:
        """The table of a cell that is finished; None for one that is not, or whose file is not whole."""
        try:
            table = pq.read_table(self._file(cell))
        except (OSError, pa.ArrowException):
            return None
        known = (table.schema.metadata or {}).get(b"fingerprint", b"").decode()
        return table if known == cell.fingerprint else None

    def keep(self, cell: Cell, table: pa.Table) -> None:
        """Put a finished cell on the disk. Raises `InputError` when it has no room."""
        self._write(self._file(cell), lambda draft: pq.write_table(table, draft))

    def describe(self, plan: Plan, cells: Sequence[Cell], found: Mapping[str, pa.Table]) -> None:
        """Write what the results come from: the plan, versions, machine, and each finished cell with its digest."""
        versions = {"memrl": __version__, "python": platform.python_version()}
        versions |= {name: version(name) for name in LIBRARIES}
        description = {
            "plan": plan.model_dump(mode="json"),
            "seeds": list(range(plan.seeds)),
            "versions": versions,
            "machine": f"{platform.system()} {platform.machine()}",
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "cells": [
                {"name": cell.name, "arm": cell.arm.name, "stream": cell.stream.name, "seed": cell.seed,
                 "settings": cell.settings, "digest": _digest(found.get(cell.name))}
                for cell in cells
            ],
        }  # fmt: skip
        text = json.dumps(description, indent=1, ensure_ascii=False)
        self.write_text(DESCRIPTION, text)

    def write(self, plan: Plan, epochs: pd.DataFrame, steps: pd.DataFrame, durations: pd.DataFrame) -> None:
        """Write the results. Raises `InputError` when the disk has no room."""
        about = {"title": plan.title, "question": plan.question, "plan": plan.model_dump_json(), "version": __version__}
        for name, frame in ((RESULTS, epochs), (STEPS, steps), (COSTS, durations)):
            table = pa.Table.from_pandas(frame, preserve_index=False)
            table = table.replace_schema_metadata({**(table.schema.metadata or {}), **about})
            self._write(self.out / name, lambda draft, table=table: pq.write_table(table, draft))

    def write_rows(self, frame: pd.DataFrame) -> None:
        """Write a table of its own as the results. Raises `InputError` when the disk has no room."""
        self._write(self.out / RESULTS, lambda draft: frame.to_parquet(draft, index=False))

    def write_text(self, name: str, text: str) -> None:
        """Write a report. Raises `InputError` when the disk has no room."""
        self._write(self.out / name, lambda draft: draft.write_text(text, encoding="utf-8"))

    def _file(self, cell: Cell) -> Path:
        return self.out / "cells" / f"{cell.name}.parquet"

    def _write(self, target: Path, write: Any) -> None:
        draft = target.with_name(f".{target.name}.draft")
        with self._sentences():
            write(draft)
            draft.replace(target)

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise InputError(
                    f"The disk is full: {self.out} could not be written. Finished cells are kept; free some space and "
                    "run the same command again."
                ) from None
            raise InputError(
                f"The folder {self.out} cannot be written ({error.strerror or type(error).__name__}). Choose another "
                "folder for the results."
            ) from None


def _digest(table: pa.Table | None) -> str | None:
    return None if table is None else (table.schema.metadata or {}).get(b"digest", b"").decode()


def machine_line() -> str:
    """Where and when something is measured, in one line."""
    try:
        memory = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"
    except (AttributeError, ValueError, OSError):
        memory = "memory unknown"
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC · {platform.system()} {platform.machine()}, {os.cpu_count() or 1} "
        f"cores, {memory} · memrl {__version__} · Python {platform.python_version()}"
    )
