"""Stage data of the demos, and a browser that opens the player as a file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from memrl_core.bank import MemoryBank
from memrl_core.figures.stage.data import stage_data
from memrl_core.figures.stage.player import player_document, source_of_run

SAMPLES = Path(__file__).parents[3] / "sample_data"


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryBank]:
    """A copy of the demo's bank: to open one writes to it."""
    folder = tmp_path_factory.mktemp("demo") / "demo_bank"
    shutil.copytree(SAMPLES / "demo_bank", folder)
    with MemoryBank.open(str(folder)) as bank:
        yield bank


@pytest.fixture(scope="session")
def demo_data(demo: MemoryBank) -> dict[str, Any]:
    """All that the stage knows of the demo's run; not to be changed."""
    return stage_data(source_of_run(demo, demo.runs()[0].id))


@pytest.fixture
def play(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Open stage data in the player; fails when it wrote an error to the console or asked for anything but itself."""
    opened, complaints = [], []

    def open_player(data: dict[str, Any], at: str = "", width: int = 1440, height: int = 720, **context: Any) -> Page:
        file = tmp_path / f"player-{len(opened)}.html"
        file.write_text(player_document(data), encoding="utf-8")
        page = browser.new_context(viewport={"width": width, "height": height}, **context).new_page()
        opened.append(page)
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith(file.as_uri()) else complaints.append(asked.url))
        page.goto(f"{file.as_uri()}#{at}")
        page.wait_for_selector(".stage [data-state=current]")
        return page

    yield open_player
    for page in opened:
        page.context.close()
    assert complaints == []
