"""The receiver of spans: what the real exporter sends becomes steps, and what is hostile is refused."""

from __future__ import annotations

import gzip
import http.client
import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.bank.writing import Writer
from memrl_core.cli.otlp import LARGEST, PATH, Receiver
from memrl_core.errors import BankFull, InputError
from memrl_core.exchange.foreign.traces import Steps

DOCUMENTS = json.dumps([{"document.id": "m1", "document.content": "Prefers oat milk", "document.score": 0.8}])


@pytest.fixture
def receive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Receiver]]:
    monkeypatch.setattr("memrl_core.cli.otlp.QUIET", 0.1)
    MemoryBank.create(str(tmp_path / "bank"), "hashing-64", 64).close()
    made: list[Receiver] = []

    def one() -> Receiver:
        made.append(Receiver(str(tmp_path / "bank"), 0))
        return made[-1]

    yield one
    for receiver in made:
        if not receiver._ended.is_set():
            receiver.close()


def send(port: int, body: bytes, path: str = PATH, **headers: str) -> int:
    asked = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("POST", path, body, asked)
        return connection.getresponse().status
    finally:
        connection.close()


def request(trace: str, name: str = "a", parent: str = "", **attributes: Any) -> bytes:
    listed = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    span = {"traceId": trace, "spanId": name, "parentSpanId": parent, "name": name, "attributes": listed}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


def a_recall(trace: str, query: str = "make coffee") -> bytes:
    kind = {"openinference.span.kind": "RETRIEVER", "input.value": query, "retrieval.documents": DOCUMENTS}
    return request(trace, **kind)


def steps(tmp_path: Path) -> list[Any]:
    with MemoryBank.open(str(tmp_path / "bank")) as bank:
        assert all(finding.ok for finding in check(str(tmp_path / "bank")))
        return list(bank.traces("otlp"))


def test_what_the_real_exporter_sends_becomes_a_step(receive: Callable[[], Receiver], tmp_path: Path) -> None:
    exporting = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    sdk = importlib.import_module("opentelemetry.sdk.trace")
    receiver = receive()
    provider = sdk.TracerProvider()
    exporter = exporting.OTLPSpanExporter(
        endpoint=f"http://127.0.0.1:{receiver.port}{PATH}", compression=exporting.Compression.Gzip
    )
    provider.add_span_processor(importlib.import_module("opentelemetry.sdk.trace.export").SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("agent", attributes={"input.value": "make coffee"}):
        kind = {"openinference.span.kind": "RETRIEVER", "input.value": "coffee", "retrieval.documents": DOCUMENTS}
        tracer.start_span("recall", attributes=kind).end()
        said = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m-1", "output.value": "Here.",
                "gen_ai.usage.input_tokens": 7}  # fmt: skip
        tracer.start_span("chat", attributes=said).end()
    provider.shutdown()
    receiver.close()
    (step,) = steps(tmp_path)
    assert step.task.intent == "make coffee" and step.generate.model == "m-1"
    assert [(one.memory_id, one.signal) for one in step.recall.pool] == [("m1", 0.8)]
    assert step.turns[0].reply.prompt_tokens == 7 and step.turns[0].reply.text == "Here."


def test_traces_go_on_where_an_earlier_receiver_ended(receive: Callable[[], Receiver], tmp_path: Path) -> None:
    for trace in ("t1", "t2"):
        receiver = receive()
        assert send(receiver.port, a_recall("t1")) == 200  # A late copy of a trace that is stored.
        assert send(receiver.port, a_recall(trace, f"ask {trace}")) == 200
        receiver.close()
    assert [(step.step, step.task.id) for step in steps(tmp_path)] == [(1, "t1"), (2, "t2")]


def spans_of(*bodies: bytes) -> dict[str, Any]:
    return {"resourceSpans": [one for body in bodies for one in json.loads(body)["resourceSpans"]]}


CHAT = {"openinference.span.kind": "LLM", "input.value": "make coffee", "output.value": "Here."}
JUDGE = {"openinference.span.kind": "EVALUATOR", "eval.name": "correctness", "eval.label": "correct"}


def test_what_comes_after_its_trace_was_stored_goes_on_from_it(receive: Callable[[], Receiver], tmp_path: Path) -> None:
    receiver = receive()
    receiver.take(spans_of(a_recall("t1")))
    assert receiver.write(all_of_them=True) == 1
    receiver.take(spans_of(a_recall("t1"), request("t1", "b", "a", **CHAT), request("t1", "c", "a", **JUDGE)))
    receiver.take(spans_of(request("t1", "d", "a", **{"openinference.span.kind": "GUARDRAIL"})))
    receiver.close()
    first, second = steps(tmp_path)
    assert (second.task.id, second.task.intent, second.turns[0].reply.text) == ("t1", "make coffee", "Here.")
    assert "step 1" in second.lacks[0] and not any("did not come" in lack for lack in second.lacks)
    with MemoryBank.open(str(tmp_path / "bank")) as bank:
        assert bank.ratings.effective("otlp", first.step) == 1.0 and bank.ratings.effective("otlp", 2) is None
        assert bank.utilities("otlp")["m1"].visits == 1
    assert receiver.counts["came again"] == 1 and receiver.counts["late rewards"] == 1
    once_more = receive()
    once_more.take(spans_of(a_recall("t1"), request("t1", "b", "a", **CHAT)))
    once_more.close()
    assert len(steps(tmp_path)) == 2 and once_more.counts == {"came again": 2}


