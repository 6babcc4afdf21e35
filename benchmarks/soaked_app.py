"""The app with two browsers that press Step at the same time, in a process of its own.

python -m benchmarks.soaked_app SECONDS
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import IO, TYPE_CHECKING, Any, cast

from benchmarks import in_browser
from memrl_core.errors import InputError

if TYPE_CHECKING:
    from playwright.sync_api import Page

BROWSERS = 2
SECONDS_A_CLICK = 2.0
"""How long a person looks at a phase before the next one."""
STEP = ".st-key-step button"
CONTROLS = ".st-key-controls, [data-testid='stStatusWidget'], [data-testid='stAlert']"
TROUBLE = "[data-testid='stException'], [data-testid='stConnectionStatus']"
PATIENCE = 240.0


class SteppedApp:
    """The app while two browsers step in it, until `end`; `process` is its id.

    Raises `InputError` where Playwright or Chromium is missing, or the app does not start.
    """

    def __init__(self) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the process lives
        self._child = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
        )
        line = cast(IO[str], self._child.stdout).readline()
        told: dict[str, Any] = json.loads(line) if line else {}
        if "app" not in told:
            raise InputError(str(told.get("failed", f"The app could not be soaked: {self._complaint()}")))
        self.process = int(told["app"])

    def end(self) -> tuple[int, list[str]]:
        """Let it come to an end: how often Step was pressed, and what went wrong."""
        try:
            said, _ = self._child.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self._child.terminate()
            return 0, ["The browsers did not end in time."]
        if not said.strip():
            return 0, [f"The browsers ended early: {self._complaint()}"]
        told = json.loads(said.splitlines()[-1])
        return int(told["clicks"]), [str(one) for one in told["failures"]]

    def _complaint(self) -> str:
        self._complaints.seek(0)
        return self._complaints.read()[-400:].decode(errors="replace").strip()


def main() -> None:
    """Say the id of the app's process, step until nobody listens any more, and say how it went."""
    try:
        with ExitStack() as stack:
            browser = stack.enter_context(in_browser.chromium())
            app = stack.enter_context(in_browser.app())
            pages = [stack.enter_context(in_browser.newcomer(browser)) for _ in range(BROWSERS)]
            for page in pages:
                page.goto(f"{app.url}/step?bank=demo")
                page.locator(STEP).wait_for()
                in_browser.settled(page)
            _say({"app": app.process})
            _say(_stepped(pages, _end_of_input()))
    except InputError as error:
        _say({"failed": str(error)})


def _end_of_input() -> threading.Event:
    over = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=listen, name="end of input", daemon=True).start()
    return over


def _stepped(pages: list[Page], over: threading.Event) -> dict[str, Any]:
    clicks, failures = 0, list[str]()
    while not over.is_set():
        # All are pressed before any is waited for.
        for page in pages:
            failures += _tried(page, page.locator(STEP).click)
            clicks += 1
        for page in pages:
            failures += _tried(page, partial(in_browser.settled, page))
            for trouble in page.locator(TROUBLE).all():
                with suppress(Exception):
                    failures.append(f"A page shows: {trouble.inner_text()[:200]}")
        over.wait(SECONDS_A_CLICK)
    return {"clicks": clicks, "failures": list(dict.fromkeys(failures))}


def _tried(page: Page, action: Callable[[], None]) -> list[str]:
    """What went wrong with an action, and what the page showed; it is opened anew then, as a person would do."""
    try:
        action()
    except Exception as error:
        shown = " ".join(page.locator(CONTROLS).all_inner_texts())
        page.reload()
        page.locator(STEP).wait_for()
        return [f"{' '.join(str(error).split())[:400]} The page showed: {shown[:300]}"]
    return []


def _say(line: Mapping[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
