"""A run as one HTML file that plays: the stage with all its steps, without a server and without a network."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

import numpy as np

from memrl_core.analysis.decision.labels import FUNCTION_WORDS
from memrl_core.analysis.decision.moment import considered
from memrl_core.analysis.map.projection import Pca, as_points, near_neighbours
from memrl_core.bank import MemoryBank
from memrl_core.bank.storage.addresses import is_local, shown
from memrl_core.bank.storage.layouts import Point
from memrl_core.errors import InputError
from memrl_core.exchange.safe_files import drafted, hash_source, html_document
from memrl_core.figures.stage.data import (
    Known,
    StageSource,
    finite,
    known_of_run,
    nearest_memories,
    query_places,
    stage_data,
)
from memrl_core.figures.stage.film import film_data
from memrl_core.figures.stage.strip import Strip, is_rewound, run_strip, strip_data
from memrl_core.records import Memory, RunInfo, StepTrace

_HERE = Path(__file__).parent
_MODULES = (
    "dom.js",
    "phase_b.js",
    "model.js",
    "memory_map.js",
    "q_axis.js",
    "ranks.js",
    "hand.js",
    "strip.js",
    "film.js",
    "stage.js",
)
_IMPORT = re.compile(r"^import .* from \"\./.*\";\n", re.MULTILINE)
PLACED_AT_ONCE = 256
MOST_WITH_NEAREST = 2_000
"""Memories up to which those nearest to each intent go along: of more they would take more room than the steps."""


@cache
def stage_script() -> str:
    """The stage's JavaScript as one module, which exports `mountStage(element, data, callbacks)` and `RunStrip`."""
    words = f"const FUNCTION_WORDS = new Set({json.dumps(sorted(FUNCTION_WORDS))});"
    return "\n".join((words, *(_IMPORT.sub("", (_HERE / name).read_text(encoding="utf-8")) for name in _MODULES)))


@cache
def stage_style() -> str:
    """The CSS of the stage, of the strip of a run and of its film."""
    return "\n".join((_HERE / name).read_text(encoding="utf-8") for name in ("stage.css", "strip.css"))


def write_player(bank: MemoryBank, run: str, target: Path, overwrite: bool = False) -> int:
    """Write the player of a run to `target`, whole or not at all; returns its size in bytes.

    Raises `UnknownRun`, `InputError` when the run has no step or `target` exists and is not to be overwritten,
    `BankFull`, `BankReadOnly`.
    """
    html = player_html(bank, run).encode("utf-8")
    with drafted(target, overwrite) as file:
        file.write(html)
    return len(html)


def player_html(bank: MemoryBank, run: str, at: Mapping[str, object] = MappingProxyType({})) -> str:
    """The player of a run as one HTML document, opening as `player_document` says.

    Raises `UnknownRun`, and `InputError` for a run without a step.
    """
    return player_document(stage_data(source_of_run(bank, run)), at)


def player_document(data: Mapping[str, Any], at: Mapping[str, object] = MappingProxyType({})) -> str:
    """Stage data as an HTML document that plays it, loads nothing and runs no script but its own.

    It opens `at` a step, phase, lambda and memory, as its address names them; what is not given it chooses itself.
    """
    style = stage_style() + (_HERE / "player.css").read_text(encoding="utf-8")
    script = stage_script() + (_HERE / "player.js").read_text(encoding="utf-8")
    packed = gzip.compress(json.dumps(finite(data), separators=(",", ":"), allow_nan=False).encode("utf-8"), 9, mtime=0)
    body = (
        f'<main id="player" data-at="{escape(urlencode(at))}"><p id="opening">Opening …</p></main>',
        f'<script type="application/gzip+base64" id="data">{base64.b64encode(packed).decode("ascii")}</script>',
        f'<script type="module">{script}</script>',
    )
    title = f"{data['run']['id']} · {data['run']['bank']} · MemRL player"
    return html_document(title, style, hash_source(style), body, [script])


def source_of_run(bank: MemoryBank, run: str) -> StageSource:
    """All steps of a run with every memory that it ever saw. Raises `UnknownRun`, `InputError`."""
    info = bank.run(run)
    traces = bank.traces(run)
    if not traces:
        raise InputError(f"The run {run} has no finished step yet, so there is nothing to play. Nothing was written.")
    known = known_of_run(bank, run)
    memories = _memories(bank, known, traces)
    places, queries = _places(bank, memories, traces)
    name = Path(bank.uri).stem if is_local(bank.uri) else shown(bank.uri)
    return StageSource(
        info, name, traces, memories, places, queries, known, nearest=_nearest(bank, memories),
        metadata=bank.metadata(run),
        strip=strip_data(run_strip(bank, run), info, _ghost(bank, info)), film=film_data(bank, run),
    )  # fmt: skip


def _ghost(bank: MemoryBank, info: RunInfo) -> Strip | None:
    """The strip of the run that this one was rewound from, where it was and the bank still has it."""
    if info.base is None or not is_rewound(info) or info.base not in {one.id for one in bank.runs()}:
        return None
    return run_strip(bank, info.base)


def _nearest(bank: MemoryBank, memories: Sequence[Memory]) -> dict[str, list[tuple[str, float]]]:
    """What is nearest to the oldest memory of each intent."""
    oldest: dict[str, Memory] = {}
    for memory in memories:
        oldest.setdefault(memory.intent, memory)
    if not memories or len(memories) > MOST_WITH_NEAREST:
        return {}
    embeddings = np.stack([bank.embedding(memory.id) for memory in memories])
    return {
        memory.id: nearest_memories(memory, bank.embedding(memory.id), memories.__getitem__, embeddings)
        for memory in oldest.values()
    }


def _memories(bank: MemoryBank, known: Known, traces: Sequence[StepTrace]) -> list[Memory]:
    """Those that the run saw at any time or its steps name, oldest first."""
    named = {*known.before, *(name for moved in known.moves.values() for name in moved)}
    named = named.union(*map(considered, traces))
    return [memory for memory in bank.memories() if memory.id in named]


def _places(
    bank: MemoryBank, memories: Sequence[Memory], traces: Sequence[StepTrace]
) -> tuple[Mapping[str, Point], Mapping[int, Point]]:
    """Where the memories and, by step, the queries lie: as stored; what no layout has lies amid what is most similar.

    A bank without a layout gets a PCA of these memories, which is not stored.
    """
    if not memories:
        return {}, {}
    layout = bank.layouts.newest()
    ids = [memory.id for memory in memories]
    vectors = np.stack([bank.embedding(name) for name in ids])
    stored = dict(layout.coordinates) if layout else {}
    if not stored:
        stored = dict(zip(ids, as_points(Pca(vectors).place(vectors)), strict=True))
    frozen = [row for row, name in enumerate(ids) if name in stored]
    if not frozen:
        return {}, {}
    fixed, plane = vectors[frozen], np.array([stored[ids[row]] for row in frozen], dtype=np.float64)

    def amid(asked: np.ndarray[Any, np.dtype[np.float32]]) -> list[Point]:
        parts = (asked[first : first + PLACED_AT_ONCE] for first in range(0, len(asked), PLACED_AT_ONCE))
        return [point for part in parts for point in as_points(near_neighbours(part, fixed, plane))]

    places: dict[str, Point] = {name: stored[name] for name in ids if name in stored}
    missing = [row for row, name in enumerate(ids) if name not in stored]
    if missing:
        places |= zip((ids[row] for row in missing), amid(vectors[missing]), strict=True)
    return places, query_places(traces, memories, places, lambda vector: amid(vector[None])[0])
