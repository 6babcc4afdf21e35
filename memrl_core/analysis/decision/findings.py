"""What the analyses found, in sentences: short enough to read first, exact enough to be checked against the tables."""

from __future__ import annotations

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.decision.required import Admission, Requirement
from memrl_core.analysis.decision.spectrum import Spectrum
from memrl_core.analysis.memory.provenance import Provenance
from memrl_core.analysis.run.calibration import Correlation
from memrl_core.numerals import fixed, percent, signed
from memrl_core.records import MISSED, Candidate, Decision


def names(memory_ids: tuple[str, ...] | list[str], run: str, most: int = 8) -> str:
    """Memories by their short names, "none" without any, cut after `most`."""
    shown = ", ".join(memory_label(memory_id, run) for memory_id in memory_ids[:most])
    more = f" and {len(memory_ids) - most} more" if len(memory_ids) > most else ""
    return (shown + more) or "none"


def pair(one: Candidate, other: Candidate, run: str, decision: Decision) -> str:
    """Why one candidate is selected and another not, or what they have in common."""
    a, b = memory_label(one.memory_id, run), memory_label(other.memory_id, run)
    if one.selected == other.selected:
        both = "Both are" if one.selected else "Neither is"
        start = f"{both} given to the model: {a} stands at rank {one.rank_select or '–'}, {b} at "
        start += f"{other.rank_select or '–'}."
    else:
        fates = {True: "is given to the model", False: "is not"}
        start = f"{a} {fates[one.selected]}, {b} {fates[other.selected]}."
    missed = [memory_label(c.memory_id, run) for c in (one, other) if c.reason in MISSED]
    if missed:
        return f"{start} {' and '.join(missed)} never reached phase B: ask what kept it out of the pool."
    if one.score is None or other.score is None:
        return f"{start} The agent did not report both scores, so why is not known."
    scores = f"Their scores are {signed(one.score)} and {signed(other.score)}."
    if decision.mode == "explore":
        chance = (
            f"Chance chose in this step (ε = {decision.epsilon:g}): the memories were drawn at random from the pool."
        )
        return f"{start} {chance} {scores} Greedy selection would have taken {names(decision.greedy, run)}."
    return f"{start} {scores}"


def flips(spectrum: Spectrum, weight: float, run: str) -> str:
    """How far the choice at `weight` holds."""
    if not spectrum.ids:
        return "No candidate has a score with its two parts, so there are no lines to cross."
    if not spectrum.flips:
        return f"At no λ would greedy selection take another set of {min(spectrum.k2, len(spectrum.ids))} memories."
    here = next(i for i in spectrum.intervals if i.low <= weight <= i.high)
    ends = []
    if here.low > 0:
        ends.append(f"below λ = {fixed(here.low, 4)}")
    if here.high < 1:
        ends.append(f"above λ = {fixed(here.high, 4)}")
    chosen = names([i for i in spectrum.ids if i in here.selected], run)
    return f"At λ = {weight:g} greedy selection takes {chosen}. It would change {' and '.join(ends)}."


def requirement(found: Requirement, run: str) -> str:
    """How far the q of one memory would have to move."""
    label = memory_label(found.memory_id, run)
    if found.needed is None or found.change is None:
        return f"{label} by its q ({signed(found.now)}): {found.note[:1].lower()}{found.note[1:]}"
    fate = "falls out" if found.selected else "gets in"
    return (
        f"{label} {fate} with a q {found.beyond} {signed(found.needed)}: now {signed(found.now)}, "
        f"a change of {signed(found.change)}."
    )


def admitted(found: Admission, run: str) -> str:
    """What keeps a memory out of the pool, and which δ and k1 would let it in."""
    label = memory_label(found.memory_id, run)
    unit = "memory" if found.k1 == 1 else "memories"
    where = f"{label} is number {found.rank} by similarity ({found.similarity:.6f})"
    if found.in_pool:
        return f"{where}: it passes δ = {found.delta:g} and is within k1 = {found.k1}, so it is in the pool."
    needs = []
    if not found.passes_gate:
        needs.append(f"δ {'below' if found.strict else 'of at most'} {found.similarity:.6f} (it is {found.delta:g})")
    if not found.within_k1:
        needs.append(f"k1 of at least {found.rank} (it is {found.k1} {unit})")
    return f"{where}. To be in the pool it needs {' and '.join(needs)}."


def draw(decision: Decision, run: str) -> str:
    """Whether chance chose, and what greedy selection would have taken."""
    greedy = names(decision.greedy, run)
    if decision.mode == "fallback":
        return "The pool was empty: the model was asked without any memory, so there was nothing to explore."
    if decision.draw is None and (decision.mode == "sampled" or set(decision.selected) != set(decision.greedy)):
        chance = f"a chance of {decision.propensity:.3g} for this set"
        return f"Yes. {decision.note} Taken: {names(decision.selected, run)} ({chance}); greedy: {greedy}."
    if decision.draw is None:
        return f"No exploration: ε = {decision.epsilon:g}, so no number was drawn. Greedy selection took {greedy}."
    drawn = f"ε = {decision.epsilon:g} and the number drawn was {decision.draw:.3f}"
    if decision.mode == "explore":
        chance = f"{decision.propensity:.3g}"
        return (
            f"Yes: {drawn}, so {names(decision.selected, run)} were drawn at random from the pool (a chance of "
            f"{chance} for this set). Greedy selection would have taken {greedy}."
        )
    return f"No: {drawn}, so the best by score were taken ({greedy}), as with a chance of {decision.propensity:.3g}."


def origin(found: Provenance, memory_id: str, run: str, brought: int = 0) -> str:
    """What a q is made of; `brought` is how many updates it had when the run came to know the memory."""
    label, count = memory_label(memory_id, run), len(found.contributions)
    if brought:
        came = f"{label} came with q {signed(found.q0)} after {brought} rewarded uses that this run does not know"
        if not count:
            return f"{came}; no reward has reached it since."
        still = percent(found.q0_share)
        return f"{came}. That still makes {still} of its q; {count:,} rewards since made it {signed(found.q)}."
    if not count:
        return f"No reward has reached {label}: its q is still what it began with, {signed(found.q)}."
    rewards = "1 reward" if count == 1 else f"{count} rewards"
    return (
        f"{label} began with q {signed(found.q0)}, which still makes {percent(found.q0_share)} of its q; {rewards} "
        f"made it {signed(found.q)}."
    )


def correlated(found: Correlation, of: str) -> str:
    """Pearson's r with its interval, or why there is none."""
    if found.r is None:
        return f"{of}: no correlation can be computed from {found.n} pairs that do not vary."
    if found.low is None or found.high is None:
        return f"{of}: r = {signed(found.r)} over {found.n:,} pairs, without an interval."
    return (
        f"{of}: r = {signed(found.r)}, 95 % interval {signed(found.low)} to {signed(found.high)} "
        f"(n = {found.n:,}; {found.steps:,} steps drawn anew, whose memories share an outcome)."
    )
