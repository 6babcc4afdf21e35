"""Take the pictures of this folder from the running app: `python docs/take_screenshots.py` (needs Chromium)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

PORT = 8765
HERE = Path(__file__).parent
STEP = "step?bank=demo&step=11"
LAB = "lab"
REWARDS = "rewards?bank=demo&run=household&step=21&show=all"
DECISION = "decision?bank=demo&step=29&ask=pair&weight=0.7"
METHODS = "methods?bank=demo&run=household&step=29&show=pool"
TASKS = "tasks?environment=sql"
PICTURES = (
    ("step-light.png", "light", STEP, ".memory-map .plot-container", 1130),
    ("step-dark.png", "dark", STEP, ".memory-map .plot-container", 1130),
    ("decision-light.png", "light", DECISION, ".st-key-diagram .plot-container", 1540),
    ("rewards-light.png", "light", REWARDS, "[class*='st-key-output_']", 980),
    ("methods-light.png", "light", METHODS, ".st-key-methods_on_pool .plot-container", 1180),
    ("tasks-light.png", "light", TASKS, ".st-key-tasks_prompt", 1000),
    ("lab-light.png", "light", LAB, ".st-key-lab_begin", 1180),
)
EPOCHS_BEFORE, EPOCHS = 4, 8


def main() -> None:
    """Serve the demo from an empty home folder; photograph the screens of the README."""
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        server = subprocess.Popen(
            [sys.executable, "-m", "memrl_core.cli", "app", "--port", str(PORT), "--headless"],
            env={**os.environ, "MEMRL_HOME": home},
        )
        time.sleep(5)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, scheme, where, drawn, height in PICTURES:
            page = browser.new_page(viewport={"width": 1440, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
            page.goto(f"http://127.0.0.1:{PORT}/{where}")
            page.wait_for_selector(drawn, timeout=60_000)
            if where == STEP:
                page.locator(".st-key-part_RECALL summary").click()
            if where == LAB:
                play_twins(page)
            page.wait_for_timeout(3000)
            page.screenshot(path=str(HERE / name))
        browser.close()
        server.terminate()
        server.wait()


def play_twins(page: Page) -> None:
    """Start the first pair that the Lab offers, and shift the world between two epochs."""
    page.get_by_role("button", name="Start", exact=True).click()
    for epoch in range(1, EPOCHS + 1):
        page.get_by_role("button", name=f"Finish epoch {epoch}", exact=True).click(timeout=60_000)
        if epoch == EPOCHS_BEFORE:
            page.get_by_role("button", name=f"Finish epoch {epoch + 1}", exact=True).wait_for(timeout=60_000)
            page.get_by_role("button", name="Shift the world").click()
    page.get_by_role("button", name=f"Finish epoch {EPOCHS + 1}", exact=True).wait_for(timeout=60_000)


if __name__ == "__main__":
    main()
