"""Many cells: run what is missing, keep what is finished, whatever ends the rest."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pyarrow as pa

from memrl_core.errors import InputError
from memrl_core.experiments.cells import cells_of
from memrl_core.experiments.executors import on_cluster, on_this_machine
from memrl_core.experiments.files import ResultFolder
from memrl_core.experiments.plan import Plan
from memrl_core.experiments.results import by_epoch, durations
from memrl_core.models.base import Cancelled
from memrl_core.models.hosts import Hosts

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class Experiment:
    """What an experiment came to, from its `done` finished cells of `cells`.

    `steps` has a row a step (`cells.SCHEMA`), `epochs` a row an epoch (`results.by_epoch`), `durations` what both leave
    out (`results.durations`). `stopped` is True when a person ended it; `error` is the sentence of what ended it
    instead.
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


def run_experiment(
    plan: Plan,
    out: Path,
    *,
    jobs: int = 0,
    scheduler: str = "",
    banks: str = "",
    hosts: Hosts | None = None,
    on_progress: Progress | None = None,
    cancelled: Cancelled | None = None,
) -> Experiment:
    """Run the cells of `plan` that the folder `out` does not hold yet, and write `results.parquet` there.

    `jobs` processes work on this machine (0: one a core, or one for each answer that `hosts` give at once); with
    `scheduler`, such as tcp://host:8786, the workers of that Dask cluster do. `banks` is the LanceDB address below
    which each cell keeps its bank; without it, a cell's bank is deleted when it ends. Where there are `hosts`, any of
    them answers for the model. `on_progress` hears of finished cells.

    Every finished cell is on the disk before it counts, so after a kill, a failure or a stop the same call goes on from
    there. What ends the cells stands in `error`. Raises `InputError` for a folder that cannot be used or that another
    process works in, before anything runs.
    """
    cells = cells_of(plan)
    stop = cancelled or (lambda: False)
    with ResultFolder(out) as folder:
        found = {cell.name: table for cell in cells if (table := folder.kept(cell)) is not None}
        missing = [cell for cell in cells if cell.name not in found]
        folder.describe(plan, cells, found)
        error = ""
        try:
            if on_progress is not None:
                on_progress(len(found), len(cells))
            if missing and not stop():
                attempts = (
                    on_cluster(missing, banks, scheduler, stop, hosts)
                    if scheduler
                    else on_this_machine(missing, banks, jobs, stop, hosts)
                )
                with closing(attempts):
                    for ended in attempts:
                        error = error or ended.error
                        if ended.table is None:
                            continue
                        folder.keep(ended.cell, ended.table)
                        found[ended.cell.name] = ended.table
                        if on_progress is not None:
                            on_progress(len(found), len(cells))
        except InputError as failure:
            error = str(failure)
        tables = [found[cell.name] for cell in cells if cell.name in found]
        bare = [table.replace_schema_metadata() for table in tables]
        steps = pa.concat_tables(bare).to_pandas() if bare else pd.DataFrame()
        epochs, took = by_epoch(plan, steps), durations(tables)
        if tables:
            folder.describe(plan, cells, found)
            folder.write(plan, epochs, steps, took)
    stopped = stop() and len(found) < len(cells) and not error
    return Experiment(plan, out, steps, epochs, len(found), len(cells), stopped, error, took)
