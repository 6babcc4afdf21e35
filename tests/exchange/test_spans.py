"""Traces out: steps as OpenInference spans, at a real HTTP server that takes OTLP."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp

from memrl_core.agent import Agent
from memrl_core.bank import MemoryBank
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import InputError
from memrl_core.exchange.spans import STEPS_AT_ONCE, send_steps
from memrl_core.exchange.step_spans import Span, spans_of
from memrl_core.prompting import conversation_so_far
from memrl_core.recorder import Recorder
from memrl_core.records import StepTrace
from tests.builders import DIMENSION, a_bank, a_step, a_vector, an_agent


class Collector(ThreadingHTTPServer):
    """Takes OTLP over HTTP. `status`, `kind` and `says` are what it answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taker)
        self.requests: list[tuple[str, str, bytes]] = []
        self.status, self.kind, self.says = 200, "application/x-protobuf", b""
        self.address = f"http://127.0.0.1:{self.server_port}"

    def groups(self) -> list[Any]:
        """The resource groups of all requests, decoded."""
        return [
            group
            for _, _, body in self.requests
            for group in otlp.ExportTraceServiceRequest.FromString(body).resource_spans
        ]

    def spans(self) -> list[Any]:
        return [span for group in self.groups() for scope in group.scope_spans for span in scope.spans]


