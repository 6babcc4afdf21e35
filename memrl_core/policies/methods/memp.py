"""MemP: scripts of past episodes, reworded where they fail and, in the released code, deleted where they keep failing.

Source: arXiv 2508.06433, and its released code (ProcedureMem) where the paper is silent and for what the code adds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import comb
from statistics import fmean
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.policies.base import (
    Ask,
    Lesson,
    NewExperience,
    Policy,
    PolicySpec,
    Question,
    Variant,
    Vector,
    Written,
    added,
    answer_to,
    deleted,
    nothing,
    one_memory,
)
from memrl_core.policies.ranking import Chosen, TermColumn
from memrl_core.policies.texts import one_line, section, sections_of, went_wrong
from memrl_core.prompting import AVOID, STEPS_THAT_WORKED, TASK_LINE, TRY_INSTEAD, WHAT_WENT_WRONG
from memrl_core.records import (
    Decision,
    Memory,
    MemoryOperation,
    Reason,
    Recalled,
    RecallRecord,
    StepTrace,
    Turn,
    Utility,
    ValueChange,
)
from memrl_core.retrieval.view import Asked, MemoryView
from memrl_core.settings import PolicySettings, usual

MOST = 200
"""Memories whose facts are compared, or among which chance decides: all of them stand in the trace."""


class MempSettings(PolicySettings):
    """The settings of MemP; its k is k2."""

    k1: int = usual("k1", 10, "How many memories phase A recalls at most. Not used by “ave_fact” and “random”.")
    k1_counts: Literal["record", "intent"] = usual(
        "k1_counts",
        "record",
        "record: k1 memories. intent: all memories of the k1 nearest intents. Not used by “ave_fact” and “random”.",
    )
    delta: float = usual(
        "delta", 0.2, "Memories less similar than this are not recalled. Not used by “ave_fact” and “random”."
    )
    k2: int = usual("k2", 10, "The method's k.")
    reward_failure: float = usual("reward_failure", 0.0, "Also thumbs down. The method has 0 and 1.")
    variant: Literal["paper", "code"] = Field(
        "paper",
        title="Variant",
        description="code: failing memories are deleted, and a task that has a memory gets no second one.",
    )
    build: Literal["direct", "round"] = Field(
        "direct",
        title="Build",
        description="direct: the script that is written of the episode. round: the turns of it that the model chooses.",
    )
    recall_by: Literal["query", "facts", "ave_fact", "random"] = Field(
        "query",
        title="Recall by",
        description="query: the intent. facts: its content words, as one text. ave_fact: fact by fact. random: k2 of "
        "all memories.",
    )
    update: Literal["vanilla", "validation", "adjustment"] = Field(
        "adjustment",
        title="Update",
        description="vanilla: every episode is stored. validation: successes. adjustment: successes; a failure rewords "
        "the memory that was followed.",
    )
    delete_from: int = Field(
        3, ge=1, le=1000, title="Deleted from n hits", description="Variant code: uses before a memory can be deleted."
    )
    delete_below: float = Field(
        0.5, ge=0, le=1, title="Deleted below", description="Variant code: the success rate below which it is."
    )


SPEC = PolicySpec(
    name="memp",
    title="MemP",
    citation="arXiv 2508.06433",
    variant="paper",
    deviations=(
        "Memories are counted, deleted and written after each task; the released code does so after a batch. There the "
        "reward of a use is looked up by the place of its memory's first use in the batch, so that a second use counts "
        "the first one's reward. That is not copied: each use counts its own.",
        "The released code's thresholds of .5 and .4 are largest distances of its vector index; here δ is the least "
        "cosine.",
        "The script of build “direct” is what a language model writes of the episode in one call, three to five steps "
        "in general terms, below the actions that worked. With the simulated model it is these actions alone.",
        "With the simulated model a memory whose steps went wrong is reworded as the environment lays the failure out; "
        "to another only the reason is added.",
        "There is no cold start from given trajectories.",
    ),
    idea="An agent keeps scripts of what it did. The memory is kept clean by what is stored, by rewording a script "
    "that has failed, and by deleting scripts that fail too often.",
    record="One memory a script, with hits and successes: its success rate stands as q, its hits as visits.",
    recall="By the intent, by its facts, or at random.",
    select="The k2 most similar, by cosine of the intent or mean cosine of the facts; or k2 drawn at random.",
    update="The first memory of the prompt alone: q = successes / hits, a 1/N mean. q does not choose memories.",
    write="Every episode, or successes only; with “adjustment” a failure rewords the first memory of its prompt, which "
    "keeps its q and visits.",
    forget="Released code: a memory with at least 3 hits of which less than half were successes. Paper: nothing.",
    cannot="What is deleted or reworded goes by the first memory alone, although the model has read k2 of them. "
    "Without a first success, validation and adjustment have nothing to begin with.",
    carries_over="Every memory; q and visits go on as a success rate, q cut to 0 … 1, which they are only if the other "
    "policy's were one. So what this run did not store is deleted by its uses in this run alone. Its facts are the "
    "content words of its intent.",
    needs=("episode reward", "model on write"),
    learns="success rate",
    variants=("paper", "code", "adapted"),
)


def _adaptations(settings: MempSettings) -> Iterator[str]:
    """What building, storing and comparing by facts have been changed to."""
    if settings.build == "round":
        yield "The events of a “round” are the turns as they were; the model only chooses among them."
    if settings.update == "vanilla":
        yield (
            "A failure that “vanilla” stores is kept as what went wrong and what to try instead, among the failures of "
            "the prompt; the source makes a script of it like any other."
        )
    if settings.recall_by == "facts":
        yield (
            "The facts of the task asked are its content words: the intent is embedded before any model can be asked. "
            "They are compared with the intents of memories, as in the released code."
        )
    if settings.recall_by == "ave_fact":
        yield (
            "Facts are compared by the embedded embedder of letters and words, because no other is at hand in phase B. "
            "With the simulated model they are the content words of the intent, each under its place. Memories that "
            f"share no key come last; the released code leaves them out. Of more than {MOST} memories the most similar "
            "by intent are compared; the source compares all."
        )


# --- the policy -------------------------------------------------------------------------------------------------------


FEWER_DRAWN = (
    f"Of more than {MOST} memories {MOST} are drawn first, by the step's number, and k2 of these by its seed: "
    "each memory has the same chance, as if drawn from all."
)
"""A deviation of recall at random that changes nothing of what comes of it."""
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
        own = tuple(_adaptations(settings))
        variant: Variant = "adapted" if own else settings.variant
        deviations = (*SPEC.deviations, *own, *((FEWER_DRAWN,) if settings.recall_by == "random" else ()))
        needs = (*SPEC.needs, "model on read") if settings.recall_by == "ave_fact" else SPEC.needs
        self.spec = replace(SPEC, variant=variant, deviations=deviations, needs=needs)

    # --- before the answer --------------------------------------------------------------------------------------------

    def key(self, asked: Asked) -> str:
        """The intent, or its content words in place of the facts that no model has been asked for yet."""
        words = " ".join(content_words(asked.intent).values())
        return words if self.settings.recall_by == "facts" and words else asked.intent

    def recall(self, query: Vector, view: MemoryView, coarse: Vector | None = None) -> RecallRecord:
        """Phase A: the k1 most similar; where facts or chance decide, every memory up to `MOST`."""
        if self.settings.recall_by in ("query", "facts"):
            return super().recall(query, view, coarse)
        by_chance = self.settings.recall_by == "random"
        # Recall has no seed: the step's number draws, which every replay knows. Phase B then draws evenly from all.
        number = view.asked.step if view.asked is not None else 0

        def wanted(members: Sequence[Recalled]) -> Sequence[int]:
            mixed = by_chance and len(members) > MOST
            return np.random.default_rng(number).permutation(len(members)).tolist() if mixed else range(len(members))

        found = self.wide_recall(query, view, wanted, k1=MOST, coarse=coarse)
        is_cut = any(missed.reason is Reason.BEYOND_K1 for missed in found.left_out)
        if by_chance:
            drawn = f"{MOST} memories, drawn from all by the step's number" if is_cut else "all memories"
            return replace(found, rule="random", why=f"Phase B draws from {drawn}.")
        compared = f"the {MOST} most similar memories" if is_cut else "all memories"
        return replace(found, rule="everything", why=f"Phase B compares {compared}.")

    def consult(self, recalled: RecallRecord, view: MemoryView, ask: Ask) -> Mapping[str, Any]:
        """The facts of the task, where they are compared."""
        if self.settings.recall_by != "ave_fact" or view.asked is None or not recalled.pool:
            return {}
        return answer_to(facts_question(view.asked.intent), ask)

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """Phase B: the k2 nearest by what the settings compare, or k2 drawn at random."""
        k2, n = self.settings.k2, len(recalled.pool)
        if self.settings.recall_by == "random" and n:
            size = min(k2, n)
            drawn = np.random.default_rng(seed).choice(n, size=size, replace=False).tolist()
            reasons = {i: Reason.RANDOM_EXPLORE if i in drawn else Reason.NOT_DRAWN for i in range(n)}
            chosen = Chosen(drawn, "sampled", 1 / comb(n, size), reasons=reasons)
            return self.ranked(recalled, view, (), seed, chosen=chosen, epsilon=1.0, note="Drawn at random.")
        if self.settings.recall_by != "ave_fact" or view.asked is None:
            return super().select(recalled, view, seed)
        facts = usable_facts(view.answers.get(FACTS))
        asked = facts or content_words(view.asked.intent)
        found = [shared_facts_similarity(asked, _facts_of(member.memory_id, view)) for member in recalled.pool]
        means = np.array([NO_KEY_SHARED if mean is None else mean for mean in found], dtype=np.float64)
        note = "" if facts or not n else "The content words of the intent stand in for its facts."
        return self.ranked(recalled, view, [TermColumn("facts", means)], seed, note=note)

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
        for operation in lesson.trace.operations:
            if operation.memory_id:
                state.store(operation.memory_id, operation.replaces, usable_facts(operation.data))

    def _written(self, new: NewExperience, view: MemoryView, gone: set[str], ask: Ask) -> Written:
        update = self.settings.update
        if update == "adjustment" and new.outcome == "failure":
            return self._reworded(new, view, gone, ask)
        if update != "vanilla" and new.outcome != "success":
            return nothing(new, ONLY_SUCCESSES)
        if self.settings.variant == "code" and (known := _of_intent(new.intent, view, gone)):
            return nothing(new, KNOWN_TASK, known)
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
        facts = usable_facts(view.answers.get(FACTS)) or usable_facts(answer_to(facts_question(new.intent), ask)[FACTS])
        return written.but(data={FACTS: facts})

    def _reworded(self, new: NewExperience, view: MemoryView, gone: set[str], ask: Ask) -> Written:
        followed = self.credited(new.trace.decision) if new.trace.decision is not None else ()
        if not followed or not view.sees(followed[0]):
            return nothing(new, NOTHING_USED)
        old = view.memories[followed[0]]
        if old.id in gone:
            return nothing(new, USED_IS_DELETED)
        form = ask(adjust_question(old, new))
        if form is None:
            return nothing(new, UNUSABLE)
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


# --- what a run has stored and followed -------------------------------------------------------------------------------


EXACT = 1e-9


@dataclass(slots=True)
class MempState:
    """What the steps of a run have stored and followed, by memory.

    `facts` are those of memories that were stored with some, `stored` the memories that the run's own steps wrote anew.
    `followed` counts the hits and successes of all others in this run.
    """

    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    followed: dict[str, tuple[int, int]] = field(default_factory=dict)

    def follow(self, memory_id: str, won: bool) -> None:
        """Count a use of a memory that this run did not store."""
        if memory_id not in self.stored:
            hits, successes = self.followed.get(memory_id, (0, 0))
            self.followed[memory_id] = hits + 1, successes + won

    def store(self, memory_id: str, replaces: Sequence[str], facts: Mapping[str, str]) -> None:
        """Note a memory with its facts; one that takes the place of another goes on with that one's counts."""
        if facts:
            self.facts[memory_id] = dict(facts)
        if self.stored.issuperset(replaces):
            self.stored.add(memory_id)
        for before in replaces:
            if before in self.followed:
                self.followed[memory_id] = self.followed[before]


