"""Import of what the official MemRL code left on disk: checkpoints, and the files of its runs.

A checkpoint becomes one run whose first events say each memory's q and visits; steps found beside it follow in the same
run. Source: MemTensor/MemRL (MIT), its state of February 2026. Everything in these files is untrusted text; pickles and
configurations are never opened.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from memrl_core.errors import InputError, SettingsError
from memrl_core.exchange.contents import Account, Contents, Skipped, started_with
from memrl_core.exchange.official.checkpoint import (
    Checkpoint,
    Stores,
    Taken,
    checkpoint_in,
    stores_of,
    taken_from,
    text_of,
)
from memrl_core.exchange.official.steps import (
    Choice,
    ReportedStep,
    bcb_steps,
    hle_result_steps,
    hle_steps,
    is_trace,
    llb_steps,
    phases_in,
    trace_of,
)
from memrl_core.records import UNKNOWN, RunInfo
from memrl_core.settings import MemRLSettings

SOURCE = "official MemRL code"
DIMENSION = 3072
"""The size of every vector of the official code; taken where there are steps and no vectors."""
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".joblib")

Reader = Callable[[Path, Path, list[Skipped]], Iterator[ReportedStep]]
Found = tuple[Path, Checkpoint | None, list[tuple[Path, Reader]]]
"""The folder that nothing may lead out of, the checkpoint, and the run files with what reads each, in their order."""


def is_official(path: Path) -> bool:
    """Whether the official code wrote what is at `path`: a checkpoint, a run with some, or one of its run files."""
    try:
        _, checkpoint, files = _found(path)
    except InputError:
        return True  # Several checkpoints: `read_official` names them.
    except (OSError, RuntimeError):
        return False
    return checkpoint is not None or bool(files)


def read_official(path: Path) -> Contents:
    """A checkpoint and the run files beside it as one run; of a folder with several checkpoints, the newest.

    `path` is the folder of a run, `snapshot/<n>` or `local_cache` in it, or one run file. Steps bring no reward into
    the ledger: the imported q holds their rewards already (see `steps`), so `utilities` of the run are exactly
    those of the checkpoint, whatever lies beside it. The same files give the same ids, so importing them again changes
    nothing. Raises `InputError` when there is nothing of the kind, or a part is broken; nothing is imported then.
    """
    try:
        root, checkpoint, files = _found(path)
        if checkpoint is None and not files:
            raise InputError(
                f"{path.name} holds no checkpoint and no run file of the official MemRL code. Nothing was imported; "
                "choose a folder with cube/textual_memory.json or local_cache."
            )
        stores, taken, name = Stores(), Taken(DIMENSION), path.name
        if checkpoint is not None:
            stores, given = stores_of(checkpoint, root), path.resolve()
            taken = taken_from(stores)
            inside = checkpoint.folder in (given, given.parent)
            name = given.name if inside else f"{given.name}-{checkpoint.folder.name}"
        reported: list[ReportedStep] = []
        read, skipped = list(taken.read), list(taken.skipped)
        if checkpoint is not None and checkpoint.others:
            read.append(
                f"The newest checkpoint, {checkpoint.folder.name}, was read; the folder also holds "
                f"{', '.join(checkpoint.others)}: name one of them to read it."
            )
        for place, reader in files:
            steps = list(reader(place, root, skipped))
            where = place.relative_to(root).as_posix()
            read.append(f"{len(steps):,} steps from {'this folder' if where == '.' else where}.")
            reported += steps
        skipped += _apart(checkpoint)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise InputError(f"{path.name} cannot be read ({why}). Nothing was imported; check the folder.") from error
    if not taken.memories and not reported:
        raise InputError(f"{path.name} holds nothing that can be used. Nothing was imported; take another copy.")
    run = _run_id(name, taken, reported)
    traces = tuple(
        trace_of(step, number, run, UNKNOWN, _settings(step.choice), taken)
        for number, step in enumerate(reported, start=1)
    )
    lacks = ["which embedder made the vectors (without it no new intent can be recalled)"] if taken.memories else []
    lacks += ["the settings of the run; this program's own take their place, with k1 counting intents", *taken.lacks]
    lacks += dict.fromkeys(lack for trace in traces for lack in trace.lacks)
    return Contents(
        embedder=UNKNOWN,
        dimension=taken.dimension,
        memories={i: (replace(memory, run=run), vector) for i, (memory, vector) in taken.memories.items()},
        events=started_with(_run(run, stores, reported), taken.utilities),
        traces=traces,
        account=Account(SOURCE, tuple(read), tuple(skipped), tuple(taken.faults), tuple(lacks)),
    )


def _found(path: Path) -> Found:
    if path.is_file():
        root = path.parent.resolve()
        return root, None, _files([root / path.name], [root] if path.name == "memory_retrieval.jsonl" else [])
    root = path.resolve()
    if not root.is_dir():
        return root, None, []
    checkpoint = checkpoint_in(root)
    listed = sorted(child for place in (root, root / "local_cache", root / "hle") for child in place.glob("*.*"))
    inside = root.parent if checkpoint is not None and checkpoint.folder == root.parent else root
    return inside, checkpoint, _files(listed, phases_in(root))


def _files(listed: list[Path], phases: list[Path]) -> list[tuple[Path, Reader]]:
    calls = [path for path in listed if path.name == "llm_calls.jsonl"]
    traces = [path for path in listed if path not in calls and is_trace(path)]
    tables = [path for path in listed if path.suffix == ".csv" and re.match(r"hle_.+_results_", path.name)]
    readers = ((traces, llb_steps), (phases, bcb_steps), (calls, hle_steps), (tables, hle_result_steps))
    return [(path, reader) for paths, reader in readers for path in paths]


def _apart(checkpoint: Checkpoint | None) -> Iterator[Skipped]:
    """What is there and was deliberately not opened."""
    if checkpoint is None:
        return
    folder = checkpoint.folder
    if (folder / "qdrant").exists():
        yield Skipped("qdrant", "it holds pickles, which can run code; its memories are in the JSON files too")
    if (folder / "cube" / "config.json").exists():
        yield Skipped("cube/config.json", "configurations may hold keys and are never read")
    for place in sorted(p for p in folder.rglob("*") if p.suffix in PICKLES and "qdrant" not in p.parts):
        yield Skipped(place.relative_to(folder).as_posix(), "it is a pickle, which can run code")


def _run_id(name: str, taken: Taken, reported: list[ReportedStep]) -> str:
    """A name that the same contents always get, and others never."""
    facts = hashlib.sha256()
    for memory_id, utility in taken.utilities.items():
        facts.update(f"{memory_id}\n{utility.q!r} {utility.visits}\n".encode())
    for step in reported:
        facts.update(f"{step.place}\n{step.task.intent}\n".encode())
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:40]
    return f"official-{plain}-{facts.hexdigest()[:6]}" if plain else f"official-{facts.hexdigest()[:6]}"


def _run(run: str, stores: Stores, reported: list[ReportedStep]) -> RunInfo:
    models = {item.metadata.model for item in stores.cube.values() if isinstance(item.metadata.model, str)}
    models = (models | {step.model for step in reported}) - {UNKNOWN}
    return RunInfo.of_others(
        run,
        reported[0].task.environment if reported else "imported",
        _settings(None),
        text_of(models.pop()) if len(models) == 1 else UNKNOWN,
        UNKNOWN,
        stores.created or (reported[0].started if reported else ""),
    )


def _settings(choice: Choice | None) -> Mapping[str, Any]:
    """This program's own settings, with the official code's k1 and ties, and what the steps say."""
    official = {"k1_counts": "intent", "ties": "older"}
    chosen: dict[str, Any] = {}
    if choice is not None:
        recall, decision = choice
        chosen = {"k1": recall.k1, "delta": recall.delta, "k2": decision.k2, "weight": decision.weight}
    try:
        return MemRLSettings.of({**official, **chosen}).model_dump()
    except SettingsError:
        return MemRLSettings.of(official).model_dump()
