"""Where learned utility overruled similarity, and the task was solved for that reason: what MemRL is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from memrl_core.agent.rerun import Rerunner
from memrl_core.analysis.decision.whatif import decided, situation_of
from memrl_core.bank import MemoryBank
from memrl_core.records import Candidate, StepTrace

RerunnerOf = Callable[[StepTrace], Rerunner]
SEEDS = 11
"""How many other draws a reversal is tried with."""


@dataclass(frozen=True, slots=True)
class Reversal:
    """In `step`, a more similar memory of lower q stayed out and a less similar one of higher q went in.

    `by_similarity` is what λ = 0 would have given to the model instead of all that it got.
    """

    run: str
    step: int
    overtaken: Candidate
    overtaking: Candidate
    by_similarity: tuple[str, ...]


def overtaking(bank: MemoryBank, trace: StepTrace) -> Reversal | None:
    """What utility reversed in a greedy step: the widest gap in q; None where λ = 0 would have chosen the same."""
    if trace.decision is None or trace.decision.mode != "greedy":
        return None
    _, by_similarity = decided(situation_of(bank, trace), {**trace.settings, "weight": 0.0})
    had = set(trace.decision.selected)
    ranked = [c for c in trace.decision.candidates if c.rank_select is not None]
    out = [c for c in ranked if c.memory_id in by_similarity.selected and c.memory_id not in had]
    entered = [c for c in ranked if c.memory_id in had and c.memory_id not in by_similarity.selected]
    # Memories of equal similarity have ranks too: which of them is nearer is not a matter of similarity.
    pairs = [(a, b) for a in out for b in entered if a.similarity > b.similarity and a.q < b.q]
    if not pairs:
        return None
    low, high = min(pairs, key=lambda pair: pair[0].q - pair[1].q)
    return Reversal(trace.run, trace.step, low, high, by_similarity.selected)


def reversal(bank: MemoryBank, trace: StepTrace, rerunner_of: RerunnerOf) -> Reversal | None:
    """The reversal to which a solved step owes its success; None when there is none.

    The step is answered again with what λ = 0 would have chosen: it must fail, and succeed with the memories that it
    had, with the step's own seed. So that a lucky guess is no reversal, the same holds of most of `SEEDS` other draws
    of world and model.
    """
    if trace.reward is None or trace.reward.outcome != "success" or (found := overtaking(bank, trace)) is None:
        return None
    assert trace.decision is not None
    at_first, *others = rerunner_of(trace), *(rerunner_of(_with_seed(trace, seed)) for seed in range(1, SEEDS + 1))
    had, instead = trace.decision.selected, found.by_similarity
    if _solves(at_first, instead) or not _solves(at_first, had):
        return None
    return found if _mostly(others, had) and not _mostly(others, instead) else None


def _with_seed(trace: StepTrace, seed: int) -> StepTrace:
    assert trace.decision is not None and trace.generate is not None
    options = {**trace.generate.options, "seed": seed}
    return replace(
        trace, decision=replace(trace.decision, seed=seed), generate=replace(trace.generate, options=options)
    )


def _solves(rerunner: Rerunner, memories: Sequence[str]) -> bool:
    return rerunner.rerun(memories).outcome == "success"


def _mostly(rerunners: Sequence[Rerunner], memories: Sequence[str]) -> bool:
    return sum(_solves(one, memories) for one in rerunners) > len(rerunners) / 2


def first_reversal(bank: MemoryBank, rerunner_of: RerunnerOf) -> Reversal | None:
    """The earliest reversal of the bank's oldest run, answered again by `rerunner_of`; None when it has none."""
    info = next(iter(bank.runs()), None)
    for row in bank.step_rows(info.id) if info is not None else ():
        if found := reversal(bank, bank.trace(row.run, row.step), rerunner_of):
            return found
    return None