def failing(view: MemoryView, least_hits: int, least_rate: float) -> list[str]:
    """The memories with so many hits and a lower success rate, oldest first.

    The rate is q, and the hits are the visits, of what the run stored; of the others only its own uses count.
    """
    fails = (view.visits >= least_hits) & (view.q < least_rate - EXACT)
    if view.visible is not None:
        fails &= view.visible
    by_q = [view.ids[position] for position in np.flatnonzero(fails).tolist()]
    state = view.learned
    if not isinstance(state, MempState):
        return by_q
    others = [
        memory_id
        for memory_id, (hits, successes) in state.followed.items()
        if hits >= least_hits and successes / hits < least_rate - EXACT and view.sees(memory_id)
    ]
    return sorted((*state.stored.intersection(by_q), *others), key=view.position)


# --- scripts, rewordings and facts ------------------------------------------------------------------------------------


EVENTS, ADJUSTED, FACTS = "events that mattered", "adjusted memory", "facts"
MOST_FACTS = 12
EVENTS_REQUEST = (
    "You are given a task and the numbered events of an episode: what was done, and what came of it. Name the events "
    "that mattered for the task: those that worked and brought it forward. Answer with their numbers in order."
)
ADJUST_REQUEST = (
    "A memory was followed in a task that then failed. Read the memory, the task and what was done. Write the memory "
    "anew so that it guides better: in one sentence what went wrong, then the actions to avoid, then the steps to take "
    "instead, each as a short line."
)
FACTS_REQUEST = (
    "Take the facts out of a task. Give each a short value under a key; use the keys action, object, condition, place "
    "and amount where they fit, so that tasks alike have the same keys."
)
_WORD = re.compile(r"\w+")
_EMPTY = re.compile("an?|and|as|at|by|for|from|in|into|is|it|of|on|or|some|that|the|then|this|to|with")


