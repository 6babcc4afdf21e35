"""Memento (AgentFly): past cases before the model, read by similarity or by a learned value of (task, case).

Source: arXiv 2508.16153, non-parametric and parametric memory, and its episodic control with a kernel; follows the card
“Memento / AgentFly”.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from memrl_core.policies.base import Lesson, Policy, Vector
from memrl_core.policies.memento_cases import LABELS, Cases, Floats, Loss, episodic_values
from memrl_core.policies.memento_network import chances, new_network, trained
from memrl_core.policies.memento_spec import SPECS, MementoSettings, card
from memrl_core.policies.ranking import Chosen, TermColumn, best_first, chance_of, ranked
from memrl_core.policies.sampling import gumbel_top, ordered_log_probability
from memrl_core.policies.wide_recall import wide_recall
from memrl_core.records import Decision, Memory, Reason, Recalled, RecallRecord, ValueChange
from memrl_core.retrieval import score_order
from memrl_core.view import MemoryView


class Memento(Policy[MementoSettings]):
    """Memento with one of its three reads."""

    spec = SPECS["similar"]
    Settings = MementoSettings

    def __init__(self, settings: MementoSettings) -> None:
        super().__init__(settings)
        self.spec = card(settings)

    def recall(self, query: Vector, view: MemoryView, coarse: Vector | None = None) -> RecallRecord:
        """The k1 most similar; for the network the k1 best of the whole bank."""
        if self.settings.read != "network":
            return super().recall(query, view, coarse)

        def best_first(members: Sequence[Recalled]) -> Sequence[int]:
            terms, _, _ = self._judged(members, view)
            order: list[int] = _order(terms, members).tolist()
            return order

        found = wide_recall(
            query, view, np.ones(len(view.ids), dtype=np.bool_), best_first, k1=self.settings.k1, delta=-1.0,
            strict=False, coarse=coarse, exclude_task=self.excluded_task(view), ties=self.settings.ties,
        )  # fmt: skip
        return replace(found, rule="everything", why="The network scores every case; the k1 best are the pool.")

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """The K best by similarity, Q_EC or p."""
        settings, pool = self.settings, recalled.pool
        terms, cold, note = self._judged(pool, view)
        chosen = None
        if cold:
            order = best_first(terms.contribution, pool, settings.ties, seed)
            taken = order[: settings.k2].tolist()
            chance, _ = chance_of(taken, terms.contribution, order, pool, settings.ties)
            chosen = Chosen(taken, "cold", chance, reasons=dict.fromkeys(taken, Reason.COLD_START))
        elif settings.read == "kernel" and settings.temperature > 0 and pool:
            return self._drawn(terms, recalled, view, seed, note)
        return ranked(recalled, view, [terms], k2=settings.k2, seed=seed, ties=settings.ties, chosen=chosen, note=note)

    def _drawn(self, worth: TermColumn, recalled: RecallRecord, view: MemoryView, seed: int, note: str) -> Decision:
        """K cases drawn without replacement by softmax(Q_EC / τ)."""
        settings, pool = self.settings, recalled.pool
        by_worth = worth.raw / settings.temperature
        order, noise = gumbel_top(by_worth, settings.k2, np.random.default_rng(seed))
        greedy = best_first(by_worth, pool, settings.ties, seed)[: settings.k2].tolist()
        changed = dict.fromkeys(set(order) ^ set(greedy), Reason.NOISE)
        log_propensity = ordered_log_probability(by_worth, order)
        chosen = Chosen(order, "sampled", log_propensity=log_propensity, reasons=changed)
        terms = [TermColumn(worth.name, worth.raw, normalised=by_worth), TermColumn("noise", noise)]
        decision = ranked(
            recalled, view, terms, k2=settings.k2, seed=seed, ties=settings.ties, chosen=chosen, note=note
        )
        return replace(decision, greedy=tuple(pool[position].memory_id for position in greedy))

    def start(self, memories: Sequence[Memory]) -> Cases:
        """No use of any case yet."""
        return Cases()

    def learn(self, state: Cases, lesson: Lesson) -> tuple[ValueChange, ...]:
        """Every case of the prompt gets the whole task's outcome as its label (r = 1 success, 0 failure)."""
        trace = lesson.trace
        if lesson.outcome == "unrated" or trace.embed is None or trace.decision is None or not trace.decision.selected:
            return ()
        asked = np.asarray(trace.embed.embedding, dtype=np.float32)
        used, outcome = trace.decision.selected, LABELS[lesson.outcome]
        predicted, weights = self._predicted(state, asked, used, lesson)
        number = state.add_state(asked)
        for memory_id, prediction in zip(used, predicted, strict=True):
            case_outcome = lesson.memory_of(memory_id).outcome
            state.add_use(number, memory_id, lesson.embedding_of(memory_id), case_outcome, outcome, prediction)
        if self.settings.read == "kernel":
            return self._valued(state, asked, used, outcome, predicted, weights)
        return self._trained(state, trace.step, len(used), outcome) if self.settings.read == "network" else ()

    def values(self, state: Cases) -> Mapping[str, float]:
        """kernel: Q_EC of each case where it was used last. network: the loss of the last batch, and the rows."""
        if self.settings.read == "kernel":
            return dict(state.worth)
        if self.settings.read == "network" and state.losses:
            return {"loss": state.losses[-1].after, "rows": float(state.losses[-1].rows)}
        return {}

    def _judged(self, members: Sequence[Recalled], view: MemoryView) -> tuple[TermColumn, bool, str]:
        """What these are ranked by, whether that is for want of anything learned, and a note about it."""
        settings, similar = self.settings, TermColumn("similarity", _similar(members))
        cases = view.learned if isinstance(view.learned, Cases) else Cases()
        if settings.read == "similar" or not members:
            return similar, False, ""
        if view.asked is None:
            return similar, True, "Taken by similarity: the embedding of what is asked is not known."
        ids = [member.memory_id for member in members]
        if settings.read == "kernel":
            values, weights = self._episodic(cases, view.asked.embedding, ids)
            known = int((weights > 0).sum())
            note = f"{known} of {len(ids)} cases have past uses; the others count as Q = {settings.unused_q:g}."
            return TermColumn("Q_EC(s, c)", values), known == 0, note
        if cases.network is None or not cases.enough(settings.cold_rows):
            return similar, True, self._why_cold(cases)
        rows = [view.position(memory_id) for memory_id in ids]
        outcomes = np.array([LABELS[view.memories[memory_id].outcome] for memory_id in ids], dtype=np.float64)
        p = chances(cases.network, view.asked.embedding, view.embeddings[rows], outcomes)
        return TermColumn("p(r = 1 | s, c)", p), False, f"θ after {cases.network.steps} steps of learning."

    def _why_cold(self, cases: Cases) -> str:
        rows, wanted = len(cases.uses), self.settings.cold_rows
        if rows < wanted:
            return f"Taken by similarity: {rows} of the {wanted} labelled rows that the network needs."
        if not cases.enough(wanted):
            return f"Taken by similarity: all {rows} labelled rows have the same outcome."
        return "Taken by similarity: no network was trained in this run."

    def _episodic(self, cases: Cases, asked: Vector, ids: Sequence[str]) -> tuple[Floats, Floats]:
        settings = self.settings
        return episodic_values(cases, asked, ids, settings.kernel, settings.bandwidth, settings.unused_q)

    def _predicted(
        self, cases: Cases, asked: Vector, used: Sequence[str], lesson: Lesson
    ) -> tuple[list[float], list[float]]:
        """What was predicted of each use before its outcome was known (NaN: nothing), and the kernel's Σ k."""
        nothing = [float("nan")] * len(used)
        if self.settings.read == "kernel":
            values, weights = self._episodic(cases, asked, used)
            return np.where(weights > 0, values, np.nan).tolist(), weights.tolist()
        if self.settings.read == "network" and cases.network is not None and cases.enough(self.settings.cold_rows):
            vectors = np.stack([lesson.embedding_of(memory_id) for memory_id in used])
            outcomes = np.array([LABELS[lesson.memory_of(memory_id).outcome] for memory_id in used])
            return chances(cases.network, asked, vectors, outcomes).tolist(), nothing
        return nothing, nothing

    def _valued(
        self,
        cases: Cases,
        asked: Vector,
        used: Sequence[str],
        outcome: float,
        predicted: Sequence[float],
        weights: Sequence[float],
    ) -> tuple[ValueChange, ...]:
        """Q_EC of each case in this state before and after its new use."""
        after, _ = self._episodic(cases, asked, used)
        changes = []
        for place, memory_id in enumerate(used):
            now, weight = float(after[place]), weights[place]
            before = predicted[place] if weight > 0 else self.settings.unused_q
            uses = len(cases.of([memory_id])[1])
            cases.worth[memory_id] = now
            formula = (
                f"Σ k Q′ / Σ k = ({weight:.3f} × {before:.3f} + 1 × {outcome:g}) / ({weight:.3f} + 1) = {now:.3f}; the "
                f"whole task's outcome, r = {outcome:g}, is the label of every case of the prompt"
            )
            changes.append(
                ValueChange(memory_id, before, now, uses, outcome, 1 / (weight + 1), name="Q_EC", formula=formula)
            )
        return tuple(changes)

    def _trained(self, cases: Cases, step: int, new: int, outcome: float) -> tuple[ValueChange, ...]:
        """One step of the network on a replay batch, and what it did to the loss."""
        settings, rows = self.settings, len(cases.uses)
        if cases.network is None:
            cases.network = new_network(cases.states.rows.shape[1], settings.network_seed)
        batch = cases.batch(settings.batch, np.random.default_rng([settings.network_seed, rows]))
        cases.network, before, after = trained(cases.network, batch, settings.learning_rate)
        cases.losses.append(Loss(step, rows, before, after))
        formula = (
            f"−mean[r ln p + (1 − r) ln(1 − p)] of {len(batch.outcomes)} rows: {before:.4f} → {after:.4f}, by one Adam "
            f"step with η = {settings.learning_rate:g}"
        )
        labelled = f"{rows - new} + {new} = {rows}: every case of the prompt with the task's outcome, r = {outcome:g}"
        return (
            ValueChange(
                "", before, after, cases.network.steps, outcome, settings.learning_rate, "parameters", "loss", formula
            ),
            ValueChange("", rows - new, rows, cases.network.steps, outcome, 1.0, "parameters", "rows", labelled),
        )


def _similar(members: Sequence[Recalled]) -> Floats:
    return np.array([member.similarity for member in members], dtype=np.float64)


def _order(terms: TermColumn, members: Sequence[Recalled]) -> npt.NDArray[np.int64]:
    """The positions of these memories, best first."""
    ranks = np.array([member.rank_recall for member in members], dtype=np.int64)
    return score_order(terms.contribution, _similar(members), ranks)
