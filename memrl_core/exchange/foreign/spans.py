"""Spans of traces in one form, whoever wrote them: OpenInference, OpenTelemetry's `gen_ai`, OTLP, Langfuse, Phoenix.

A span's attributes become a tree: `retrieval.documents.0.document.id` and a list of objects are the same thing here.
Sources: the semantic conventions of OpenInference and of OpenTelemetry for generative AI (both of 2026), Langfuse's
exports of observations and scores, and Phoenix's table of spans.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic_core import from_json, to_json

from memrl_core.exchange.foreign.columns import created_of
from memrl_core.exchange.official.checkpoint import text_of

Raw = Mapping[str, Any]
LONGEST_TEXT = 1_000_000
DEEPEST = 40
HUMAN = ("HUMAN", "ANNOTATION", "USER")
NAMELESS = "without-id-"
"""How the id begins that a span without one gets: the same again for the same span."""
NO_OBJECT = "a span is no object"
_CONVENTIONS = ("openinference", "gen_ai", "llm", "retrieval", "reranker", "embedding", "tool", "input", "output",
                "metadata", "session", "user", "tag", "agent", "graph", "eval", "evaluation", "usage")  # fmt: skip
"""The first words of attributes that OpenInference, OpenTelemetry's `gen_ai`, Langfuse and Phoenix write."""


@dataclass(frozen=True, slots=True)
class Score:
    """A judgement of a trace or a span: its name, number, words and who gave it; `human` where a person did."""

    name: str
    value: float | None
    label: str = ""
    reason: str = ""
    rater: str = ""
    human: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """One span. `kind` is one of OpenInference's, or "SPAN"; times are seconds since 1970, NaN if unknown."""

    trace: str
    id: str
    parent: str
    name: str
    kind: str
    start: float
    end: float
    tree: Raw = field(default_factory=dict)
    scores: tuple[Score, ...] = ()
    failed: str = ""

    def at(self, path: str) -> Any:
        """What stands at a path of its attributes; None where nothing does."""
        return at(self.tree, path)

    def text(self, *paths: str) -> str:
        """The first text at one of some paths; what is no text is written as JSON."""
        return next((found for path in paths if (found := words(self.at(path)))), "")

    @property
    def is_named(self) -> bool:
        """Whether the span came with an id."""
        return not self.id.startswith(NAMELESS)

    @property
    def is_known(self) -> bool:
        """Whether it has an attribute of a convention that is read here, or no attributes at all."""
        return not self.tree or any(name in self.tree for name in _CONVENTIONS)


def at(tree: Any, path: str) -> Any:
    """What stands at a path of a tree; None where nothing does."""
    for part in path.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree.get("") if isinstance(tree, Mapping) and set(tree) == {""} else tree


def words(value: Any) -> str:
    """A value as text that can be stored: what is no text as JSON, "" for what is not there."""
    if isinstance(value, Mapping) and "" in value:
        value = value[""]
    if value is None or value in ("", {}, []):
        return ""
    if not isinstance(value, str):
        value = to_json(value, inf_nan_mode="strings", fallback=str).decode()
    return text_of(value)[:LONGEST_TEXT]


def tree_of(value: Any, depth: int = 0) -> Any:
    """A value in which each dotted key is a path, and an object whose keys count from 0 is a list."""
    if depth > DEEPEST:
        return None
    if isinstance(value, list):
        return [tree_of(one, depth + 1) for one in value]
    if not isinstance(value, Mapping):
        return value
    made: dict[str, Any] = {}
    for key, one in value.items():
        inner, place = tree_of(one, depth + 1), made
        *before, last = str(key).split(".")[:DEEPEST]
        for part in before:
            held = place.get(part)
            if not isinstance(held, dict):
                held = place[part] = {} if held is None else {"": held}
            place = held
        held = place.get(last)
        if isinstance(held, dict) and isinstance(inner, dict):
            held.update(inner)
        elif isinstance(held, dict):
            held[""] = inner
        elif inner is not None or last not in place:
            place[last] = inner
    return _listed(made)


def _listed(made: dict[str, Any]) -> Any:
    for key, one in made.items():
        if isinstance(one, dict):
            made[key] = _listed(one)
    if made and all(key.isdecimal() and len(key) < 6 for key in made):
        return [made[key] for key in sorted(made, key=int)]
    return made