class Kept(BaseModel):
    """The events that make a script, by their numbers from 1."""

    events: list[int]


class Adjusted(BaseModel):
    """A memory written anew after a failure."""

    what_went_wrong: str
    avoid: list[str]
    try_instead: list[str]


class Facts(BaseModel):
    """What a task is about, by key."""

    facts: dict[str, str] = Field(max_length=MOST_FACTS)


# --- scripts ----------------------------------------------------------------------------------------------------------


def events_question(new: NewExperience) -> Question[Kept] | None:
    """Which turns of an episode that did not fail make its script; None where there is nothing to choose from."""
    turns = new.trace.turns
    if new.outcome == "failure" or len(turns) < 2:
        return None
    worked = sections_of(new.experience)[STEPS_THAT_WORKED]
    mattered = [number for number, turn in enumerate(turns, start=1) if set(_lines(turn)) & set(worked)]
    events = [f"{number}. {' / '.join(_lines(turn))} → {_outcome(turn)}" for number, turn in enumerate(turns, start=1)]
    text = f"{TASK_LINE}{new.intent}\n\n" + "\n".join(events)
    return Question(EVENTS, Kept, EVENTS_REQUEST, text, Kept(events=mattered))


def script_of(new: NewExperience, kept: Kept | None) -> str:
    """The chosen turns as an experience; the episode as it was laid out where no turn was chosen."""
    turns = new.trace.turns
    numbers = sorted({number for number in kept.events if 1 <= number <= len(turns)}) if kept else []
    lines = [line for number in numbers for line in _lines(turns[number - 1])]
    return f"{TASK_LINE}{new.intent}\n{section(STEPS_THAT_WORKED, lines)}" if lines else new.experience


