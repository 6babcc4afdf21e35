"""What an agent reports of one step, and its trace: nothing is filled in that was not reported or measured.

Where a record needs a number that was not reported, the trace's `lacks` says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.policies import make_policy
from memrl_core.policies.base import intent_key
from memrl_core.records import (
    Candidate,
    Decision,
    EmbedRecord,
    GenerateRecord,
    MemoryOperation,
    MemorySpan,
    Message,
    Outcome,
    Reason,
    Recalled,
    RecallRecord,
    RewardRecord,
    Role,
    StepTrace,
    Task,
    Term,
    Turn,
    UpdateRecord,
    Utility,
    WriteRecord,
)


@dataclass(slots=True)
class StepReport:
    """One step as an agent reports it; None and empty mean that it was not reported.

    `recalled` maps the pool to similarities; `values` are its utilities then, `memories` how many the run knew.
    `failure` names the exception that ended the step.
    """

    id: str
    intent: str
    task: str
    epoch: int
    embedding: Vector | None
    model: str
    started: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    recalled: dict[str, float | None] | None = None
    values: Mapping[str, Utility] = field(default_factory=dict)
    memories: int = 0
    k1: int | None = None
    delta: float | None = None
    selected: tuple[str, ...] | None = None
    scores: dict[str, float] = field(default_factory=dict)
    q: dict[str, float] = field(default_factory=dict)
    messages: tuple[Message, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    reward: float | None = None
    why: str = ""
    experience: str | None = None
    memory_id: str = ""
    failure: str = ""


def trace_of(report: StepReport, bank: MemoryBank, run: str) -> StepTrace:
    """The step as the next one of the run; nobody else may append meanwhile."""
    number, settings, info = bank.next_step(run), bank.settings(run), bank.run(run)
    policy = make_policy(info.policy, settings)
    lacks = _lacking(report)
    reward = None if report.failure else report.reward
    outcome = policy.outcome_of(reward)
    credited = report.selected or ()
    recall = _recall(report, bank, lacks)
    decision = None if recall is None or report.selected is None else _decision(report, recall, lacks)
    return StepTrace(
        id=report.id,
        run=run,
        step=number,
        epoch=report.epoch,
        task=Task(report.task or f"{run}-{number}", report.intent, info.environment),
        policy=info.policy,
        settings=settings,
        started=report.started,
        seconds=report.seconds,
        embed=None
        if report.embedding is None
        else EmbedRecord(bank.embedder.name, bank.embedder.dimension, tuple(report.embedding.tolist())),
        recall=recall,
        decision=decision,
        generate=_generate(report, bank, credited, lacks),
        reward=RewardRecord(
            reward=reward,
            source=None if reward is None else "environment",
            outcome=outcome,
            verdict="" if reward is None else report.why,
            rater="",
            reason="",
            credited=credited,
        ),
        update=UpdateRecord(
            () if reward is None else policy.update(credited, reward, bank.utilities_of(run, credited))
        ),
        write=_write(report, bank, run, settings, outcome, lacks),
        origin="recorder",
        lacks=tuple(lacks),
    )


def _lacking(report: StepReport) -> list[str]:
    parts = {
        "the embedding of its intent": report.embedding is not None,
        "which memories it recalled": report.recalled is not None,
        "which memories it selected": report.selected is not None,
        "what it sent to the model": bool(report.messages),
        "what the model answered": bool(report.turns),
        "how well it went": report.reward is not None and not report.failure,
        "what it wrote into its memory": report.experience is not None,
    }
    parts[f"what would have come after {report.failure} ended it"] = not report.failure
    return [what for what, was_reported in parts.items() if not was_reported]


def _recall(report: StepReport, bank: MemoryBank, lacks: list[str]) -> RecallRecord | None:
    """The pool, most similar first; None where a similarity was neither reported nor can be measured."""
    if report.recalled is None:
        return None
    similarities = {one: similarity for one, similarity in report.recalled.items() if similarity is not None}
    if missing := [one for one in report.recalled if one not in similarities]:
        if report.embedding is None:
            lacks.append(f"how similar the memories are that it recalled ({', '.join(report.recalled)})")
            return None
        lacks.append(f"the similarities it saw of {', '.join(missing)}: those here are cosines that the bank measured")
        similarities |= {one: float(bank.embedding(one) @ report.embedding) for one in missing}
    if report.k1 is None or report.delta is None:
        lacks.append("how large its pool may be and from which similarity on it recalls (k1, δ)")
    ranked = sorted(report.recalled, key=lambda one: -similarities[one])
    return RecallRecord(
        k1=len(ranked) if report.k1 is None else report.k1,
        k1_counts="record",
        delta=-1.0 if report.delta is None else report.delta,
        strict=False,
        memories=report.memories,
        pool=tuple(Recalled(one, similarities[one], rank, None) for rank, one in enumerate(ranked, start=1)),
        left_out=(),
    )


def _decision(report: StepReport, recall: RecallRecord, lacks: list[str]) -> Decision:
    """The choice from the pool. Without a score for each memory only the order of the prompt is a ranking."""
    chosen = report.selected or ()
    unscored = [seen.memory_id for seen in recall.pool if seen.memory_id not in report.scores]
    if unscored:
        lacks.append(f"the scores of {', '.join(unscored)}")
        ranking: Sequence[str] = chosen
    else:
        ranking = sorted((seen.memory_id for seen in recall.pool), key=lambda one: -report.scores[one])
    if believed := [seen.memory_id for seen in recall.pool if seen.memory_id not in report.q]:
        lacks.append(f"the q it saw of {', '.join(believed)}: those here are the bank's")
    lacks.append(
        "how it ranks: λ, ε, the seed and the probability of this choice are not known, though they are 0 here"
    )
    candidates = []
    for seen in recall.pool:
        memory_id, score = seen.memory_id, report.scores.get(seen.memory_id)
        utility = report.values[memory_id]
        candidates.append(
            Candidate(
                memory_id=memory_id,
                similarity=seen.similarity,
                q=report.q.get(memory_id, utility.q),
                visits=utility.visits,
                terms=() if unscored or score is None else (Term("score", score, score, 1.0, score),),
                score=score,
                rank_recall=seen.rank_recall,
                rank_select=ranking.index(memory_id) + 1 if memory_id in ranking else None,
                selected=memory_id in chosen,
                reason=Reason.TOP_K2 if memory_id in chosen else Reason.BEYOND_K2,
            )
        )
    candidates.sort(key=lambda one: one.rank_select or len(candidates) + one.rank_recall)
    return Decision(
        k2=len(chosen),
        weight=0.0,
        normaliser="unknown",
        normaliser_lines=(),
        candidates=tuple(candidates),
        selected=chosen,
        greedy=tuple(ranking[: len(chosen)]),
        mode="greedy" if recall.pool else "fallback",
        epsilon=0.0,
        draw=None,
        seed=0,
        propensity=0.0,
    )


def _generate(report: StepReport, bank: MemoryBank, selected: Sequence[str], lacks: list[str]) -> GenerateRecord | None:
    if not report.messages and not report.turns:
        return None
    spans: list[MemorySpan] = []
    for one in selected if report.messages else ():
        span = _place(one, bank.memory(one).experience.strip(), report.messages, spans)
        if span is None:
            lacks.append(f"where the memory {one} is in the prompt")
        else:
            spans.append(span)
    spans.sort(key=lambda span: (span.message, span.start))
    return GenerateRecord(report.model, False, report.options, report.messages, tuple(spans), tuple(report.turns))


def _place(memory_id: str, words: str, messages: Sequence[Message], taken: Sequence[MemorySpan]) -> MemorySpan | None:
    """Where a memory is in the prompt word for word, in a place that no other memory has."""
    for number, message in enumerate(messages):
        start = message.content.find(words) if words else -1
        while start >= 0:
            end = start + len(words)
            if not any(span.message == number and start < span.end and span.start < end for span in taken):
                return MemorySpan(memory_id, number, start, end)
            start = message.content.find(words, start + 1)
    return None


def _write(
    report: StepReport, bank: MemoryBank, run: str, settings: Mapping[str, Any], outcome: Outcome, lacks: list[str]
) -> WriteRecord | None:
    if report.experience is None:
        return None
    taken = bool(report.memory_id) and report.memory_id in bank.memory_ids()
    if taken:
        lacks.append(f"a free name for the memory it wrote: {report.memory_id} is another's, so the bank chose one")
    operation = MemoryOperation(
        op="ADD",
        memory_id=bank.next_memory_id(run) if taken or not report.memory_id else report.memory_id,
        intent=report.intent,
        experience=report.experience,
        outcome=outcome,
        intent_key=intent_key(report.intent),
        q0=float(settings["q0_failure" if outcome == "failure" else "q0_success"]),
        parents=report.selected or (),
    )
    return WriteRecord((operation,))


Vector = npt.NDArray[np.float32]
Embedding = Sequence[float] | npt.NDArray[Any]
Hits = Mapping[str, float | None] | Iterable[str | tuple[str, float | None]]

UNCHANGED = "This call changed nothing."
LONGEST_ID = 200
ROUNDING = 1e-3
"""How far beyond ±1 a cosine may lie that another program computed."""

_ROLES: Mapping[str, Role] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "user"}


def text(value: object, what: str) -> str:
    """Text that can be saved as UTF-8."""
    if not isinstance(value, str):
        raise InputError(f"{what} has to be text, not {type(value).__name__}. {UNCHANGED}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{what} holds half a character and cannot be saved as UTF-8. {UNCHANGED}") from None
    return value


def number(value: object, what: str) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not math.isfinite(value):
        raise InputError(f"{str(value)[:80]} is not {what}: give a finite number. {UNCHANGED}")
    return float(value)


def count(value: object, what: str, least: int = 0) -> int:
    """A whole number from `least` on."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{str(value)[:80]} is not {what}: give a whole number from {least} on. {UNCHANGED}")
    return int(value)


