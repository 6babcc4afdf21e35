"""A real server and a real browser. A browser that is missing is a failure, never a skip."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

START_TIMEOUT = 150.0
EXPECT_TIMEOUT = 60_000
APP = "memrl_core.cli.main app --headless --port {}"
PROBED = re.compile(
    r"/(playground|step|steps|recall|decision|rewards|tasks|methods|compare|race|lab|lessons|bank)/_stcore/(health|host-config)$"
)
RELOADED = re.compile(r"Bad delta path index \d+")


@dataclass
class RunningApp:
    """A served app with its own home folder, and what the pages it served complained about."""

    url: str
    home: Path
    complaints: list[str] = field(default_factory=list)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="session")
def context(browser: Browser) -> BrowserContext:
    """One for all tests, so that a page finds the app's scripts where the page before it left them."""
    return browser.new_context(viewport={"width": 1440, "height": 900})


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., RunningApp]]:
    """Start the app by the command that people use, or by another; every server ends with the tests."""
    servers: list[subprocess.Popen[bytes]] = []

    def start(command: str = APP, folder: Path | None = None, **environment: str) -> RunningApp:
        home, port = tmp_path_factory.mktemp("home"), free_port()
        log = (home / "server.log").open("wb")
        servers.append(
            subprocess.Popen(
                [sys.executable, "-m", *command.format(port).split()],
                cwd=folder,
                env={**os.environ, "MEMRL_HOME": str(home), "OLLAMA_HOST": "127.0.0.1:9", **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        )
        app = RunningApp(f"http://127.0.0.1:{port}", home)
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"{app.url}/_stcore/health").status_code == 200:
                    return app
            except httpx.TransportError:
                time.sleep(0.1)
        raise AssertionError(f"The app did not start: {(home / 'server.log').read_text()}")

    yield start
    for server in servers:
        server.terminate()
        server.wait(timeout=20)


@pytest.fixture(scope="session")
def app(serve: Callable[..., RunningApp]) -> RunningApp:
    """The app as a newcomer finds it: no Ollama, an empty home folder."""
    return serve()


@pytest.fixture
def page(context: BrowserContext, app: RunningApp) -> Iterator[Page]:
    """A fresh page; the test fails when it wrote an error to the console."""
    yield from watched_page(context, app)


def watched_page(context: BrowserContext, app: RunningApp) -> Iterator[Page]:
    """A page of somebody whom the app has never seen; ends with an error when its console shows one.

    But for the one that Streamlit's client makes after Back on a busy machine, for which `pages/history.js` loads the
    page again: a test goes on with what it finds there.
    """
    opened = context.new_page()
    stored = {"origin": app.url, "storageTypes": "cookies,local_storage,indexeddb"}
    context.new_cdp_session(opened).send("Storage.clearDataForOrigin", stored)
    context.clear_cookies()
    complaints: list[str] = []

    def complain(text: str) -> None:
        # An animation of Plotly that another one takes the place of is rejected without a reason.
        if text != "undefined" and not RELOADED.search(text):
            complaints.append(text)

    def note(message: ConsoleMessage) -> None:
        # On a deep link Streamlit's client finds its server by asking below the page's path first.
        probing = PROBED.search(message.location["url"])
        if message.type == "error" and not probing:
            complain(f"{message.text} {message.location['url']}")

    opened.on("console", note)
    opened.on("pageerror", lambda error: complain(str(error)))
    expect.set_options(timeout=EXPECT_TIMEOUT)
    opened.set_default_timeout(EXPECT_TIMEOUT)
    yield opened
    context.set_offline(False)
    opened.close()
    assert complaints == [], f"The browser's console shows errors: {complaints}"


def listeners(page: Page, *events: str) -> int:
    """How many functions the window calls when one of the events happens."""
    session = page.context.new_cdp_session(page)
    window: dict[str, Any] = session.send("Runtime.evaluate", {"expression": "window"})["result"]
    found = session.send("DOMDebugger.getEventListeners", {"objectId": window["objectId"]})["listeners"]
    session.detach()
    return sum(one["type"] in events for one in found)
