"""How soon a model's first token is on the screen: from its way out of the server to the frame that shows it.

The server is a stand-in on this machine: it reads each prompt for a second, says one word and is silent for another.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import in_browser
from benchmarks.measuring import Aim, Row, Sizes
from memrl_core.agent.runs import start_run
from memrl_core.bank import MemoryBank
from memrl_core.environments.household import Household

NAME = "first-token"
MODEL = "stand-in"
ANSWERS = 6
"""Turns that are looked at; an episode of the household has ten."""
PAUSE = 1.0
SILENCE_MS = int(1000 * PAUSE)

WATCH_FOR_WORD = """(() => {
  window.word = "";
  const look = () => {
    const there = window.word && document.body.innerText.includes(window.word);
    if (there) { window.seen = Date.now() / 1000; window.word = ""; }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})()"""


class _Handler(BaseHTTPRequestHandler):
    """What an Ollama server answers, as far as a step needs it."""

    server: _Ollama
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        models = {"models": [{"name": MODEL, "model": MODEL, "size": 1}]}
        self._send({"version": "0.0"} if self.path.endswith("version") else models)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/api/chat":
            self._send({"capabilities": ["completion"], "details": {}, "model_info": {}})
            return
        self.send_response(200)
        self.end_headers()
        time.sleep(PAUSE)
        self.server.said.append(time.time())
        self._part(f" word{len(self.server.said)}.")
        time.sleep(PAUSE)
        self._part("", done=True, done_reason="stop")
        self.close_connection = True

    def log_message(self, format: str, *given: Any) -> None:
        """Nothing is logged."""

    def _part(self, text: str, **more: Any) -> None:
        message = {"role": "assistant", "content": text}
        self.wfile.write(json.dumps({"model": MODEL, "message": message, "done": False, **more}).encode() + b"\n")
        self.wfile.flush()

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class _Ollama(ThreadingHTTPServer):
    """Listens on a free port; `said` is when each word went out."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((in_browser.LOCALHOST, 0), _Handler)
        self.said: list[float] = []


@contextmanager
def _serving() -> Iterator[_Ollama]:
    with _Ollama() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def measure(sizes: Sizes) -> list[Row]:
    """The first tokens of `ANSWERS` turns of one episode."""
    with TemporaryDirectory(prefix="memrl-bench-", ignore_cleanup_errors=True) as folder, _serving() as ollama:
        bank = Path(folder) / "banks" / "live"
        bank.parent.mkdir()
        with MemoryBank.create(str(bank), "hashing-256", 256) as made:
            start_run(made, environment=Household.name, tasks=Household.sets[0], model=MODEL, model_facts={}, run="r")
        address = f"{in_browser.LOCALHOST}:{ollama.server_port}"
        waits = []
        with (
            in_browser.app(Path(folder), OLLAMA_HOST=address) as app,
            in_browser.chromium() as browser,
            in_browser.newcomer(browser, [WATCH_FOR_WORD]) as page,
        ):
            page.goto(f"{app.url}/step?bank=live&run=r")
            step = page.locator(".st-key-step button")
            while not ollama.said:  # The phases before the answer, and a turn that warms up.
                step.click()
                in_browser.settled(page, 3 * SILENCE_MS)
            for number in range(2, 2 + ANSWERS):
                page.evaluate(f"window.seen = 0; window.word = 'word{number}.'")
                step.click()
                page.wait_for_function("window.seen")
                waits.append(float(page.evaluate("window.seen")) - ollama.said[number - 1])
                in_browser.settled(page, 3 * SILENCE_MS)
            peak = app.peak_mb()
    return [
        Row(NAME, "first token, from the server to the screen", 0, None, tuple(waits),
            aim=Aim("median_s", 0.15), peak_mb=peak),
    ]  # fmt: skip