def adjust_question(old: Memory, new: NewExperience) -> Question[Adjusted]:
    """How the memory that was followed shall read after a failure.

    The template takes what the environment lays out; it gives steps to take instead only where the memory's own steps
    went wrong: where it is about the same intent, or has a line to avoid in it, up to one word.
    """
    message = (
        f"The memory:\n{old.experience.strip()}\n\nThe task in which it failed, and what was done:\n"
        f"{new.experience.strip()}\n\nHow it ended: {new.verdict}"
    )
    found = sections_of(new.experience)
    own = [line for title in (STEPS_THAT_WORKED, TRY_INSTEAD) for line in sections_of(old.experience)[title]]
    is_to_blame = old.intent == new.intent or any(_alike(line, bad) for line in own for bad in found[AVOID])
    template = Adjusted(
        what_went_wrong=went_wrong(new.experience) or new.verdict,
        avoid=found[AVOID],
        try_instead=found[TRY_INSTEAD] if is_to_blame else [],
    )
    return Question(ADJUSTED, Adjusted, ADJUST_REQUEST, message, template)


def reworded_experience(old: Memory, intent: str, adjusted: Adjusted) -> str:
    """The memory's new text: about the task `intent` in which it failed, whose words its lines are in.

    Without steps to take instead the old text stays, with what went wrong below it.
    """
    wrong = f"{WHAT_WENT_WRONG}{one_line(adjusted.what_went_wrong)}\n"
    if instead := section(TRY_INSTEAD, adjusted.try_instead):
        return f"{TASK_LINE}{intent}\n{wrong}{section(AVOID, adjusted.avoid)}{instead}"
    kept = [line for line in old.experience.rstrip().splitlines() if not line.startswith(WHAT_WENT_WRONG)]
    return "\n".join([*kept, wrong])


