"""Take the site's pictures from the running app: `python docs/take_screenshots.py [NAME ...]` (needs Chromium)."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

PORT = 8765
START_TIMEOUT = 150.0
SETTLED = 3000
"""Milliseconds until an element that has appeared is drawn in full."""
PICTURES = Path(__file__).parent / "pictures"
STEP, STEP_DRAWN = "step?bank=demo&step=39", ".stage-host[data-drawn]"
STILLS = {
    "step": (STEP, STEP_DRAWN, 900),
    "playground": ("playground?step=170&alpha=0.5", ".pg[data-seeds='50']", 900),
    "decision": ("decision?bank=demo&step=39&ask=pair&weight=0.7", ".st-key-diagram .plot-container", 1540),
    "rewards": ("rewards?bank=demo&run=household&step=21&show=all", "[class*='st-key-output_']", 980),
    "methods": (
        "methods?bank=demo&run=household&step=39&show=On+this+pool",
        ".st-key-methods_on_pool .plot-container",
        1180,
    ),
    "tasks": ("tasks?environment=sql", ".st-key-tasks_prompt", 1000),
    "lab": ("lab", "text=/^Step 1[2-9][0-9] /", 900),
}
"""By name: the link, what has to be there, and the height."""

MOVING = "film.webp"
MOVING_VIEW, MOVING_WIDTH = {"width": 1280, "height": 820}, 960
SECONDS = "10"
"""In which the film shows the whole run."""
FROM_THE_START = """() => {
  const { film } = document.querySelector(".stage-host").own.stage;
  film.jump(0);
  film.play();
}"""
FRAME, LAST_FRAME = 200, 4000
"""Milliseconds of a frame, and of the last one."""


def main(names: list[str]) -> None:
    """Serve the demo from an empty home folder, and photograph what is named, or everything."""
    with served() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--use-angle=swiftshader"]
        )
        for name in names or [*STILLS, MOVING]:
            if name == MOVING:
                moving(browser, address)
            else:
                still(browser, address, name)
        browser.close()


@contextmanager
def served() -> Iterator[str]:
    """The address of an app with a home folder of its own, for as long as the block lasts."""
    address = f"http://127.0.0.1:{PORT}"
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "memrl_core.cli.main", "app", "--port", str(PORT), "--headless"]
        server = subprocess.Popen(command, env={**os.environ, "MEMRL_HOME": home})
        try:
            transport = httpx.HTTPTransport(retries=9)
            with httpx.Client(transport=transport, timeout=START_TIMEOUT) as client:
                client.get(f"{address}/_stcore/health").raise_for_status()
            yield address
        finally:
            server.terminate()
            server.wait()


def still(browser: Browser, address: str, name: str) -> None:
    """One screen as `NAME-light.png`."""
    where, drawn, height = STILLS[name]
    page = browser.new_page(viewport={"width": 1440, "height": height}, color_scheme="light")
    page.goto(f"{address}/{where}")
    page.wait_for_selector(drawn, timeout=90_000)
    page.wait_for_timeout(SETTLED)
    page.screenshot(path=str(PICTURES / f"{name}-light.png"))
    page.close()


def moving(browser: Browser, address: str) -> None:
    """The film of the demo's run, as `film.webp`: by a clock that no load of the machine moves."""
    page = browser.new_page(viewport=MOVING_VIEW, color_scheme="light")  # type: ignore[arg-type]
    page.clock.install()
    page.goto(f"{address}/{STEP}")
    page.wait_for_selector(STEP_DRAWN, timeout=90_000)
    page.wait_for_timeout(SETTLED)
    page.get_by_test_id("film").click()
    page.wait_for_selector(".film[data-step]", timeout=90_000)
    page.locator(".film-speed input").fill(SECONDS)
    page.locator(".film-speed input").blur()
    page.clock.pause_at(page.evaluate("Date.now() + 1000"))
    page.evaluate(FROM_THE_START)
    size = (MOVING_WIDTH, MOVING_WIDTH * MOVING_VIEW["height"] // MOVING_VIEW["width"])
    frames: list[Image.Image] = []
    playing = True
    while playing:
        for _ in range(FRAME // 50):
            page.clock.run_for(50)
        playing = page.locator(".film").get_attribute("data-playing") == "true"
        frames.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB").resize(size, Image.Resampling.LANCZOS))
    times = [*[FRAME] * (len(frames) - 1), LAST_FRAME]
    first, *rest = frames
    first.save(PICTURES / MOVING, save_all=True, append_images=rest, duration=times, loop=0, quality=70)
    page.close()


if __name__ == "__main__":
    main(sys.argv[1:])