def inner(given: Raw, name: str) -> Raw:
    """The object that another has under a name; the other itself where it has none."""
    part = given.get(name)
    return part if isinstance(part, Mapping) else given


def parsed(value: Any) -> Any:
    """JSON in a text as what it says; everything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return from_json(value, allow_inf_nan=True)
        except ValueError:
            return value
    return value


# --- a row as spans ---------------------------------------------------------------------------------------------------


_BESIDE = {"span_id", "spanId", "type", "attributes", "dataType", "data_type", "source"}
"""Keys that a span or a score has beside the id of its trace."""


def is_span(row: Raw) -> bool:
    """Whether a row is a span, a trace with its spans, or a score of one, in any form that is known."""
    tree = tree_of({key: None if isinstance(one, dict | list) else one for key, one in row.items()})
    keys = set(row) | set(tree)
    nested = row.get("context")
    in_context = isinstance(nested, Mapping) and "trace_id" in nested
    return (
        in_context
        or bool({"resourceSpans", "resource_spans", "scopeSpans", "scope_spans"} & keys)
        or any(key in row for key in ("context.trace_id", "observations"))
        or bool({"trace_id", "traceId"} & keys and _BESIDE & keys)
        or ("attributes" in keys and "parent_id" in keys)
    )  # fmt: skip


def spans_in(row: Raw) -> Iterator[Span | tuple[str, Score] | str]:
    """The spans of a row, scores with the trace or span that they are of, and sentences on what cannot be used."""
    for resource in _several(row, "resourceSpans", "resource_spans"):
        yield from _otlp(resource)
    if "scopeSpans" in row or "scope_spans" in row:
        yield from _otlp(row)
    if {"resourceSpans", "resource_spans", "scopeSpans", "scope_spans"} & set(row):
        return
    if isinstance(observations := row.get("observations"), list):
        trace = words(row.get("id"))
        root = {"id": f"{trace}-trace", "traceId": trace, "type": "SPAN", "startTime": row.get("timestamp"), **row}
        yield from _one({**root, "id": f"{trace}-trace", "parentObservationId": None})
        for one in observations:
            if isinstance(one, Mapping):
                parent = one.get("parentObservationId") or one.get("parent_observation_id") or f"{trace}-trace"
                yield from _one({"traceId": trace, **one, "parentObservationId": parent})
            else:
                yield NO_OBJECT
        return
    yield from _one(row)


def _otlp(resource: Any) -> Iterator[Span | tuple[str, Score] | str]:
    if not isinstance(resource, Mapping):
        yield "a group of spans is no object"
        return
    for scope in _several(resource, "scopeSpans", "scope_spans"):
        if not isinstance(scope, Mapping):
            yield "a group of spans is no object"
            continue
        for span in _several(scope, "spans"):
            if isinstance(span, Mapping):
                yield from _one(span)
            else:
                yield NO_OBJECT


def _several(row: Raw, *names: str) -> list[Any]:
    """The list under one of some names; what is no list as the only one of it."""
    found: Any = next((row[name] for name in names if row.get(name)), [])
    return found if isinstance(found, list) else [found]


def _one(row: Raw) -> Iterator[Span | tuple[str, Score] | str]:
    row = dict(row)
    flat = {key.removeprefix("attributes."): one for key, one in row.items() if key.startswith("attributes.")}
    given = row.get("attributes")
    if isinstance(given, list):  # OTLP
        flat |= _pairs(given)
    elif isinstance(given := parsed(given), Mapping):
        flat |= given
    tree = tree_of({key: one for key, one in flat.items() if one is not None})
    tree = tree if isinstance(tree, dict) else {}
    context = inner(row, "context")
    trace = _id(_first({**row, **context}, "trace_id", "traceId", "context.trace_id"))
    if not trace:
        yield "it has no id of a trace"
        return
    if _is_score(row):
        yield trace, _score(row)
        return
    name = _id(_first({**row, **context}, "span_id", "spanId", "context.span_id", "id")) or _nameless(row)
    for key in ("input", "output"):  # Langfuse
        if key not in tree and row.get(key) is not None and key not in flat:
            tree[key] = {"value": row[key]}
    if isinstance(row.get("model"), str):
        tree.setdefault("llm", {}).setdefault("model_name", row["model"])
    usage = row.get("usage") or row.get("usageDetails") or row.get("usage_details")
    if isinstance(usage := parsed(usage), Mapping):
        tree.setdefault("usage", usage)
    scores = [*_scores(row), *_events(row)]
    status = row.get("status") or row.get("status_code") or row.get("level")
    about = tree_of({key: one for key, one in row.items() if key.startswith("status")})
    failed = words(at(about, "status_message") or at(about, "status.message") or row.get("statusMessage"))
    is_failed = "ERROR" in words(status).upper() or at(status, "code") == 2
    yield Span(
        trace,
        name,
        _id(_first(row, "parent_id", "parentId", "parentSpanId", "parent_span_id", "parentObservationId",
                   "parent_observation_id")),
        words(row.get("name"))[:200],
        _kind(row, tree),
        _seconds(_first(row, "start_time", "startTime", "startTimeUnixNano", "start_time_unix_nano")),
        _seconds(_first(row, "end_time", "endTime", "endTimeUnixNano", "end_time_unix_nano")),
        tree,
        tuple(scores),
        failed or "an error" if is_failed else "",
    )  # fmt: skip


def _nameless(row: Raw) -> str:
    return NAMELESS + hashlib.blake2b(words(row).encode(), digest_size=8).hexdigest()


def _first(row: Raw, *names: str) -> Any:
    return next((row[name] for name in names if row.get(name) not in (None, "")), None)


def _id(value: Any) -> str:
    """An id in hexadecimal digits, as protobuf's JSON has it in base64 too, or as it is."""
    name = words(value)[:200]
    if re.fullmatch(r"[A-Za-z0-9+/]{22}==|[A-Za-z0-9+/]{11}=", name):
        name = base64.b64decode(name).hex()
    return name.removeprefix("0x").lower() if re.fullmatch(r"0x[0-9A-Fa-f]+|[0-9A-Fa-f]{16,32}", name) else name


