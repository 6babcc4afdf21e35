"""Where cells run: in processes of this machine through joblib, or on the workers of a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from joblib import Parallel, delayed
from joblib.externals.loky.process_executor import TerminatedWorkerError

from memrl_core.errors import InputError, MemRLError
from memrl_core.experiments.cells import Cell, run_cell
from memrl_core.experiments.study import Stopped
from memrl_core.models.base import Cancelled

POLL = 0.1
ANSWER_WITHIN = 10
"""Seconds in which a scheduler has to answer, and in which one that was lost may come back."""
GO_ON = "Finished cells are kept; run the same command again to go on."


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of a cell: its table, or the sentence of what went wrong, or neither when it was stopped."""

    cell: Cell
    table: pa.Table | None = None
    error: str = ""


def attempt(cell: Cell, banks: str, stop_file: Path | None = None) -> Attempt:
    """Run one cell with its bank below the address `banks`, or in a folder that is deleted when it ends.

    It stops within a step when `stop_file` appears.
    """
    cancelled = stop_file.exists if stop_file is not None else None
    try:
        if banks:
            return Attempt(cell, run_cell(cell, f"{banks.rstrip('/')}/{cell.name}", cancelled))
        with tempfile.TemporaryDirectory(prefix="memrl-cell-") as folder:
            return Attempt(cell, run_cell(cell, f"{folder}/bank", cancelled))
    except Stopped:
        return Attempt(cell)
    except MemRLError as error:
        return Attempt(cell, error=str(error))
    except Exception as error:
        return Attempt(
            cell, error=f"The cell {cell.name} failed in an unexpected way ({type(error).__name__}: {error})."
        )


def on_this_machine(cells: Sequence[Cell], banks: str, jobs: int, cancelled: Cancelled) -> Iterator[Attempt]:
    """The attempts at `cells` as they end, in `jobs` processes (0: one a core). Raises `InputError` when one is killed.

    When `cancelled()` turns true, cells under way stop within a step.
    """
    with tempfile.TemporaryDirectory(prefix="memrl-stop-") as folder:
        stop_file = Path(folder) / "stop"
        with _watched(cancelled, stop_file):
            parallel = Parallel(n_jobs=jobs or os.cpu_count() or 1, return_as="generator_unordered")
            ending = parallel(delayed(_in_a_process)(cell, banks, stop_file) for cell in cells)
            try:
                for ended in ending:
                    yield ended
                    if ended.error:
                        stop_file.touch()
            except TerminatedWorkerError:
                raise InputError(f"A process that ran a cell was killed, perhaps for want of memory. {GO_ON}") from None


def on_cluster(cells: Sequence[Cell], banks: str, scheduler: str, cancelled: Cancelled) -> Iterator[Attempt]:
    """The attempts at `cells` as the workers of the Dask cluster at `scheduler` end them.

    Raises `InputError` when the extra `cluster` is not installed, when no scheduler answers or it has no workers, and
    when the scheduler or a worker is lost on the way.
    """
    client = _connected(scheduler)
    try:
        pending = {client.submit(attempt, cell, banks, pure=False): cell for cell in cells}
        lost_at = None
        while pending and not cancelled():
            for future in [future for future in pending if future.status != "pending"]:
                cell = pending.pop(future)
                yield _result(future, cell, scheduler)
            lost_at = None if client.status == "running" else lost_at or time.monotonic()
            if lost_at is not None and time.monotonic() - lost_at > ANSWER_WITHIN:
                raise InputError(f"The Dask scheduler at {scheduler} was lost. {GO_ON}")
            time.sleep(POLL)
        if pending and client.status == "running":
            client.cancel(list(pending), force=True)
    finally:
        client.close(timeout=1)


def _connected(scheduler: str) -> Any:
    try:
        import distributed
    except ImportError:
        raise InputError(
            "Running on a cluster needs the extra “cluster”: pip install 'memrl-inspector[cluster]'. Nothing was "
            "started."
        ) from None
    try:
        connect: Any = distributed.Client
        client = connect(scheduler, timeout=ANSWER_WITHIN, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError):
        raise InputError(
            f"No Dask scheduler answers at {scheduler}. Nothing was started; start one with `dask scheduler`, or leave "
            "out --scheduler to run on this machine."
        ) from None
    try:
        client.wait_for_workers(1, timeout=ANSWER_WITHIN)
    except TimeoutError:
        client.close(timeout=1)
        raise InputError(
            f"The Dask scheduler at {scheduler} has no workers. Nothing was started; start some with `dask worker`."
        ) from None
    return client


def _result(future: Any, cell: Cell, scheduler: str) -> Attempt:
    if future.status == "finished":
        ended: Attempt = future.result(timeout=ANSWER_WITHIN)
        return ended
    if future.status == "error":
        error = future.exception(timeout=ANSWER_WITHIN)
        return Attempt(cell, error=f"The cluster could not run the cell {cell.name} ({type(error).__name__}). {GO_ON}")
    raise InputError(f"The Dask scheduler at {scheduler} was lost. {GO_ON}")


def _in_a_process(cell: Cell, banks: str, stop_file: Path) -> Attempt:
    if multiprocessing.parent_process() is not None:
        # Ctrl-C reaches every process of a terminal; the parent decides what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if stop_file.exists():
        return Attempt(cell)
    return attempt(cell, banks, stop_file)


@contextmanager
def _watched(cancelled: Cancelled, stop_file: Path) -> Iterator[None]:
    """Within it, `stop_file` appears soon after `cancelled()` turns true, for processes that cannot ask."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(POLL):
            if cancelled():
                stop_file.touch()
                return

    watcher = threading.Thread(target=watch, daemon=True, name="cancel")
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
