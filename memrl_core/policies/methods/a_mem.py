"""A-MEM: notes that the model writes of episodes, links to each other and rewrites as new ones come.

Source: arXiv 2502.12110 and its two released repositories (agiresearch/A-mem, WujiangXu/AgenticMemory); the card of the
method says where paper and code part.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memrl_core.policies.base import (
    Ask,
    Lesson,
    NewExperience,
    Policy,
    PolicySpec,
    Question,
    UngatedSettings,
    Vector,
    Written,
    added,
    learned_in,
    nearest,
    seed_of,
)
from memrl_core.policies.ranking import Chosen, TermColumn, ranked, similarities
from memrl_core.policies.texts import followed, reworded
from memrl_core.prompting import ANSWER_MARK, WHAT_WENT_WRONG
from memrl_core.records import Decision, Memory, MemoryOperation, Reason, Recalled, RecallRecord, StepTrace
from memrl_core.retrieval import exact_similarity
from memrl_core.retrieval.view import MemoryView
from memrl_core.settings import usual

NO_ANSWER = "The model gave no usable answer about {}."


class AMemSettings(UngatedSettings):
    """The settings of A-MEM; its k is k2."""

    k1: int = usual("k1", 10, "How many notes are recalled.")
    k2: int = usual("k2", 5, "The method's k: how many notes are read.")
    linked: int = Field(
        2,
        ge=0,
        le=100,
        title="Places for linked notes",
        description="How many of the k2 places notes may take that are linked with the nearest. 0: none, as in the "
        "released code where k are found.",
    )
    neighbours: int = Field(
        5,
        ge=0,
        le=50,
        title="Neighbours of a new note",
        description="How many of the nearest notes are looked at for links and evolution.",
    )


SPEC = PolicySpec(
    name="a_mem",
    title="A-MEM",
    citation="arXiv 2502.12110",
    variant="adapted",
    deviations=(
        "A note is made of an episode of the agent; the source makes one of a turn of a conversation, with its time.",
        "The query is the intent; a note's vector is made of content, keywords, tags and context, as in the source.",
        "The neighbours of the newcomer evolve. One released repository takes the ranks of the neighbours for their "
        "positions in its store and edits the five oldest notes instead; that is not copied.",
        "An evolved note is a new memory in the place of the old one, found by its new vector at once; in the released "
        "code it is found by its old vector until the next re-indexing.",
        "A link is followed from both of its ends; in the released code from the newer note only.",
        "How many linked notes are read is limited here, so that k2 stays the size of the prompt.",
        "In the prompt the memories stand under headings that say how their episodes ended, as for every method here.",
        "With the simulated model, words that are counted and compared stand in for what the model says of a note.",
    ),
    idea="The memory organises itself: the model gives each new note keywords, tags and a context, links it with the "
    "notes near it, and rewrites the context and tags of those.",
    record="One note an episode: content, keywords, tags, context, links; its vector is made of the first four.",
    recall="The k1 notes most similar to the intent, and the notes linked with the k2 nearest.",
    select="The k2 nearest, of which the last give way to linked notes.",
    update="No reward changes anything: that is the lesson.",
    write="Two questions to the model: what the new note is about; which neighbours it is linked with, and which of "
    "them now read differently. An evolved neighbour takes the place of the old one.",
    cannot="It cannot tell a note that helps from one that harms: nobody's reward reaches it.",
    carries_over="Every memory, as a note without keywords, tags, context and links until a newcomer evolves it; its q "
    "is not read.",
    feedback=(),
    needs=("model on write",),
    learns="text",
)


class AMem(Policy[AMemSettings]):
    """Notes that are linked and evolve."""

    spec = SPEC
    Settings = AMemSettings
    wants_summary = False
    ignored = ("duplicates", "duplicate_threshold")

    def embedded_text(self, operation: MemoryOperation, trace: StepTrace) -> str:
        """The note: its content, keywords, tags and context."""
        return embedded_text(content_of(operation.experience), note_of(operation.data))

    def recall(self, query: Vector, view: MemoryView, coarse: Vector | None = None) -> RecallRecord:
        """The k1 nearest, and what is linked with the k2 nearest of them; ranks go by similarity."""
        near = super().recall(query, view, coarse)
        hits = [member.memory_id for member in near.pool[: self.settings.k2]]
        linked = [i for i in self._linked_with(hits, view) if i not in {member.memory_id for member in near.pool}]
        return _with(linked, near, query, view) if linked else near

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """The k2 nearest; notes that are linked with them take up to `linked` of the places."""
        k2, ids = self.settings.k2, [member.memory_id for member in recalled.pool]
        similarity = similarities(recalled)
        nearest = [ids[position] for position in np.lexsort((np.arange(len(ids)), -similarity))]
        kept = nearest[: max(k2 - self.settings.linked, min(k2, 1))]
        linked = [memory_id for memory_id in self._linked_with(kept, view) if memory_id in ids]
        chosen = list(dict.fromkeys((*kept, *linked, *nearest)))[:k2]
        by_link = [memory_id for memory_id in chosen if memory_id not in nearest[:k2]]
        terms = [
            TermColumn("similarity", similarity),
            TermColumn("linked", np.array([float(i in linked) for i in ids], dtype=np.float64), weight=0.0),
        ]
        indices = [ids.index(memory_id) for memory_id in chosen]
        taken = Chosen(indices, "greedy" if ids else "fallback", greedy=indices)
        note = f"Chosen for a link with a nearer note: {', '.join(by_link)}." if by_link else ""
        # Ties go by the order of the recall, which the seed has drawn.
        return ranked(recalled, view, terms, k2=k2, seed=seed, ties="older", chosen=taken, note=note)

    def write(self, new: NewExperience, view: MemoryView, ask: Ask) -> tuple[Written, ...]:
        """The new note with its links, and each neighbour that it changes, in the place of the old one."""
        analysis = ask(analysis_question(new.experience, new.intent))
        note = analysed(analysis)
        (vector,) = new.embed([embedded_text(new.experience, note)])
        near = self._neighbours(vector, view, seed_of(new.trace))
        evolution = ask(evolution_question(new.experience, note, near)) if near else None
        note, changed = evolved(note, evolution, near)
        failed = [("the new note", analysis), *([("its neighbours", evolution)] if near else [])]
        why = " ".join(NO_ANSWER.format(what) for what, answer in failed if answer is None)
        texts = [embedded_text(new.experience, note)]
        texts += [embedded_text(one.content, changed[one.memory_id]) for one in near if one.memory_id in changed]
        vectors = iter(new.embed(texts))
        text = with_note(new.experience, note)
        written = [added(new, new.memory_id, text, next(vectors), data=note.model_dump(mode="json"), why=why)]
        for one in near:
            if one.memory_id in changed:
                after, old = changed[one.memory_id], view.memories[one.memory_id]
                of_old = {"intent": old.intent, "intent_key": old.intent_key, "outcome": old.outcome}
                changes = {**of_old, "op": "UPDATE", "replaces": (old.id,), "parents": (old.id,)}
                data, why = after.model_dump(mode="json"), f"A new note, {new.memory_id}, changed how it reads."
                text = with_note(one.content, after)
                written.append(added(new, new.fresh_id(), text, next(vectors), data=data, why=why, **changes))
        return tuple(written)

    def start(self, memories: Sequence[Memory]) -> Notes:
        """Memories that the run begins with are notes of which nothing is known but their text."""
        return Notes({memory.id: note_of({}) for memory in memories})

    def remember(self, state: Notes, lesson: Lesson) -> None:
        """The notes that were written, and which took the place of which."""
        for op in lesson.trace.operations:
            if op.op == "DELETE":
                for memory_id in op.replaces:
                    state.notes.pop(memory_id, None)
            elif op.op != "NOOP":
                state.notes[op.memory_id] = note_of(op.data)
                state.replaced.update(dict.fromkeys(op.replaces, op.memory_id))

    def _neighbours(self, vector: Vector, view: MemoryView, seed: int) -> list[Neighbour]:
        """The notes nearest to a new one with this vector (d,)."""
        state = learned_in(view, Notes)
        places = state.places(view)
        return [
            Neighbour(
                seen.memory_id,
                seen.similarity,
                content_of(view.memories[seen.memory_id].experience),
                state.note(seen.memory_id, places),
            )
            for seen in nearest(vector, view, self.settings.neighbours, self.settings.ties, seed)
        ]

    def _linked_with(self, hits: Sequence[str], view: MemoryView) -> list[str]:
        """What the run may read of the notes linked with `hits`: those of the first hit first, the newest first."""
        state = learned_in(view, Notes)
        pairs = linked_pairs(state, state.places(view), view)
        excluded = self.excluded_task(view)
        found: list[str] = []
        for hit in hits:
            linked = (other for one, other in pairs if one == hit)
            found += sorted(linked, key=view.position, reverse=True)
        return [i for i in dict.fromkeys(found) if not (excluded and view.memories[i].task == excluded)]


def _with(linked: Sequence[str], near: RecallRecord, query: Vector, view: MemoryView) -> RecallRecord:
    """`near` with the linked notes in its pool, all in the order of their similarity."""
    rows = [view.position(memory_id) for memory_id in linked]
    come = {
        memory_id: Recalled(memory_id, value, 0, None)
        for memory_id, value in zip(linked, exact_similarity(view.embeddings[rows], query).tolist(), strict=True)
    }
    same_task = [seen for seen in near.left_out if seen.reason is Reason.SAME_TASK]
    missed = [seen for seen in near.left_out if seen not in same_task and seen.memory_id not in come]
    # Equals stay as they were recalled; what a link brought comes after those that similarity brought.
    order = sorted((*near.pool, *missed, *come.values()), key=lambda seen: -seen.similarity)
    ranks = [replace(seen, rank_recall=rank) for rank, seen in enumerate((*order, *same_task), start=1)]
    return replace(
        near,
        pool=tuple(seen for seen in ranks if seen.reason is None),
        left_out=tuple(seen for seen in ranks if seen.reason is not None),
        why=f"recalled for a link with a nearer note: {', '.join(come)}",
    )


# --- notes and their links --------------------------------------------------------------------------------------------


_NOTE = "\nNote:\nContext: "


class Note(BaseModel):
    """What is kept of a memory beside its text; `links` are ids as they were when they were made."""

    model_config = ConfigDict(frozen=True)

    keywords: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    context: str = ""
    links: tuple[str, ...] = ()


def note_of(data: Mapping[str, Any]) -> Note:
    """The note in an operation's `data`; an empty one where another policy wrote it."""
    try:
        return Note.model_validate(data)
    except ValidationError:
        return Note()


