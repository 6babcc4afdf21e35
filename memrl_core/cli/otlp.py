"""A receiver of OpenTelemetry's spans (OTLP over HTTP, protobuf or JSON): what an agent sends appears as steps.

It listens on this machine only. A trace becomes a step once its root has come and nothing more came for a moment, or
after a longer one without a root. Source: the OpenTelemetry protocol, 1.x.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from memrl_core.agent import workspace
from memrl_core.bank import MemoryBank
from memrl_core.bank.ledger import now
from memrl_core.cli.serving import LOCALHOST, is_own_host
from memrl_core.embedders.base import Embedder
from memrl_core.errors import BankMissing, InputError, MemRLError, one_line
from memrl_core.exchange.contents import started_with
from memrl_core.exchange.foreign.spans import is_span
from memrl_core.exchange.foreign.traces import Gathered, Steps, events_of, run_of_traces
from memrl_core.logs import logger
from memrl_core.records import Utility

PATH = "/v1/traces"
LARGEST = 64 * 2**20
"""Bytes of one request, as sent and unpacked."""
MOST_WAITING = 10_000
"""Spans held of traces that have not ended; of more, the oldest traces become steps as they are."""
QUIET, LATE = 1.5, 60.0
"""Seconds without a new span after which a trace with its root, and one without, becomes a step."""
INSTALL = "Receiving protobuf needs the package opentelemetry-proto: pip install 'memrl-inspector[otlp]'"
RUN = "otlp"
log = logger(__name__)


class Receiver:
    """Takes requests and writes steps to a run of the bank at `uri`, which is made where nothing is.

    `port` is the one that it listens on; `close` writes what waits and ends it. Raises `InputError` for a port that is
    taken, and what opening a bank and having its embedder raises.
    """

    def __init__(self, uri: str, port: int, run: str = RUN, on_failure: Callable[[str], None] = log.warning) -> None:
        preferences = workspace.load_preferences()
        try:
            self._bank = MemoryBank.open(uri)
        except BankMissing:
            self._bank = workspace.create_bank(uri, workspace.default_embedder(), preferences)
        self._embedder: Embedder = workspace.embedder_of(self._bank, preferences)
        self._run, self._on_failure = run, on_failure
        self._gathered, self._lock = Gathered(), threading.Lock()
        self._last: dict[str, float] = {}
        self._done: set[str] = {trace.task.id for trace in self._bank.traces(run)} if self._has_run() else set()
        self._ended = threading.Event()
        try:
            self._server = ThreadingHTTPServer((LOCALHOST, port), _handler(self))
        except OSError as error:
            self._bank.close()
            raise InputError(
                f"Spans cannot be received on port {port} ({error.strerror}). Nothing was started; choose another port."
            ) from None
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._threads = [threading.Thread(target=self._server.serve_forever, daemon=True, name="otlp")]
        self._threads.append(threading.Thread(target=self._keep_writing, daemon=True, name="otlp-steps"))
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Write the traces that wait, and end."""
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join()
        self.write(all_of_them=True)
        self._bank.close()

    def take(self, request: dict[str, Any]) -> int:
        """Hold the spans of one request; how many could not be used."""
        with self._lock:
            before = len(self._gathered.skipped)
            self._gathered.take(request, "a request", 0)
            moment = time.monotonic()
            for trace in self._gathered.spans:
                self._last.setdefault(trace, moment)
            for trace in _traces_in(request):
                self._last[trace] = moment
            refused = len(self._gathered.skipped) - before
            self._gathered.skipped.clear()
        return refused

    def write(self, all_of_them: bool = False) -> int:
        """Make steps of the traces that have ended, or of all; returns how many."""
        with self._lock:
            ended = self._ended_traces(all_of_them)
            taken = {trace: list(self._gathered.spans.pop(trace).values()) for trace in ended}
            scores = {trace: self._gathered.scores.pop(trace, []) for trace in ended}
            for trace in ended:
                self._last.pop(trace, None)
        if not taken:
            return 0
        chosen = Gathered()
        for trace, spans in taken.items():
            chosen.spans[trace] = {span.id: span for span in spans}
        try:
            return self._store(chosen, scores)
        except MemRLError as error:
            with self._lock:  # They wait for the next time.
                for trace, spans in taken.items():
                    self._gathered.spans[trace] = {**{span.id: span for span in spans}, **self._gathered.spans[trace]}
                    self._last.setdefault(trace, time.monotonic())
            self._on_failure(f"{len(taken):,} traces wait, because they could not be stored: {error}")
            return 0

    def _ended_traces(self, all_of_them: bool) -> list[str]:
        moment, held = time.monotonic(), self._gathered.spans
        oldest = sorted(held, key=lambda trace: self._last.get(trace, 0.0))
        too_many = sum(map(len, held.values())) > MOST_WAITING
        return [
            trace
            for number, trace in enumerate(oldest)
            if all_of_them
            or (too_many and number < len(oldest) / 2)
            or moment - self._last.get(trace, 0.0)
            > (QUIET if any(not s.parent for s in held[trace].values()) else LATE)
        ]

    def _has_run(self) -> bool:
        return self._run in {info.id for info in self._bank.runs()}

    def _store(self, chosen: Gathered, scores: dict[str, Any]) -> int:
        bank = self._bank
        with bank.alone():
            is_new = not self._has_run()
            info = (
                run_of_traces(self._run, _model(chosen), now(), self._embedder.name) if is_new else bank.run(self._run)
            )
            steps = Steps(self._embedder, info, bank, 1 if is_new else bank.next_step(self._run))
            known = {} if is_new else dict(bank.utilities(self._run))
            steps.known.update(known)
            for trace, spans in chosen.in_order():
                if trace not in self._done:  # A late span of a step that is stored is dropped.
                    steps.add(trace, spans, scores.get(trace, []))
            first = max((event.seq for event in bank.events()), default=0) + 1
            if is_new:
                events = events_of(steps, info)
            else:
                new = {name: Utility(0.0, 0) for name in steps.memories if name not in known}
                brought = started_with(info, new)[1:]
                events = (*brought, *steps.rewards)
            numbered = [replace(event, seq=first + place) for place, event in enumerate(events)]
            bank.adopt(steps.memories, numbered, steps.traces)
        self._done |= set(chosen.spans)
        return len(steps.traces)

    def _keep_writing(self) -> None:
        while not self._ended.wait(QUIET / 3):
            try:
                self.write()
            except Exception as error:  # The receiver outlives whatever an agent sends.
                log.exception("a trace could not be stored")
                self._on_failure(f"A trace could not be stored ({one_line(str(error))}); it is lost.")


