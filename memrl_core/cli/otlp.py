"""A receiver of OpenTelemetry's spans (OTLP over HTTP, protobuf or JSON): what an agent sends appears as steps.

It listens on this machine only. A trace becomes a step once its root has come and nothing more came for a moment, or
after a longer one without a root. Source: the OpenTelemetry protocol, 1.x.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from memrl_core.agent.preferences import load_preferences
from memrl_core.agent.recorder import Recorder
from memrl_core.agent.run_parts import bank_at, embedder_of
from memrl_core.bank.ledger import now
from memrl_core.cli.serving import LOCALHOST, is_own_host
from memrl_core.embedders.base import Embedder
from memrl_core.errors import InputError, MemRLError, one_line
from memrl_core.exchange.foreign.spans import Score, is_span
from memrl_core.exchange.foreign.traces import SPANS, Gathered, Steps, as_number, events_of, run_of_traces, scores_of
from memrl_core.logs import logger
from memrl_core.records import StepTrace

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

    `port` is the one that it listens on; `close` writes what waits and ends it; `counts` says what became of what came.
    Spans of a trace that is a step already become a step of their own that says so, and scores the rewards of that
    step. What cannot be used is said by `on_failure`. Raises `InputError` for a port that is taken, and what opening a
    bank and having its embedder raises.
    """

    def __init__(self, uri: str, port: int, run: str = RUN, on_failure: Callable[[str], None] = log.warning) -> None:
        preferences = load_preferences()
        self._bank = bank_at(uri, preferences)
        self._embedder: Embedder = embedder_of(self._bank, preferences)
        self._run, self._on_failure = run, on_failure
        self._gathered, self._lock = Gathered(), threading.Lock()
        self._last: dict[str, float] = {}
        self._stored: dict[str, set[str]] = {}
        self._first: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        for trace in self._bank.traces(run) if self._has_run() else ():
            self._is_stored(trace)
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

    @property
    def summary(self) -> str:
        """What became of what came, as a sentence."""
        listed = ", ".join(f"{count:,} {what}" for what, count in self.counts.items())
        return f"Of the spans that came: {listed}." if listed else "No span came."

    def take(self, request: dict[str, Any]) -> tuple[int, list[str]]:
        """Hold the spans of one request; how many could not be used, and sentences on what is odd about them."""
        if not request:  # A program asks so whether somebody listens.
            return 0, []
        with self._lock:
            if sum(map(len, self._gathered.spans.values())) > 10 * MOST_WAITING:
                raise _Refused(503, "the bank cannot be written, and no more spans can wait; send them again later")
            moment, twice = time.monotonic(), self._gathered.repeated
            for trace in self._gathered.take(request, "a request"):
                self._last[trace] = moment
            refused = [skipped.why for skipped in self._gathered.skipped]
            self._gathered.skipped.clear()
            twice = self._gathered.repeated - twice
        said = list(dict.fromkeys(refused))
        if refused:
            self._count(len(refused), "refused", f"spans were refused: {'; '.join(said)}")
        if twice:
            self._count(twice, "came twice")
            said.append(f"{twice:,} came more than once; the fuller one is taken")
        return len(refused), said

    def write(self, all_of_them: bool = False) -> int:
        """Make steps of the traces that have ended, or of all; returns how many."""
        with self._lock:
            ended = self._ended_traces(all_of_them)
            chosen = Gathered()
            for trace in ended:
                chosen.spans[trace] = self._gathered.spans.pop(trace, {})
                chosen.scores[trace] = self._gathered.scores.pop(trace, [])
                self._last.pop(trace, None)
        if not ended:
            return 0
        try:
            return self._store(chosen)
        except (MemRLError, OSError) as error:
            self._wait(chosen)
            self._on_failure(f"{len(ended):,} traces wait, because they could not be stored: {error}")
            return 0
        except Exception:  # One of them: the others are stored without it.
            return sum(self._store_alone(trace, chosen) for trace in ended)

    def _store_alone(self, trace: str, chosen: Gathered) -> int:
        only = Gathered()
        only.spans[trace], only.scores[trace] = chosen.spans[trace], chosen.scores[trace]
        try:
            return self._store(only)
        except (MemRLError, OSError):
            self._wait(only)
        except Exception as error:
            log.exception("a trace could not be stored")
            why = f"{type(error).__name__}: {one_line(str(error), 200)}"
            self._count(len(only.spans[trace]), "lost", f"spans of trace {trace[:80]} are lost ({why})")
        return 0

    def _wait(self, chosen: Gathered) -> None:
        """Have what could not be stored wait for the next time."""
        with self._lock:
            for trace, spans in chosen.spans.items():
                self._gathered.spans[trace] = {**spans, **self._gathered.spans[trace]}
                self._gathered.scores[trace] = [*chosen.scores[trace], *self._gathered.scores[trace]]
                self._last.setdefault(trace, time.monotonic())

    def _ended_traces(self, all_of_them: bool) -> list[str]:
        moment, held = time.monotonic(), self._gathered.spans
        oldest = sorted({*held, *self._gathered.scores}, key=lambda trace: self._last.get(trace, 0.0))
        too_many = sum(map(len, held.values())) > MOST_WAITING

        def is_whole(trace: str) -> bool:
            return trace in self._stored or any(not span.parent for span in held.get(trace, {}).values())

        return [
            trace
            for number, trace in enumerate(oldest)
            if all_of_them
            or (too_many and number < len(oldest) / 2)
            or moment - self._last.get(trace, 0.0) > (QUIET if is_whole(trace) else LATE)
        ]

    def _has_run(self) -> bool:
        return self._run in {info.id for info in self._bank.runs()}

    def _is_stored(self, trace: StepTrace) -> None:
        self._stored.setdefault(trace.task.id, set()).update(trace.task.data.get(SPANS, ()))
        self._first.setdefault(trace.task.id, trace.step)

    def _store(self, chosen: Gathered) -> int:
        bank, unused = self._bank, list[tuple[int, str, str]]()
        with bank.write.alone():
            is_new = not self._has_run()
            info = (
                run_of_traces(self._run, _model(chosen), now(), self._embedder.name) if is_new else bank.run(self._run)
            )
            steps = Steps(self._embedder, info, bank, 1 if is_new else bank.next_step(self._run))
            known = {} if is_new else dict(bank.utilities(self._run))
            steps.known.update(known)
            late: list[tuple[int, Score]] = []
            for trace, spans in chosen.in_order():
                scores = chosen.scores[trace]
                if trace[:200] not in self._stored:
                    if not steps.add(trace, spans, scores):
                        unused.append((len(spans) + len(scores), trace, "says nothing that a step can show"))
                    continue
                step = bank.trace(self._run, self._first[trace[:200]])
                new = [span for span in spans if span.id not in self._stored[trace[:200]]]
                again = [span for span in spans if span not in new]
                scores = scores_of(new, scores)
                # A span that comes once more may have been judged meanwhile.
                if bank.ratings.effective(self._run, step.step) is None:
                    scores += scores_of(again)
                if again:
                    self._count(len(again), "came again")
                late += [(step.step, score) for score in scores]
                if new and not steps.add(trace, new, (), step) and any(span.kind != "EVALUATOR" for span in new):
                    unused.append((len(new), trace, f"came after step {step.step:,} was stored and adds nothing to it"))
            events = events_of(steps, info, bank.clock + 1, None if is_new else known)
            if steps.traces:
                bank.write.adopt(steps.memories, events, steps.traces)
            for number, score in late:
                self._reward(number, score)
        for made in steps.traces:
            if made.task.id in self._stored:
                self._on_failure(f"Step {made.step:,} is the late part of step {self._first[made.task.id]:,}.")
            self._is_stored(made)
        if steps.traces:
            self._count(sum(len(made.task.data[SPANS]) for made in steps.traces), "stored")
        for count, trace, why in unused:
            self._count(count, "unused", f"spans or scores are not used: trace {trace[:80]} {why}")
        return len(steps.traces)

    def _reward(self, step: int, score: Score) -> None:
        """Give a judgement that came after its step was stored; where it cannot be given, say why."""
        number = as_number(score, self._bank.settings(self._run))
        rater = score.rater if score.human else ""
        words = ": ".join(filter(None, (score.label or score.name, score.reason)))
        try:
            if number is None:
                raise InputError(f"“{score.name}: {score.label}” is no number.")
            Recorder(self._bank, self._run, strict=True).reward(step, number, score.reason if rater else words, rater)
            self._count(1, "late rewards")
        except InputError as error:
            self._count(1, "unused", f"score of step {step:,} could not be used: {error}")

    def _count(self, count: int, what: str, sentence: str = "") -> None:
        """Count what became of some spans, and say it where a `sentence` goes on from the number."""
        self.counts[what] += count
        if sentence:
            self._on_failure(f"{count:,} {sentence}.".replace("..", "."))

    def _keep_writing(self) -> None:
        while not self._ended.wait(QUIET / 3):
            try:
                self.write()
            except Exception as error:  # The receiver outlives whatever an agent sends.
                log.exception("traces could not be stored")
                self._on_failure(f"Traces could not be stored ({one_line(str(error))}).")