def _lines(turn: Turn) -> list[str]:
    return [line for line in map(one_line, turn.reply.text.splitlines()) if line]


def _outcome(turn: Turn) -> str:
    return next((line.strip() for line in turn.observation.splitlines() if line.strip()), "the end")


def _alike(one: str, other: str) -> bool:
    """Whether two lines are the same up to one word."""
    words, others = one.lower().split(), other.lower().split()
    return len(words) == len(others) and sum(a != b for a, b in zip(words, others, strict=True)) <= 1


# --- facts ------------------------------------------------------------------------------------------------------------


def content_words(intent: str) -> dict[str, str]:
    """The facts of a task by the template: its words but the empty ones, each under its place."""
    words = [word for word in _WORD.findall(intent.lower()) if not _EMPTY.fullmatch(word)][:MOST_FACTS]
    return {f"word {place}": word for place, word in enumerate(words, start=1)}


def facts_question(intent: str) -> Question[Facts]:
    """What a task is about."""
    return Question(FACTS, Facts, FACTS_REQUEST, f"{TASK_LINE}{intent}", Facts(facts=content_words(intent)))


def usable_facts(found: object) -> dict[str, str]:
    """The facts of a form that was filled in, those without a letter or digit left out; empty for anything else."""
    facts = found.get("facts") if isinstance(found, Mapping) else None
    if not isinstance(facts, Mapping):
        return {}
    return {str(key): str(value) for key, value in facts.items() if any(c.isalnum() for c in str(value))}


def shared_facts_similarity(one: Mapping[str, str], other: Mapping[str, str]) -> float | None:
    """The mean cosine of the values under the keys that both have; None when they share no key."""
    shared = sorted(one.keys() & other.keys())
    return fmean(float(_embedded(one[key]) @ _embedded(other[key])) for key in shared) if shared else None


@lru_cache(maxsize=4096)
def _embedded(value: str) -> npt.NDArray[np.float64]:
    vector: npt.NDArray[np.float64] = HashingEmbedder().embed([value])[0].astype(np.float64)
    return vector
