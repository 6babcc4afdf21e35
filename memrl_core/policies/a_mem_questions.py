"""What A-MEM asks the model about a new note (arXiv 2502.12110), in our own words, and what stands in for its answers.

Where no language model is there, templates fill in the forms: by counting words, and by comparing them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel, Field

from memrl_core.policies.a_mem_notes import Note, with_note
from memrl_core.policies.base import Question
from memrl_core.prompting import ANSWER_MARK, WHAT_WENT_WRONG

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
    [
        "the",
        "and",
        "for",
        "with",
        "from",
        "that",
        "this",
        "was",
        "were",
        "not",
        "are",
        "has",
        "had",
        "you",
        "your",
        "its",
        "into",
        "onto",
        "there",
        "should",
        "put",
        "task",
        "steps",
        "worked",
        "avoid",
        "try",
        "instead",
        "what",
        "went",
        "wrong",
        "answer",
        "done",
        "will",
        "can",
        "but",
    ]
)


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
    told = f"New note:\n{with_note(content, note)}\n\nNotes near it:\n" + "\n\n".join(
        f"[{one.memory_id}]\n{with_note(one.content, one.note)}" for one in near
    )
    return Question(EVOLVE, Evolution, EVOLVE_REQUEST, told, _merged(note, near))


def analysed(note: Analysis | None) -> Note:
    """The note of an analysis; an empty one where there was no usable answer."""
    return (
        Note() if note is None else Note(_words(note.keywords, KEYWORDS), _words(note.tags, TAGS), _line(note.context))
    )


def evolved(note: Note, evolution: Evolution | None, near: Sequence[Neighbour]) -> tuple[Note, dict[str, Note]]:
    """The newcomer with its links and tags, and the neighbours that changed by id; unknown ids are passed over."""
    if evolution is None:
        return note, {}
    known = {one.memory_id: one.note for one in near}
    links = tuple(i for i in dict.fromkeys(evolution.links) if i in known)
    changed = {}
    for told in evolution.neighbours:
        before = known.get(told.memory)
        if before is None:
            continue
        after = replace(before, context=_line(told.context) or before.context, tags=_words(told.tags, TAGS))
        if after != before:
            changed[told.memory] = after
    return replace(note, links=links, tags=_words(evolution.tags, TAGS) or note.tags), changed


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


def _words(told: Sequence[str], most: int) -> tuple[str, ...]:
    short = (" ".join(word.split())[:LONGEST_WORD] for word in told)
    return tuple(dict.fromkeys(word for word in short if word))[:most]


def _line(text: str) -> str:
    return " ".join(text.split())[:LONGEST_CONTEXT]
