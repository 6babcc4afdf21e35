"""Self-RAG-style, prompted: the model says whether it needs memory at all, then grades what was recalled.

In the manner of Self-RAG (arXiv 2310.11511), whose model was trained to write reflection tokens; here an untrained
model fills in two forms. Its threshold (.2) and the weight of relevance (1) are the released code's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from memrl_core.policies.base import Ask, Policy, PolicySpec, Question, UngatedSettings, answer_to
from memrl_core.policies.ranking import Chosen, Floats, TermColumn, best_first, chance_of, similarities
from memrl_core.policies.texts import as_sentence, memories_shown, task_shown
from memrl_core.records import Decision, Outcome, Reason, RecallRecord
from memrl_core.retrieval.view import MemoryView

NEED = "need of memory"
RELEVANCE = "relevance of memories"
NEED_REQUEST = (
    "You decide whether an agent should look into its memory of earlier tasks before it answers. You are given its "
    "task and what it sees. Fill in the form. needed: whether experience with similar tasks would help. reason: one "
    "sentence."
)
RELEVANCE_REQUEST = (
    "You grade what was found in an agent's memory. You are given its task and experiences with earlier tasks. Fill "
    "in the form: for each experience its id, exactly as it stands in brackets after the word memory, and its "
    "relevance to this task from 0 (of no use) to 1 (says what to do)."
)
SHARE: Mapping[Outcome, float] = {"success": 1.0, "failure": 0.5, "unrated": 0.5}
"""How much of its similarity a memory keeps as relevance by the rule in the model's place."""


class Need(BaseModel):
    """Whether the task needs memory."""

    needed: bool
    reason: str


class Grade(BaseModel):
    """How relevant one memory is."""

    memory_id: str
    relevance: float = Field(ge=0, le=1)


class Grades(BaseModel):
    """How relevant the recalled memories are."""

    grades: list[Grade]


class SelfRagSettings(UngatedSettings):
    """How many memories the model grades, and from which grade on one is used."""

    threshold: float = Field(
        0.2,
        ge=0,
        le=1,
        title="Threshold of relevance",
        description="A memory that the model grades below or at this is not used.",
    )


