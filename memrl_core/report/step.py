"""One finished step as a document: from the task to the memory it left, with every number in between."""

from __future__ import annotations

from collections.abc import Iterator

from memrl_core.analysis.decision.explain import update_formula
from memrl_core.analysis.decision.moment import later_reward
from memrl_core.analysis.decision.outline import operation_line, reply_notes, tokens_of
from memrl_core.bank import MemoryBank
from memrl_core.figures.memory.utility import moves_picture
from memrl_core.numerals import dimensions, signed
from memrl_core.policies import settings_fields_of
from memrl_core.records import GenerateRecord, Reply
from memrl_core.report.decision import ReportedStep, bank_name, model_name, reported_step, tell_recall, tell_selection
from memrl_core.report.document import Document, Passage

REPORTED_BY = {
    "agent": "this program's agent",
    "recorder": "another agent, which reported it",
    "import": "a file, from which it was imported",
}


def step_report(bank: MemoryBank, run: str, step: int) -> str:
    """A finished step as one HTML document. Raises `UnknownRun`, or `InputError` when the run has no such step."""
    reported = reported_step(bank, run, step)
    document = Document(
        f"Step {step} of run {run}", f"How one task was answered with the memories of {bank_name(bank)}."
    )
    _tell_origin(document, reported)
    _tell_settings(document, reported)
    document.section("The task")
    document.verbatim(reported.trace.task.intent, "What was asked")
    tell_recall(document, reported)
    tell_selection(document, reported)
    _tell_answer(document, reported)
    _tell_reward(document, reported)
    _tell_update(document, reported)
    _tell_written(document, reported)
    _tell_notes(document, reported)
    return document.html()


def _tell_origin(document: Document, reported: ReportedStep) -> None:
    info, trace = reported.info, reported.trace
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
        "bank": bank_name(reported.bank),
        "run": info.id,
        "step": str(trace.step),
        "epoch": str(trace.epoch),
        "task": trace.task.id,
        "environment": trace.task.environment,
        "policy": trace.policy,
        "model": model_name(info),
        "embedder": f"{reported.bank.embedder.name}, {dimensions(reported.bank.embedder.dimension)}",
        "seed of the run": str(info.seed),
        "started": trace.started,
        "reported by": REPORTED_BY[trace.origin],
    }
    document.table(({"what": name, "value": value} for name, value in facts.items()), "Where this step stands")


def _tell_settings(document: Document, reported: ReportedStep) -> None:
    fields = settings_fields_of(reported.trace.policy)
    document.table(
        (
            {"setting": fields[name].title if name in fields else name, "value": str(value)}
            for name, value in reported.settings.items()
        ),
        "Settings in force"
        if reported.trace.origin == "agent"
        else "Settings of the run in this bank; what the agent itself used is not known",
    )


def _tell_answer(document: Document, reported: ReportedStep) -> None:
    document.section("Prompt and answer")
    record = reported.trace.generate
    if record is None:
        document.paragraph("This step has no record of a prompt or an answer.")
        return
    who = "simulated model" if record.simulated else record.model
    if record.messages:
        document.subsection("What was sent, letter for letter")
    for number, message in enumerate(record.messages):
        document.verbatim(list(_marked(record, number, reported)), f"{message.role} message")
    document.subsection("What came back")
    for number, turn in enumerate(record.turns, start=1):
        reply = turn.reply
        if turn.recalled is not None and turn.recalled.text:
            document.verbatim(turn.recalled.text, f"What memory added before answer {number}: {turn.recalled.why}")
        if reply.thinking:
            document.verbatim(reply.thinking, f"Thinking before answer {number}, which is no part of it")
        document.verbatim(reply.text or "(nothing had arrived)", f"Answer {number} of {who}{_about(reply)}")
        if turn.observation:
            document.verbatim(turn.observation, "What the environment said to it")
    if record.options:
        document.table(
            ({"option": name, "value": str(value)} for name, value in record.options.items()), "Options of the model"
        )


