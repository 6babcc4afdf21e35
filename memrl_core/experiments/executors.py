"""Many cells: what is missing is run, in processes of this machine through joblib or on the workers of a Dask cluster;
what is finished is kept, whatever ends the rest.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import platform
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, Self

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout
from joblib import Parallel, delayed
from joblib.externals.loky.process_executor import TerminatedWorkerError

from memrl_core import __version__
from memrl_core.errors import InputError, MemRLError
from memrl_core.experiments.cells import SKIPPED, Cell, cells_of, rows_in, run_cell
from memrl_core.experiments.epochs import by_epoch, durations
from memrl_core.experiments.plan import Plan
from memrl_core.experiments.study import Stopped
from memrl_core.logs import logger
from memrl_core.models.base import Cancelled, Progress, never, unheard
from memrl_core.models.hosts import Hosts, repeated

POLL = 0.1
STEPS_OVER = ".steps"
"""Ending of the files, one a cell, in which a process writes a byte for each step that is over."""
ANSWER_WITHIN = 10
"""Seconds in which a scheduler has to answer, and for which a cluster may be without a worker."""
LOST = "its scheduler or its workers no longer answer"
LIBRARIES = ("numpy", "scipy", "scikit-learn", "lancedb", "pyarrow", "pandas", "joblib")
RESULTS, STEPS, COSTS, DESCRIPTION = "results.parquet", "steps.parquet", "costs.parquet", "experiment.json"
REPORT, PICTURES = "report.md", "report.html"
GO_ON = "Finished cells are kept; run the same command again to go on."


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of a cell: its table, or the sentence of what went wrong, or neither when it was stopped.

    `note` says why it began anew where an earlier attempt had been cut short.
    """

    cell: Cell
    table: pa.Table | None = None
    error: str = ""
    note: str = ""


def attempt(
    cell: Cell,
    banks: str,
    cancelled: Cancelled,
    hosts: Hosts | None = None,
    checkpoint: Path | None = None,
    on_step: Callable[[], object] | None = None,
) -> Attempt:
    """Run one cell with its bank below the address `banks`, or in a temporary folder that is deleted when it ends.

    It stops within a step when `cancelled()` turns true, and goes on from its `checkpoint`. `on_step` is called after
    every new step.
    """
    notes: list[str] = []
    table, error = None, ""
    try:
        with ExitStack() as ending:
            folder = banks.rstrip("/") or ending.enter_context(tempfile.TemporaryDirectory(prefix="memrl-cell-"))
            if checkpoint is not None:
                # A process that outlives its killed parent for a moment may still write to the bank.
                ending.enter_context(FileLock(checkpoint.with_suffix(".lock"), timeout=ANSWER_WITHIN))
            table = run_cell(cell, f"{folder}/{cell.name}", cancelled, on_step, hosts, checkpoint, notes.append)
    except Stopped:
        pass
    except MemRLError as failure:
        error = str(failure)
    except Timeout:
        error = f"Another process still works on the cell {cell.name}. Wait until it ends. {GO_ON}"
    except OSError as failure:
        error = (
            f"What the cell {cell.name} needs to go on could not be written ({failure.strerror or failure}). {GO_ON}"
        )
    except Exception as failure:
        error = f"The cell {cell.name} failed in an unexpected way ({type(failure).__name__}: {failure})."
    return Attempt(cell, table, error, " ".join(notes))


def on_this_machine(
    cells: Sequence[Cell],
    banks: str,
    jobs: int,
    cancelled: Cancelled,
    hosts: Hosts | None,
    results: ResultFolder,
    on_steps: Callable[[int], None],
) -> Generator[Attempt, None, None]:
    """The attempts at `cells` as they end, in `jobs` processes. Raises `InputError` when one is killed.

    0 processes are one per core, or as many as `hosts` answer at once. When `cancelled()` turns true, cells under way
    stop within a step; they go on from their checkpoints in `results`. `on_steps` gets, several times a second, how
    many new steps of all these cells are over.
    """
    # It is raised where a process was idle for long or had grown; another takes its place and nothing is lost.
    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
    with tempfile.TemporaryDirectory(prefix="memrl-experiment-") as folder:
        stop_file = Path(folder) / "stop"

        def look() -> None:
            # Processes cannot ask `cancelled`, nor call `on_steps`.
            if cancelled():
                stop_file.touch()
            on_steps(sum(file.stat().st_size for file in Path(folder).glob(f"*{STEPS_OVER}")))

        with repeated(look, POLL):
            at_once = os.cpu_count() or 1 if hosts is None else len(hosts.addresses) * hosts.per_host
            parallel = Parallel(n_jobs=jobs or at_once, return_as="generator_unordered")
            with _without_ctrl_c():
                ending = parallel(
                    delayed(_in_a_process)(cell, banks, stop_file, os.getpid(), hosts, results.checkpoint(cell))
                    for cell in cells
                )
            try:
                for ended in ending:
                    yield ended
                    if ended.error:
                        stop_file.touch()
            except TerminatedWorkerError:
                raise InputError(f"A process that ran a cell was killed, perhaps for want of memory. {GO_ON}") from None
            finally:
                ending.close()


