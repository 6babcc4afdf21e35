"""What an agent reports of one step, and the trace it becomes: nothing is filled in that was not reported or measured.

Where a record has to hold a number that nobody reported, the trace's `lacks` says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memrl_core.bank import MemoryBank
from memrl_core.policies import make_policy
from memrl_core.policies.base import intent_key
from memrl_core.recorder.incoming import Vector
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
    """One step as an agent reports it; None and empty stand for what it did not say.

    `recalled` maps the pool to similarities; `values` is what the run believed of it then, `memories` of how many.
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
    """The step as the next one of the run. To be called where nobody else can append."""
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
        embed=_embed(report, bank),
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
    lacks = [what for what, was_reported in parts.items() if not was_reported]
    return [*lacks, f"what would have come after {report.failure} ended it"] if report.failure else lacks


def _embed(report: StepReport, bank: MemoryBank) -> EmbedRecord | None:
    if report.embedding is None:
        return None
    return EmbedRecord(bank.embedder.name, bank.embedder.dimension, tuple(report.embedding.tolist()))


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
    """What was chosen from the pool. Without a score for each memory only the order of the prompt is a ranking."""
    chosen = report.selected or ()
    unscored = [seen.memory_id for seen in recall.pool if seen.memory_id not in report.scores]
    if unscored:
        lacks.append(f"the scores of {', '.join(unscored)}")
        ranking: Sequence[str] = chosen
    else:
        ranking = sorted((seen.memory_id for seen in recall.pool), key=lambda one: -report.scores[one])
    if believed := [seen.memory_id for seen in recall.pool if seen.memory_id not in report.q]:
        lacks.append(f"the q it saw of {', '.join(believed)}: those here are the bank's")
    lacks.append("how it ranks: λ, ε, the seed and the probability of this choice are not known, though 0 stands here")
    ranks = {one: rank for rank, one in enumerate(ranking, start=1)}
    candidates = [
        Candidate(
            memory_id=seen.memory_id,
            similarity=seen.similarity,
            q=report.q.get(seen.memory_id, report.values[seen.memory_id].q),
            visits=report.values[seen.memory_id].visits,
            terms=() if unscored else _one_term(report.scores[seen.memory_id]),
            score=report.scores.get(seen.memory_id),
            rank_recall=seen.rank_recall,
            rank_select=ranks.get(seen.memory_id),
            selected=seen.memory_id in chosen,
            reason=Reason.TOP_K2 if seen.memory_id in chosen else Reason.BEYOND_K2,
        )
        for seen in recall.pool
    ]
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


def _one_term(score: float) -> tuple[Term, ...]:
    return (Term("score", score, score, 1.0, score),)


def _generate(report: StepReport, bank: MemoryBank, selected: Sequence[str], lacks: list[str]) -> GenerateRecord | None:
    if not report.messages and not report.turns:
        return None
    spans: list[MemorySpan] = []
    for one in selected if report.messages else ():
        span = _place(one, bank.memory(one).experience.strip(), report.messages, spans)
        if span is None:
            lacks.append(f"where the memory {one} stands in the prompt")
        else:
            spans.append(span)
    spans.sort(key=lambda span: (span.message, span.start))
    return GenerateRecord(report.model, False, report.options, report.messages, tuple(spans), tuple(report.turns))


def _place(memory_id: str, words: str, messages: Sequence[Message], taken: Sequence[MemorySpan]) -> MemorySpan | None:
    """Where a memory stands in the prompt word for word, in a place that no other memory has."""
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
