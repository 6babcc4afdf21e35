"""What all tests share: how they are laid out on the processes that run them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

HERE = Path(__file__).parent

# What takes longest begins first, so that neither process ends with it alone.
BEGIN_WITH = (
    "browser",
    "pages",
    "core/test_experiment_runs.py",
    "core/test_projection.py",
    "core/test_scienceworld.py",
    "core/test_many_raters.py",
    "core/test_crash_harness.py",
    "core/test_several_processes_bench.py",
    "core/test_experiment_cluster.py",
    "core/test_repair.py",
    "core/test_benchmarks.py",
    "core/test_environment_contract.py",
    "core/test_bank.py",
    "core/test_wheel.py",
    "core/test_twins.py",
    "core/test_cli.py",
    "core/test_experiment_reports.py",
    "core/test_textworld.py",
    "core/test_map_layout.py",
    "core/test_merging.py",
)

# Each process that draws maps has numba compile UMAP, which takes half as long where the result may be slower.
os.environ.setdefault("NUMBA_OPT", "0")

# A busy machine is no counterexample. `make test` tries the same few examples each time, `make test-all` many new ones.
settings.register_profile("ci", max_examples=25, deadline=None, derandomize=True)
settings.register_profile("nightly", max_examples=500, deadline=None, print_blob=True)
settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One browser at a time, because two on a small machine wait for each other; all other tests go file by file."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group("browser" if _is_in(item, "browser") else _file(item)))
    items.sort(key=lambda item: next((n for n, part in enumerate(BEGIN_WITH) if _is_in(item, part)), len(BEGIN_WITH)))


def _file(item: pytest.Item) -> str:
    return item.path.relative_to(HERE).as_posix()


def _is_in(item: pytest.Item, part: str) -> bool:
    return _file(item).startswith(part)
