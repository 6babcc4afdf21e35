"""Where learned utility overruled similarity: the moments that show what MemRL is for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memrl_core.bank import MemoryBank
from memrl_core.records import Candidate, StepTrace


@dataclass(frozen=True, slots=True)
class Reversal:
    """In `step`, a more similar memory of poor utility stayed out and a less similar one of good utility went in."""

    run: str
    step: int
    overtaken: Candidate
    overtaking: Candidate


def reversals(traces: Iterable[StepTrace], margin: float = 0.2) -> list[Reversal]:
    """One reversal a step at most, the one with the widest gap in q; `margin` is how far each q is from the middle."""
    found = []
    for trace in traces:
        if trace.decision is None or trace.decision.mode != "greedy":
            continue
        middle = (float(trace.settings["reward_success"]) + float(trace.settings["reward_failure"])) / 2
        ranked = [c for c in trace.decision.candidates if c.rank_select is not None]
        poor = [c for c in ranked if not c.selected and c.q < middle - margin]
        good = [c for c in ranked if c.selected and c.q > middle + margin]
        pairs = [(b.q - a.q, a, b) for a in poor for b in good if a.rank_recall < b.rank_recall]
        if pairs:
            _, overtaken, overtaking = max(pairs, key=lambda pair: pair[0])
            found.append(Reversal(trace.run, trace.step, overtaken, overtaking))
    return found


def first_reversal(bank: MemoryBank) -> Reversal | None:
    """The earliest reversal of the bank's oldest run; None when it has none."""
    runs = bank.runs()
    if not runs:
        return None
    for row in bank.step_rows(runs[0].id):
        if found := reversals([bank.trace(runs[0].id, row.step)]):
            return found[0]
    return None
