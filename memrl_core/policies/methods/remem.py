"""ReMem as a prompted loop: ExpRAG, and before the answer the model says which of the retrieved set to drop.

Source: Evo-Memory (arXiv 2511.20857), ReMem: Think, Act and Refine, where Refine uses, prunes and reorganises memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import comb
from typing import Any

import numpy as np
from pydantic import BaseModel

from memrl_core.policies.base import Ask, Question, answer_to, seed_of
from memrl_core.policies.methods.exprag import LAID_OUT, ExpRag
from memrl_core.policies.ranking import Chosen, similarities
from memrl_core.policies.texts import as_sentence, members_of, memories_shown, task_shown
from memrl_core.records import Decision, Reason, Recalled, RecallRecord
from memrl_core.retrieval import DIGITS
from memrl_core.retrieval.exploration import tied_at_cut
from memrl_core.retrieval.view import MemoryView

PRUNE = "memories to drop"
REQUEST = (
    "You refine what was retrieved from an agent's memory before it answers. You are given its task and the retrieved "
    "experiences. Fill in the form. drop: the ids of the experiences that would not help with this task or would "
    "mislead, exactly as they stand in brackets after the word memory; empty when all of them help. reason: one "
    "sentence."
)
UNREADABLE = "The reply on what to drop does not fit its form, which counts as no answer: nothing was pruned."


class Pruning(BaseModel):
    """Which of the retrieved set to drop."""

    drop: list[str]
    reason: str


class ReMem(ExpRag):
    """ExpRAG with a retrieved set that the model has pruned."""

    spec = replace(
        ExpRag.spec,
        name="remem",
        title="ReMem (prompted loop)",
        citation="arXiv 2511.20857",
        deviations=(
            "The loop of Think, Act and Refine is reduced to one Refine before the answer; the model does not choose "
            "between them.",
            "Prune affects the retrieved set of this task only: a memory that was dropped stays in the bank and can be "
            "retrieved again. The paper's wording covers the whole memory. Nothing is reorganised.",
            LAID_OUT,
            "With the simulated model a rule replaces Refine: it drops what is less than half as similar as the "
            "best, and failures where a success is at least as similar.",
        ),
        idea="What similarity retrieved is read once more before it is used: the model says what would not help, and "
        "only the rest is put before it.",
        select="The k = k2 most similar, without those that the model drops. Nothing takes their place.",
        update="Nothing: no value moves.",
        cannot="It does not remember what it dropped, and no reward tells the model that it dropped the wrong ones.",
        needs=("episode reward", "model on read"),
    )

    def consult(self, recalled: RecallRecord, view: MemoryView, ask: Ask) -> Mapping[str, Any]:
        """Which of the retrieved set to drop; not asked about none."""
        retrieved = self._retrieved(recalled, view, seed_of(view))
        if not retrieved:
            return {}
        message = f"{task_shown(view)}\n\nRetrieved, most similar first:\n\n{memories_shown(retrieved, view)}"
        return answer_to(Question(PRUNE, Pruning, REQUEST, message, rule_in_its_place(retrieved, view)), ask)

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """The retrieved set without what is dropped."""
        retrieved = [member.memory_id for member in self._retrieved(recalled, view, seed)]
        if not retrieved:
            return self.by_similarity(recalled, view, seed)
        dropped, note = self._dropped(recalled, retrieved, view)
        stands = {member.memory_id: position for position, member in enumerate(recalled.pool)}
        kept = [stands[memory_id] for memory_id in retrieved if memory_id not in dropped]
        reasons = {stands[memory_id]: Reason.PRUNED_BY_MODEL for memory_id in dropped}
        chosen = Chosen(kept, "greedy", self._chance(recalled, retrieved, kept, view), reasons=reasons)
        return self.by_similarity(recalled, view, seed, chosen=chosen, note=note)

    def _chance(self, recalled: RecallRecord, retrieved: list[str], kept: list[int], view: MemoryView) -> float:
        """The probability of the positions `kept`, by the draw among equals at the cut of what is retrieved.

        Every other draw that differs only in equals which are dropped keeps the same.
        """
        if self.settings.ties == "older":
            return 1.0
        similarity, ids = similarities(recalled), [member.memory_id for member in recalled.pool]
        inside = [ids.index(memory_id) for memory_id in retrieved]
        order = [*inside, *(position for position in np.argsort(-similarity).tolist() if position not in inside)]
        tied = tied_at_cut(order, len(inside), similarity.round(DIGITS), similarity)
        drawn = len(tied & {*inside})
        dropped = [ids[i] for i in tied if ids[i] in self._dropped(recalled, [*{*retrieved, ids[i]}], view)[0]]
        return comb(len(dropped), drawn - len(tied & {*kept})) / comb(len(tied), drawn)

    def _retrieved(self, recalled: RecallRecord, view: MemoryView, seed: int) -> list[Recalled]:
        return members_of(recalled, self.by_similarity(recalled, view, seed).selected)

    def _dropped(self, recalled: RecallRecord, retrieved: Sequence[str], view: MemoryView) -> tuple[set[str], str]:
        """Which of the retrieved ids are dropped, and why in words."""
        if PRUNE not in view.answers:
            rule = rule_in_its_place(members_of(recalled, retrieved), view)
            return set(rule.drop), f"No model was asked about this pool: {rule.reason}"
        if view.answers[PRUNE] is None:
            return set(), UNREADABLE
        pruning = Pruning.model_validate(view.answers[PRUNE])
        named = {memory_id.strip() for memory_id in pruning.drop}
        dropped = named & set(retrieved)
        note = f"{len(dropped)} of {len(retrieved)} retrieved memories were pruned: {as_sentence(pruning.reason)}"
        strangers = sorted(named - dropped)
        if strangers:
            note += f" “{strangers[0][:80]}” was named too and is not in the retrieved set: nothing came of that."
        return dropped, note


def rule_in_its_place(retrieved: Sequence[Recalled], view: MemoryView) -> Pruning:
    """The form as filled in without a language model: by similarity and outcome."""
    best = max(member.similarity for member in retrieved)
    successes = [m.similarity for m in retrieved if view.memories[m.memory_id].outcome == "success"]
    drop = []
    for member in retrieved:
        has_failed = view.memories[member.memory_id].outcome == "failure"
        outdone = has_failed and member.similarity <= max(successes, default=-2)
        if outdone or member.similarity < min(best, best / 2):
            drop.append(member.memory_id)
    return Pruning(
        drop=drop,
        reason="by the rule in the model's place, what is less than half as similar as the best is dropped, and "
        "failures where a success is at least as similar.",
    )
