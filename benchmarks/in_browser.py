"""The app as people meet it: served in a home of its own, and looked at in Chromium without a graphics card."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from memrl_core.errors import InputError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

LOCALHOST = "127.0.0.1"
TIME_TO_START = 120.0
TIME_TO_END = 20.0
PATIENCE_MS = 120_000
SCREEN = {"width": 1440, "height": 900}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WITHOUT_GRAPHICS_CARD = (
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--disable-dev-shm-usage",
    "--disable-gpu-rasterization",
    "--disable-gpu-compositing",
)
BLANK = """import streamlit as st

st.title("A blank page")
st.button("Again")
st.session_state.runs = st.session_state.get("runs", 0) + 1
st.text(st.session_state.runs)
"""
HEAR_KEYS = """addEventListener("keydown", () => {
  window.pressed = performance.now();
  window.changed = 0;
  window.sent = document.querySelector(".stage-host")?.dataset.drawn;
}, true)"""
"""A script for `newcomer`: it must hear keys before the app does, which keeps some of them to itself."""
# A canvas does not say that it is painted: its map does. What the server sends afterwards is another matter.
WATCH_STAGE = """() => {
  const host = document.querySelector(".stage-host");
  const changed = () => {
    if (host.dataset.drawn === window.sent) requestAnimationFrame(() => (window.changed = performance.now()));
  };
  const all = { attributes: true, childList: true, characterData: true, subtree: true };
  new MutationObserver(changed).observe(host.querySelector(".stage"), all);
  const { map } = host.own.stage;
  const paint = map.paint;
  map.paint = () => { changed(); paint.call(map); };
}"""
WATCH_NOTHING = """() => addEventListener("keydown", () => requestAnimationFrame(() =>
  requestAnimationFrame(() => (window.changed = performance.now()))))"""
LAST_FRAME = """() => window.changed > window.pressed && performance.now() - window.changed > 300 &&
  window.changed - window.pressed"""
COUNT_FRAMES = """() => {
  window.frames_ = [];
  const look = () => { window.frames_.push(performance.now()); window.counting = requestAnimationFrame(look); };
  window.counting = requestAnimationFrame(look);
}"""
FRAMES = "() => { cancelAnimationFrame(window.counting); return window.frames_; }"
GESTURE = 2.0
WATCH_RUN = """() => {
  const app = document.querySelector("[data-testid='stApp']");
  new MutationObserver(() => {
    if (app.dataset.testScriptState === "notRunning") window.ended = performance.now();
  }).observe(app, { attributes: true, attributeFilter: ["data-test-script-state"] });
}"""
# A blank page may run so quickly that the state of its script never shows; its text does.
WATCH_TEXT = """() => {
  const ended = () => (window.ended = performance.now());
  new MutationObserver(ended).observe(document.querySelector("[data-testid='stText']"), {
    characterData: true, childList: true, subtree: true });
}"""
QUIET = """(quiet) => {
  const app = document.querySelector("[data-testid='stApp']");
  const busy = !app || ["initial", "running"].includes(app.dataset.testScriptState);
  if (busy || !window.quietSince) window.quietSince = performance.now();
  return !busy && performance.now() - window.quietSince > quiet;
}"""


@dataclass(frozen=True, slots=True)
class Server:
    """A Streamlit server that answers at `url`, `seconds_to_up` after its command was given."""

    url: str
    process: int
    seconds_to_up: float

    def peak_mb(self) -> float | None:
        """The highest resident memory of its processes added up, in 10⁶ bytes; None where the system does not say."""
        try:
            return sum(_highest_mb(process) for process in _family(self.process))
        except (OSError, ValueError):
            return None


@contextmanager
def app(home: Path | None = None, **environment: str) -> Iterator[Server]:
    """`memrl app` on a free port, with `home` (a new, empty one by default) as MEMRL_HOME and without an Ollama."""
    with _folder() as own:
        started = ("-m", "memrl_core.cli.main", "app", "--headless", "--port")
        # An address at which nothing listens: whether this machine has an Ollama must not matter.
        apart = {"MEMRL_HOME": str(home or own), "OLLAMA_HOST": f"{LOCALHOST}:9", **environment}
        with _served(started, (), apart) as server:
            yield server


@contextmanager
def blank() -> Iterator[Server]:
    """A server of Streamlit whose only page has a title and nothing else."""
    with _folder() as folder:
        script = folder / "blank.py"
        script.write_text(BLANK)
        options = ("--server.address", LOCALHOST, "--server.headless", "true", "--server.fileWatcherType", "none")
        started = ("-m", "streamlit", "run", str(script), "--browser.gatherUsageStats", "false", "--server.port")
        with _served(started, options, {}) as server:
            yield server


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium that draws with the processor. Raises `InputError` where it or Playwright is missing."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise InputError(
            "What is measured in the browser needs Playwright, which is not installed. Nothing was measured; install "
            "memrl-inspector[test], or choose other benchmarks."
        ) from None
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        raise InputError(
            "What is measured in the browser needs Chromium, which is not on the PATH. Nothing was measured; install "
            "it (in Debian: the package chromium), or choose other benchmarks."
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(WITHOUT_GRAPHICS_CARD))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def newcomer(browser: Browser, before: Sequence[str] = ()) -> Iterator[Page]:
    """A page of somebody whose browser was never here; `before` are scripts that run in it before anything else."""
    context = browser.new_context(viewport={"width": SCREEN["width"], "height": SCREEN["height"]})
    try:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        for script in before:
            page.add_init_script(script)
        yield page
    finally:
        context.close()


def settled(page: Page, quiet: int = 500) -> None:
    """Wait until the app has not run its script for `quiet` milliseconds."""
    page.evaluate("window.quietSince = 0")
    page.wait_for_function(QUIET, arg=quiet)


def rerun_seconds(page: Page, button: Locator) -> float:
    """Seconds from a click on a button to the end that `WATCH_RUN` or `WATCH_TEXT` sees on the page."""
    settled(page)
    page.evaluate("window.asked = performance.now(); window.ended = 0")
    button.click()
    page.wait_for_function("window.ended > window.asked")
    return float(page.evaluate("window.ended - window.asked")) / 1000


@contextmanager
def blank_rerun(browser: Browser) -> Iterator[Callable[[], float]]:
    """What measures the seconds of a rerun of a blank page."""
    with blank() as server, newcomer(browser) as page:
        page.goto(f"{server.url}/")
        settled(page)
        page.evaluate(WATCH_TEXT)
        yield lambda: rerun_seconds(page, page.get_by_role("button", name="Again"))


def last_frame_seconds(page: Page, key: str) -> float:
    """Seconds from a key to the frame with which all is there that it changes in the browser.

    The page hears keys (`HEAR_KEYS`) and is watched: a stage by `WATCH_STAGE`, a blank page by `WATCH_NOTHING`.
    """
    page.keyboard.press(key)
    return float(page.wait_for_function(LAST_FRAME).json_value()) / 1000


def frames_a_second(page: Page, move: Callable[[int], None]) -> float:
    """Frames a second over a gesture of `GESTURE` seconds; `move` does the next of its turns."""
    page.evaluate(COUNT_FRAMES)
    end = time.monotonic() + GESTURE
    for turn in count():
        move(turn)
        if time.monotonic() > end:
            break
    frames: list[float] = page.evaluate(FRAMES)
    return 1000 * (len(frames) - 1) / (frames[-1] - frames[0])


def dragged(page: Page, x: float, y: float) -> float:
    """Frames a second while something is dragged around this point, wider than what a map has painted beforehand."""
    page.mouse.move(x, y)
    page.mouse.down()
    found = frames_a_second(page, lambda turn: page.mouse.move(x + turn * 7 % 280 - 140, y + turn * 5 % 120 - 60))
    page.mouse.up()
    return found


@contextmanager
def home_with(banks: Mapping[str, str]) -> Iterator[Path]:
    """A home folder for an app, in which the banks (name to folder) are found; the folders stay where they are."""
    with _folder() as home:
        shelf = home / "banks"
        shelf.mkdir()
        for name, folder in banks.items():
            (shelf / name).symlink_to(folder, target_is_directory=True)
        yield home


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="memrl-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _served(command: Sequence[str], options: Sequence[str], environment: Mapping[str, str]) -> Iterator[Server]:
    port = _free_port()
    begun = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, *command, str(port), *options],
            env={**os.environ, **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            url = f"http://{LOCALHOST}:{port}"
            _wait_for(url, process)
            yield Server(url, process.pid, time.perf_counter() - begun)
        finally:
            process.terminate()
            try:
                process.wait(TIME_TO_END)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + TIME_TO_START
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/_stcore/health").status_code == 200:
                return
        time.sleep(0.05)
    raise InputError("A server did not start, so its pages could not be measured. Try `memrl app`: it says why.")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((LOCALHOST, 0))
        return int(listener.getsockname()[1])


def _family(process: int) -> Iterator[int]:
    """A process and all that it started (Linux)."""
    yield process
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from _family(int(child))


def _highest_mb(process: int) -> float:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * float(line.split()[1]) / 1e6
    raise ValueError(process)
