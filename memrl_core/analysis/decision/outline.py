"""A step in seven lines, one per part of the screen, and a run's success epoch by epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from memrl_core.analysis.decision.labels import memory_label, memory_labels, scope_of
from memrl_core.numerals import fixed, signed
from memrl_core.records import MemoryOperation, MemorySpan, Phase, Reply, StepTrace, ValueChange

if TYPE_CHECKING:
    import pandas as pd

    from memrl_core.bank import StepRow

WON: Mapping[str, bool | None] = {"success": True, "failure": False, "unrated": None}
"""Whether a step ended well by its outcome; None where nobody says."""


def by_epoch(traces: Iterable[StepTrace], earlier: Iterable[StepRow] = ()) -> pd.DataFrame:
    """One row per epoch of whole traces in the order of their steps: epoch, steps, and sums and means over them.

    `success` is the share of the rated steps that ended well; `memory` and `reranked` are shares of all steps: that had
    a memory in the prompt, in which utility changed which memories were selected. `solved` is the share of the tasks
    rated so far that ended well at least once (cumulative success, CSR), counting the run's `earlier` steps; `valid`
    the share of the answers that had to come from a list and did; `moved` the mean size of the q changes.
    """
    import pandas as pd  # Every command reads this module, and most need no table.

    rows = []
    for t in traces:
        moves = [abs(c.after - c.before) for c in t.update.of_q] if t.update else []
        won, reward = (WON[t.reward.outcome], t.reward.reward) if t.reward else (None, None)
        memory = bool(t.decision and t.decision.selected)
        valid, asked = valid_answers(t)
        seconds = sum(t.seconds.values())
        reranked = utility_changed_selection(t)
        rows.append((t.epoch, t.task.id, won, memory, reranked, valid, asked, reward, sum(moves), len(moves), seconds))
    columns = [
        "epoch",
        "task",
        "success",
        "memory",
        "reranked",
        "valid",
        "asked",
        "reward",
        "moved",
        "moves",
        "seconds",
    ]
    steps = pd.DataFrame(rows, columns=columns).astype({"success": float, "reward": float})
    groups = steps.groupby("epoch")
    table = groups[["success", "memory", "reranked", "reward", "seconds"]].mean()
    before = [(row.epoch, row.task, WON[row.outcome]) for row in earlier]
    tries = pd.DataFrame([*before, *(row[:3] for row in rows)], columns=columns[:3])
    epochs = tries["epoch"].unique()
    tries = tries.dropna(subset="success").astype({"success": bool})
    met, solved = (
        part.drop_duplicates("task").groupby("epoch").size().reindex(epochs, fill_value=0).cumsum()[table.index]
        for part in (tries, tries[tries["success"]])
    )
    sums = groups[["valid", "asked", "moved", "moves"]].sum()
    shares = {"valid": sums["valid"] / sums["asked"], "moved": sums["moved"] / sums["moves"]}
    return table.assign(steps=groups.size(), solved=solved / met, **shares).reset_index()


def not_rated(traces: Iterable[StepTrace]) -> list[str]:
    """A sentence for each reason why steps count neither as success nor as failure, beside that nobody rated them."""
    found = Counter(trace.ending for trace in traces)
    return [
        f"{found[ending]:,} {'step' if found[ending] == 1 else 'steps'} {words}: neither success nor failure."
        for ending, words in (("no answer", "without any answer"), ("skipped", "skipped"))
        if found[ending]
    ]


def valid_answers(trace: StepTrace) -> tuple[int, int]:
    """How many answers of a step were on the list offered, and how many had to be."""
    offered = [turn.reply.offered for turn in trace.generate.turns] if trace.generate else []
    return offered.count(True), len(offered) - offered.count(None)


def utility_changed_selection(trace: StepTrace) -> bool:
    """Whether phase B selected another set than the same number of the most similar memories in the pool."""
    if trace.decision is None or trace.recall is None or trace.decision.mode == "fallback":
        return False
    nearest = {seen.memory_id for seen in trace.recall.pool[: len(trace.decision.selected)]}
    return set(trace.decision.selected) != nearest


TITLES = {
    Phase.EMBED: "Task",
    Phase.RECALL: "Phase A · recall",
    Phase.SELECT: "Phase B · rerank",
    Phase.GENERATE: "Prompt & answer",
    Phase.REWARD: "Reward",
    Phase.UPDATE: "Q update",
    Phase.WRITE: "New memory",
}
CUT_INTENT = "{embedder} takes less text than this intent has: its vector is that of the beginning."
BOUND = "bound to the lines offered"
LONGEST = 90
MOVES_NAMED = 6


def line(trace: StepTrace, phase: Phase) -> str:
    """What `phase` did in this step, in one line; "" when it has not run."""
    return {
        Phase.EMBED: _task,
        Phase.RECALL: _recall,
        Phase.SELECT: _select,
        Phase.GENERATE: _generate,
        Phase.REWARD: _reward,
        Phase.UPDATE: _update,
        Phase.WRITE: _write,
    }[phase](trace)


def shortened(text: str, longest: int = LONGEST) -> str:
    """The first line of `text`, cut with an ellipsis when it is longer."""
    first = " ".join(text.split())
    return first if len(first) <= longest else first[: longest - 1].rstrip() + "…"


def _task(trace: StepTrace) -> str:
    return shortened(trace.task.intent)


def _recall(trace: StepTrace) -> str:
    if trace.recall is None:
        return _retrieved(trace)
    pool, delta, scope = trace.recall.pool, f"δ = {trace.recall.delta:.3f}", scope_of(trace)
    if pool:
        similarity = [member.similarity for member in pool]
        how, cosines = "", "similarity"
        if trace.recall.rule == "own score":
            scores = [one.signal for one in pool if one.signal is not None]
            name = trace.recall.signal or "scores of the agent's own"
            is_one = scores and len({one.signal_name for one in pool if one.signal is not None}) == 1
            how = f", by {name}" + (f" ({min(scores):g} to {max(scores):g})" if is_one else "")
            cosines = "cosine by the stored vectors"
        return (
            f"{len(pool):,} of {trace.recall.memories:,} memories recalled{how}, {cosines} {fixed(min(similarity))} "
            f"to {fixed(max(similarity))}{scope and f'; {scope}'}"
        )
    if trace.recall.rule == "nothing" or (trace.recall.why and trace.recall.rule != "similarity"):
        return f"nothing is recalled: {trace.recall.why}" if trace.recall.why else "nothing is recalled"
    if trace.recall.left_out and trace.recall.rule == "similarity":
        return f"nothing passed {delta}; the best was {fixed(trace.recall.left_out[0].similarity)}: no memory is used"
    if trace.recall.memories:
        return f"recalled none of {trace.recall.memories:,} memories: no memory is used"
    if trace.origin != "agent":
        return "the agent recalled no memory"
    return "no memories yet: this task runs without help"


def _retrieved(trace: StepTrace) -> str:
    """What another agent retrieved, where the similarities of it cannot be known; "" for nothing."""
    if not trace.retrievals:
        return ""
    found = len({hit.memory_id for retrieval in trace.retrievals for hit in retrieval.hits})
    by = ", ".join(dict.fromkeys(one.name for one in trace.retrievals if any(h.score is not None for h in one.hits)))
    memories = "1 memory" if found == 1 else f"{found:,} memories"
    return f"{memories} recalled" + (f" by {by}" if by else "") + "; how similar they are is not known"


def _select(trace: StepTrace) -> str:
    decision = trace.decision
    if decision is None:
        return ""
    if not decision.selected:
        return ("kept silent: " if decision.mode == "silent" else "") + "no memory goes to the model"
    chosen = memory_labels(decision.selected, trace.run)
    go = "goes" if len(decision.selected) == 1 else "go"
    if decision.mode == "explore":
        return f"{chosen} drawn at random (ε)"
    if not any(c.terms for c in decision.candidates):
        return f"{chosen} {go} to the model; no score is recorded"
    ranked = [c for c in decision.candidates if c.rank_select is not None]
    moved = sum(c.rank_select != c.rank_recall for c in ranked)
    return f"{chosen} {go} to the model; {moved} of {len(ranked)} candidates changed rank"


def _generate(trace: StepTrace) -> str:
    record = trace.generate
    if record is None or not record.turns:
        return ""
    last = record.turns[-1].reply
    who = "simulated model" if record.simulated else record.model
    turns = f"{len(record.turns):,} turn{'s' if len(record.turns) > 1 else ''}"
    ended = ["stopped"] if last.stopped else []
    if cut := sum(bool(turn.reply.cut) for turn in record.turns):
        ended.append(f"{cut} cut")
    valid, asked = valid_answers(trace)
    if valid < asked:
        ended.append(f"{asked - valid} not among the lines offered")
    said = f"“{shortened(last.text, 50)}”" if last.text.strip() else "nothing"
    return " · ".join([f"{who}, {turns}: {said}", *ended])


def passages(content: str, spans: Iterable[MemorySpan]) -> Iterator[tuple[int, str, str]]:
    """Stretches of a message in their order: where each begins, its text, and the memory that it is ("" for none)."""
    at = 0
    for span in sorted(spans, key=lambda span: span.start):
        if span.start < at:
            continue
        if span.start > at:
            yield at, content[at : span.start], ""
        yield span.start, content[span.start : span.end], span.memory_id
        at = span.end
    if at < len(content):
        yield at, content[at:], ""


def tokens_of(reply: Reply) -> list[str]:
    """How many tokens were read for a reply and written in it, as far as the server tells."""
    parts = []
    if reply.prompt_tokens is not None:
        room = "" if reply.window is None else f" of {reply.window:,}"
        cached = f" ({reply.cached_tokens:,} from the server's cache)" if reply.cached_tokens is not None else ""
        parts.append(f"{reply.prompt_tokens:,}{room} tokens read{cached}")
    if reply.answer_tokens is not None:
        parts.append(f"{reply.answer_tokens} tokens written")
    return parts


def reply_notes(reply: Reply) -> list[str]:
    """What happened to a reply on its way, besides that a person stopped it."""
    notes = [f"cut at {reply.cut}"] if reply.cut else []
    if reply.offered is False:
        notes.append("not among the lines offered")
    elif reply.raw and not reply.bound:
        notes.append(f"read from “{shortened(reply.raw, 60)}”")
    if reply.bound:
        notes.append(BOUND)
    if reply.replaced:
        notes.append(f"{reply.replaced} broken character{'s' if reply.replaced > 1 else ''} replaced")
    if reply.options:
        notes.append("asked again with " + ", ".join(f"{name} {value}" for name, value in reply.options.items()))
    if reply.host:
        notes.append(f"by {reply.host}")
    if reply.cost is not None:
        notes.append(f"cost {reply.cost:g}")
    return [*notes, *reply.notes]


def _reward(trace: StepTrace) -> str:
    record = trace.reward
    if record is None:
        return ""
    if record.reward is None:
        why = f"{trace.ending}: " if trace.ending not in ("unrated", record.outcome) else ""
        return f"{why}no reward was given"
    if record.source == "environment":
        return f"{signed(record.reward)} from the environment: {shortened(record.verdict, 60)}"
    by = f"{signed(record.reward)} from {record.rater or 'a person'}"
    by += f" ({shortened(record.reason, 60)})" if record.reason else ""
    return by if record.environment is None else f"{by}, instead of the environment's {signed(record.environment)}"


def _update(trace: StepTrace) -> str:
    if trace.update is None:
        return ""
    if not trace.update.changes:
        return "no value moved"
    moved = [change for change in trace.update.changes if change.after != change.before]
    if not moved:
        return f"{len(trace.update.changes):,} values looked at, none moved"
    moves = [f"{value_label(c, trace.run)} {signed(c.before)} → {signed(c.after)}" for c in moved]
    more = f" and {len(moves) - MOVES_NAMED} more" if len(moves) > MOVES_NAMED else ""
    return ", ".join(moves[:MOVES_NAMED]) + more


def value_label(change: ValueChange, run: str) -> str:
    """Which learned value moved: a memory's q, another value of it, or one of the policy's parameters."""
    if not change.memory_id:
        return change.name
    memory = memory_label(change.memory_id, run)
    return memory if change.target == "memory" and change.name == "q" else f"{memory} {shortened(change.name, 30)}"


def _write(trace: StepTrace) -> str:
    if trace.write is None:
        return ""
    operations = [operation_line(operation, trace.run) for operation in trace.write.operations]
    more = f" and {len(operations) - 1} more" if len(operations) > 1 else ""
    return operations[0] + more if operations else "nothing written"


def operation_line(operation: MemoryOperation, run: str) -> str:
    """What one operation did to the memory."""
    label = memory_label(operation.memory_id, run)
    replaced = memory_labels(operation.replaces, run)
    if operation.op == "NOOP":
        if operation.duplicate_of:
            return f"nothing written: the same as {memory_label(operation.duplicate_of, run)}"
        return f"nothing written: {operation.why}" if operation.why else "nothing written"
    if operation.op == "DELETE":
        return f"{replaced} deleted"
    if operation.op in ("UPDATE", "MERGE"):
        return f"{label} takes the place of {replaced}"
    return f"{label} written as {operation.outcome}, q {signed(operation.q0)}"
