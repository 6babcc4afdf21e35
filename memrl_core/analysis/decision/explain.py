"""A decision in words and numbers, and the sentences in which the analyses say what they found.

Each is short enough to read first and exact enough to be checked against the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from memrl_core.analysis.decision.labels import memory_label, memory_labels
from memrl_core.errors import few
from memrl_core.numerals import fixed, percent, signed
from memrl_core.records import (
    MISSED,
    Candidate,
    Decision,
    NormaliserLine,
    Reason,
    RecallRecord,
    Retrieval,
    StepTrace,
    ValueChange,
)
from memrl_core.retrieval import DIGITS
from memrl_core.retrieval.exploration import SEEDED_TIES

if TYPE_CHECKING:
    from memrl_core.analysis.decision.gate import Admission
    from memrl_core.analysis.decision.spectrum import Requirement, Spectrum
    from memrl_core.analysis.memory.provenance import Provenance
    from memrl_core.analysis.run.calibration import Correlation

SYMBOLS = {"similarity": "similarity_z", "q": "q_z"}
Cut = Literal["pool", "prompt"]
NEAR_TIE = 1e-6
WEAK = 0.3
"""Below this a correlation is called weak (Cohen 1988: 0.1 is small, 0.3 medium)."""
EXPLORING = {"exploration": "the bonus for memories with few visits", "noise": "the noise drawn on q"}
"""What exploration adds to a score, by the name of its term."""


def score_formula(candidate: Candidate, run: str) -> str:
    """The score of a pool member with its numbers: "score(#7) = 0.5 × (+1.204) + 0.5 × (−0.310) = +0.447"."""
    parts = " + ".join(f"{term.weight:g} × ({signed(term.normalised)})" for term in candidate.terms)
    return f"score({memory_label(candidate.memory_id, run)}) = {parts} = {signed(candidate.score or 0.0)}"


def update_formula(change: ValueChange, run: str) -> str:
    """The move of one value with its numbers, by the policy's own formula or eq. 4."""
    if change.formula:
        return f"{_value(change, run)}: {change.formula}"
    moved = change.before + change.alpha * (change.reward - change.before)
    raised = f", raised to the q floor {signed(change.after)}" if change.after > moved + 1e-9 else ""
    return (
        f"q({memory_label(change.memory_id, run)}) = {signed(change.before)} + {change.alpha:g} × "
        f"({signed(change.reward)} − ({signed(change.before)})) = {signed(moved)}{raised}"
    )


def contradiction(retrieval: Retrieval, run: str) -> str:
    """That the stored vectors put another memory first than the agent; "" where they do not, or where none are."""
    measured = [(hit.cosine, hit) for hit in retrieval.hits if hit.cosine is not None]
    if len(measured) < 2:
        return ""
    cosine, nearest = max(measured, key=lambda one: one[0])
    rank, count = retrieval.hits.index(nearest) + 1, len(retrieval.hits)
    place = f"last ({rank} of {count})" if rank == count else f"{rank} of {count}"
    label = memory_label(nearest.memory_id, run)
    return f"By its vectors {label} is nearest, with {fixed(cosine)}; the agent ranked it {place}." if rank > 1 else ""


def followed(trace: StepTrace) -> str:
    """Which memories the answer of a step follows, and whether it took what was right; "" where no memory was in the
    prompt or there is no answer.
    """
    if trace.decision is None or not trace.decision.selected or not trace.turns:
        return ""
    found = trace.follows
    if found is None:
        return "" if trace.reward is None else "which memory it follows is not known"
    said = f"follows {memory_labels(found.memories, trace.run)}" if found.memories else "follows no memory"
    if found.at_hand is None:
        return said
    at_hand = f"right one at hand, {'taken' if found.taken else 'not taken'}"
    return f"{said} · {at_hand if found.at_hand else 'right one not at hand'}"