@dataclass(slots=True)
class Notes:
    """The notes of a run by memory id, oldest first, and which memory took the place of which."""

    notes: dict[str, Note] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)

    def places(self, view: MemoryView) -> dict[str, str]:
        """The same with what people have put in the place of memories."""
        return {**reworded(view, self.replaced), **self.replaced}

    def was_rewritten(self, memory_id: str, at: str) -> bool:
        """Whether a newer note, that of `at` or of one before it, has taken the place of the one of `memory_id`."""
        return at != memory_id and memory_id in self.replaced

    def note(self, memory_id: str, places: Mapping[str, str]) -> Note:
        """The note of a memory, or of the one that a person reworded into it; an empty one where there is none."""
        older = {new: old for old, new in places.items()}
        at: str | None = memory_id
        while at is not None and at not in self.notes:
            at = older.pop(at, None)
        return self.notes[at] if at is not None else Note()


def linked_pairs(state: Notes, places: Mapping[str, str], view: MemoryView) -> set[tuple[str, str]]:
    """Both directions of every link between two memories that the run sees, wherever replaced ones have gone."""
    pairs = set()
    for memory_id, note in state.notes.items():
        one = followed(memory_id, places, view)
        if one is None or state.was_rewritten(memory_id, one):
            continue
        for link in note.links:
            other = followed(link, places, view)
            if other is not None and other != one:
                pairs |= {(one, other), (other, one)}
    return pairs


