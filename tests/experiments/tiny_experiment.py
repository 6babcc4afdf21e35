"""An experiment of a second, as a plan and as a file, and the command that runs it in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from memrl_core.experiments.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
WITHIN = 60


def a_plan(count: int = 4, **changes: Any) -> Plan:
    """Two arms, one stream of `count` tasks, one seed, two epochs; `changes` take the place of the plan's keys."""
    message: dict[str, Any] = {
        "title": "Tiny",
        "seeds": 1,
        "epochs": 2,
        "arms": [{"name": "no memory", "settings": {"k2": 0}}, {"name": "MemRL"}],
        "streams": [{"stages": [{"count": count}]}],
    }
    return Plan.model_validate({**message, **changes})


def a_plan_file(path: Path, seeds: int = 1, epochs: int = 2, count: int = 4) -> Path:
    """The same in a TOML file."""
    path.write_text(
        f'title = "Tiny"\nseeds = {seeds}\nepochs = {epochs}\n[[arms]]\nname = "no memory"\nsettings = {{ k2 = 0 }}\n'
        f'[[arms]]\nname = "MemRL"\n[[streams]]\n[[streams.stages]]\ncount = {count}\n',
        encoding="utf-8",
    )
    return path


def started(file: Path, out: Path, *options: str, before: str = "") -> subprocess.Popen[str]:
    """`memrl experiment` in a process group of its own; `before` is Python that runs ahead of it."""
    script = f"{before}\nfrom memrl_core.cli.main import main\nmain()"
    command = [sys.executable, "-c", script, "experiment", str(file), "--out", str(out), *options]
    temporary = out.parent / "temporary"
    temporary.mkdir(exist_ok=True)
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "400", "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def until(there: Callable[[], Any], process: subprocess.Popen[str]) -> None:
    """Wait until something holds, while the process runs."""
    for _ in range(20 * WITHIN):
        if there():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("It never came.")


def kept(out: Path) -> dict[str, tuple[bytes, int]]:
    """The files of finished cells: their bytes, and when they were written."""
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (out / "cells").glob("[!.]*.parquet")}


def results(out: Path) -> pd.DataFrame:
    """The results of an experiment as its file has them."""
    return pd.read_parquet(out / "results.parquet")
