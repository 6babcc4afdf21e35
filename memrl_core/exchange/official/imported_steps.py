"""Steps that files of the official code tell of, as traces.

What a file tells becomes the trace; what it does not is named in `lacks`. No file tells the reward as a number (it is a
setting of the run), so a trace has an outcome and no reward, and no reward enters the ledger: the q of the checkpoint
beside them holds these rewards already, and counting them again would move it. What is imported with a q keeps it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memrl_core.exchange.official.imported_memories import Taken
from memrl_core.exchange.official.json_files import text_of
from memrl_core.records import (
    Candidate,
    Decision,
    EmbedRecord,
    GenerateRecord,
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
)

_ROLES: Mapping[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_OPTIONS = ("temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "reasoning_effort")
ROUNDING = 1e-6
EXACT = 1e-12


@dataclass(frozen=True, slots=True)
class Scored:
    """A memory that was put into the prompt, with the numbers that decided it."""

    memory_id: str
    similarity: float
    similarity_z: float
    q: float
    q_z: float
    score: float
    visits: int


@dataclass(frozen=True, slots=True)
class Choice:
    """The part of a decision that a trace file holds: what was selected, best first, and the two weights."""

    selected: tuple[Scored, ...]
    weight_similarity: float
    weight_q: float
    k1: int
    k2: int
    delta: float


@dataclass(frozen=True, slots=True)
class ReportedStep:
    """One step as a file tells it. `place` names file and line; `used` are the memories that were in the prompt."""

    place: str
    epoch: int
    task: Task
    started: str = ""
    success: bool | None = None
    verdict: str = ""
    used: tuple[str, ...] = ()
    choice: Choice | None = None
    model: str = "unknown"
    options: Mapping[str, Any] | None = None
    messages: tuple[Message, ...] = ()
    turns: tuple[Turn, ...] = ()
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SimilarityScale:
    """The mean and sd by which a run standardised its similarities: constants of its configuration."""

    mean: float
    sd: float


def similarity_scale(choices: Iterable[Choice | None]) -> SimilarityScale | None:
    """The scale that every (similarity, similarity_z) of a trace shows; None when they show none or more than one.

    The official code takes z = (similarity - mean) / sd, without a cut, so two pairs decide. The constants are decimal
    numbers, whose digits the floats of a trace only blur: the shortest that give all pairs back are taken.
    """
    pairs = sorted((s.similarity, s.similarity_z) for choice in choices if choice is not None for s in choice.selected)
    if len(pairs) < 2 or pairs[-1][0] - pairs[0][0] < ROUNDING or pairs[-1][1] == pairs[0][1]:
        return None
    (low, low_z), (high, high_z) = pairs[0], pairs[-1]
    sd = (high - low) / (high_z - low_z)
    mean = low - low_z * sd

    def misses(mean: float, sd: float) -> float:
        return max(abs((similarity - mean) / sd - z) for similarity, z in pairs) if sd > 0 else math.inf

    if not misses(mean, sd) <= ROUNDING or misses(0, 1) <= EXACT:
        return (
            None  # Of a run without standardisation the trace has z = similarity; there q is not standardised either.
        )
    rounded = ((round(mean, digits), round(sd, digits)) for digits in range(1, 15))
    return SimilarityScale(*next((pair for pair in rounded if misses(*pair) <= EXACT), (mean, sd)))


def trace_of(
    reported: ReportedStep, step: int, run: str, embedder: str, settings: Mapping[str, Any], taken: Taken
) -> StepTrace:
    """The trace of a step; memories that are not in the checkpoint cannot be shown and are named in `lacks`."""
    known = tuple(i for i in reported.used if i in taken.memories)
    lacks = [*reported.lacks, "the reward as a number, and how far it moved each q"]
    if strangers := [i for i in reported.used if i not in taken.memories]:
        lacks.append(f"{len(strangers)} of the memories in its prompt, which are not in the checkpoint")
    recall, decision = None, None
    if reported.choice is not None and not strangers:
        recall, decision = _recalled(reported.choice), _decided(reported.choice)
        lacks += [
            "the candidates that were not selected",
            "mean and standard deviation of the pool",
            "whether it explored",
            "how many memories it could choose from",
        ]
    elif reported.used:
        lacks.append("the decision: scores and q of the candidates")
    vector = taken.intents.get(reported.task.intent)
    if vector is None:
        lacks.append("the embedding of its intent")
    outcome: Outcome = "unrated" if reported.success is None else "success" if reported.success else "failure"
    return StepTrace(
        id=hashlib.sha256(f"{run}\n{reported.place}".encode()).hexdigest()[:32],
        run=run,
        step=step,
        epoch=reported.epoch,
        task=reported.task,
        policy="memrl",
        settings=settings,
        started=reported.started,
        embed=None if vector is None else EmbedRecord(embedder, taken.dimension, tuple(map(float, vector))),
        recall=recall,
        decision=decision,
        generate=_generated(reported, known, taken),
        reward=RewardRecord(None, None, outcome, reported.verdict, "", "", known),
        origin="import",
        lacks=tuple(lacks),
    )


def _recalled(choice: Choice) -> RecallRecord:
    nearest = sorted(choice.selected, key=lambda scored: -scored.similarity)
    return RecallRecord(
        k1=choice.k1,
        k1_counts="intent",
        delta=choice.delta,
        strict=False,
        memories=len(choice.selected),
        pool=tuple(Recalled(s.memory_id, s.similarity, rank, None) for rank, s in enumerate(nearest, start=1)),
        left_out=(),
    )


def _decided(choice: Choice) -> Decision:
    nearest = sorted(choice.selected, key=lambda scored: -scored.similarity)
    ids = tuple(scored.memory_id for scored in choice.selected)
    whole = choice.weight_similarity + choice.weight_q
    return Decision(
        k2=choice.k2,
        weight=choice.weight_q / whole if whole > 0 else 0.0,
        normaliser="not reported",
        normaliser_lines=(),
        candidates=tuple(
            Candidate(
                memory_id=scored.memory_id,
                similarity=scored.similarity,
                q=scored.q,
                visits=scored.visits,
                terms=_terms(scored, choice),
                score=scored.score,
                rank_recall=nearest.index(scored) + 1,
                rank_select=rank,
                selected=True,
                reason=Reason.TOP_K2,
            )
            for rank, scored in enumerate(choice.selected, start=1)
        ),
        selected=ids,
        greedy=ids,
        mode="greedy" if ids else "fallback",
        epsilon=0.0,
        draw=None,
        seed=0,
        propensity=1.0,
    )


def _terms(scored: Scored, choice: Choice) -> tuple[Term, ...]:
    by_similarity = choice.weight_similarity * scored.similarity_z
    by_q = choice.weight_q * scored.q_z
    if not math.isclose(by_similarity + by_q, scored.score, rel_tol=ROUNDING, abs_tol=ROUNDING):
        return (Term("score", scored.score, scored.score, 1.0, scored.score),)
    return (
        Term("similarity", scored.similarity, scored.similarity_z, choice.weight_similarity, by_similarity),
        Term("q", scored.q, scored.q_z, choice.weight_q, by_q),
    )


def _generated(reported: ReportedStep, known: Sequence[str], taken: Taken) -> GenerateRecord | None:
    if not reported.messages or not reported.turns:
        return None
    spans = []
    for memory_id in known:
        words = taken.memories[memory_id][0].experience.strip()
        places = ((number, message.content.find(words)) for number, message in enumerate(reported.messages))
        found = next(((number, start) for number, start in places if words and start >= 0), None)
        if found is not None:
            spans.append(MemorySpan(memory_id, found[0], found[1], found[1] + len(words)))
    return GenerateRecord(
        reported.model, False, reported.options or {}, reported.messages, tuple(spans), reported.turns
    )


# --- what the files have in common ------------------------------------------------------------------------------------


def messages_of(reported: Any) -> list[Message]:
    """Chat messages as they were sent; of a message in parts the text, and a mark where a picture was."""
    read = []
    for message in reported if isinstance(reported, list) else ():
        if isinstance(message, dict):
            read.append(Message(_ROLES.get(str(message.get("role")), "user"), _content(message.get("content"))))
    return read


def _content(content: Any) -> str:
    if not isinstance(content, list):
        return text_of(content)
    parts = [part for part in content if isinstance(part, dict)]
    return "\n".join(text_of(part.get("text")) if part.get("type") == "text" else "[not text]" for part in parts)


def options_of(params: Any) -> dict[str, Any]:
    """How an answer was sampled; nothing else is taken over, since calls may carry keys."""
    reported = params if isinstance(params, dict) else {}
    return {name: reported[name] for name in _OPTIONS if isinstance(reported.get(name), str | int | float)}