# --- what a note looks like -------------------------------------------------------------------------------------------


def with_note(content: str, note: Note) -> str:
    """An experience as the model reads it: its content, then context, keywords and tags in a line each."""
    return (
        f"{content.rstrip()}{_NOTE}{note.context}\nKeywords: {', '.join(note.keywords)}\nTags: {', '.join(note.tags)}"
    )


def content_of(experience: str) -> str:
    """An experience without the lines that `with_note` puts below it."""
    content, found, _ = experience.rpartition(_NOTE)
    return content if found else experience


def embedded_text(content: str, note: Note) -> str:
    """What a note's vector is made of: content ‖ keywords ‖ tags ‖ context."""
    return "\n".join((content.rstrip(), " ".join(note.keywords), " ".join(note.tags), note.context))


# --- questions to the model, and the templates that stand in for its answers ------------------------------------------


ANALYSE, EVOLVE = "analyse", "evolve"
ANALYSE_REQUEST = (
    "You keep notes of episodes. Read one and fill in the form: the keywords that name what it is about, the most "
    "telling first; one sentence of context that says what it was for and what came of it; a few broad tags under "
    "which similar notes belong."
)
EVOLVE_REQUEST = (
    "You keep notes of episodes that refer to each other. Read a new note and the notes nearest to it, and fill in the "
    "form: the ids of those that it should be linked with; its own tags as they should be now; and for each near note "
    "that reads differently in the light of the new one, its id with its context and tags as they should be now. Leave "
    "lists empty where nothing should change."
)
LINK_SIMILARITY = 0.5
"""Cosine of two notes from which the template links them, if they share a keyword."""
KEYWORDS, TAGS, LONGEST_CONTEXT, LONGEST_WORD = 6, 10, 300, 40
_WORD = re.compile(r"[^\W\d_]{3,}")
_STOPWORDS = frozenset(
    ("the", "and", "for", "with", "from", "that", "this", "was", "were", "not", "are", "has", "had", "you", "your",
     "its", "into", "onto", "there", "should", "put", "task", "steps", "worked", "avoid", "try", "instead", "what",
     "went", "wrong", "answer", "done", "will", "can", "but")
)  # fmt: skip


