"""A new bank of the memories of another program: looked through first, then written as a whole or not at all.

`look` reads every row and says what would come of it; `open_memories` reads them once more and writes. Between the two
a person may name other columns. Neither holds the rows together.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
import numpy.typing as npt

from memrl_core.bank import MemoryBank
from memrl_core.bank.ledger import now
from memrl_core.embedders.base import Embedder, embedded
from memrl_core.errors import InputError, NoVector, few, what_happened
from memrl_core.exchange.bring_in import Arrival
from memrl_core.exchange.contents import NOTHING, Account, Skipped, started_with
from memrl_core.exchange.foreign.columns import (
    SAMPLE,
    Found,
    Mapped,
    Unfit,
    columns_of,
    found_in,
    mapped,
    unit_of,
)
from memrl_core.exchange.foreign.spans import is_span
from memrl_core.exchange.foreign.tables import Source, source_of
from memrl_core.exchange.safe_files import drafted_folder, free_folder
from memrl_core.models.base import Cancelled, Progress, never, unheard
from memrl_core.numerals import counted
from memrl_core.policies.base import intent_key
from memrl_core.records import UNKNOWN, Memory, RunInfo, Utility
from memrl_core.settings import MemRLSettings

PREVIEW = 10
NAMED = 200
"""Rows that a look names of each kind; more are counted."""
AT_ONCE, EMBEDDED_AT_ONCE = 2000, 64
OFTEN = 256
"""Rows between two reports of how far the work is."""
ENVIRONMENT = "imported"
SKIP = "Correct them, or leave them out by --skip-bad"


@dataclass(slots=True)
class Named:
    """Things of one kind: `count` of them, and the first by their names."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        """One more."""
        self.count += 1
        if len(self.first) < NAMED:
            self.first.append(name)


@dataclass(frozen=True, slots=True)
class Look:
    """What opening a source would give. All texts in it are untrusted.

    `rows` were read; `memories` of them would be in the bank. `bad` rows cannot be taken, each with its reason (`count`
    of them, the first ones named); `repeated` rows say again what an earlier one of their id says; `renamed` have an id
    that another text has, and get another; `alike` have a text that an earlier one has. `dimensions` counts the vectors
    by their size, and `dimension` is the usual one. `fresh` says that all vectors are made anew by an embedder, or
    because there are none.
    """

    source: Source
    mapped: Mapped
    columns: tuple[str, ...]
    rows: int
    memories: int
    preview: tuple[Found, ...]
    bad: tuple[Skipped, ...]
    bad_count: int
    repeated: Named
    renamed: Named
    alike: Named
    dimensions: Mapping[int, int]
    dimension: int
    fresh: bool
    lacks: tuple[str, ...]

    @property
    def title(self) -> str:
        """What kind of thing it is: the program's, or the file's."""
        kind = self.source.kind + (f", table {self.source.table}" if self.source.table else "")
        return f"{self.mapped.known} ({kind})" if self.mapped.known not in ("", self.source.kind) else kind

    def must_be_whole(self, skip_bad: bool) -> None:
        """Raise `InputError` for a source of which no bank, or not all of a bank, can be made."""
        if self.bad_count and not skip_bad:
            rows = counted(self.bad_count, "row")
            first = few(f"{one.where}: {one.why}" for one in self.bad)
            vectors = any("vector" in one.why for one in self.bad)
            also = ", or let all vectors be made anew by --embedder NAME" if vectors else ""
            raise InputError(f"{rows} cannot be taken ({first}). {NOTHING} {SKIP}{also}.")
        if not self.memories:
            raise InputError(f"{self.source.name} holds no memory that can be used. {NOTHING} Choose another file.")


def look(
    source: Source,
    named: Mapping[str, str] | None = None,
    fresh: bool = False,
    on_progress: Progress = unheard,
    cancelled: Cancelled = never,
) -> Look | None:
    """Read all of a source and say what would come of it; None when `cancelled()` turned true.

    `named` maps fields to columns (`columns.FIELDS`; "" leaves a field out), `fresh` passes over the vectors. Raises
    `InputError` for columns that are not there, and for a source that cannot be read to its end.
    """
    rows_of_it = [row for _, row, _ in islice(source.rows(), SAMPLE) if not isinstance(row, str)]
    sample = [columns_of(row) for row in rows_of_it]
    if not sample:
        raise InputError(f"{source.name} holds no row that can be read. {NOTHING} Check the file.")
    if is_span(rows_of_it[0]):
        raise InputError(
            f"{source.name} holds spans of traces, not memories. {NOTHING} Take its steps in by: memrl import "
            f"{source.name} --bank B"
        )
    found = mapped(sample, named or {}, source.facts)
    fresh = fresh or "vector" not in found.columns
    rows, bad, bad_count = 0, list[Skipped](), 0
    by_size: dict[int, Named] = {}
    names_of: defaultdict[int, _Names] = defaultdict(_Names)
    lacking: defaultdict[int, Counter[str]] = defaultdict(Counter)
    preview: list[Found] = []
    for where, one, done in _rows(source, found.columns, not fresh):
        rows += 1
        if rows % OFTEN == 0:
            on_progress(done, source.size)
            if cancelled():
                return None
        if isinstance(one, str):
            bad_count += 1
            bad += [Skipped(where, one)] if len(bad) < NAMED else []
            continue
        size = 0 if one.vector is None else len(one.vector)
        by_size.setdefault(size, Named()).add(where)
        if names_of[size].of(one):
            preview += [one] if len(preview) < PREVIEW else []
            _count_what_lacks(one, lacking[size])
    sizes = {size: group.count for size, group in sorted(by_size.items())}
    usual = max(sizes, key=lambda size: sizes[size], default=0)
    for size, group in sorted(by_size.items()):
        if size != usual:
            bad_count += group.count
            bad += [Skipped(where, f"its vector has {size:,} dimensions, most have {usual:,}") for where in group.first]
    names = names_of[usual]
    seen = dict.fromkeys(name for row in sample for name in row)
    on_progress(source.size, source.size)
    return Look(
        source,
        found,
        tuple(seen),
        rows,
        names.count,
        tuple(preview),
        tuple(bad[:NAMED]),
        bad_count,
        names.repeated,
        names.renamed,
        names.alike,
        {} if fresh else sizes,
        usual,
        fresh,
        _lacks(found, lacking[usual], names.count, fresh),
    )


def _rows(source: Source, columns: Mapping[str, str], with_vector: bool) -> Iterator[tuple[str, Found | str, int]]:
    """Every row as a memory, or why it is none."""
    for where, row, done in source.rows():
        if isinstance(row, str):
            yield where, row, done
            continue
        try:
            one = found_in(where, row, columns, with_vector)
            if one.vector is not None:
                unit_of(one.vector)
            yield where, one, done
        except Unfit as error:
            yield where, str(error), done


class _Names:
    """The id of each memory: its own, another where that is taken by another text, or made of its place."""

    def __init__(self) -> None:
        self.count = 0
        self.repeated, self.renamed, self.alike = Named(), Named(), Named()
        self._texts: dict[str, bytes] = {}
        self._seen: set[bytes] = set()

    def of(self, one: Found) -> str:
        """The name that it gets; "" where an earlier one of its id says the same."""
        text = hashlib.blake2b(f"{one.intent}\0{one.text}".encode(), digest_size=12).digest()
        wanted = one.id or re.sub(r"[^\w]+", "-", one.where)
        name, number = wanted, 1
        while name in self._texts:
            if self._texts[name] == text:
                self.repeated.add(f"{one.where} ({wanted[:60]})")
                return ""
            number += 1
            name = f"{wanted}-{number}"
        if name != wanted:
            self.renamed.add(f"{one.where}: {wanted[:60]} is {name[:60]}")
        if text in self._seen:
            self.alike.add(f"{one.where} ({name[:60]})")
        self._texts[name] = text
        self._seen.add(text)
        self.count += 1
        return name


def _count_what_lacks(one: Found, lacking: Counter[str]) -> None:
    lacking["intent"] += not one.intent
    lacking["q"] += one.q is None
    lacking["visits"] += one.visits is None
    lacking["outcome"] += one.outcome == "unrated"
    lacking["created"] += not one.created
    lacking["id"] += not one.id


_MEANT = {
    "intent": "an intent apart from the text (the text stands for it)",
    "q": "a q (it is 0)",
    "visits": "a number of visits (it is 0)",
    "outcome": "an outcome (they are unrated)",
    "created": "when it was made",
    "id": "an id (they are named by their place)",
}


def _lacks(found: Mapped, lacking: Mapping[str, int], count: int, fresh: bool) -> tuple[str, ...]:
    said = []
    for name, what in _MEANT.items():
        if lacking[name] and lacking[name] == count:
            said.append(f"{what}: all {count:,}" if count > 1 else what)
        elif lacking[name]:
            said.append(f"{what}: {lacking[name]:,} of {count:,}")
    if not fresh and not found.embedder:
        said.append(
            "which embedder made the vectors: without it no new intent can be recalled (--embedder makes others)"
        )
    said.append("the single rewards that made each q what it is, and the steps")
    return tuple(said)


def report_of(looked: Look, skip_bad: bool) -> Account:
    """What was found, in sentences."""
    read = [f"{counted(looked.rows, 'row')}; {counted(looked.memories, 'memory')}."]
    if looked.fresh:
        made = "made anew" if "vector" in looked.mapped.columns else "made, since there are none"
        read.append(f"Vectors: {made}.")
    elif looked.memories:
        read.append(
            f"Vectors: {looked.dimension:,} dimensions, made by {looked.mapped.embedder or 'an unknown embedder'}."
        )
    if looked.repeated.count:
        read.append(f"Passed over, the same once more: {looked.repeated.count:,} ({few(looked.repeated.first)}).")
    faults = [*looked.mapped.passed_over]
    if looked.renamed.count:
        faults.append(
            f"An id that another text has, so that another is given: {looked.renamed.count:,} "
            f"({few(looked.renamed.first)})."
        )
    if looked.alike.count:
        faults.append(f"The text of an earlier one: {looked.alike.count:,} ({few(looked.alike.first)}).")
    if len(looked.dimensions) > 1:
        sizes = ", ".join(f"{count:,} of {size:,} dimensions" for size, count in looked.dimensions.items())
        faults.append(f"The vectors are of several sizes: {sizes}.")
    skipped = looked.bad if skip_bad else ()
    return Account(looked.title, tuple(read), skipped, tuple(faults), looked.lacks)


def open_memories(
    looked: Look,
    uri: str,
    embedder: Embedder | None = None,
    skip_bad: bool = False,
    on_progress: Progress = unheard,
    cancelled: Cancelled = never,
) -> Arrival | None:
    """Make a bank at `uri`, a new folder of this machine, of what was looked at; None when `cancelled()` turned true.

    Its one run knows all memories with their q and visits. `embedder` makes the vectors where the look is `fresh`. The
    bank appears whole or not at all. Raises `InputError` for rows that cannot be taken unless `skip_bad`, for a source
    that has changed since, and for a place that is taken; `ModelError`; and what writing a bank raises.
    """
    looked.must_be_whole(skip_bad)
    free_folder(uri, NOTHING)
    if looked.fresh and embedder is None:
        raise InputError(f"{looked.source.name} has no vectors. {NOTHING} Name an embedder that makes them.")
    made_by = (looked.mapped.embedder or UNKNOWN, looked.dimension, "", "")
    if looked.fresh and embedder is not None:
        made_by = (embedder.name, embedder.dimension, embedder.digest, embedder.version)
    no_vector: list[Skipped] = []
    try:
        with drafted_folder(uri, NOTHING) as draft, MemoryBank.create(str(draft), *made_by) as bank:
            info = _run(looked, bank)
            start, *_ = started_with(info, {})
            seq, written = 1, 0
            for chunk in _chunks(looked, embedder if looked.fresh else None, no_vector):
                if no_vector and not skip_bad:
                    raise InputError(f"{no_vector[0].where}: {no_vector[0].why}. {NOTHING} {SKIP}.")
                if cancelled():
                    raise _Stopped
                memories = {memory.id: (replace(memory, run=info.id), vector) for memory, _, vector, _ in chunk}
                known = {memory.id: utility for memory, utility, _, _ in chunk}
                kept = {memory.id: metadata for memory, _, _, metadata in chunk}
                _, *events = started_with(info, known, seq, kept)
                seq += len(events)
                bank.write.adopt(memories, [*([] if written else [start]), *events], [])
                written += len(memories)
                on_progress(written, looked.memories)
            if not written or written + len(no_vector) != looked.memories:
                raise InputError(
                    f"{looked.source.name} was changed while it was read: {written:,} memories instead of "
                    f"{looked.memories:,}. {NOTHING} Try again."
                )
    except _Stopped:
        return None
    account = report_of(looked, skip_bad)
    account = replace(account, skipped=(*account.skipped, *no_vector))
    return Arrival(account, uri, (info.id,), written, 0, written + 1)


class _Stopped(Exception):
    """Somebody cancelled; raised so that the folder under way is deleted."""


Made = tuple[Memory, Utility, npt.NDArray[np.float32], Mapping[str, object]]


def _chunks(looked: Look, embedder: Embedder | None, no_vector: list[Skipped]) -> Iterator[list[Made]]:
    names, size = _Names(), EMBEDDED_AT_ONCE if embedder else AT_ONCE
    waiting: list[tuple[Memory, Found]] = []
    for _, one, _ in _rows(looked.source, looked.mapped.columns, not looked.fresh):
        if isinstance(one, str) or (one.vector is not None and len(one.vector) != looked.dimension):
            continue
        if name := names.of(one):
            waiting.append((_memory(name, one), one))
        if len(waiting) == size:
            yield _made(waiting, embedder, no_vector)
            waiting = []
    if waiting:
        yield _made(waiting, embedder, no_vector)


def _made(waiting: Sequence[tuple[Memory, Found]], embedder: Embedder | None, no_vector: list[Skipped]) -> list[Made]:
    if embedder is not None:
        try:
            vectors = list(embedded(embedder, [memory.intent for memory, _ in waiting]))
        except NoVector as error:
            if len(waiting) > 1:
                return [made for one in waiting for made in _made([one], embedder, no_vector)]
            no_vector.append(Skipped(waiting[0][1].where, what_happened(error)))
            return []
    else:
        vectors = [unit_of(one.vector) for _, one in waiting if one.vector is not None]
    return [
        (memory, Utility(one.q or 0.0, one.visits or 0), vector, one.metadata)
        for (memory, one), vector in zip(waiting, vectors, strict=True)
    ]


def _memory(name: str, one: Found) -> Memory:
    intent = one.intent or one.text
    return Memory(name, intent, one.text, one.outcome, intent_key(intent), (), "", 0, "", one.created)


def _run(looked: Look, bank: MemoryBank) -> RunInfo:
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", looked.source.name).strip("-.")[:40]
    name, settings = f"opened-{plain}" if plain else "opened", MemRLSettings().model_dump()
    return RunInfo.of_others(name, ENVIRONMENT, settings, UNKNOWN, bank.embedder.name, now())


__all__ = ["Look", "look", "open_memories", "report_of", "source_of"]
