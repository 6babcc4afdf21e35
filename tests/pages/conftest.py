"""The app in Streamlit's test harness, with its own home folder and no Ollama."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.components.v2 import manifest_scanner
from streamlit.runtime.context import ContextProxy
from streamlit.runtime.pages_manager import PagesManager
from streamlit.testing.v1 import AppTest

from memrl_core.agent.preferences import demo_bank
from memrl_core.analysis.map import map_layout
from memrl_core.analysis.people import rating_queue
from memrl_core.bank import MemoryBank
from pages.shared.header import status_of
from tests.instant_umap import InstantUmap
from tests.ollama.server import OllamaServer
from tests.pages.screen import Download, Stored, Visit, known_as

ROOT = Path(__file__).parents[2]

# The harness reads for every app anew what each installed package tells of itself, which takes longer than a page.
components_installed = cache(manifest_scanner.scan_component_manifests)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    monkeypatch.setattr(map_layout, "Umap", InstantUmap)
    return tmp_path


@pytest.fixture
def visit(home: Path, monkeypatch: pytest.MonkeyPatch) -> Visit:
    """Open a page by a link; fails when a page shows a traceback."""
    # The harness has no browser, so there is no cookie in it.
    monkeypatch.setattr(ContextProxy, "cookies", {})
    monkeypatch.setattr(manifest_scanner, "scan_component_manifests", components_installed)
    begin = PagesManager.__init__

    def begin_with_navigation(self: PagesManager, *given: Any, **more: Any) -> None:
        # The harness forgets at every run what a server learns once: that this app calls `st.navigation`.
        PagesManager.uses_pages_directory = False
        begin(self, *given, **more)

    monkeypatch.setattr(PagesManager, "__init__", begin_with_navigation)
    run = AppTest._run

    def run_and_look(self: AppTest, *given: Any, **more: Any) -> AppTest:
        # The app turns a traceback into a sentence, so that the harness sees no exception.
        found = run(self, *given, **more)
        assert not found.exception
        assert not [error.value for error in found.error if "not be drawn" in error.value]
        return found

    monkeypatch.setattr(AppTest, "_run", run_and_look)

    def opened(page: str, /, **link: str) -> AppTest:
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        for name, value in link.items():
            app.query_params[name] = value
        app.session_state["stage_taken"] = None  # As after the first picture: here no browser asks for the second.
        app.run()
        app.switch_page(f"pages/{page}/page.py")
        for name, value in link.items():
            app.query_params[name] = value
        return app.run()

    return opened


@pytest.fixture
def demo(home: Path) -> Path:
    return demo_bank()


@pytest.fixture
def bank(demo: Path) -> Iterator[Stored]:
    """The demo's bank, as it is stored whenever it is looked at."""
    with MemoryBank.open(str(demo)) as opened:
        yield Stored(opened)


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> dict[str, Download]:
    """What each download button of the page would give, by its key."""
    offered: dict[str, Download] = {}
    draw = st.download_button

    def noted(label: str, data: Any, **more: Any) -> bool:
        offered[more["key"]] = Download(data, more["file_name"])
        return draw(label, data, **more)

    monkeypatch.setattr(st, "download_button", noted)
    return offered


@pytest.fixture
def ann(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The person of this machine is ann, and no key of hers comes too soon."""
    monkeypatch.setattr(rating_queue, "TOO_SOON", 0.0)
    known_as("ann")


@pytest.fixture
def ollama(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OllamaServer]:
    """An Ollama that this machine's app finds."""
    with OllamaServer() as server:
        monkeypatch.setenv("OLLAMA_HOST", server.address)
        status_of.clear()
        yield server