def _value(value: Any) -> Any:
    """A value of OTLP's JSON as a plain one."""
    if not isinstance(value, Mapping) or not value:
        return None
    kind, inner = next(iter(value.items()))
    kind = kind.removesuffix("Value").removesuffix("_value")
    if kind == "int":
        return int(inner) if str(inner).lstrip("-").isdecimal() else None
    if kind == "array":
        return [_value(one) for one in _several(inner, "values")] if isinstance(inner, Mapping) else None
    if kind in ("kvlist", "kv_list"):
        return _pairs(_several(inner, "values")) if isinstance(inner, Mapping) else None
    return inner


def _pairs(given: Iterable[Any]) -> dict[str, Any]:
    """Attributes in OTLP's form as an object."""
    return {str(one.get("key")): _value(one.get("value")) for one in given if isinstance(one, Mapping)}


def _seconds(value: Any) -> float:
    """A time as seconds since 1970; NaN for what is none."""
    if isinstance(value, Mapping):
        return math.nan
    said = created_of(value)
    return datetime.fromisoformat(said).timestamp() if said else math.nan


def moment_of(seconds: float) -> str:
    """Seconds since 1970 as ISO 8601 in UTC; "" for NaN."""
    return "" if math.isnan(seconds) else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


_OPERATIONS = {
    "chat": "LLM", "text_completion": "LLM", "generate_content": "LLM", "embeddings": "EMBEDDING",
    "execute_tool": "TOOL", "retrieval": "RETRIEVER", "search_memory": "RETRIEVER", "invoke_agent": "AGENT",
    "create_memory": "MEMORY", "update_memory": "MEMORY", "upsert_memory": "MEMORY",
}  # fmt: skip
_LANGFUSE = {"GENERATION": "LLM"}


def _kind(row: Raw, tree: Raw) -> str:
    said = words(at(tree, "openinference.span.kind")) or words(_first(row, "span_kind", "type"))
    operation = words(at(tree, "gen_ai.operation.name"))
    if not at(tree, "openinference.span.kind") and operation in _OPERATIONS:
        return _OPERATIONS[operation]
    kind = said.upper().removeprefix("SPAN_KIND_")
    kind = _LANGFUSE.get(kind, kind)
    if kind in ("", "SPAN", "INTERNAL", "UNKNOWN", "CHAIN"):
        if at(tree, "retrieval.documents") is not None:
            return "RETRIEVER"
        if at(tree, "gen_ai.completion") is not None or at(tree, "llm.output_messages") is not None:
            return "LLM"
    return kind or "SPAN"


