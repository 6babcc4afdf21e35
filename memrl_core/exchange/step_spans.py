"""A step as spans with OpenInference's names: the span "step" with a child for each phase that was recorded.

Source of the names: github.com/Arize-ai/openinference, spec/{semantic_conventions,embedding_spans,annotations}.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.prompting import messages_sent
from memrl_core.records import Decision, GenerateRecord, LedgerEvent, Message, Phase, Recalled, StepTrace

Attributes = dict[str, Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Span:
    """One part of a step. `start` and `end` are nanoseconds since 1970; the root has no `parent`.

    `trace_id` (128 bits) and `id` (64 bits) follow from the id of the step's trace alone.
    """

    name: str
    trace_id: int
    id: int
    parent: int | None
    start: int
    end: int
    attributes: Mapping[str, Any]


def spans_of(bank: MemoryBank, trace: StepTrace) -> list[Span]:
    """A step as spans, the root first. Phases follow each other from `trace.started` on, as their seconds tell.

    Pauses between phases are not recorded and so left out. The rewards are those that count now. Raises `InputError`
    for a step from a file that does not say when it began.
    """
    begun = _begun(trace)
    times = _times(trace, begun)
    parts = list(_parts(bank, trace, times))
    end = max([*(until for _, until in times.values()), *(until for _, _, until, _ in parts), begun])
    trace_id, root = _number(f"trace {trace.id}", 16), _number(f"span {trace.id}", 8)
    children = [
        Span(name, trace_id, _number(f"span {trace.id} {place}", 8), root, start, until, attributes)
        for place, (name, start, until, attributes) in enumerate(parts)
    ]
    return [Span("step", trace_id, root, None, begun, end, _root(trace)), *children]


def _begun(trace: StepTrace) -> int:
    try:
        began = datetime.fromisoformat(trace.started)
    except ValueError:
        raise InputError(
            f"Step {trace.step} of run {trace.run} does not say when it began, which a trace needs. Leave it out; what "
            "was sent before it can be sent again under the same ids."
        ) from None
    # Times are UTC, whether they say so or not.
    return (began.replace(tzinfo=began.tzinfo or UTC) - EPOCH) // timedelta(microseconds=1) * 1000


def _times(trace: StepTrace, begun: int) -> dict[Phase, tuple[int, int]]:
    """From when to when each phase ran, in nanoseconds."""
    found, at = {}, begun
    for phase in Phase:
        until = at + _nanoseconds(trace.seconds.get(phase.value, 0.0))
        found[phase] = at, until
        at = until
    return found


def _parts(
    bank: MemoryBank, trace: StepTrace, times: Mapping[Phase, tuple[int, int]]
) -> Iterator[tuple[str, int, int, Attributes]]:
    """Name, start, end and attributes of each child."""
    if trace.embed is not None:
        attributes = {
            "embedding.model_name": trace.embed.embedder,
            "embedding.embeddings.0.embedding.text": trace.task.intent,
            "embedding.embeddings.0.embedding.vector": trace.embed.embedding,
        }
        yield "CreateEmbeddings", *times[Phase.EMBED], _of_kind("EMBEDDING", attributes)
    if trace.recall is not None:
        found = _documents("retrieval.documents", [_recalled(bank, seen) for seen in trace.recall.pool])
        yield "recall", *times[Phase.RECALL], _of_kind("RETRIEVER", {**_said("input", trace.task.intent), **found})
    if trace.decision is not None:
        yield "select", *times[Phase.SELECT], _of_kind("RERANKER", _reranked(bank, trace, trace.decision))
    if trace.generate is not None:
        at = times[Phase.GENERATE][0]
        for number, turn in enumerate(trace.generate.turns):
            until = at + _nanoseconds(turn.reply.seconds)
            yield "generate", at, until, _of_kind("LLM", _turn(trace.generate, number))
            at = until
    if rewards := bank.active_rewards(trace.run, trace.step, trace.id):
        yield "reward", *times[Phase.REWARD], _of_kind("EVALUATOR", _judged(trace, rewards))


# --- attributes -------------------------------------------------------------------------------------------------------


def _of_kind(kind: str, attributes: Mapping[str, Any]) -> Attributes:
    """The attributes that are known, with the kind of the span."""
    known = {name: value for name, value in attributes.items() if value is not None}
    return {"openinference.span.kind": kind, **known}


def _root(trace: StepTrace) -> Attributes:
    about = {
        "run": trace.run,
        "step": trace.step,
        "epoch": trace.epoch,
        "task": trace.task.id,
        "environment": trace.task.environment,
        "policy": trace.policy,
        "settings": dict(trace.settings),
        "outcome": trace.reward.outcome if trace.reward else "unrated",
        "q_moved": {c.memory_id: [c.before, c.after] for c in trace.update.of_q} if trace.update else {},
        "origin": trace.origin,
        "lacks": trace.lacks,
    }
    return _of_kind(
        "CHAIN",
        {"session.id": trace.run, "metadata": _json(about), **_said("input", trace.task.intent), **_answer(trace)},
    )


def _reranked(bank: MemoryBank, trace: StepTrace, decision: Decision) -> Attributes:
    by_id = {candidate.memory_id: candidate for candidate in decision.candidates}
    output = []
    for memory_id in decision.selected:
        chosen = by_id[memory_id]
        about = {"q": chosen.q, "visits": chosen.visits, "similarity": chosen.similarity, "reason": chosen.reason}
        output.append(_document(bank, memory_id, chosen.score, about))
    return {
        "reranker.query": trace.task.intent,
        # How another agent ranks is not known, whatever policy its run is kept under.
        "reranker.model_name": trace.policy if trace.origin == "agent" else None,
        "reranker.top_k": decision.k2,
        **_documents(
            "reranker.input_documents", [_recalled(bank, s) for s in (trace.recall.pool if trace.recall else ())]
        ),
        **_documents("reranker.output_documents", output),
    }


def _turn(record: GenerateRecord, number: int) -> Attributes:
    reply, sent = record.turns[number].reply, messages_sent(record, number)
    read, written = reply.prompt_tokens, reply.answer_tokens
    return {
        "llm.model_name": record.model,
        "llm.invocation_parameters": _json(dict(record.options)),
        **_messages("llm.input_messages", sent),
        **_messages("llm.output_messages", [Message("assistant", reply.text)]),
        **_said("output", reply.text),
        "llm.token_count.prompt": read,
        "llm.token_count.prompt_details.cache_read": reply.cached_tokens,
        "llm.token_count.completion": written,
        "llm.token_count.total": None if read is None or written is None else read + written,
    }


def _judged(trace: StepTrace, rewards: Sequence[LedgerEvent]) -> Attributes:
    """Evaluations of the whole trace: each reward that stands, by whom it was given."""
    found: Attributes = {}
    for number, event in enumerate(rewards):
        by_person = event.source == "person"
        verdict = event.reason if by_person else trace.reward.verdict if trace.reward else ""
        one = {
            "name": "reward",
            "score": event.value,
            "explanation": verdict or None,
            "annotator_kind": "HUMAN" if by_person else "CODE",
            "identifier": event.rater or None,
        }
        found |= {f"trace.evaluations.{number}.evaluation.{name}": value for name, value in one.items()}
    given = trace.generate.turns[-1].reply.text if trace.generate and trace.generate.turns else None
    return {**(_said("input", given) if given is not None else {}), **found}


def _answer(trace: StepTrace) -> Attributes:
    turns = trace.generate.turns if trace.generate else ()
    return _said("output", turns[-1].reply.text) if turns else {}


def _said(side: str, words: str) -> Attributes:
    return {f"{side}.value": words, f"{side}.mime_type": "text/plain"}


def _messages(prefix: str, messages: Iterable[Message]) -> Attributes:
    return {
        f"{prefix}.{number}.message.{name}": value
        for number, message in enumerate(messages)
        for name, value in (("role", message.role), ("content", message.content))
    }


def _recalled(bank: MemoryBank, seen: Recalled) -> Attributes:
    return _document(bank, seen.memory_id, seen.similarity, {"rank": seen.rank_recall})


def _document(bank: MemoryBank, memory_id: str, score: float | None, about: Mapping[str, Any]) -> Attributes:
    memory = bank.memory(memory_id)
    metadata = {"intent": memory.intent, "outcome": memory.outcome, **about}
    return {"id": memory_id, "content": memory.experience, "score": score, "metadata": _json(metadata)}


def _documents(prefix: str, documents: Iterable[Attributes]) -> Attributes:
    return {
        f"{prefix}.{number}.document.{name}": value
        for number, document in enumerate(documents)
        for name, value in document.items()
    }


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _number(words: str, size: int) -> int:
    """An id of `size` bytes that `words` decide, never 0."""
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:size]) or 1


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
