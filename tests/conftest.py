"""What all tests share: how they are laid out on the processes that run them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HERE = Path(__file__).parent

# What takes longest begins first, so that neither process ends with it alone.
BEGIN_WITH = (
    "browser",
    "pages/test_pages.py",
    "pages/test_lab_page.py",
    "pages/test_decision_page.py",
    "pages/test_methods_page.py",
    "environments/test_scienceworld.py",
    "experiments/test_experiment_runs.py",
)
SMOKE = "browser/test_smoke.py"
IN_BROWSER = ("/browser/", "/figures/stage/test_player.py", "/figures/stage/test_on_step.py")
LEFT_OUT = pytest.StashKey[int]()

# Each process that draws maps has numba compile UMAP, which takes half as long where the result may be slower.
os.environ.setdefault("NUMBA_OPT", "0")

# A busy machine is no counterexample. `make test` tries the same few examples each time, `make test-all` many new ones.
settings.register_profile("ci", max_examples=25, deadline=None, derandomize=True)
settings.register_profile("nightly", max_examples=500, deadline=None, print_blob=True)
settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _is_in(item, "browser") and not _is_in(item, SMOKE):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: next((n for n, part in enumerate(BEGIN_WITH) if _is_in(item, part)), len(BEGIN_WITH)))


class FileByFile(LoadScopeScheduling):
    """One browser at a time, because two on a small machine wait for each other; all other tests go file by file."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return "browser" if any(part in file for part in IN_BROWSER) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileByFile:
    return FileByFile(config, log)


def pytest_deselected(items: list[pytest.Item]) -> None:
    if items and all(item.get_closest_marker("slow") for item in items):
        items[0].config.stash[LEFT_OUT] = len(items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, 0)


def pytest_testnodedown(node: Any) -> None:
    """Each process of xdist collects all tests and leaves out the same."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if count := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(f"{count} tests marked slow were left out: make test-all runs them.")


def _file(item: pytest.Item) -> str:
    return item.path.relative_to(HERE).as_posix()


def _is_in(item: pytest.Item, part: str) -> bool:
    return _file(item).startswith(part)


def chromium() -> str:
    """The path of Chromium. Where there is none the tests that need it fail with a sentence and nothing else."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    return path or pytest.fail("These tests need Chromium: install Debian's package chromium.", pytrace=False)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of a process: Playwright can be started only once in it."""
    from playwright.sync_api import sync_playwright  # Most tests need no browser.

    path = chromium()
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=path,
            args=[
                "--no-sandbox",
                "--use-angle=swiftshader",
                "--disable-dev-shm-usage",
                "--disable-gpu-rasterization",
                "--disable-gpu-compositing",
            ],
        )
        yield launched
        launched.close()
