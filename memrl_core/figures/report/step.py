"""One finished step as a document: from the task to the memory it left, with every number in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from memrl_core.analysis.decision.explain import (
    normaliser_line,
    own_scores,
    score_formula,
    setting_notes,
    update_formula,
    warnings,
)
from memrl_core.analysis.decision.labels import memory_label, memory_labels, reason_sentence, weights_label
from memrl_core.analysis.decision.moment import considered, later_reward
from memrl_core.analysis.decision.outline import line, operation_line, passages, reply_notes, tokens_of
from memrl_core.analysis.decision.spectrum import spectrum
from memrl_core.bank import MemoryBank
from memrl_core.figures.decision.decision_diagram import decision_diagram
from memrl_core.figures.decision.recall import recall_picture
from memrl_core.figures.decision.rerank import score_picture, slope_picture
from memrl_core.figures.memory.utility import moves_picture
from memrl_core.figures.report.document import Document, Passage
from memrl_core.numerals import dimensions, signed
from memrl_core.policies import settings_fields_of
from memrl_core.records import Candidate, Decision, GenerateRecord, Memory, Phase, RunInfo, StepTrace

FORMULA = "score = (1 − λ) · similarity_z + λ · q_z"
REPORTED_BY = {
    "agent": "this program's agent",
    "recorder": "another agent, which reported it",
    "import": "a file, from which it was imported",
}


def step_report(bank: MemoryBank, run: str, step: int) -> str:
    """A finished step as one HTML document. Raises `UnknownRun`, or `InputError` when the run has no such step."""
    return _StepReport(bank, bank.trace(run, step)).html()


def bank_name(bank: MemoryBank) -> str:
    """The last part of a bank's address: the rest says where somebody keeps it, which is nobody else's business."""
    return bank.uri.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1]


def model_name(info: RunInfo) -> str:
    """The model of a run with what its server or file reports of it, or that none was at work."""
    if info.simulated:
        return "SIMULATED: no language model was at work"
    weights = weights_label(info.model_facts)
    return f"{info.model} ({weights})" if weights else info.model


class _StepReport:
    """The document of a step, a method a section."""

    def __init__(self, bank: MemoryBank, trace: StepTrace) -> None:
        self._bank, self._trace, self._info = bank, trace, bank.run(trace.run)
        self._own = trace.origin == "agent"
        self._settings: Mapping[str, Any] = {**bank.settings(trace.run, trace.step), **trace.settings}
        self._document = Document(
            f"Step {trace.step} of run {trace.run}",
            f"How one task was answered with the memories of {bank_name(bank)}.",
        )
        held = considered(trace) & set(bank.memory_ids())
        self._memories: Mapping[str, Memory] = {memory_id: bank.memory(memory_id) for memory_id in held}

    def html(self) -> str:
        """All sections."""
        self._origin()
        self._recall()
        self._selection()
        self._answer()
        self._reward()
        self._update()
        self._written()
        self._notes()
        return self._document.html()

    def _label(self, memory_id: str) -> str:
        return memory_label(memory_id, self._info.id)

    def _labels(self, memory_ids: Iterable[str]) -> str:
        return memory_labels(memory_ids, self._info.id)

    def _line(self, phase: Phase) -> None:
        words = line(self._trace, phase)
        self._document.paragraph(f"{words[:1].upper()}{words[1:]}.")

    def _pairs(self, first: str, second: str, values: Mapping[str, object], caption: str) -> None:
        self._document.table(({first: name, second: str(value)} for name, value in values.items()), caption)

    def _origin(self) -> None:
        info, trace, document = self._info, self._trace, self._document
        if info.simulated:
            document.warning(
                "The model is SIMULATED. No language model was at work: answers are carried over by analogy from the "
                "memories in the prompt."
            )
        if trace.lacks:
            document.warning(
                f"This step comes from {REPORTED_BY[trace.origin]}. It does not report: {'; '.join(trace.lacks)}."
            )
        facts = {
            "bank": bank_name(self._bank),
            "run": info.id,
            "step": trace.step,
            "epoch": trace.epoch,
            "task": trace.task.id,
            "environment": trace.task.environment,
            "policy": trace.policy,
            "model": model_name(info),
            "embedder": f"{self._bank.embedder.name}, {dimensions(self._bank.embedder.dimension)}",
            "seed of the run": info.seed,
            "started": trace.started,
            "reported by": REPORTED_BY[trace.origin],
        }
        self._pairs("what", "value", facts, "Where this step stands")
        fields = settings_fields_of(trace.policy)
        in_force = {fields[name].title or name if name in fields else name: v for name, v in self._settings.items()}
        unknown = "Settings of the run in this bank; what the agent itself used is not known"
        self._pairs("setting", "value", in_force, "Settings in force" if self._own else unknown)
        document.section("The task")
        document.verbatim(trace.task.intent, "What was asked")

    def _recall(self) -> None:
        """Phase A: who was recalled, and who was not."""
        document, found = self._document, self._trace.recall
        document.section("Phase A: recall by similarity")
        if found is None:
            document.paragraph("This step has no record of what was recalled.")
            return
        self._line(Phase.RECALL)
        gate = "above" if found.strict else "of at least"
        unit = "intents" if found.k1_counts == "intent" else "memories"
        document.paragraph(
            f"Phase A keeps the k1 = {found.k1} most similar {unit} with a cosine {gate} δ = {found.delta:g}."
        )
        if found.pool or found.left_out:
            document.picture(recall_picture(found, self._trace.decision, self._memories, self._info.id))

    def _selection(self) -> None:
        """Phase B: every number of the pool, and the decision in sentences."""
        document, run = self._document, self._info.id
        decision, found = self._trace.decision, self._trace.recall
        document.section("Phase B: selection by score")
        if decision is None:
            document.paragraph("This step has no record of a selection.")
            return
        if self._own:
            self._line(Phase.SELECT)
        else:
            document.paragraph(f"Given to the model: {self._labels(decision.selected)}.")
        ranked = [c for c in decision.candidates if c.rank_select is not None]
        if found and not self._own and (sentence := own_scores(found, run)):
            document.warning(sentence)
        if found and self._own:
            for sentence in (*warnings(found, decision, run), *setting_notes(self._settings)):
                document.warning(sentence)
        if any(c.terms for c in ranked):
            document.picture(slope_picture(decision, run))
            document.picture(score_picture(decision, self._memories, run))
        elif ranked:
            document.paragraph("By which scores the agent chose is not recorded.")
        if decision.candidates:
            rows = (self._candidate(candidate, decision) for candidate in decision.candidates)
            document.table(rows, "Every memory considered, with every number that decided about it")
        if decision.normaliser_lines:
            document.paragraph(
                f"{FORMULA}, λ = {decision.weight:g}. Normaliser {decision.normaliser}: {normaliser_line(decision)}."
            )
        if formulas := [score_formula(c, run) for c in ranked if len(c.terms) > 1]:
            document.verbatim("\n".join(formulas), "The scores with their numbers")
        if self._own:
            chance = f"ε = {decision.epsilon:g}" + ("" if decision.draw is None else f", drawn {decision.draw:.6f}")
            document.paragraph(
                f"Mode {decision.mode} ({chance}, seed {decision.seed}); this policy selects these memories from this "
                f"pool with probability {decision.propensity:.6g}."
            )
            self._weights(decision)

    def _candidate(self, candidate: Candidate, decision: Decision) -> dict[str, object]:
        found, memory = self._trace.recall, self._memories.get(candidate.memory_id)
        parts: dict[str, object] = {}
        for term in candidate.terms:
            parts |= {f"z {term.name}": term.normalised, f"part of {term.name}": term.contribution}
        return {
            "memory": self._label(candidate.memory_id),
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

    def _weights(self, decision: Decision) -> None:
        """What other weights would have chosen."""
        lines, document = spectrum(decision), self._document
        if not lines.ids:
            return
        document.subsection("Other weights")
        points = "1 point" if len(lines.flips) == 1 else f"{len(lines.flips):,} points"
        document.paragraph(f"Greedy selection changes at {points} between λ = 0 and λ = 1; λ was {decision.weight:g}.")
        document.picture(decision_diagram(lines, decision.weight, decision.weight, self._info.id))
        rows = (
            {
                "λ from": interval.low,
                "λ to": interval.high,
                "enters": self._labels(flip.enters) if flip else None,
                "leaves": self._labels(flip.leaves) if flip else None,
                "given to the model": self._labels(i for i in lines.ids if i in interval.selected),
            }
            for flip, interval in zip((None, *lines.flips), lines.intervals, strict=True)
        )
        document.table(rows, "What greedy selection takes at each λ")

    def _answer(self) -> None:
        document, record = self._document, self._trace.generate
        document.section("Prompt and answer")
        if record is None:
            document.paragraph("This step has no record of a prompt or an answer.")
            return
        who = "simulated model" if record.simulated else record.model
        if record.messages:
            document.subsection("What was sent, letter for letter")
        for number, message in enumerate(record.messages):
            document.verbatim(list(self._marked(record, number)), f"{message.role} message")
        document.subsection("What came back")
        for number, turn in enumerate(record.turns, start=1):
            reply = turn.reply
            if turn.recalled is not None and turn.recalled.text:
                document.verbatim(turn.recalled.text, f"What memory added before answer {number}: {turn.recalled.why}")
            if reply.thinking:
                document.verbatim(reply.thinking, f"Thinking before answer {number}, which is no part of it")
            stopped = ["stopped: kept as it was"] * reply.stopped
            about = ", ".join([f"{reply.seconds:.2f} s", *tokens_of(reply), *stopped, *reply_notes(reply)])
            document.verbatim(reply.text or "(nothing had arrived)", f"Answer {number} of {who} ({about})")
            if turn.observation:
                document.verbatim(turn.observation, "What the environment said to it")
        if record.options:
            self._pairs("option", "value", record.options, "Options of the model")

    def _marked(self, record: GenerateRecord, number: int) -> Iterator[Passage]:
        """A message with the memories in it marked."""
        q = {c.memory_id: c.q for c in self._trace.decision.candidates} if self._trace.decision else {}
        spans = (span for span in record.spans if span.message == number)
        for _, text, memory_id in passages(record.messages[number].content, spans):
            worth = f" · q {signed(q[memory_id])}" if memory_id in q else ""
            yield Passage(text, f"memory {self._label(memory_id)}{worth}" if memory_id else "")

    def _reward(self) -> None:
        document, trace, bank = self._document, self._trace, self._bank
        document.section("Reward")
        if trace.reward is None:
            document.paragraph("This step has no record of a reward.")
        else:
            record = trace.reward
            who = {"environment": "the environment", "person": record.rater or "a person", None: "nobody"}
            value = "No reward was given"
            if record.reward is not None:
                value = f"The reward was {signed(record.reward)}, from {who[record.source]}"
            document.paragraph(f"{value}; outcome: {record.outcome}. It goes to: {self._labels(record.credited)}.")
            if record.verdict:
                document.verbatim(record.verdict, "The verdict")
            if record.judgement is not None:
                document.verbatim(record.judgement.expected, "What was expected")
                document.verbatim(record.judgement.came, "What came")
                document.verbatim(record.judgement.why, "Why it was judged so")
        if later := later_reward(bank, trace):
            document.note(later)
        if given := bank.ratings.active(trace.run, trace.step, trace.id):
            rows = (
                {"reward": e.value, "from": e.rater or e.source, "reason": e.reason, "given": e.created[:19]}
                for e in given
            )
            document.table(rows, "The rewards that stand now")
        credit = bank.credits.standing(trace.run, trace.step)
        if credit is not None:
            rewards = (
                {"memory": self._label(i), "reward": "no credit" if r is None else r}
                for i, r in credit.payload["rewards"].items()
            )
            document.table(rewards, f"Each memory's own reward, by {credit.rater}: {credit.reason}")

    def _update(self) -> None:
        document, update, run = self._document, self._trace.update, self._info.id
        document.section("What was learned")
        if update is None or not update.changes:
            document.paragraph("No value moved in this step.")
            return
        if update.of_q:
            document.picture(moves_picture(update.of_q, self._settings, run))
        known = self._bank.utilities(run)
        rows = (
            {
                "memory": self._label(c.memory_id),
                "q before": c.before,
                "q after": c.after,
                "Δ": c.after - c.before,
                "uses": c.visits,
                "q now": known[c.memory_id].q if c.memory_id in known else None,
            }
            for c in update.of_q
        )
        document.table(rows, "The utilities that moved")
        document.verbatim("\n".join(update_formula(c, run) for c in update.changes), "The moves with their numbers")

    def _written(self) -> None:
        document = self._document
        document.section("What was written")
        operations = self._trace.write.operations if self._trace.write else ()
        if not operations:
            document.paragraph("No memory was written.")
        for operation in operations:
            if operation.op in ("NOOP", "DELETE"):
                document.paragraph(f"{operation_line(operation, self._info.id)}. {operation.why}")
                continue
            name = self._label(operation.memory_id)
            document.paragraph(
                f"{name}: {operation.outcome}, starts at q {signed(operation.q0)}; memories in its prompt: "
                f"{self._labels(operation.parents)}."
            )
            document.verbatim(operation.experience, f"The experience of {name}")

    def _notes(self) -> None:
        notes = self._bank.notes.standing(self._info.id, self._trace.step)
        if notes:
            self._document.section("Notes")
        for note in notes:
            about = f", on {self._labels(note.memory_ids)}" if note.memory_ids else ""
            self._document.verbatim(note.reason, f"{note.rater}, {note.created[:10]}{about}")