def credited_because(trace: StepTrace) -> str:
    """Whom the reward of a step credits, and why; "" without a reward and where no memory was in the prompt."""
    if trace.reward is None or trace.reward.reward is None or trace.decision is None or not trace.decision.selected:
        return ""
    in_prompt, credited = trace.decision.selected, trace.reward.credited
    left = memory_labels([one for one in in_prompt if one not in credited], trace.run)
    if trace.settings.get("credit") != "followed":
        return "All of the prompt are credited." if set(credited) == set(in_prompt) else ""
    if trace.follows is None:
        return "Which memory the answer follows is not known: all of the prompt are credited."
    if not trace.follows.memories:
        return f"The answer follows no memory: {'all of the prompt are' if credited else 'none is'} credited."
    both = f"Credited, because the answer follows: {memory_labels(credited, trace.run)}."
    return both if left == "none" else f"{both} In the prompt, not followed, not credited: {left}."


def _value(change: ValueChange, run: str) -> str:
    if not change.memory_id:
        return change.name
    return f"{change.name}({memory_label(change.memory_id, run)})"


def normaliser_line(decision: Decision) -> str:
    """How both sides of this pool were standardised, with the mean and sd used."""
    pool = sum(candidate.rank_select is not None for candidate in decision.candidates)
    return " · ".join(_standardised(line, pool) for line in decision.normaliser_lines)


def _standardised(line: NormaliserLine, pool: int) -> str:
    if line.source == "none":
        return f"{SYMBOLS.get(line.term, line.term)}: as measured, not standardised"
    where = "fixed, from the settings" if line.source == "configured" else f"this pool, n = {pool}"
    cut = f", cut at ±{line.clip:g}" if line.clip is not None else ""
    flat = ", all equal: z = 0" if line.flat and pool else ""
    return f"{SYMBOLS.get(line.term, line.term)}: mean {line.mean:.3f}, sd {line.sd:.3f} ({where}{cut}{flat})"


def tied_at(recall: RecallRecord | None, decision: Decision | None) -> tuple[Cut, ...]:
    """At which cuts of a step equals stood on both sides: that of k1 (pool), that of k2 (prompt)."""
    if recall is None or decision is None:
        return ()
    beyond = next((one.similarity for one in recall.left_out if one.reason is Reason.BEYOND_K1), None)
    cuts: list[Cut] = ["pool"] if recall.pool and beyond == min(one.similarity for one in recall.pool) else []
    ranked = [one for one in decision.candidates if one.rank_select is not None]
    if decision.mode == "greedy" and 0 < decision.k2 < len(ranked):
        last, first_out = ranked[decision.k2 - 1], ranked[decision.k2]
        scores = [round(one.score or 0.0, DIGITS) for one in (last, first_out)]
        if scores[0] == scores[1] and last.similarity == first_out.similarity:
            cuts.append("prompt")
    return tuple(cuts)


def warnings(recall: RecallRecord, decision: Decision, run: str) -> list[str]:
    """What somebody who reads this decision should know before drawing a conclusion from it."""
    ranked = [candidate for candidate in decision.candidates if candidate.rank_select is not None]
    flat = {line.term for line in decision.normaliser_lines if line.flat}
    extra = _exploring(decision)
    apart = f", apart from {extra}" if extra else ""
    found = [*filter(None, [own_scores(recall, run)])]
    if len(ranked) == 1:
        found.append("A pool of one: there is nothing to rank, both z are 0 with the pool's normaliser.")
    elif len(ranked) > 1 and "q" in flat:
        found.append(f"All q in the pool are equal, so q_z = 0: the order is pure similarity{apart}.")
    if len(ranked) > 1 and "similarity" in flat:
        found.append(f"All similarities in the pool are equal, so similarity_z = 0: the order is pure utility{apart}.")
    if len(ranked) == 2 and decision.normaliser == "pool":
        found.append("A pool of two: any two unequal values become z = ±1, so a difference of 0.001 looks like 2.")
    if cut := [memory_label(c.memory_id, run) for c in ranked if any(term.clipped for term in c.terms)]:
        found.append(f"q_z was cut at ±3 for {', '.join(cut)}: their true distance from the mean is larger (hatched).")
    greedy = memory_labels(decision.greedy, run)
    unsent = {c.memory_id for c in decision.candidates if c.reason is Reason.OVER_BUDGET}
    if extra and set(decision.selected) != set(decision.greedy) - unsent:
        found.append(f"Exploration changed the choice: without {extra}, greedy would take {greedy}.")
    if decision.mode == "explore":
        found.append(
            f"A random pick (ε = {decision.epsilon:g}, drawn {decision.draw:.3f}): greedy would take {greedy}."
        )
    if len(ranked) > decision.k2 > 0 and decision.mode == "greedy":
        last, first_out = ranked[decision.k2 - 1], ranked[decision.k2]
        if abs((last.score or 0.0) - (first_out.score or 0.0)) < NEAR_TIE:
            who = "the one that the step's seed names" if SEEDED_TIES in decision.note else "the older memory"
            found.append(
                f"{memory_label(last.memory_id, run)} and {memory_label(first_out.memory_id, run)} tie at the cut: "
                f"the more similar, then {who} goes first."
            )
    if "pool" in tied_at(recall, decision):
        found.append("Equally similar memories stood at the cut of k1: the rule for ties chose which are in the pool.")
    return found