def _marked(record: GenerateRecord, number: int, reported: ReportedStep) -> Iterator[Passage]:
    """A message with the memories in it marked."""
    content, at = record.messages[number].content, 0
    q = {c.memory_id: c.q for c in reported.trace.decision.candidates} if reported.trace.decision else {}
    for span in sorted((s for s in record.spans if s.message == number), key=lambda s: s.start):
        if span.start < at:
            continue
        worth = f" · q {signed(q[span.memory_id])}" if span.memory_id in q else ""
        yield Passage(content[at : span.start])
        yield Passage(content[span.start : span.end], f"memory {reported.label(span.memory_id)}{worth}")
        at = span.end
    yield Passage(content[at:])


def _about(reply: Reply) -> str:
    parts = [f"{reply.seconds:.2f} s", *tokens_of(reply)]
    parts += ["stopped: kept as it was"] if reply.stopped else []
    parts += reply_notes(reply)
    return f" ({', '.join(parts)})"


def _tell_reward(document: Document, reported: ReportedStep) -> None:
    document.section("Reward")
    trace, bank = reported.trace, reported.bank
    if trace.reward is None:
        document.paragraph("This step has no record of a reward.")
    else:
        record = trace.reward
        who = {"environment": "the environment", "person": record.rater or "a person", None: "nobody"}[record.source]
        value = (
            "No reward was given" if record.reward is None else f"The reward was {signed(record.reward)}, from {who}"
        )
        document.paragraph(f"{value}; outcome: {record.outcome}. It goes to: {reported.labels(record.credited)}.")
        if record.verdict:
            document.verbatim(record.verdict, "The verdict")
        if record.judgement is not None:
            document.verbatim(record.judgement.expected, "What was expected")
            document.verbatim(record.judgement.came, "What came")
            document.verbatim(record.judgement.why, "Why it was judged so")
    if later := later_reward(bank, trace):
        document.note(later)
    given = bank.active_rewards(trace.run, trace.step, trace.id)
    if given:
        document.table(
            (
                {"reward": e.value, "from": e.rater or e.source, "reason": e.reason, "given": e.created[:19]}
                for e in given
            ),
            "The rewards that stand now",
        )
    credit = bank.credits.standing(trace.run, trace.step)
    if credit is not None:
        rewards = ({"memory": reported.label(i), "reward": r} for i, r in credit.payload["rewards"].items())
        document.table(rewards, f"Each memory's own reward, by {credit.rater}: {credit.reason}")


def _tell_update(document: Document, reported: ReportedStep) -> None:
    document.section("What was learned")
    changes = reported.trace.update.changes if reported.trace.update else ()
    if not changes:
        document.paragraph("No value moved in this step.")
        return
    assert reported.trace.update is not None
    if reported.trace.update.of_q:
        document.picture(moves_picture(reported.trace.update.of_q, reported.settings, reported.info.id))
    now_known = reported.bank.utilities(reported.info.id)
    document.table(
        (
            {
                "memory": reported.label(c.memory_id),
                "q before": c.before,
                "q after": c.after,
                "Δ": c.after - c.before,
                "uses": c.visits,
                "q now": now_known[c.memory_id].q if c.memory_id in now_known else None,
            }
            for c in reported.trace.update.of_q
        ),
        "The utilities that moved",
    )
    document.verbatim("\n".join(update_formula(c, reported.info.id) for c in changes), "The moves with their numbers")


def _tell_written(document: Document, reported: ReportedStep) -> None:
    document.section("What was written")
    operations = reported.trace.write.operations if reported.trace.write else ()
    if not operations:
        document.paragraph("No memory was written.")
    for operation in operations:
        if operation.op in ("NOOP", "DELETE"):
            document.paragraph(f"{operation_line(operation, reported.info.id)}. {operation.why}")
            continue
        document.paragraph(
            f"{reported.label(operation.memory_id)}: {operation.outcome}, starts at q {signed(operation.q0)}; memories "
            f"in its prompt: {reported.labels(operation.parents)}."
        )
        document.verbatim(operation.experience, f"The experience of {reported.label(operation.memory_id)}")


def _tell_notes(document: Document, reported: ReportedStep) -> None:
    notes = reported.bank.notes.standing(reported.info.id, reported.trace.step)
    if not notes:
        return
    document.section("Notes")
    for note in notes:
        about = f", on {reported.labels(note.memory_ids)}" if note.memory_ids else ""
        document.verbatim(note.reason, f"{note.rater}, {note.created[:10]}{about}")
