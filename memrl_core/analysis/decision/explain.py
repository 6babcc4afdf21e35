"""The arithmetic of a decision in words and numbers: formula, normaliser, and what to be careful about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.numerals import signed
from memrl_core.records import Candidate, Decision, NormaliserLine, Reason, RecallRecord, ValueChange
from memrl_core.retrieval import DIGITS
from memrl_core.retrieval.exploration import SEEDED_TIES

SYMBOLS = {"similarity": "z_sim", "q": "z_q"}
Cut = Literal["pool", "prompt"]
NEAR_TIE = 1e-6
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
    found = []
    if len(ranked) == 1:
        found.append("A pool of one: there is nothing to rank, both z are 0 with the pool's normaliser.")
    elif len(ranked) > 1 and "q" in flat:
        found.append(f"All q in the pool are equal, so z_q = 0: the order is pure similarity{apart}.")
    if len(ranked) > 1 and "similarity" in flat:
        found.append(f"All similarities in the pool are equal, so z_sim = 0: the order is pure utility{apart}.")
    if len(ranked) == 2 and decision.normaliser == "pool":
        found.append("A pool of two: any two unequal values become z = ±1, so a difference of 0.001 looks like 2.")
    if cut := [memory_label(c.memory_id, run) for c in ranked if any(term.clipped for term in c.terms)]:
        found.append(f"z_q was cut at ±3 for {', '.join(cut)}: their true distance from the mean is larger (hatched).")
    greedy = ", ".join(memory_label(memory_id, run) for memory_id in decision.greedy)
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
