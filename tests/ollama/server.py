"""A server on this machine that speaks Ollama's protocol, and can fail in every way that a real one does.

`with OllamaServer() as server:` gives `server.address`; `python -m tests.ollama.server --port 11500` runs one until
Ctrl-C. What it was asked stands in `server.requests`; what it shall do wrong is set in `server.faults`.
"""

from __future__ import annotations

import argparse
import threading
import uuid
from http.server import ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tests.ollama.protocol import Handler
from tests.ollama.scene import LLAMA, NOMIC, Faults, Model, Request


class OllamaServer(ThreadingHTTPServer):
    """A context manager: serves within it. `left` is set when a client went away before its answer had ended.

    `salt` keeps what clients remember of one server's models from being taken for another's at a reused port.
    """

    daemon_threads = True

    def __init__(self, port: int = 0, models: tuple[Model, ...] = (LLAMA, NOMIC)) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.models = {model.name: model for model in models}
        self.faults = Faults()
        self.requests: list[Request] = []
        self.pieces_sent = 0
        self.salt = uuid.uuid4().hex
        self.left = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def asked(self, path: str) -> list[dict[str, Any]]:
        """The bodies of all requests for `path`, in order."""
        return [request.body for request in self.requests if request.path == path]


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description="A stand-in for Ollama, with canned wit.")
    parser.add_argument("--port", type=int, default=11500)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before every piece of an answer")
    parser.add_argument("--first-delay", type=float, default=0.0, help="seconds before the first piece of an answer")
    parser.add_argument("--salt", default="", help="servers of the same salt have the same weights")
    given = parser.parse_args()
    server = OllamaServer(given.port)
    server.salt = given.salt or server.salt
    server.faults.delay, server.faults.first_delay = given.delay, given.first_delay
    print(f"Ollama's stand-in listens at {server.address}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
