"""Take the pictures of this folder from the running app: `python docs/take_screenshots.py` (needs Chromium)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

PORT = 8765
HERE = Path(__file__).parent
PICTURES = (("step-light.png", "light"), ("step-dark.png", "dark"))


def main() -> None:
    """Serve the demo from an empty home folder and photograph the step of its first reversal."""
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        server = subprocess.Popen(
            [sys.executable, "-m", "memrl_core.cli", "app", "--port", str(PORT), "--headless"],
            env={**os.environ, "MEMRL_HOME": home},
        )
        time.sleep(5)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, scheme in PICTURES:
            page = browser.new_page(viewport={"width": 1440, "height": 1130}, color_scheme=scheme)  # type: ignore[arg-type]
            page.goto(f"http://127.0.0.1:{PORT}/step?bank=demo&step=11")
            page.wait_for_selector(".memory-map .plot-container", timeout=60_000)
            page.locator(".st-key-part_RECALL summary").click()
            page.wait_for_timeout(3000)
            page.screenshot(path=str(HERE / name))
        browser.close()
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
