"""The part of a step's report that tells how its memories were chosen: pool, scores, and what would change them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memrl_core.analysis.decision.explain import normaliser_line, score_formula, setting_notes, warnings
from memrl_core.analysis.decision.labels import memory_label, reason_sentence, weights_label
from memrl_core.analysis.decision.outline import line
from memrl_core.analysis.decision.spectrum import Spectrum, spectrum
from memrl_core.bank import MemoryBank
from memrl_core.figures.decision.decision_diagram import decision_diagram
from memrl_core.figures.decision.recall import recall_picture
from memrl_core.figures.decision.rerank import score_picture, slope_picture
from memrl_core.records import Candidate, Memory, Phase, RunInfo, StepTrace
from memrl_core.report.document import Document

FORMULA = "score = (1 − λ) · z_sim + λ · z_q"


def tell_recall(document: Document, reported: ReportedStep) -> None:
    """Phase A: who was recalled, and who was not."""
    document.section("Phase A: recall by similarity")
    found = reported.trace.recall
    if found is None:
        document.paragraph("This step has no record of what was recalled.")
        return
    document.paragraph(_sentence(line(reported.trace, Phase.RECALL)))
    gate = "above" if found.strict else "of at least"
    unit = "intents" if found.k1_counts == "intent" else "memories"
    document.paragraph(
        f"Phase A keeps the k1 = {found.k1} most similar {unit} with a cosine {gate} δ = {found.delta:g}."
    )
    if found.pool or found.left_out:
        document.picture(recall_picture(found, reported.trace.decision, reported.memories, reported.info.id))


def tell_selection(document: Document, reported: ReportedStep) -> None:
    """Phase B: every number of the pool, and the decision in sentences."""
    document.section("Phase B: selection by score")
    decision, found, run = reported.trace.decision, reported.trace.recall, reported.info.id
    if decision is None:
        document.paragraph("This step has no record of a selection.")
        return
    own = reported.trace.origin == "agent"
    if own:
        document.paragraph(_sentence(line(reported.trace, Phase.SELECT)))
    else:
        document.paragraph(f"Given to the model: {reported.labels(decision.selected)}.")
    ranked = [c for c in decision.candidates if c.rank_select is not None]
    if found and own:
        for sentence in (*warnings(found, decision, run), *setting_notes(reported.settings)):
            document.warning(sentence)
    if any(c.terms for c in ranked):
        document.picture(slope_picture(decision, run))
        document.picture(score_picture(decision, reported.memories, run))
    elif ranked:
        document.paragraph("By which scores the agent chose is not recorded.")
    if decision.candidates:
        document.table(_pool_rows(reported), "Every memory considered, with every number that decided about it")
    if decision.normaliser_lines:
        document.paragraph(
            f"{FORMULA}, λ = {decision.weight:g}. Normaliser {decision.normaliser}: {normaliser_line(decision)}."
        )
    if formulas := [score_formula(c, run) for c in ranked if len(c.terms) > 1]:
        document.verbatim("\n".join(formulas), "The scores with their numbers")
    if not own:
        return
    chance = f"ε = {decision.epsilon:g}" + ("" if decision.draw is None else f", drawn {decision.draw:.6f}")
    document.paragraph(
        f"Mode {decision.mode} ({chance}, seed {decision.seed}); this policy selects these memories from this pool "
        f"with probability {decision.propensity:.6g}."
    )
    _tell_weights(document, reported)


def _tell_weights(document: Document, reported: ReportedStep) -> None:
    """What other weights would have chosen."""
    assert reported.trace.decision is not None
    decision = reported.trace.decision
    lines = spectrum(decision)
    if not lines.ids:
        return
    document.subsection("Other weights")
    if lines.flips:
        points = "1 point" if len(lines.flips) == 1 else f"{len(lines.flips):,} points"
        document.paragraph(f"Greedy selection changes at {points} between λ = 0 and λ = 1; λ was {decision.weight:g}.")
    else:
        document.paragraph("Greedy selection takes the same memories whatever λ is.")
    document.picture(decision_diagram(lines, decision.weight, decision.weight, reported.info.id))
    document.table(_interval_rows(lines, reported), "What greedy selection takes at each λ")


def _pool_rows(reported: ReportedStep) -> Iterator[dict[str, object]]:
    assert reported.trace.decision is not None
    return (_pool_row(candidate, reported) for candidate in reported.trace.decision.candidates)


def _pool_row(candidate: Candidate, reported: ReportedStep) -> dict[str, object]:
    decision, found = reported.trace.decision, reported.trace.recall
    assert decision is not None
    memory = reported.memories.get(candidate.memory_id)
    parts: dict[str, object] = {}
    for term in candidate.terms:
        parts |= {f"z {term.name}": term.normalised, f"part of {term.name}": term.contribution}
    return {
        "memory": reported.label(candidate.memory_id),
        "given": candidate.selected,
        "rank A": candidate.rank_recall,
        "rank B": candidate.rank_select,
        "similarity": candidate.similarity,
        "q": candidate.q,
        "uses": candidate.visits,
        **parts,
        "score": candidate.score,
        "why": reason_sentence(candidate, found, decision) if found else None,
        "outcome": memory.outcome if memory else None,
        "intent": memory.intent if memory else None,
    }


def _interval_rows(lines: Spectrum, reported: ReportedStep) -> Iterator[dict[str, object]]:
    for number, interval in enumerate(lines.intervals):
        flip = lines.flips[number - 1] if number else None
        yield {
            "λ from": interval.low,
            "λ to": interval.high,
            "enters": reported.labels(flip.enters) if flip else None,
            "leaves": reported.labels(flip.leaves) if flip else None,
            "given to the model": reported.labels(i for i in lines.ids if i in interval.selected),
        }


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


@dataclass(frozen=True, slots=True)
class ReportedStep:
    """A step with its run, the settings in force, and those of its memories that the bank holds."""

    bank: MemoryBank
    info: RunInfo
    trace: StepTrace
    settings: Mapping[str, Any]
    memories: Mapping[str, Memory]

    def label(self, memory_id: str) -> str:
        """The memory's short name."""
        return memory_label(memory_id, self.info.id)

    def labels(self, memory_ids: Iterable[str]) -> str:
        """Short names in a row."""
        return ", ".join(map(self.label, memory_ids)) or "none"


def reported_step(bank: MemoryBank, run: str, step: int) -> ReportedStep:
    """The step of a run. Raises `UnknownRun`, or `InputError` when the run has no such step."""
    trace = bank.trace(run, step)
    held = set(bank.memory_ids())
    return ReportedStep(
        bank,
        bank.run(run),
        trace,
        {**bank.settings(run, step), **trace.settings},
        {memory_id: bank.memory(memory_id) for memory_id in _named(trace) if memory_id in held},
    )


def bank_name(bank: MemoryBank) -> str:
    """The last part of a bank's address: the rest says where somebody keeps it, which is nobody else's business."""
    return bank.uri.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1]


def model_name(info: RunInfo) -> str:
    """The model of a run with what its server or file reports of it, or that none was at work."""
    if info.simulated:
        return "SIMULATED: no language model was at work"
    weights = weights_label(info.model_facts)
    return f"{info.model} ({weights})" if weights else info.model


def _named(trace: StepTrace) -> Iterator[str]:
    if trace.recall:
        yield from (seen.memory_id for seen in (*trace.recall.pool, *trace.recall.left_out))
    if trace.decision:
        yield from (candidate.memory_id for candidate in trace.decision.candidates)
    if trace.update:
        yield from (change.memory_id for change in trace.update.changes if change.memory_id)
