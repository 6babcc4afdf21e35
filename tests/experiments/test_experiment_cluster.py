"""Experiments on a Dask cluster: the same digests as on one machine, and one sentence for whatever the cluster does."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import distributed
import pytest

from memrl_core.experiments import executors
from memrl_core.experiments.executors import Experiment, run_experiment
from memrl_core.experiments.plan import read_plan
from tests.experiments.test_experiment_runs import digests
from tests.experiments.tiny_experiment import ROOT, a_plan, a_plan_file, kept, started, until

IMPATIENT = "from memrl_core.experiments import executors\nexecutors.ANSWER_WITHIN = 3"


@contextmanager
def a_cluster(workers: int, processes: bool = False) -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=processes,
        dashboard_address=None,
        protocol="tcp://",
        host="127.0.0.1",
    ) as cluster:
        yield cluster


@pytest.fixture
def a_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "ANSWER_WITHIN", 1)


def refused(out: Path, scheduler: str) -> str:
    found = run_experiment(a_plan(), out, scheduler=scheduler)
    assert (found.done, found.stopped) == (0, False)
    assert kept(out) == {}
    return found.error


@pytest.mark.slow
def test_two_workers_find_what_one_process_finds_and_leave_their_banks(tmp_path: Path) -> None:
    plan = a_plan(seeds=2)
    here = run_experiment(plan, tmp_path / "here", jobs=1)
    with a_cluster(2, processes=True) as cluster:
        address, banks = cluster.scheduler_address, str(tmp_path / "banks")
        there = run_experiment(plan, tmp_path / "there", scheduler=address, banks=banks)
    assert (there.done, there.error) == (4, "")
    assert digests(there.out) == digests(here.out)
    assert there.steps.equals(here.steps)
    assert len(list((tmp_path / "banks").iterdir())) == 4


@pytest.mark.usefixtures("impatient")
def test_a_scheduler_that_is_not_there_is_reported(tmp_path: Path, a_free_port: int) -> None:
    address = f"tcp://127.0.0.1:{a_free_port}"
    assert refused(tmp_path / "out", address).count(address)


def test_a_missing_extra_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "'memrl-inspector[cluster]'" in refused(tmp_path / "out", "tcp://127.0.0.1:8786")


@pytest.mark.usefixtures("impatient")
def test_workers_that_are_lost_on_the_way_end_the_experiment_with_a_sentence(tmp_path: Path) -> None:
    plan = a_plan(seeds=20)
    with a_cluster(1) as cluster:
        found = run_experiment(
            plan,
            tmp_path / "out",
            scheduler=cluster.scheduler_address,
            on_progress=lambda done, _: cluster.scale(0) if done else None,
        )
    assert "are kept" in found.error
    assert 1 <= found.done == len(kept(tmp_path / "out")) < 40


def test_a_stop_ends_an_experiment_on_the_cluster_and_the_same_call_goes_on(tmp_path: Path) -> None:
    plan, out = a_plan(seeds=3), tmp_path / "out"
    with a_cluster(1) as cluster:
        stopped: Experiment = run_experiment(
            plan, out, scheduler=cluster.scheduler_address, cancelled=lambda: bool(kept(out))
        )
        assert stopped.stopped and not stopped.error
        assert 1 <= stopped.done < 6
        before = kept(out)
        again = run_experiment(plan, out, scheduler=cluster.scheduler_address)
    assert (again.done, again.stopped, again.error) == (6, False, "")
    assert before.items() <= kept(out).items()


def test_a_cell_that_is_given_up_frees_its_worker_within_a_step(tmp_path: Path) -> None:
    """With 1000 epochs of 40 tasks the cell would take minutes."""
    banks = tmp_path / "banks"
    long = a_plan(count=40, epochs=1000, arms=[{"name": "a"}])
    with a_cluster(1) as cluster:
        stopped = run_experiment(
            long,
            tmp_path / "long",
            scheduler=cluster.scheduler_address,
            banks=str(banks),
            cancelled=lambda: any(banks.glob("*/bank.db")),
        )
        assert (stopped.stopped, stopped.done) == (True, 0)
        next_one = run_experiment(a_plan(), tmp_path / "next", scheduler=cluster.scheduler_address)
    assert (next_one.done, next_one.error) == (2, "")


CLUSTER = """
import sys
import distributed
with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None,
                              protocol="tcp://", host="127.0.0.1") as cluster:
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_a_cluster_that_dies_costs_no_finished_cell_and_the_command_goes_on_without_it(tmp_path: Path) -> None:
    file, out = a_plan_file(tmp_path / "tiny.toml", seeds=20, count=10), tmp_path / "out"
    with subprocess.Popen(
        [sys.executable, "-c", CLUSTER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as cluster:
        address = cluster.stdout.readline().strip()
        process = started(file, out, "--scheduler", address, before=IMPATIENT)
        try:
            until(lambda: kept(out), process)
        finally:
            cluster.kill()
        message, noise = process.communicate(timeout=60)
    assert process.returncode == 2
    assert address in noise.replace("\n", "")
    before = kept(out)
    assert f"{len(before)} of 40" in message
    rest = run_experiment(read_plan(file), out, jobs=1, cancelled=lambda: len(kept(out)) > len(before))
    assert rest.done > len(before)
    assert before.items() <= kept(out).items()
