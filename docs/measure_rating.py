"""How soon the next output is on the screen after a key: `python docs/measure_rating.py` (needs Chromium)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from statistics import median

from playwright.sync_api import sync_playwright

PORT = 8766
KEYS = 30
WATCH = """() => {
  window.waits = [];
  let pressed = 0, before = null;
  const output = () => document.querySelector("[class*='st-key-output_']")?.className.match(/st-key-output_\\w+/)?.[0];
  document.addEventListener("keydown", () => { pressed = performance.now(); before = output(); }, true);
  const look = () => {
    const now = output();
    if (pressed && now && now !== before) { window.waits.push(performance.now() - pressed); pressed = 0; }
    requestAnimationFrame(look);
  };
  look();
}"""


def main() -> None:
    """Rate the demo's steps by one key each in headless Chromium, and print the waits in milliseconds."""
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        server = subprocess.Popen(
            [sys.executable, "-m", "memrl_core.cli", "app", "--port", str(PORT), "--headless"],
            env={**os.environ, "MEMRL_HOME": home},
        )
        time.sleep(8)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"http://127.0.0.1:{PORT}/rewards?bank=demo")
        page.wait_for_selector("[class*='st-key-output_']", timeout=60_000)
        page.wait_for_timeout(5000)
        page.evaluate(WATCH)
        for _ in range(KEYS):
            page.keyboard.press("1")
            page.wait_for_timeout(900)
        waits = sorted(page.evaluate("window.waits"))
        browser.close()
        server.terminate()
        server.wait()
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores: {len(waits)} keys, next output after "
        f"{median(waits):.0f} ms (median), {waits[0]:.0f} to {waits[-1]:.0f} ms, "
        f"{sum(wait <= 150 for wait in waits)} of them within 150 ms"
    )


if __name__ == "__main__":
    main()