class SelfRag(Policy[SelfRagSettings]):
    """What the model itself finds relevant, if it wants memory at all."""

    spec = PolicySpec(
        name="self_rag",
        title="Self-RAG-style (prompted)",
        citation="in the manner of arXiv 2310.11511",
        variant="adapted",
        deviations=(
            "A look-alike: Self-RAG trains its model to write reflection tokens. Here an untrained model fills in "
            "forms, so nothing that was measured for Self-RAG holds.",
            "Whether memory is needed is a yes or no. The threshold, which the source sets against the probability of "
            "retrieving, is set against each memory's grade.",
            "The source answers once with every passage and keeps the best by relevance, support and usefulness; here "
            "relevance alone decides, before one answer.",
            "The memories are experiences with tasks, not passages of documents.",
            "With the simulated model a rule replaces both forms: relevance is the similarity, half of it without "
            "a success, and memory is needed when the best relevance is above the threshold.",
        ),
        idea="The model is asked whether memory would help it, and then grades each memory that was found. It reads "
        "only what it graded above the threshold.",
        recall="The k1 memories most similar to the intent. The gate δ is open unless it is set.",
        select="Nothing when the model needs no memory; else the k2 that it graded best, above the threshold.",
        cannot="Nobody checks the grades: a model that likes what misleads it is not corrected by rewards.",
        carries_over="Every memory; its q is not read.",
        learns="nothing",
        feedback=(),
        needs=("model on read",),
    )
    Settings = SelfRagSettings

    def consult(self, recalled: RecallRecord, view: MemoryView, ask: Ask) -> Mapping[str, Any]:
        """Whether memory is needed; if so, or if that cannot be read, the grades of the pool."""
        if not recalled.pool:
            return {}
        task, rule = task_shown(view), relevance_by_rule(recalled, view)
        answers = answer_to(Question(NEED, Need, NEED_REQUEST, task, self._need_by_rule(rule)), ask)
        if answers[NEED] is not None and not answers[NEED]["needed"]:
            return answers
        message = f"{task}\n\nFound, most similar first:\n\n{memories_shown(recalled.pool, view)}"
        graded = zip(recalled.pool, rule.tolist(), strict=True)
        template = Grades(grades=[Grade(memory_id=one.memory_id, relevance=grade) for one, grade in graded])
        return answers | answer_to(Question(RELEVANCE, Grades, RELEVANCE_REQUEST, message, template), ask)

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """The k2 graded best, above the threshold; by similarity where there are no grades to read."""
        k2, ties, similarity = self.settings.k2, self.settings.ties, similarities(recalled)
        if not recalled.pool:
            return super().select(recalled, view, seed)
        needed, grades, note = self._judged(recalled, view)
        if grades is None:
            terms = [TermColumn("similarity", similarity)]
        else:
            terms = [TermColumn("relevance", grades), TermColumn("similarity", similarity, weight=0.0)]
        everything = range(len(recalled.pool))
        if not needed:
            chosen = Chosen((), "silent", reasons=dict.fromkeys(everything, Reason.KEPT_SILENT))
            return self.ranked(recalled, view, terms, seed, chosen=chosen, note=note)
        if grades is None:
            return self.ranked(recalled, view, terms, seed, note=note)
        poor = {position for position in everything if grades[position] <= self.settings.threshold}
        order = best_first(grades, recalled.pool, ties, seed)
        best = [position for position in order.tolist() if position not in poor][:k2]
        chance, _ = chance_of(best, grades, order, recalled.pool, ties)
        chosen = Chosen(best, "greedy", chance, reasons=dict.fromkeys(poor, Reason.PRUNED_BY_MODEL))
        return self.ranked(recalled, view, terms, seed, chosen=chosen, note=note)

    def _judged(self, recalled: RecallRecord, view: MemoryView) -> tuple[bool, Floats | None, str]:
        """Whether memory is needed, the pool's relevances (n,) where they are known, and how that came about."""
        answers = view.answers
        if NEED not in answers:
            rule = relevance_by_rule(recalled, view)
            need = self._need_by_rule(rule)
            return need.needed, rule, f"No model was asked about this pool: {need.reason}"
        note = "Whether memory is needed could not be read from the reply: it counts as needed."
        if answers[NEED] is not None:
            need = Need.model_validate(answers[NEED])
            note = f"Memory was {'needed' if need.needed else 'not needed'}: {as_sentence(need.reason)}"
            if not need.needed:
                return False, None, note
        if answers.get(RELEVANCE) is None:
            return True, None, f"{note} The grades could not be read, which counts as no answer: similarity decided."
        given = {g.memory_id.strip(): g.relevance for g in Grades.model_validate(answers[RELEVANCE]).grades}
        ungraded = sum(member.memory_id not in given for member in recalled.pool)
        if ungraded:
            note += f" {ungraded} of {len(recalled.pool)} memories got no grade and count as 0."
        return True, np.array([given.get(member.memory_id, 0.0) for member in recalled.pool]), note

    def _need_by_rule(self, relevance: Floats) -> Need:
        best, threshold = float(relevance.max()), self.settings.threshold
        return Need(
            needed=best > threshold,
            reason=f"by the rule in the model's place, the best relevance {best:.2f} is "
            f"{'above' if best > threshold else 'not above'} {threshold:g}.",
        )


def relevance_by_rule(recalled: RecallRecord, view: MemoryView) -> Floats:
    """The pool's relevances (n,) as graded without a language model: similarity, half of it without a success."""
    share = np.array([SHARE[view.memories[member.memory_id].outcome] for member in recalled.pool])
    return np.asarray(np.maximum(similarities(recalled), 0.0) * share, dtype=np.float64)
