"""A-MEM's notes: what is kept of each, how they are linked, and how both are shown (arXiv 2502.12110)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memrl_core.policies.rewordings import followed, reworded
from memrl_core.view import MemoryView

_NOTE = "\nNote:\nContext: "


@dataclass(frozen=True, slots=True)
class Note:
    """What is kept of a memory beside its text; `links` are ids as they were when they were made."""

    keywords: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    context: str = ""
    links: tuple[str, ...] = ()

    def data(self) -> dict[str, Any]:
        """The note as an operation's `data`."""
        return {
            "keywords": list(self.keywords),
            "tags": list(self.tags),
            "context": self.context,
            "links": list(self.links),
        }


def note_of(data: Mapping[str, Any]) -> Note:
    """The note in an operation's `data`; an empty one where another policy wrote it."""
    lists = {name: data.get(name) for name in ("keywords", "tags", "links")}
    told = {name: tuple(map(str, found)) for name, found in lists.items() if isinstance(found, list)}
    return Note(**told, context=str(data.get("context", "")))


@dataclass(slots=True)
class Notes:
    """The notes of a run by memory id, oldest first, and which memory took the place of which."""

    notes: dict[str, Note] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)

    def places(self, view: MemoryView) -> dict[str, str]:
        """The same with what people have put in the place of memories."""
        return {**reworded(view, self.replaced), **self.replaced}

    def was_rewritten(self, memory_id: str, at: str) -> bool:
        """Whether another note, that of `at` or of one before it, tells more than the one of `memory_id`."""
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
    return "\n".join((content, " ".join(note.keywords), " ".join(note.tags), note.context))


# --- for the screen ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoteNode:
    """A note as a node of the link graph."""

    memory_id: str
    note: Note


@dataclass(frozen=True, slots=True)
class NoteChange:
    """One part of a note before and after an evolution; `added` and `gone` are members of a list, or the whole line."""

    part: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    added: tuple[str, ...]
    gone: tuple[str, ...]


def link_graph(
    state: Notes, view: MemoryView | None = None
) -> tuple[tuple[NoteNode, ...], tuple[tuple[str, str], ...]]:
    """The notes that stand now, oldest first, and each link between two of them once, the newer one first.

    A link to a note that was replaced leads to the one in its place. With `view`, what people have forgotten is left
    out, and what they have reworded is followed.
    """
    places = state.replaced if view is None else state.places(view)
    standing = {}
    for memory_id in state.notes:
        at = _last(memory_id, places) if view is None else followed(memory_id, places, view)
        if at is not None:
            standing[memory_id] = at
    age = {at: number for number, at in enumerate(dict.fromkeys(standing.values()))}
    latest = {at: state.notes[memory_id] for memory_id, at in standing.items()}
    ends = {
        (standing[memory_id], at)
        for memory_id in standing
        if not state.was_rewritten(memory_id, standing[memory_id])
        for link in state.notes[memory_id].links
        if (at := standing.get(link)) is not None and at != standing[memory_id]
    }
    edges = {(one, other) if age[one] > age[other] else (other, one) for one, other in ends}
    nodes = tuple(NoteNode(memory_id, latest[memory_id]) for memory_id in age)
    return nodes, tuple(sorted(edges, key=lambda edge: (age[edge[0]], age[edge[1]])))


def evolution_diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[NoteChange, ...]:
    """What differs between two notes, given as `data` of the operations that wrote them; empty when nothing does."""
    old, new = note_of(before), note_of(after)
    parts = (
        ("context", (old.context,) if old.context else (), (new.context,) if new.context else ()),
        ("keywords", old.keywords, new.keywords),
        ("tags", old.tags, new.tags),
        ("links", old.links, new.links),
    )
    return tuple(
        NoteChange(part, one, other, tuple(x for x in other if x not in one), tuple(x for x in one if x not in other))
        for part, one, other in parts
        if one != other
    )


def _last(memory_id: str, places: Mapping[str, str]) -> str:
    met: set[str] = set()
    while memory_id in places and memory_id not in met:
        met.add(memory_id)
        memory_id = places[memory_id]
    return memory_id