def test_what_comes_late_and_cannot_be_used_is_counted_and_said(receive: Callable[[], Receiver]) -> None:
    said: list[str] = []
    receiver = receive()
    receiver._on_failure = said.append
    receiver.take(spans_of(a_recall("t1"), request("t1", "b", **JUDGE)))
    receiver.write(all_of_them=True)
    other = {**JUDGE, "eval.label": "incorrect"}
    receiver.take(spans_of(request("t1", "c", "a", note="x"), request("t1", "d", "a", **other)))
    receiver.take({"traceId": "t9", "name": "score", "value": 1})
    receiver.write(all_of_them=True)
    assert receiver.counts["unused"] == 4
    assert any("t9" in one for one in said) and any("step 1" in one and "reward" in one for one in said)


def test_spans_without_ids_are_all_kept_and_the_refused_ones_are_named(
    receive: Callable[[], Receiver], tmp_path: Path
) -> None:
    receiver = receive()
    second = a_recall("t1", "boil water")
    count, said = receiver.take(spans_of(a_recall("t1").replace(b'"a"', b'""'), second.replace(b'"a"', b'""')))
    assert (count, said) == (0, [])
    count, said = receiver.take(spans_of(a_recall("")))
    assert count == 1 and len(said) == 1
    receiver.close()
    (step,) = steps(tmp_path)
    assert len(step.retrievals) == 2 and any("ids of 2" in lack for lack in step.lacks)


def test_what_the_bank_cannot_take_waits_with_its_scores_and_a_broken_trace_stops_no_other(
    receive: Callable[[], Receiver], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, adopt, add = receive(), Writer.adopt, Steps.add
    receiver.take(spans_of(a_recall("t1"), a_recall("t2")))
    receiver.take({"traceId": "t1", "name": "reward", "value": 1})

    def full(*given: Any) -> None:
        raise BankFull("The disk is full.")

    monkeypatch.setattr(Writer, "adopt", full)
    assert receiver.write(all_of_them=True) == 0
    monkeypatch.setattr(Writer, "adopt", adopt)

    def broken(self: Steps, trace: str, *given: Any) -> bool:
        if trace == "t2":
            raise ZeroDivisionError
        return add(self, trace, *given)

    monkeypatch.setattr(Steps, "add", broken)
    assert receiver.write(all_of_them=True) == 1 and receiver.counts["lost"] == 1
    receiver.close()
    (step,) = steps(tmp_path)
    assert (step.task.id, step.reward.reward) == ("t1", 1.0)


def test_the_exporter_is_answered_what_was_refused(receive: Callable[[], Receiver]) -> None:
    answers = importlib.import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    parse = importlib.import_module("google.protobuf.json_format").ParseDict
    body = parse({"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "x"}]}]}]}, answers.ExportTraceServiceRequest())
    connection = http.client.HTTPConnection("127.0.0.1", receive().port, timeout=20)
    connection.request("POST", PATH, body.SerializeToString(), {"Content-Type": "application/x-protobuf"})
    answer = answers.ExportTraceServiceResponse.FromString(connection.getresponse().read())
    connection.close()
    assert answer.partial_success.rejected_spans == 1 and "id" in answer.partial_success.error_message


def test_a_trace_becomes_a_step_while_the_receiver_runs(receive: Callable[[], Receiver], tmp_path: Path) -> None:
    receiver = receive()
    assert send(receiver.port, a_recall("t1")) == 200
    receiver.write()
    for _ in range(200):
        with MemoryBank.open(str(tmp_path / "bank")) as bank:
            if bank.runs():
                break
        receiver._ended.wait(0.05)
    assert len(steps(tmp_path)) == 1


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b'{"a": 1}', {}, 400),
        (b"\xff\xff", {"Content_Type": "application/x-protobuf"}, 400),
        (b"{}", {"Content_Type": "text/plain"}, 415),
        (b"{}", {"Content_Encoding": "br"}, 415),
        (b"no gzip", {"Content_Encoding": "gzip"}, 400),
        (gzip.compress(a_recall("cut"))[:-9], {"Content_Encoding": "gzip"}, 400),
        (gzip.compress(bytes(LARGEST + 1), 1), {"Content_Encoding": "gzip"}, 413),
        (b"{}", {"Origin": "https://example.org"}, 403),
        (b"{}", {"Host": "example.org"}, 403),
        (b"[" * 100_000, {}, 400),
    ],
    ids=["cut", "other", "protobuf", "kind", "encoding", "gzip", "cut gzip", "bomb", "origin", "host", "deep"],
)
def test_a_hostile_request_is_refused_and_the_next_one_taken(
    body: bytes, headers: dict[str, str], status: int, receive: Callable[[], Receiver], tmp_path: Path
) -> None:
    receiver = receive()
    assert send(receiver.port, body, **headers) == status
    assert send(receiver.port, b"", Content_Length=str(LARGEST + 1)) == 413
    assert send(receiver.port, b"{}", path="/v1/logs") == 404
    assert send(receiver.port, a_recall("t1")) == 200
    receiver.close()
    assert len(steps(tmp_path)) == 1


def test_a_request_without_spans_is_neither_refused_nor_counted(receive: Callable[[], Receiver]) -> None:
    receiver = receive()
    assert send(receiver.port, b"", Content_Type="application/x-protobuf") == send(receiver.port, b"{}") == 200
    assert receiver.summary == "No span came."


def test_a_port_that_is_taken_is_said(receive: Callable[[], Receiver], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="another port"):
        Receiver(str(tmp_path / "bank"), receive().port)