def on_cluster(
    cells: Sequence[Cell], banks: str, scheduler: str, cancelled: Cancelled, hosts: Hosts | None = None
) -> Generator[Attempt, None, None]:
    """The attempts at `cells` as the workers of the Dask cluster at `scheduler` end them.

    Raises `InputError` when the extra `cluster` is not installed, when no scheduler answers or it has no workers, and
    when the scheduler or all workers are lost on the way.
    """
    client = _connected(scheduler)
    failed = False
    try:
        pending = {client.submit(_on_a_worker, cell, banks, hosts, pure=False): cell for cell in cells}
        seen = time.monotonic()
        while pending and not failed and not cancelled():
            for future in [future for future in pending if future.status != "pending"]:
                ended = _result(future, pending.pop(future), scheduler)
                failed = failed or bool(ended.error)
                yield ended
            if client.scheduler_info(n_workers=1)["workers"]:
                seen = time.monotonic()
            elif time.monotonic() - seen > ANSWER_WITHIN:
                raise InputError(f"The Dask cluster at {scheduler} was lost: {LOST}. {GO_ON}")
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
    for name in ("distributed", "distributed.client"):
        # What they log of a lost connection is said in our own sentence.
        logger(name).setLevel(logging.CRITICAL)
    try:
        # A client that cannot connect is never closed, and may hang the program when it is collected: ask ahead of it.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _answered(scheduler)).result()
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


async def _answered(scheduler: str) -> None:
    from distributed import Security
    from distributed.comm.core import connect

    options = Security().get_connection_args("client")  # type: ignore[no-untyped-call]
    comm = await connect(scheduler, timeout=ANSWER_WITHIN, **options)  # type: ignore[no-untyped-call]
    await comm.close()


def _result(future: Any, cell: Cell, scheduler: str) -> Attempt:
    try:
        error = future.exception(timeout=ANSWER_WITHIN)
        if error is None:
            ended: Attempt = future.result(timeout=ANSWER_WITHIN)
            return ended
    except (OSError, TimeoutError, CancelledError):
        raise InputError(f"The Dask cluster at {scheduler} was lost: {LOST}. {GO_ON}") from None
    return Attempt(cell, error=f"The cluster could not run the cell {cell.name} ({type(error).__name__}). {GO_ON}")


def _on_a_worker(cell: Cell, banks: str, hosts: Hosts | None) -> Attempt:
    from distributed import get_worker

    # Dask never ends the thread of a task that was cancelled; it only changes its state.
    worker = get_worker()
    task = worker.state.tasks[worker.get_current_task()]
    return attempt(cell, banks, lambda: task.state == "cancelled", hosts)


def _in_a_process(
    cell: Cell, banks: str, stop_file: Path, parent: int, hosts: Hosts | None, checkpoint: Path
) -> Attempt:
    if os.getpid() != parent:
        _end_with(parent)
    if stop_file.exists():
        return Attempt(cell)
    with (stop_file.parent / f"{cell.name}{STEPS_OVER}").open("wb", buffering=0) as steps:
        return attempt(cell, banks, stop_file.exists, hosts, checkpoint, lambda: steps.write(b"."))


@cache
def _end_with(parent: int) -> None:
    """End this process when the one that started it is gone: joblib's workers would wait for more work for ever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent").start()


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Processes started within it ignore Ctrl-C, which reaches every process of a terminal: the parent decides.

    They inherit the mask, so it holds before their first line runs; a handler would come too late.
    """
    # Up to Python 3.12 starting the tracker, which joblib does on the way, takes the mask off again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# --- the folder -------------------------------------------------------------------------------------------------------