def _model(chosen: Gathered) -> str:
    names = {
        s.text("llm.model_name", "gen_ai.request.model") for spans in chosen.spans.values() for s in spans.values()
    }
    names.discard("")
    return names.pop()[:200] if len(names) == 1 else "unknown"


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
    if not unpacker.eof:
        raise _Refused(400, "the body ends too early to be unpacked")
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


def _encoded(answer: dict[str, Any]) -> bytes:
    """An answer to an export of spans, in protobuf."""
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    encoded: bytes = ParseDict(answer, ExportTraceServiceResponse()).SerializeToString()
    return encoded


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_POST(self) -> None:
            try:
                refused, said = receiver.take(self._request())
            except _Refused as error:
                self.close_connection = True
                self._answer(error.status, {"code": 3, "message": str(error)})
                return
            except Exception as error:
                log.exception("a request could not be read")
                self.close_connection = True
                self._answer(400, {"code": 3, "message": f"the spans cannot be read ({type(error).__name__})"})
                return
            partial = {"rejectedSpans": str(refused), "errorMessage": "; ".join(said)[:2000]}
            self._answer(200, {"partialSuccess": partial} if said else {})

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
            body = _encoded(value) if is_binary else json.dumps(value).encode()
            with suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Type", "application/x-protobuf" if is_binary else "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