# --- scores -----------------------------------------------------------------------------------------------------------


def _is_score(row: Raw) -> bool:
    return ("value" in row or "score" in row or "stringValue" in row) and not {"span_id", "spanId", "type"} & set(row)


def _score(row: Raw) -> Score:
    result = inner(row, "result")
    value = _first({**row, **result}, "score", "value")
    label = words(_first({**row, **result}, "label", "string_value", "stringValue"))
    who = words(_first(row, "annotator_kind", "annotatorKind", "source")).upper()
    rater = words(_first(row, "author_user_id", "authorUserId", "user_id", "annotator", "identifier"))
    name = words(_first(row, "name", "annotation_name"))[:80] or "score"
    number = None
    if isinstance(value, bool | int | float) or (isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?", value)):
        number = float(value)
    elif isinstance(value, str):
        label = label or value
    if number is not None and not math.isfinite(number):
        number = None
    reason = words(_first({**row, **result}, "explanation", "comment", "reason"))[:2000]
    return Score(name, number, label[:80], reason, (rater or name)[:80], who in HUMAN)


def _scores(row: Raw) -> Iterator[Score]:
    for key in ("annotations", "evaluations", "scores", "feedback"):
        held = parsed(row.get(key))
        for one in held if isinstance(held, list) else ():
            if isinstance(one, Mapping):
                yield _score(one)


def document_scores(row: Raw) -> Iterator[tuple[str, int | None, Score]]:
    """Judgements of single documents of a retrieval in a row: the span's id, the document's place from 0, the score.

    A row is an annotation of a document (Phoenix's `document_position`), has several under "data", or is a span with a
    list of them.
    """
    own = _id(_first({**row, **inner(row, "context")}, "span_id", "spanId", "context.span_id", "id"))
    held = [parsed(row.get(key)) for key in ("data", *_OF_DOCUMENTS)]
    for one in [row, *(one for part in held if isinstance(part, list) for one in part)]:
        position = _first(one, "document_position", "documentPosition") if isinstance(one, Mapping) else None
        if position is not None:
            known = (
                not isinstance(position, bool) and isinstance(position, int | float | str) and str(position).isdecimal()
            )
            yield (
                _id(_first(one, "span_id", "spanId", "context.span_id")) or own,
                int(position) if known else None,
                _score(one),
            )


_OF_DOCUMENTS = ("document_annotations", "documentAnnotations", "document_evaluations", "documentEvaluations")


def _events(row: Raw) -> Iterator[Score]:
    """Results of an evaluation that a span has as events (`gen_ai.evaluation.result`)."""
    held = parsed(row.get("events"))
    for event in held if isinstance(held, list) else ():
        if not isinstance(event, Mapping) or "evaluation" not in words(event.get("name")):
            continue
        given = event.get("attributes")
        if isinstance(given, list):
            given = _pairs(given)
        tree = tree_of(given or {})
        yield from score_of(tree)


def score_of(tree: Any) -> Iterable[Score]:
    """The result of an evaluation in the attributes of an event or of an EVALUATOR span, if it has one."""
    for path in ("gen_ai.evaluation", "evaluation", "eval"):
        part = at(tree, path)
        if not isinstance(part, Mapping):
            continue
        value = at(part, "score.value")
        value = at(part, "score") if value is None else value
        label = words(at(part, "score.label") or at(part, "label"))
        if isinstance(value, bool | int | float) or label:
            number = float(value) if isinstance(value, bool | int | float) and math.isfinite(value) else None
            name = words(at(part, "name")) or "evaluation"
            yield Score(name[:80], number, label[:80], words(at(part, "explanation"))[:2000], name[:80])
            return


def json_of(value: Any) -> Any:
    """A value of an attribute that may be JSON in a text, and a text that is JSON in itself once more."""
    return tree_of(parsed(value)) if isinstance(value, str) else value
