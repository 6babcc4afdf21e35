"""MemP: scripts of past episodes, reworded where they fail and, in the released code, deleted where they keep failing.

Source: arXiv 2508.06433, and its released code (ProcedureMem) where the paper is silent and for what the code adds;
settings and card are in `memp_spec`, the texts in `memp_scripts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import comb
from typing import Any

import numpy as np

from memrl_core.policies.base import Ask, Lesson, NewExperience, Policy, Vector, Written, added, deleted, one_memory
from memrl_core.policies.memp_scripts import (
    FACTS,
    adjust_question,
    content_words,
    events_question,
    facts_question,
    reworded_experience,
    script_of,
    shared_facts_similarity,
    usable_facts,
)
from memrl_core.policies.memp_spec import MOST, SPEC, MempSettings, adaptations, differences
from memrl_core.policies.memp_state import MempState, failing
from memrl_core.policies.ranking import Chosen, TermColumn, ranked, similarities
from memrl_core.policies.spec import Variant
from memrl_core.policies.wide_recall import up_to
from memrl_core.records import (
    Decision,
    Memory,
    MemoryOperation,
    Reason,
    RecallRecord,
    StepTrace,
    Utility,
    ValueChange,
)
from memrl_core.view import Asked, MemoryView

NO_KEY_SHARED = -1.0
ONLY_SUCCESSES = "only successes are stored"
NOTHING_USED = "the failure followed no memory that could be reworded"
USED_IS_DELETED = "the memory that was followed is deleted, not reworded"
UNUSABLE = "the model's rewording could not be used, so that the memory stays as it was"
KNOWN_TASK = "the released code stores a task once"


class Memp(Policy[MempSettings]):
    """The policy of MemP under given settings."""

    spec = SPEC
    Settings = MempSettings

    def __init__(self, settings: MempSettings) -> None:
        super().__init__(settings)
        own = tuple(adaptations(settings))
        variant: Variant = "adapted" if own else settings.variant
        told = (*SPEC.deviations, *own, *differences(settings))
        needs = (*SPEC.needs, "model on read") if settings.recall_by == "ave_fact" else SPEC.needs
        self.spec = replace(SPEC, variant=variant, deviations=told, needs=needs)

    # --- before the answer --------------------------------------------------------------------------------------------

    def key(self, asked: Asked) -> str:
        """The intent, or its content words in place of the facts that no model has been asked for yet."""
        words = " ".join(content_words(asked.intent).values())
        return words if self.settings.recall_by == "facts" and words else asked.intent

    def recall(self, query: Vector, view: MemoryView, coarse: Vector | None = None) -> RecallRecord:
        """Phase A: the k1 most similar; where facts or chance decide, every memory up to `MOST`."""
        if self.settings.recall_by in ("query", "facts"):
            return super().recall(query, view, coarse)
        chance = self.settings.recall_by == "random"
        return up_to(
            MOST,
            query,
            view,
            by_chance=chance,
            coarse=coarse,
            exclude_task=self.excluded_task(view),
            ties=self.settings.ties,
        )

    def consult(self, recalled: RecallRecord, view: MemoryView, ask: Ask) -> Mapping[str, Any]:
        """The facts of the task, where they are compared."""
        if self.settings.recall_by != "ave_fact" or view.asked is None or not recalled.pool:
            return {}
        found = ask(facts_question(view.asked.intent))
        return {FACTS: None if found is None else found.model_dump(mode="json")}

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """Phase B: the k2 nearest by what the settings compare, or k2 drawn at random."""
        k2, n = self.settings.k2, len(recalled.pool)
        if self.settings.recall_by == "random" and n:
            size = min(k2, n)
            drawn = np.random.default_rng(seed).choice(n, size=size, replace=False).tolist()
            reasons = {i: Reason.RANDOM_EXPLORE if i in drawn else Reason.NOT_DRAWN for i in range(n)}
            chosen = Chosen(drawn, "sampled", 1 / comb(n, size), reasons=reasons)
            return ranked(
                recalled,
                view,
                (),
                k2=k2,
                seed=seed,
                ties=self.settings.ties,
                chosen=chosen,
                epsilon=1.0,
                note="Drawn at random.",
            )
        if self.settings.recall_by != "ave_fact" or view.asked is None:
            return ranked(
                recalled,
                view,
                [TermColumn("similarity", similarities(recalled))],
                k2=k2,
                seed=seed,
                ties=self.settings.ties,
            )
        said = usable_facts(view.asked.said.get(FACTS))
        asked = said or content_words(view.asked.intent)
        found = [shared_facts_similarity(asked, _facts_of(member.memory_id, view)) for member in recalled.pool]
        means = np.array([NO_KEY_SHARED if mean is None else mean for mean in found], dtype=np.float64)
        note = "" if said or not n else "The content words of the intent stand in for its facts."
        return ranked(
            recalled, view, [TermColumn("facts", means)], k2=k2, seed=seed, ties=self.settings.ties, note=note
        )

    # --- after the answer ---------------------------------------------------------------------------------------------

    def credited(self, decision: Decision) -> tuple[str, ...]:
        """The first memory of the prompt alone."""
        return decision.selected[:1]

    @staticmethod
    def rule(believed: Utility, reward: float, settings: Mapping[str, Any]) -> float:
        """successes / hits with one hit more; a reward above the middle of r− and r+ is a success.

        A q that another policy left is cut to [0, 1] first, so that it can be a rate.
        """
        middle = (float(settings["reward_success"]) + float(settings["reward_failure"])) / 2
        return (_as_rate(believed.q) * believed.visits + (reward > middle)) / (believed.visits + 1)

    def step_size(self, believed: Utility) -> float:
        """1 / N."""
        return 1 / (believed.visits + 1)

    def update(self, credited: Sequence[str], reward: float, values: Mapping[str, Utility]) -> tuple[ValueChange, ...]:
        """How the reward moves the success rate of the first memory."""
        won = int(reward > self.settings.q_midpoint)
        return tuple(
            replace(c, formula=f"({c.visits - 1} × {_as_rate(c.before):.3f} + {won}) / {c.visits} = {c.after:.3f}")
            for c in super().update(credited, reward, values)
        )

    def write(self, new: NewExperience, view: MemoryView, ask: Ask) -> tuple[Written, ...]:
        """What becomes of the episode, and the deletion of a memory that this very step has condemned.

        In the released code's order: counted, then deleted, then written; what is deleted is not reworded.
        """
        gone = self._condemned_by(new.trace, view)
        written = self._written(new, view, {*gone, *self._failing(view)}, ask)
        return (written, Written(deleted(gone, self._why_deleted()))) if gone else (written,)

    def forget(self, view: MemoryView) -> tuple[MemoryOperation, ...]:
        """Released code: the memories whose success rate in the view is too low, in every mode of update.

        At WRITE the view is as the step began, because its reward is appended when it ends. So what the step itself
        condemns is deleted by `write`, which sees the trace; this finds what late rewards or settings have condemned.
        """
        gone = self._failing(view)
        return (deleted(gone, self._why_deleted()),) if gone else ()

    # --- what the run has stored and followed -------------------------------------------------------------------------

    def start(self, memories: Sequence[Memory]) -> MempState:
        """Nothing stored and nothing followed; no facts are known of memories that the run begins with."""
        return MempState()

    def learn(self, state: MempState, lesson: Lesson) -> tuple[ValueChange, ...]:
        """Count the use of the first memory, if this run did not store it; its q moves by `rule`, as every other's."""
        decision = lesson.trace.decision
        for memory_id in self.credited(decision) if decision is not None and lesson.reward is not None else ():
            state.follow(memory_id, won=lesson.outcome == "success")
        return ()

    def remember(self, state: MempState, lesson: Lesson) -> None:
        """What a step has stored, with its facts."""
        for operation in lesson.trace.write.operations if lesson.trace.write is not None else ():
            if operation.memory_id:
                state.store(operation.memory_id, operation.replaces, usable_facts(operation.data))

    def _written(self, new: NewExperience, view: MemoryView, gone: set[str], ask: Ask) -> Written:
        update = self.settings.update
        if update == "adjustment" and new.outcome == "failure":
            return self._reworded(new, view, gone, ask)
        if update != "vanilla" and new.outcome != "success":
            return _nothing(new, ONLY_SUCCESSES)
        if self.settings.variant == "code" and (known := _of_intent(new.intent, view, gone)):
            return _nothing(new, KNOWN_TASK, known)
        return self._stored(new, view, ask)

    def _stored(self, new: NewExperience, view: MemoryView, ask: Ask) -> Written:
        question = events_question(new) if self.settings.build == "round" else None
        if question is not None:
            new = replace(new, experience=script_of(new, ask(question)))
        if self.settings.recall_by == "facts":
            new = replace(new, embedding=new.embed([new.intent])[0])
        written = one_memory(new, view, self.settings)
        if self.settings.recall_by != "ave_fact" or written.embedding is None:
            return written
        facts = usable_facts(view.asked.said.get(FACTS)) if view.asked is not None else {}
        if not facts:
            found = ask(facts_question(new.intent))
            facts = usable_facts(None if found is None else found.model_dump())
        return replace(written, operation=replace(written.operation, data={FACTS: facts}))

    def _reworded(self, new: NewExperience, view: MemoryView, gone: set[str], ask: Ask) -> Written:
        followed = self.credited(new.trace.decision) if new.trace.decision is not None else ()
        if not followed or not view.sees(followed[0]):
            return _nothing(new, NOTHING_USED)
        old = view.memories[followed[0]]
        if old.id in gone:
            return _nothing(new, USED_IS_DELETED)
        form = ask(adjust_question(old, new))
        if form is None:
            return _nothing(new, UNUSABLE)
        return added(
            new,
            new.memory_id,
            reworded_experience(old, new.intent, form),
            view.embeddings[view.position(old.id)].copy(),
            op="UPDATE",
            replaces=(old.id,),
            intent=old.intent,
            intent_key=old.intent_key,
            outcome=old.outcome,
            data={FACTS: facts} if (facts := _stored_facts(old.id, view)) else {},
            why="a task in which it was followed has failed",
        )

    # --- deletion -----------------------------------------------------------------------------------------------------

    def _failing(self, view: MemoryView) -> list[str]:
        settings = self.settings
        return failing(view, settings.delete_from, settings.delete_below) if settings.variant == "code" else []

    def _condemned_by(self, trace: StepTrace, view: MemoryView) -> list[str]:
        """The memories that the step's own reward has brought to where they are deleted."""
        changes = [c for c in (trace.update.changes if trace.update is not None else ()) if view.sees(c.memory_id)]
        q, visits = view.q.copy(), view.visits.copy()
        for change in changes:
            if change.target == "memory" and change.name == "q":
                position = view.position(change.memory_id)
                q[position], visits[position] = change.after, change.visits
        before = set(self._failing(view))
        return [i for i in self._failing(replace(view, q=q, visits=visits)) if i not in before]

    def _why_deleted(self) -> str:
        return (
            f"a success rate below {self.settings.delete_below:g} after {self.settings.delete_from} or more uses; "
            "of a memory that the run did not store, only its uses in this run count"
        )


def _as_rate(q: float) -> float:
    return min(1.0, max(0.0, q))


def _nothing(new: NewExperience, why: str, same_as: str | None = None) -> Written:
    return Written(replace(added(new, "", new.experience).operation, op="NOOP", why=why, duplicate_of=same_as))


def _of_intent(intent: str, view: MemoryView, gone: set[str]) -> str | None:
    """The oldest memory of an intent that the run sees and will keep."""
    ids = (view.ids[position] for position in view.positions().tolist())
    return next((i for i in ids if i not in gone and view.memories[i].intent.strip() == intent.strip()), None)


def _stored_facts(memory_id: str, view: MemoryView) -> dict[str, str]:
    return view.learned.facts.get(memory_id, {}) if isinstance(view.learned, MempState) else {}


def _facts_of(memory_id: str, view: MemoryView) -> dict[str, str]:
    """The facts stored with a memory; the content words of its intent where there are none."""
    stored = _stored_facts(memory_id, view)
    if stored or memory_id not in view.memories:
        return stored
    return content_words(view.memories[memory_id].intent)