class ResultFolder:
    """The folder `out` of one experiment, while this process alone works in it.

    `results.parquet` has a row per epoch of each cell, `steps.parquet` a row per step, `costs.parquet` how long each
    step took, `experiment.json` the plan with the versions, seeds and digests, `cells/` a file for each finished cell.
    A cell under way has its rows so far in a hidden file of `cells/`, its checkpoint, and its bank in `.under-way/`
    where it has no other place; both are deleted when it is finished. Every other file is written whole or not at all;
    all but `costs.parquet` and the clock are the same for the same plan.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.under_way = out / ".under-way"
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

    def checkpoint(self, cell: Cell) -> Path:
        """The file in which a cell under way notes its rows."""
        return self.out / "cells" / f".{cell.name}.rows"

    def finish(self, cell: Cell) -> None:
        """Delete what a finished cell needed to go on."""
        checkpoint = self.checkpoint(cell)
        for path in (checkpoint, checkpoint.with_suffix(".lock")):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.under_way / cell.name, ignore_errors=True)
        with suppress(OSError):  # The banks of other cells are there.
            self.under_way.rmdir()

    def must_be_of(self, plan: Plan) -> None:
        """Raise `InputError` where the folder has the results of an experiment of another title."""
        try:
            title = str(json.loads((self.out / DESCRIPTION).read_text(encoding="utf-8"))["plan"]["title"])
        except (OSError, ValueError, LookupError, TypeError):
            return
        if title != plan.title:
            raise InputError(
                f"{self.out} has the results of the experiment “{title[:80]}”. Nothing was started, and they "
                "are as they were; choose another folder."
            )

    def describe(self, plan: Plan, cells: Sequence[Cell], found: Mapping[str, pa.Table]) -> None:
        """Write what the results come from: the plan, versions, machine, and each finished cell with its digest."""
        versions = {"memrl": __version__, "python": platform.python_version()}
        versions |= {name: version(name) for name in LIBRARIES}
        description = {
            "plan": plan.model_dump(mode="json"),
            "seeds": list(plan.all_seeds()),
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


# --- an experiment ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Experiment:
    """What an experiment came to, from its `done` finished cells of `cells`.

    `steps` has a row per step (`cells.SCHEMA`), `epochs` a row per epoch (`epochs.by_epoch`), `durations` what both
    leave out (`epochs.durations`). `stopped` is True when a person ended it; `error` is the sentence of what ended it
    instead. `skipped` steps are neither success nor failure: a text of them has no vector. `notes` say why a cell that
    was cut short began anew.
    """

    plan: Plan
    out: Path
    steps: pd.DataFrame
    epochs: pd.DataFrame
    done: int
    cells: int
    stopped: bool
    error: str
    durations: pd.DataFrame = field(default_factory=pd.DataFrame)
    skipped: int = 0
    notes: tuple[str, ...] = ()


def run_experiment(
    plan: Plan,
    out: Path,
    *,
    jobs: int = 0,
    scheduler: str = "",
    banks: str = "",
    hosts: Hosts | None = None,
    on_progress: Progress = unheard,
    on_steps: Progress = unheard,
    cancelled: Cancelled = never,
) -> Experiment:
    """Run the cells of `plan` that the folder `out` does not hold yet, and write `results.parquet` there.

    `jobs` processes work on this machine (0: one per core, or one for each answer that `hosts` give at once); with
    `scheduler`, such as tcp://host:8786, the workers of that Dask cluster do. `banks` is the folder in which
    each cell keeps its bank; without it, a cell's bank is deleted when it ends. Where there are `hosts`, any of
    them answers for the model. `on_progress` gets the number of finished cells and of all, `on_steps` the same of
    steps, those of the cells under way on this machine among them.

    Every finished cell is on the disk before it counts, so after a kill, a failure or a stop the same call goes on from
    there; on this machine, cells under way go on with the step that is missing, and their tables are those of one
    attempt. What ends the cells stands in `error`. Raises `InputError`, before anything runs, for a folder that cannot
    be used, that holds another experiment or that another process works in.
    """
    cells = cells_of(plan)
    with ResultFolder(out) as folder:
        folder.must_be_of(plan)
        found = {cell.name: table for cell in cells if (table := folder.kept(cell)) is not None}
        missing = [cell for cell in cells if cell.name not in found]
        folder.describe(plan, cells, found)
        for cell in cells:
            if cell.name in found:
                folder.finish(cell)
        error = ""
        notes: list[str] = []
        try:
            on_progress(len(found), len(cells))
            before, total = (sum(cell.steps for cell in cells if cell.name in found), sum(cell.steps for cell in cells))
            before += 0 if scheduler else sum(rows_in(folder.checkpoint(cell)) for cell in missing)
            on_steps(before, total)
            if missing and not cancelled():
                attempts = (
                    on_cluster(missing, banks, scheduler, cancelled, hosts)
                    if scheduler
                    else on_this_machine(
                        missing,
                        banks or str(folder.under_way),
                        jobs,
                        cancelled,
                        hosts,
                        folder,
                        lambda over: on_steps(before + over, total),
                    )
                )
                with closing(attempts):
                    for ended in attempts:
                        error = error or ended.error
                        notes += [ended.note] * bool(ended.note)
                        if ended.table is None:
                            continue
                        folder.keep(ended.cell, ended.table)
                        folder.finish(ended.cell)
                        found[ended.cell.name] = ended.table
                        on_progress(len(found), len(cells))
                        if scheduler:
                            on_steps(sum(cell.steps for cell in cells if cell.name in found), total)
        except InputError as failure:
            error = str(failure)
        tables = [found[cell.name] for cell in cells if cell.name in found]
        bare = [table.replace_schema_metadata() for table in tables]
        steps = pa.concat_tables(bare).to_pandas() if bare else pd.DataFrame()
        epochs, took = by_epoch(plan, steps), durations(tables)
        if tables:
            folder.describe(plan, cells, found)
            folder.write(plan, epochs, steps, took)
    stopped = cancelled() and len(found) < len(cells) and not error
    skipped = sum(int((table.schema.metadata or {}).get(SKIPPED, b"0")) for table in tables)
    return Experiment(plan, out, steps, epochs, len(found), len(cells), stopped, error, took, skipped, tuple(notes))