def memory_id(value: object) -> str:
    """An id that a memory can have."""
    words = text(value, "A memory's id")
    if not words.strip() or len(words) > LONGEST_ID or not words.isprintable():
        raise InputError(f"A memory's id has 1 to {LONGEST_ID} printable characters. {UNCHANGED}")
    return words


def ids(given: Iterable[str]) -> tuple[str, ...]:
    """Memories, each named once."""
    if isinstance(given, str):
        raise InputError(f"Give the memories as a list of ids. {UNCHANGED}")
    found = tuple(memory_id(one) for one in given)
    if len(set(found)) != len(found):
        raise InputError(f"A memory is named twice. {UNCHANGED}")
    return found


def hits(given: Hits) -> dict[str, float | None]:
    """Memories with their cosines as they were given, None where they were not."""
    listed = given.items() if isinstance(given, Mapping) else given
    pairs = [hit if isinstance(hit, tuple | list) else (hit, None) for hit in listed]
    if any(len(pair) != 2 for pair in pairs):
        raise InputError(f"Give each memory as its id, or as (id, similarity). {UNCHANGED}")
    named = ids(pair[0] for pair in pairs)
    cosines = [None if given is None else number(given, "a similarity") for _, given in pairs]
    if wild := [value for value in cosines if value is not None and abs(value) > 1 + ROUNDING]:
        raise InputError(f"{wild[0]:g} is not a cosine, which lies in [-1, 1]: leave it out. {UNCHANGED}")
    return dict(zip(named, cosines, strict=True))