def own_scores(recall: RecallRecord, run: str) -> str:
    """Which scores ranked a pool in the place of cosines, and which memory the stored vectors put first; else ""."""
    if recall.rule != "own score":
        return ""
    if not recall.pool:
        return ""
    given = few(f"{memory_label(one.memory_id, run)} {one.signal:g}" for one in recall.pool if one.signal is not None)
    nearest, count = max(recall.pool, key=lambda one: one.similarity), len(recall.pool)
    rank = f"{nearest.rank_recall} of {count}"
    if nearest.rank_recall == count > 1:
        rank = f"last ({rank})"
    by = f"by {recall.signal}, a score of its own that is no cosine" if recall.signal else "by scores of its own"
    return (
        f"The agent ranked {by}{f' ({given})' if given else ''}. By the stored vectors "
        f"{memory_label(nearest.memory_id, run)} is nearest, with {fixed(nearest.similarity)}; the agent ranked it "
        f"{rank}."
    )


def _exploring(decision: Decision) -> str:
    """What exploration added to the scores of eq. 7, in words; "" when it added nothing."""
    names = {term.name for c in decision.candidates for term in c.terms} if decision.normaliser_lines else set()
    return next((words for name, words in EXPLORING.items() if name in names), "")


def setting_notes(settings: Mapping[str, Any]) -> list[str]:
    """Settings that switch a part of the method off, in words."""
    notes = []
    if settings.get("weight") == 0:
        bonus = " but for the bonus of UCB" if settings.get("exploration") == "ucb" else ""
        notes.append(f"λ = 0: utility has no say, this is plain similarity search{bonus}.")
    if settings.get("weight") == 1:
        notes.append("λ = 1: similarity only decides who is in the pool.")
    if settings.get("k2") == 0:
        notes.append("k2 = 0: no memory is ever given to the model.")
    return notes


# --- what was found ---------------------------------------------------------------------------------------------------


def names(memory_ids: tuple[str, ...] | list[str], run: str, most: int = 8) -> str:
    """Memories by their short names, "none" without any, cut after `most`."""
    more = f" and {len(memory_ids) - most} more" if len(memory_ids) > most else ""
    return memory_labels(memory_ids[:most], run) + more


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
    if decision.propensity <= 0:
        return f"Not known: how likely this choice was is not recorded. Taken: {names(decision.selected, run)}."
    if decision.draw is None and decision.propensity < 1:
        chance = f"a chance of {decision.propensity:.3g} for this set"
        return f"Among equals only: ε = {decision.epsilon:g}. {decision.note} Taken: {greedy} ({chance})."
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


def calibrated(found: Correlation) -> str:
    """What the correlation of q before a use with the success of that use says, in words with its numbers."""
    if found.r is None or found.low is None or found.high is None:
        return "Too few rated uses vary in q and in success to say whether a high q means success here."
    numbers = f"r = {signed(found.r)}, {signed(found.low)} to {signed(found.high)}, n = {found.n:,} uses"
    if found.low > 0:
        strength = "weakly " if found.r < WEAK else ""
        return f"A high q {strength}goes with success here: {numbers}."
    if found.high < 0:
        return f"A high q goes with failure here: {numbers}."
    return f"A high q does not mean success here: {numbers}; the interval holds 0."


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