def _model(chosen: Gathered) -> str:
    names = {
        s.text("llm.model_name", "gen_ai.request.model") for spans in chosen.spans.values() for s in spans.values()
    }
    names.discard("")
    return names.pop()[:200] if len(names) == 1 else "unknown"


def _traces_in(request: dict[str, Any]) -> set[str]:
    gathered = Gathered()
    gathered.take(request, "", 0)
    return set(gathered.spans)


# --- HTTP -------------------------------------------------------------------------------------------------------------


class _Refused(Exception):
    """A request that is not taken, with its status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def unpacked(body: bytes, encoding: str) -> bytes:
    """The body of a request, unpacked as far as `LARGEST` bytes. Raises `_Refused`."""
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise _Refused(415, f"content encoding {encoding[:40]} is not known")
    unpacker = zlib.decompressobj(47)  # Of either kind, by its header.
    try:
        data = unpacker.decompress(body, LARGEST + 1)
    except zlib.error:
        raise _Refused(400, "the body cannot be unpacked") from None
    if len(data) > LARGEST:
        raise _Refused(413, f"the body unpacks to more than {LARGEST / 2**20:.0f} MB")
    return data


def decoded(body: bytes, kind: str) -> dict[str, Any]:
    """The request in OTLP's JSON form. Raises `_Refused`."""
    if kind == "application/json":
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            raise _Refused(400, "the body is not JSON") from None
        if not isinstance(value, dict) or (value and not is_span(value)):
            raise _Refused(400, "the body has no resourceSpans")
        return value
    if kind != "application/x-protobuf":
        raise _Refused(415, "send application/x-protobuf or application/json")
    try:
        from google.protobuf.json_format import MessageToDict
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    except ImportError:
        raise _Refused(415, INSTALL) from None
    message = ExportTraceServiceRequest()
    try:
        message.ParseFromString(body)
        found: dict[str, Any] = MessageToDict(message)
    except (DecodeError, ValueError, RecursionError):
        raise _Refused(400, "the body is no export of spans") from None
    return found


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_POST(self) -> None:
            try:
                refused = receiver.take(self._request())
            except _Refused as error:
                self.close_connection = True
                self._answer(error.status, {"code": 3, "message": str(error)})
                return
            except Exception as error:
                log.exception("a request could not be read")
                self.close_connection = True
                self._answer(400, {"code": 3, "message": f"the spans cannot be read ({type(error).__name__})"})
                return
            partial = {"partialSuccess": {"rejectedSpans": refused}} if refused else {}
            self._answer(200, partial)

        def _request(self) -> dict[str, Any]:
            # A page of another site, or a name of another site that leads here, is a browser's request.
            origin = self.headers.get("Origin", "")
            if not is_own_host(self.headers.get("Host", "")) or (
                origin and not is_own_host(origin.partition("://")[2])
            ):
                raise _Refused(403, "only programs of this machine may send spans")
            if self.path.split("?")[0] != PATH:
                raise _Refused(404, f"spans are taken at {PATH}")
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal():
                raise _Refused(411, "the length of the body is missing")
            if int(length) > LARGEST:
                raise _Refused(413, f"at most {LARGEST / 2**20:.0f} MB are taken at once")
            body = self.rfile.read(int(length))
            kind = self.headers.get("Content-Type", "").split(";")[0].strip().lower()
            return decoded(unpacked(body, self.headers.get("Content-Encoding", "").strip().lower()), kind)

        def _answer(self, status: int, value: dict[str, Any]) -> None:
            is_binary = status == 200 and "protobuf" in self.headers.get("Content-Type", "")
            body = b"" if is_binary else json.dumps(value).encode()
            with suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Type", "application/x-protobuf" if is_binary else "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