class Analysis(BaseModel):
    """What a new note is about."""

    keywords: list[str] = Field(description="what it is about, the most telling first")
    context: str = Field(description="one sentence: what it was for and what came of it")
    tags: list[str] = Field(description="broad themes under which similar notes belong")


class NeighbourNow(BaseModel):
    """A near note as it should be now."""

    memory: str = Field(description="the id of the near note")
    context: str
    tags: list[str]


class Evolution(BaseModel):
    """What the newcomer changes among its neighbours."""

    links: list[str] = Field(description="ids of near notes to link with")
    tags: list[str] = Field(description="the tags of the new note now")
    neighbours: list[NeighbourNow] = Field(description="near notes that read differently now")


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A note near a new one; `content` is its experience without the note's lines."""

    memory_id: str
    similarity: float
    content: str
    note: Note


def analysis_question(content: str, intent: str) -> Question[Analysis]:
    """Keywords, context and tags of a new episode."""
    return Question(ANALYSE, Analysis, ANALYSE_REQUEST, content, _counted(content, intent))


def evolution_question(content: str, note: Note, near: Sequence[Neighbour]) -> Question[Evolution]:
    """The links of a new note, and what it changes in the notes near it."""
    message = f"New note:\n{with_note(content, note)}\n\nNotes near it:\n" + "\n\n".join(
        f"[{one.memory_id}]\n{with_note(one.content, one.note)}" for one in near
    )
    return Question(EVOLVE, Evolution, EVOLVE_REQUEST, message, _merged(note, near))


def analysed(note: Analysis | None) -> Note:
    """The note of an analysis; an empty one where there was no usable answer."""
    if note is None:
        return Note()
    return Note(keywords=_words(note.keywords, KEYWORDS), tags=_words(note.tags, TAGS), context=_line(note.context))


def evolved(note: Note, evolution: Evolution | None, near: Sequence[Neighbour]) -> tuple[Note, dict[str, Note]]:
    """The newcomer with its links and tags, and the neighbours that changed by id; unknown ids are passed over."""
    if evolution is None:
        return note, {}
    known = {one.memory_id: one.note for one in near}
    links = tuple(i for i in dict.fromkeys(evolution.links) if i in known)
    changed = {}
    for now in evolution.neighbours:
        before = known.get(now.memory)
        if before is None:
            continue
        after = before.model_copy(
            update={"context": _line(now.context) or before.context, "tags": _words(now.tags, TAGS)}
        )
        if after != before:
            changed[now.memory] = after
    return note.model_copy(update={"links": links, "tags": _words(evolution.tags, TAGS) or note.tags}), changed


def _counted(content: str, intent: str) -> Analysis:
    words = [word for word in _WORD.findall(content.lower()) if word not in _STOPWORDS]
    lines = content.splitlines()
    did = [line.removeprefix(ANSWER_MARK).split()[:1] for line in lines if line.startswith(ANSWER_MARK)]
    wrong = next((line for line in lines if line.startswith(WHAT_WENT_WRONG)), "")
    return Analysis(
        keywords=[word for word, _ in Counter(words).most_common(KEYWORDS)],
        context=f"{intent} — {wrong.removeprefix(WHAT_WENT_WRONG)}" if wrong else intent,
        tags=list(dict.fromkeys(word.lower() for first in did for word in first))[:TAGS],
    )


def _merged(note: Note, near: Sequence[Neighbour]) -> Evolution:
    linked = [n for n in near if n.similarity >= LINK_SIMILARITY and set(n.note.keywords) & set(note.keywords)]
    return Evolution(
        links=[one.memory_id for one in linked],
        tags=list(note.tags),
        neighbours=[
            NeighbourNow(
                memory=one.memory_id,
                context=one.note.context,
                tags=list(dict.fromkeys((*one.note.tags, *note.tags)))[:TAGS],
            )
            for one in linked
        ],
    )


def _words(given: Sequence[str], most: int) -> tuple[str, ...]:
    short = (" ".join(word.split())[:LONGEST_WORD] for word in given)
    return tuple(dict.fromkeys(word for word in short if word))[:most]


def _line(text: str) -> str:
    return " ".join(text.split())[:LONGEST_CONTEXT]
