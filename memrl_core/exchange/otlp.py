"""The way of spans to one OTLP HTTP endpoint. Only this module needs the extra `otel`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import requests
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags

from memrl_core.exchange.step_spans import Span

PATIENCE = 5.0
"""Seconds for one request with its repetitions."""


class Line:
    """Sends to one address; headers, certificates and compression come from OpenTelemetry's environment variables."""

    def __init__(self, address: str) -> None:
        session = requests.Session()
        # The exporter tells only whether it worked; what the endpoint said is seen on its way.
        session.hooks["response"].append(self._heard)
        self._answer: Any = None
        self._exporter = OTLPSpanExporter(endpoint=address, session=session, timeout=PATIENCE)

    def send(self, run: str, spans: Sequence[Span]) -> str:
        """Send spans of one run in one request; what went wrong as the end of a sentence, "" for nothing."""
        self._answer = None
        result = self._exporter.export([_readable(span, run) for span in spans])
        if self._answer is None:
            return "does not answer"
        if result is not SpanExportResult.SUCCESS:
            return f"refused the traces ({self._answer.status_code} {self._answer.reason})"
        kind = self._answer.headers.get("Content-Type", "")
        if "html" in kind:
            return "answered with a page, so it is not an address that takes traces"
        return _rejected(self._answer.content) if "protobuf" in kind else ""

    def _heard(self, answer: Any, *_: Any, **__: Any) -> None:
        self._answer = answer


def _rejected(answer: bytes) -> str:
    try:
        partly = ExportTraceServiceResponse.FromString(answer).partial_success
    except DecodeError:
        return "answered with something else than OTLP"
    return f"left out {partly.rejected_spans} spans: {partly.error_message[:200]}" if partly.rejected_spans else ""


def _readable(span: Span, run: str) -> ReadableSpan:
    """A finished span of the SDK. Its tracer would draw ids by chance and drop all but 128 attributes."""
    context, parent = (
        None if one is None else SpanContext(span.trace_id, one, False, TraceFlags(TraceFlags.SAMPLED))
        for one in (span.id, span.parent)
    )
    return ReadableSpan(
        span.name,
        context=context,
        parent=parent,
        resource=Resource({"service.name": "memrl-inspector", "openinference.project.name": run}),
        attributes=span.attributes,
        start_time=span.start,
        end_time=span.end,
    )
