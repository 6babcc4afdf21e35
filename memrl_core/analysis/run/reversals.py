"""Where learned utility overruled similarity, and the task was solved for that reason: what MemRL is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from memrl_core.agent.rerun import Rerunner
from memrl_core.bank import MemoryBank
from memrl_core.records import Candidate, StepTrace

RerunnerOf = Callable[[StepTrace], Rerunner]
SEEDS = 11
"""How many other draws a reversal is tried with."""


@dataclass(frozen=True, slots=True)
class Reversal:
    """In `step`, a more similar memory of poor utility stayed out and a less similar one of good utility went in."""

    run: str
    step: int
    overtaken: Candidate
    overtaking: Candidate


def overtakings(trace: StepTrace, margin: float = 0.2) -> list[Reversal]:
    """What utility reversed in a step, the widest gap in q first, whether or not anything depended on it.

    `margin` is how far each q is from the middle.
    """
    if trace.decision is None or trace.decision.mode != "greedy":
        return []
    middle = (float(trace.settings["reward_success"]) + float(trace.settings["reward_failure"])) / 2
    ranked = [c for c in trace.decision.candidates if c.rank_select is not None]
    poor = [c for c in ranked if not c.selected and c.q < middle - margin]
    good = [c for c in ranked if c.selected and c.q > middle + margin]
    # Memories of equal similarity have ranks too: which of them is nearer is not a matter of similarity.
    pairs = [(a, b) for b in good for a in poor if a.similarity > b.similarity]
    pairs.sort(key=lambda pair: pair[0].q - pair[1].q)
    return [Reversal(trace.run, trace.step, a, b) for a, b in pairs]


def reversal(trace: StepTrace, rerunner_of: RerunnerOf, margin: float = 0.2) -> Reversal | None:
    """The reversal to which a solved step owes its success; None when there is none.

    The step is answered again without the overtaking memory, and with the overtaken one in its place: it must fail both
    times, and succeed with the memories that it had. So that a lucky guess is no reversal, the same holds of most of
    `SEEDS` other draws of world and model.
    """
    found = overtakings(trace, margin)
    if not found or trace.reward is None or trace.reward.outcome != "success":
        return None
    assert trace.decision is not None and trace.generate is not None
    at_first, *others = rerunner_of(trace), *(rerunner_of(_with_seed(trace, seed)) for seed in range(1, SEEDS + 1))
    had = trace.decision.selected
    if not _solves(at_first, had) or not _mostly(others, had):
        return None
    for one in found:
        high, low = one.overtaking.memory_id, one.overtaken.memory_id
        without = tuple(memory_id for memory_id in had if memory_id != high)
        in_its_place = tuple(low if memory_id == high else memory_id for memory_id in had)
        if not any(_solves(at_first, outcome) or _mostly(others, outcome) for outcome in (without, in_its_place)):
            return one
    return None


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
        trace = bank.trace(row.run, row.step)
        if overtakings(trace) and (found := reversal(trace, rerunner_of)):
            return found
    return None