class Taker(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, self.headers["Content-Type"], body))
        self.send_response(self.server.status)
        self.send_header("Content-Type", self.server.kind)
        self.send_header("Content-Length", str(len(self.server.says)))
        self.end_headers()
        self.wfile.write(self.server.says)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read `server.requests` instead."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    """Six steps of the embedded agent, so that the last ones have memories."""
    made = an_agent(tmp_path_factory.mktemp("spans") / "bank", k1=4, k2=2, delta=-1.0)
    list(made.run(sample_tasks("household-train")[:6]))
    return made


def value_of(value: Any) -> Any:
    name = value.WhichOneof("value")
    return [value_of(one) for one in value.array_value.values] if name == "array_value" else getattr(value, name)


def attributes_of(span: Any) -> dict[str, Any]:
    return {attribute.key: value_of(attribute.value) for attribute in span.attributes}


def of_kind(spans: list[Any], kind: str) -> list[dict[str, Any]]:
    found = [attributes_of(span) for span in spans]
    return [attributes for attributes in found if attributes["openinference.span.kind"] == kind]


def listed(attributes: dict[str, Any], prefix: str, item: str) -> list[dict[str, Any]]:
    """The flattened list `prefix`.N.`item`.* put together again."""
    found: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        if name.startswith(f"{prefix}."):
            number, _, rest = name.removeprefix(f"{prefix}.").partition(".")
            found.setdefault(int(number), {})[rest.removeprefix(f"{item}.")] = value
    assert sorted(found) == list(range(len(found)))
    return [found[number] for number in sorted(found)]


def nanoseconds(trace: StepTrace) -> int:
    since = datetime.fromisoformat(trace.started) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000


def test_a_step_arrives_with_every_number_it_was_decided_by(agent: Agent, collector: Collector) -> None:
    trace = agent.bank.trace("r", 6)
    heard: list[float] = []
    assert send_steps(agent.bank, "r", [6], f"{collector.address}/v1/traces", heard.append) == 1
    assert heard == [1.0]
    ((path, kind, _),) = collector.requests
    assert (path, kind) == ("/v1/traces", "application/x-protobuf")
    (group,) = collector.groups()
    assert {a.key: value_of(a.value) for a in group.resource.attributes} == {
        "service.name": "memrl-inspector",
        "openinference.project.name": "r",
    }
    spans = collector.spans()
    assert trace.embed and trace.recall and trace.decision and trace.generate and trace.reward

    (root,) = of_kind(spans, "CHAIN")
    assert (root["input.value"], root["session.id"]) == (trace.task.intent, "r")
    assert root["output.value"] == trace.generate.turns[-1].reply.text
    about = json.loads(root["metadata"])
    assert (about["step"], about["policy"], about["settings"]["k1"], about["lacks"]) == (6, "memrl", 4, [])

    (embedding,) = of_kind(spans, "EMBEDDING")
    assert embedding["embedding.model_name"] == trace.embed.embedder
    assert embedding["embedding.embeddings.0.embedding.text"] == trace.task.intent
    assert embedding["embedding.embeddings.0.embedding.vector"] == list(trace.embed.embedding)

    (recall,) = of_kind(spans, "RETRIEVER")
    documents = listed(recall, "retrieval.documents", "document")
    assert len(documents) == 4
    assert [(d["id"], d["score"]) for d in documents] == [(m.memory_id, m.similarity) for m in trace.recall.pool]
    assert [d["content"] for d in documents] == [agent.bank.memory(m.memory_id).experience for m in trace.recall.pool]
    assert [json.loads(d["metadata"])["rank"] for d in documents] == [1, 2, 3, 4]

    (rerank,) = of_kind(spans, "RERANKER")
    assert rerank["reranker.query"] == trace.task.intent
    assert (rerank["reranker.model_name"], rerank["reranker.top_k"]) == ("memrl", 2)
    assert listed(rerank, "reranker.input_documents", "document") == documents
    chosen = {c.memory_id: c for c in trace.decision.candidates if c.selected}
    output = listed(rerank, "reranker.output_documents", "document")
    assert [d["id"] for d in output] == list(trace.decision.selected)
    assert [d["score"] for d in output] == [chosen[m].score for m in trace.decision.selected]
    assert [json.loads(d["metadata"])["q"] for d in output] == [chosen[m].q for m in trace.decision.selected]

    turns = of_kind(spans, "LLM")
    assert len(turns) == len(trace.generate.turns) > 1
    for number, (sent, turn) in enumerate(zip(turns, trace.generate.turns, strict=True)):
        asked = conversation_so_far(trace.generate.messages, trace.generate.turns[:number])
        assert listed(sent, "llm.input_messages", "message") == [
            {"role": message.role, "content": message.content} for message in asked
        ]
        assert listed(sent, "llm.output_messages", "message") == [{"role": "assistant", "content": turn.reply.text}]
        assert sent["llm.model_name"] == trace.generate.model
        assert json.loads(sent["llm.invocation_parameters"]) == dict(trace.generate.options)

    (judged,) = of_kind(spans, "EVALUATOR")
    (evaluation,) = listed(judged, "trace.evaluations", "evaluation")
    assert (evaluation["name"], evaluation["score"]) == ("reward", trace.reward.reward)
    assert (evaluation["annotator_kind"], evaluation["explanation"]) == ("CODE", trace.reward.verdict)


def test_times_follow_from_the_start_and_the_seconds_of_each_phase(agent: Agent, collector: Collector) -> None:
    trace = agent.bank.trace("r", 5)
    send_steps(agent.bank, "r", [5], collector.address)
    root, *children = collector.spans()
    begun = nanoseconds(trace)
    assert root.start_time_unix_nano == begun
    assert root.end_time_unix_nano - begun == pytest.approx(1e9 * sum(trace.seconds.values()), abs=10)
    at = 0.0
    by_name = {span.name: span for span in children}
    for phase, name in (("EMBED", "CreateEmbeddings"), ("RECALL", "recall"), ("SELECT", "select")):
        assert by_name[name].start_time_unix_nano - begun == pytest.approx(at, abs=10)
        at += 1e9 * trace.seconds[phase]
        assert by_name[name].end_time_unix_nano - begun == pytest.approx(at, abs=10)
    assert all(root.start_time_unix_nano <= s.start_time_unix_nano <= s.end_time_unix_nano for s in children)
    assert all(s.end_time_unix_nano <= root.end_time_unix_nano for s in children)


def test_sending_twice_gives_the_same_ids_and_each_step_its_own(agent: Agent, collector: Collector) -> None:
    for _ in range(2):
        assert send_steps(agent.bank, "r", [1, 2, 6], collector.address) == 3
    once, twice = (
        [(s.trace_id, s.span_id, s.parent_span_id) for g in [group] for c in g.scope_spans for s in c.spans]
        for group in collector.groups()
    )
    assert once == twice
    assert len({trace_id for trace_id, _, _ in once}) == 3
    assert len({span_id for _, span_id, _ in once}) == len(once)
    roots = {trace_id: span_id for trace_id, span_id, parent in once if not parent}
    assert len(roots) == 3
    assert all(parent in (b"", roots[trace_id]) for trace_id, _, parent in once)


def test_a_persons_reward_stands_beside_the_environments(tmp_path: Path, collector: Collector) -> None:
    bank = a_bank(tmp_path / "bank")
    trace, vectors = a_step(1)
    bank.commit_step(trace, vectors)
    bank.give_reward("r", 1, trace.id, (), -0.5, "Ada", "too slow")
    send_steps(bank, "r", [1], collector.address)
    (judged,) = of_kind(collector.spans(), "EVALUATOR")
    environment, person = listed(judged, "trace.evaluations", "evaluation")
    assert (environment["annotator_kind"], environment["score"]) == ("CODE", 1.0)
    assert person == {
        "name": "reward",
        "score": -0.5,
        "explanation": "too slow",
        "annotator_kind": "HUMAN",
        "identifier": "Ada",
    }


def test_what_another_agent_did_not_tell_has_no_span(tmp_path: Path, collector: Collector) -> None:
    bank = MemoryBank.create(str(tmp_path / "bank"), "hashing-8", DIMENSION)
    recorder = Recorder(bank)
    memory = recorder.remember("egg", "boil it", a_vector(1))
    with recorder.step("toast"):
        pass
    with recorder.step("egg") as s:
        s.recalled([(memory, 0.5)])
        s.selected([memory])
        s.answered("boiled", prompt_tokens=30, answer_tokens=2)
    send_steps(bank, "recorded", [1, 2], collector.address)
    spans = collector.spans()
    assert [span.name for span in spans] == ["step", "step", "recall", "select", "generate"]
    assert "output.value" not in attributes_of(spans[0])
    (rerank,) = of_kind(spans, "RERANKER")
    assert "reranker.model_name" not in rerank
    assert set(listed(rerank, "reranker.output_documents", "document")[0]) == {"id", "content", "metadata"}
    (shown,) = of_kind(spans, "LLM")
    counts = [shown[f"llm.token_count.{name}"] for name in ("prompt", "completion", "total")]
    assert counts == [30, 2, 32]


def test_many_steps_go_in_several_requests_and_the_fraction_grows(tmp_path: Path, collector: Collector) -> None:
    bank = a_bank(tmp_path / "bank")
    count = 2 * STEPS_AT_ONCE + 1
    with bank.batch(count):
        for number in range(1, count + 1):
            bank.commit_step(*a_step(number))
    heard: list[float] = []
    assert send_steps(bank, "r", range(1, count + 1), collector.address, heard.append) == count
    assert heard == pytest.approx([STEPS_AT_ONCE / count, 2 * STEPS_AT_ONCE / count, 1.0])
    assert len(collector.requests) == 3
    assert len([span for span in collector.spans() if span.name == "step"]) == count


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.fixture
def bank(tmp_path: Path) -> MemoryBank:
    made = a_bank(tmp_path / "bank")
    made.commit_step(*a_step(1))
    return made


@pytest.mark.parametrize(
    ("status", "kind", "says", "sentence"),
    [
        (401, "text/plain", b"", r"refused the traces \(401 Unauthorized\). 0 of 1 steps were sent"),
        (200, "text/html; charset=utf-8", b"<html>", "answered with a page"),
        (200, "application/x-protobuf", b"\xff\xff", "something else than OTLP"),
        (
            200,
            "application/x-protobuf",
            otlp.ExportTraceServiceResponse(
                partial_success={"rejected_spans": 2, "error_message": "too old"}
            ).SerializeToString(),
            "left out 2 spans: too old",
        ),
    ],
)
def test_an_endpoint_that_refuses_is_a_sentence(
    bank: MemoryBank, collector: Collector, status: int, kind: str, says: bytes, sentence: str
) -> None:
    collector.status, collector.kind, collector.says = status, kind, says
    with pytest.raises(InputError, match=sentence):
        send_steps(bank, "r", [1], collector.address)


def test_an_endpoint_that_does_not_answer_is_a_sentence(bank: MemoryBank, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Collector()
    gone.server_close()
    monkeypatch.setattr("memrl_core.exchange.otlp.PATIENCE", 0.5)
    with pytest.raises(InputError, match=f"{gone.address}/v1/traces does not answer. 0 of 1 steps"):
        send_steps(bank, "r", [1], gone.address)


@pytest.mark.parametrize(
    "endpoint", ["", "localhost:4318", "ftp://host/v1/traces", "http://", "http://[x", "http://h:z"]
)
def test_what_is_no_address_is_a_sentence(bank: MemoryBank, endpoint: str) -> None:
    with pytest.raises(InputError, match="is not an address that takes traces"):
        send_steps(bank, "r", [1], endpoint)


def test_a_step_that_the_run_lacks_is_named_before_anything_is_sent(bank: MemoryBank, collector: Collector) -> None:
    with pytest.raises(InputError, match=r"Run r has no step 7\. Nothing was sent"):
        send_steps(bank, "r", [1, 7], collector.address)
    assert collector.requests == []


def test_a_step_that_does_not_say_when_it_began_is_named(bank: MemoryBank, collector: Collector) -> None:
    trace, vectors = a_step(2)
    bank.commit_step(replace(trace, started=""), vectors)
    with pytest.raises(InputError, match="Step 2 of run r does not say when it began"):
        send_steps(bank, "r", [1, 2], collector.address)


def test_a_missing_extra_says_how_to_install_it(bank: MemoryBank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "memrl_core.exchange.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(InputError, match=r"pip install 'memrl-inspector\[otel\]'"):
        send_steps(bank, "r", [1], "http://localhost:4318")


def test_ids_are_never_zero_and_fit_their_width(agent: Agent) -> None:
    spans: list[Span] = [span for step in range(1, 7) for span in spans_of(agent.bank, agent.bank.trace("r", step))]
    assert all(0 < span.trace_id < 2**128 and 0 < span.id < 2**64 for span in spans)