def numbers(given: Mapping[str, float] | None, known: Iterable[str], what: str) -> dict[str, float]:
    """A number for some of the `known` memories."""
    found = {one: number(value, what) for one, value in (given or {}).items()}
    if strange := set(found) - set(known):
        raise InputError(f"The memory “{min(strange)[:80]}” was given {what} but not recalled. {UNCHANGED}")
    return found


def message(given: Mapping[str, Any], place: int) -> Message:
    """A chat message; what a tool says is kept as said by the user."""
    role = str(given.get("role"))
    if role not in _ROLES:
        raise InputError(f"Message {place} has the role {role[:40]!r}; known are {', '.join(_ROLES)}. {UNCHANGED}")
    return Message(_ROLES[role], text(given.get("content") or "", f"Message {place}"))


def options(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options of a generation, which have to be JSON."""
    found = dict(given or {})
    try:
        json.dumps(found, allow_nan=False)
    except (TypeError, ValueError):
        raise InputError(f"The options are not JSON. {UNCHANGED}") from None
    return found


def unit(given: Embedding, dimension: int) -> Vector:
    """An embedding as a vector (d,) of length 1."""
    try:
        vector = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"An embedding is not a list of numbers. {UNCHANGED}") from None
    if vector.shape != (dimension,):
        raise InputError(
            f"An embedding of shape {vector.shape} does not fit this bank: give one list of {dimension} numbers. "
            + UNCHANGED
        )
    largest = float(np.abs(vector).max())
    if not 0 < largest < math.inf:
        raise InputError(f"An embedding is not finite, or all of it is 0. {UNCHANGED}")
    # Scaled first: the squares of huge or tiny numbers leave the range of floats.
    scaled = vector / largest
    found: Vector = (scaled / np.linalg.norm(scaled)).astype(np.float32)
    return found
