"""What another agent reported of one step, and the trace that is made of it.

Nothing is filled in that was not reported or measured: where a record needs a number that was not reported, `lacks` of
the trace says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter

from memrl_core.bank import MemoryBank
from memrl_core.errors import few
from memrl_core.policies import make_policy
from memrl_core.policies.base import Vector, intent_key
from memrl_core.records import (
    Candidate,
    Decision,
    EmbedRecord,
    GenerateRecord,
    Hit,
    MemoryOperation,
    MemorySpan,
    Message,
    Outcome,
    Reason,
    Recalled,
    RecallRecord,
    Reply,
    Retrieval,
    RewardRecord,
    StepTrace,
    Task,
    Term,
    ToolCall,
    Turn,
    UpdateRecord,
    Utility,
    WriteRecord,
)

Operation = Literal["add", "update", "merge", "delete", "supersede"]


@dataclass(frozen=True, slots=True)
class Written:
    """One operation on the memory, as it was reported."""

    op: Operation
    memory_id: str
    experience: str
    replaces: tuple[str, ...]
    why: str
    data: Mapping[str, Any]


@dataclass(slots=True)
class StepReport:
    """What an agent reported of one step; None and empty where it did not.

    `tried` are the calls that were made, `called` those that could be used; `sentences` say what could not be used, and
    what else is worth knowing. `known_then` are the utilities that the run had of the memories recalled, `memories` how
    many it had. `total` is the name and the values of the score by which the agent ranked. `tools` came before the
    first reply. `failure` is the kind of exception that ended the step.
    """

    id: str
    intent: str
    task: str
    epoch: int
    embedding: list[float] | None
    model: str
    own_id: str = ""
    started: str = ""
    failure: str = ""
    tried: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)
    retrievals: list[Retrieval] = field(default_factory=list)
    pool: tuple[str, ...] | None = None
    known_then: dict[str, Utility] = field(default_factory=dict)
    memories: int = 0
    k1: int | None = None
    delta: float | None = None
    chosen: tuple[str, ...] | None = None
    scores: dict[str, float] = field(default_factory=dict)
    total: tuple[str, dict[str, float]] | None = None
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    q: dict[str, float] = field(default_factory=dict)
    messages: tuple[Message, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    tools: list[ToolCall] = field(default_factory=list)
    reward: float | None = None
    why: str = ""
    written: list[Written] = field(default_factory=list)

    @property
    def vector(self) -> Vector | None:
        """The embedding of the intent (d,), of length 1."""
        return None if self.embedding is None else np.asarray(self.embedding, dtype=np.float32)


REPORT = TypeAdapter(StepReport)
"""A report as JSON: so it waits for a bank that cannot be written."""


def trace_of(
    bank: MemoryBank, run: str, report: StepReport, before: Sequence[str]
) -> tuple[StepTrace, dict[str, Vector]]:
    """The step as the next one of the run, and the embeddings of the memories that it wrote.

    Nobody else may append meanwhile. `before` is what could not be used of the calls before it.
    """
    turns = tuple(report.turns)
    if report.tools:  # Used before a reply that never came.
        turns = (*turns, Turn(Reply(""), "", 0.0, terminated=False, truncated=False, tools=tuple(report.tools)))
    number, settings, info = bank.next_step(run), bank.settings(run), bank.run(run)
    policy = make_policy(info.policy, settings)
    own = {"id": report.own_id} if report.own_id else {}
    reward = None if report.failure else report.reward
    outcome, credited = policy.outcome_of(reward), report.chosen or ()
    lacks = [
        what
        for what, is_reported in (
            ("the embedding of its intent", report.embedding is not None),
            ("which memories it recalled", report.pool is not None),
            ("which memories it selected", report.chosen is not None),
            ("what it sent to the model", bool(report.messages)),
            ("what the model answered", bool(report.turns)),
            ("how well it went", reward is not None),
            (f"what would have come after {report.failure} ended it", not report.failure),
        )
        if not is_reported
    ]
    lacks += [*report.sentences, *(f"before this step, {sentence}" for sentence in before)]
    low, high = settings["reward_failure"], settings["reward_success"]
    if reward is not None and not low <= reward <= high:
        lacks.append(f"a reward on the scale of this run, {low:g} to {high:g}: {reward:g} counts as it was given")
    recall = _recall(bank, report, lacks)
    embed = None
    if report.embedding is not None:
        embed = EmbedRecord(bank.embedder.name, bank.embedder.dimension, tuple(report.embedding))
    decision = None if recall is None or report.chosen is None else _decision(report, recall, lacks)
    generate = _generate(bank, report, turns, lacks) if report.messages or turns else None
    write, vectors = _write(bank, run, report, settings, outcome, lacks)
    trace = StepTrace(
        id=report.id,
        run=run,
        step=number,
        epoch=report.epoch,
        task=Task(report.task or f"{run}-{number}", report.intent, info.environment, data=own),
        policy=info.policy,
        settings=settings,
        started=report.started,
        seconds=report.seconds,
        embed=embed,
        recall=recall,
        decision=decision,
        generate=generate,
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
            () if reward is None else policy.update(credited, reward, bank.utilities(run, of=credited))
        ),
        write=write,
        origin="recorder",
        lacks=tuple(lacks),
        retrievals=tuple(report.retrievals),
    )
    return trace, vectors


def _recall(bank: MemoryBank, report: StepReport, lacks: list[str]) -> RecallRecord | None:
    """The pool, most similar first; None where a similarity was neither reported nor can be measured.

    Where the scores that were reported are no cosines, the pool has the agent's order.
    """
    if report.pool is None:
        return None
    first: dict[str, tuple[Retrieval, Hit]] = {}
    for retrieval in report.retrievals:
        for hit in retrieval.hits:
            if hit.known and (hit.memory_id not in first or first[hit.memory_id][1].score is None):
                first[hit.memory_id] = retrieval, hit
    given = {one: hit.score for one, (_, hit) in first.items() if hit.score is not None}
    signals, order = given, [*report.pool]
    name = " + ".join(dict.fromkeys(retrieval.name for retrieval, hit in first.values() if hit.score is not None))
    asked = [retrieval for retrieval in report.retrievals if retrieval.kind != "cosine" or retrieval.query]
    # The scores of several queries, or of several signals, have no common scale, unless the agent made one.
    own = bool(asked) or report.total is not None
    names = {one: retrieval.name for one, (retrieval, _) in first.items()}
    if report.total is not None:
        name, signals = report.total
        names = dict.fromkeys(report.pool, name)
        order = sorted(report.pool, key=lambda one: -signals.get(one, -math.inf))
    measured = {}
    if (vector := report.vector) is not None:
        measured = {one: float(bank.embedding(one) @ vector) for one in report.pool}
    cosines = {
        one: hit.score
        for one, (retrieval, hit) in first.items()
        if retrieval.kind == "cosine" and not retrieval.query and hit.score is not None
    }
    similarities = {**cosines, **measured} if own else {**measured, **cosines}
    if len(similarities) < len(report.pool):
        scores = f"; its own scores are no cosines: {name} {_listed(signals)}" if own and signals else ""
        lacks.append(f"how similar the memories are that it recalled ({', '.join(report.pool)}){scores}")
        return None
    if own and signals:
        lacks.append(
            f"cosines: the scores that it gave are its own ({name}: {_listed(signals)}), while the similarities by "
            f"the stored vectors are {_listed({one: round(similarities[one], 3) for one in signals})}"
        )
    elif missing := [one for one in report.pool if one not in given]:
        lacks.append(f"the similarities it saw of {', '.join(missing)}: those here are cosines that the bank measured")
    if report.k1 is None or report.delta is None:
        lacks.append("how large its pool may be and from which similarity on it recalls (k1, δ)")
    ranked = order if own else sorted(report.pool, key=lambda one: -similarities[one])
    return RecallRecord(
        k1=max(len(ranked), 1) if report.k1 is None else report.k1,
        k1_counts="record",
        delta=-1.0 if report.delta is None else report.delta,
        strict=False,
        memories=report.memories,
        pool=tuple(
            Recalled(one, similarities[one], rank, None, signals.get(one), names[one])
            if own and one in signals
            else Recalled(one, similarities[one], rank, None)
            for rank, one in enumerate(ranked, start=1)
        ),
        left_out=(),
        rule="own score" if own else "similarity",
        why="; ".join(dict.fromkeys(retrieval.scope for retrieval in report.retrievals if retrieval.scope)),
        signal=name if own else "",
    )


def _decision(report: StepReport, recall: RecallRecord, lacks: list[str]) -> Decision:
    """The choice from the pool. Without a score for each memory only the order of the prompt is a ranking."""
    chosen, pool = report.chosen or (), [seen.memory_id for seen in recall.pool]
    unscored = [one for one in pool if one not in report.scores]
    if unscored:
        lacks.append(f"the scores of {', '.join(unscored)}")
    ranking = chosen if unscored else tuple(sorted(pool, key=lambda one: -report.scores[one]))
    if set(ranking[: len(chosen)]) != set(chosen):
        # Drawn, or by a score of which less is better: nothing but the prompt says in which order.
        lacks.append(f"how its scores rank ({_listed(report.scores)}): it did not select those with the largest")
        ranking = chosen
    if of_the_bank := [one for one in pool if one not in report.q]:
        lacks.append(f"the q it saw of {', '.join(of_the_bank)}: those here are the bank's")
    lacks.append(
        "how it ranks: λ, ε, the seed and the probability of this choice are not known, though they are 0 here"
    )
    candidates = []
    for seen in recall.pool:
        memory_id, score = seen.memory_id, report.scores.get(seen.memory_id)
        utility = report.known_then[memory_id]
        candidates.append(
            Candidate(
                memory_id=memory_id,
                similarity=seen.similarity,
                q=report.q.get(memory_id, utility.q),
                visits=utility.visits,
                terms=() if unscored or score is None else _terms(report, memory_id, score),
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
        greedy=ranking[: len(chosen)],
        mode="greedy" if recall.pool else "fallback",
        epsilon=0.0,
        draw=None,
        seed=0,
        propensity=0.0,
    )


def _terms(report: StepReport, memory_id: str, score: float) -> tuple[Term, ...]:
    """The addends of a score; the score itself where the parts that were reported do not add up to it."""
    terms = []
    for signal, scores in report.parts.items():
        weight, raw = report.weights.get(signal, 1.0), scores.get(memory_id, 0.0)
        terms.append(Term(signal, raw, raw, weight, weight * raw))
    if terms and math.isclose(math.fsum(term.contribution for term in terms), score, rel_tol=1e-6, abs_tol=1e-9):
        return tuple(terms)
    name = report.total[0] if report.total is not None and report.total[1].get(memory_id) == score else "score"
    return (Term(name, score, score, 1.0, score),)


def _generate(bank: MemoryBank, report: StepReport, turns: tuple[Turn, ...], lacks: list[str]) -> GenerateRecord:
    texts = {one: bank.memory(one).experience for one in report.chosen or ()} if report.messages else {}
    spans = placed(texts, report.messages)
    found = {span.memory_id for span in spans}
    lacks += [f"where the memory {one} is in the prompt" for one in texts if one not in found]
    return GenerateRecord(report.model, False, report.options, report.messages, spans, turns)


def _write(
    bank: MemoryBank, run: str, report: StepReport, settings: Mapping[str, Any], outcome: Outcome, lacks: list[str]
) -> tuple[WriteRecord | None, dict[str, Vector]]:
    """What was done to the memory, None where that is not known, and the embeddings of what was written."""
    vectors: dict[str, Vector] = {}
    if not report.written:
        return None if report.failure or "wrote" in report.tried else WriteRecord(()), vectors
    made: list[MemoryOperation] = []
    for one in report.written:
        name, intent, vector = "", report.intent, report.vector
        if one.op != "delete":
            # What replaces a memory is named after it: "m1", "m1~2", "m1~3".
            stem = one.replaces[0].split("~")[0] if one.replaces else bank.write.next_memory_id(run)
            names = chain([one.memory_id or stem], map(f"{stem}~{{}}".format, count(2)))
            name = next(free for free in names if free not in vectors and not bank.holds(free))
            if one.replaces:
                intent, vector = bank.memory(one.replaces[0]).intent, bank.embedding(one.replaces[0])
            assert vector is not None
            vectors[name] = vector
        written = MemoryOperation(
            op="ADD",
            memory_id=name,
            intent=intent,
            experience=one.experience,
            outcome=outcome,
            intent_key=intent_key(intent),
            q0=float(settings["q0_failure" if outcome == "failure" else "q0_success"]),
            parents=report.chosen or (),
            data=one.data,
            why=one.why,
        )
        made += _operations(one, written)
        if one.memory_id and one.memory_id not in vectors:
            lacks.append(f"a free name for the memory it wrote: {one.memory_id} is another's, so the bank chose one")
    return WriteRecord(tuple(made)), vectors


def _operations(one: Written, written: MemoryOperation) -> list[MemoryOperation]:
    """The operations of the bank that a reported one is; `written` is the memory that it adds, if it adds one."""
    if one.op == "add":
        return [written]
    if one.op in ("update", "merge"):
        return [replace(written, op="UPDATE" if one.op == "update" else "MERGE", replaces=one.replaces)]
    name, deleted = written.memory_id, []
    for old in one.replaces:
        why = one.why or (f"superseded by {name}" if name else "")
        data = {"replaced_by": name} if name else {}
        deleted.append(MemoryOperation("DELETE", "", "", "", "unrated", "", 0.0, (), None, (old,), data, why))
    return [*([written] if name else []), *deleted]


def placed(texts: Mapping[str, str], messages: Sequence[Message]) -> tuple[MemorySpan, ...]:
    """Where the texts of memories, by their ids, are in a prompt word for word, in its order, each in its own place."""
    spans: list[MemorySpan] = []
    for memory_id, text in texts.items():
        span = _place(memory_id, text.strip(), messages, spans)
        spans += [] if span is None else [span]
    return tuple(sorted(spans, key=lambda span: (span.message, span.start)))


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


def _listed(scores: Mapping[str, float]) -> str:
    return few(f"{one[:80]} {score:.6g}" for one, score in scores.items())
