"""Import of what the official MemRL code left on disk: checkpoints, and the files of its runs.

A checkpoint becomes one run whose first events say each memory's q and visits; steps found beside it follow in the same
run. Source: MemTensor/MemRL (MIT), its state of February 2026. Everything in these files is untrusted text; pickles and
configurations are never opened.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from memrl_core.errors import InputError, SettingsError
from memrl_core.exchange.contents import Account, Contents, Skipped, started_with
from memrl_core.exchange.official.json_files import Checkpoint, checkpoint_in, text_of
from memrl_core.exchange.official.memories import Stores, Taken, moment, stores_of, taken_from
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
from memrl_core.records import RunInfo, StepTrace
from memrl_core.settings import MemRLSettings

SOURCE = "official MemRL code"
UNKNOWN = "unknown"
DIMENSION = 3072
"""The size of every vector of the official code; taken where there are steps and no vectors."""
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".joblib")


Reader = Callable[[Path, Path, list[Skipped]], Iterator[ReportedStep]]


@dataclass(frozen=True, slots=True)
class _Found:
    """What there is to read at a path; `root` is the folder that nothing may lead out of."""

    root: Path
    checkpoint: Checkpoint | None
    files: tuple[tuple[Path, Reader], ...] = ()


@dataclass(slots=True)
class _Steps:
    """The steps of all run files in order, and what was left out on the way."""

    reported: list[ReportedStep] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    read: list[str] = field(default_factory=list)


def is_official(path: Path) -> bool:
    """Whether the official code wrote what is at `path`: a checkpoint, a run with some, or one of its run files."""
    try:
        found = _found(path)
    except InputError:
        return True  # Several checkpoints: `read_official` names them.
    except (OSError, RuntimeError):
        return False
    return found.checkpoint is not None or bool(found.files)


def read_official(path: Path) -> Contents:
    """A checkpoint and the run files beside it as one run; of a folder with several checkpoints, the newest.

    `path` is the folder of a run, `snapshot/<n>` or `local_cache` in it, or one run file. Steps bring no reward into
    the ledger: the imported q holds their rewards already (see `steps`), so `utilities` of the run are exactly
    those of the checkpoint, whatever lies beside it. The same files give the same ids, so importing them again changes
    nothing. Raises `InputError` when there is nothing of the kind, or a part is broken; nothing is imported then.
    """
    try:
        found = _found(path)
        if found.checkpoint is None and not found.files:
            raise InputError(
                f"{path.name} holds no checkpoint and no run file of the official MemRL code. Nothing was imported; "
                "choose a folder with cube/textual_memory.json or local_cache."
            )
        stores, taken = Stores(), Taken(DIMENSION)
        name = path.name if found.checkpoint is None else _name(path, found.checkpoint)
        if found.checkpoint is not None:
            stores = stores_of(found.checkpoint, found.root)
            taken = taken_from(stores)
        steps = _steps(found)
        apart = _apart(found)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise InputError(f"{path.name} cannot be read ({why}). Nothing was imported; check the folder.") from error
    if not taken.memories and not steps.reported:
        raise InputError(f"{path.name} holds nothing that can be used. Nothing was imported; take another copy.")
    run = _run_id(name, taken, steps.reported)
    info = _run(run, stores, taken, steps.reported, _settings(None))
    memories = {i: (replace(memory, run=run), vector) for i, (memory, vector) in taken.memories.items()}
    traces = tuple(
        trace_of(reported, number, run, UNKNOWN, _settings(reported.choice), taken)
        for number, reported in enumerate(steps.reported, start=1)
    )
    return Contents(
        embedder=UNKNOWN,
        dimension=taken.dimension,
        memories=memories,
        events=started_with(info, taken.utilities),
        traces=traces,
        account=_account(found, taken, steps, apart, traces),
    )


# --- what is there ----------------------------------------------------------------------------------------------------


def _found(path: Path) -> _Found:
    if path.is_file():
        root = path.parent.resolve()
        phases = [root] if path.name == "memory_retrieval.jsonl" else []
        return _Found(root, None, _files([root / path.name], phases))
    root = path.resolve()
    if not root.is_dir():
        return _Found(root, None)
    checkpoint = checkpoint_in(root)
    listed = sorted(child for place in (root, root / "local_cache", root / "hle") for child in place.glob("*.*"))
    inside = root.parent if checkpoint is not None and checkpoint.folder == root.parent else root
    return _Found(inside, checkpoint, _files(listed, phases_in(root)))


def _files(listed: list[Path], phases: list[Path]) -> tuple[tuple[Path, Reader], ...]:
    """The run files in the order in which they are read, each with what reads it."""
    calls = [path for path in listed if path.name == "llm_calls.jsonl"]
    traces = [path for path in listed if path not in calls and is_trace(path)]
    tables = [path for path in listed if path.suffix == ".csv" and re.match(r"hle_.+_results_", path.name)]
    readers = ((traces, llb_steps), (phases, bcb_steps), (calls, hle_steps), (tables, hle_result_steps))
    return tuple((path, reader) for paths, reader in readers for path in paths)


def _steps(found: _Found) -> _Steps:
    steps = _Steps()
    for place, reader in found.files:
        before = len(steps.reported)
        steps.reported += reader(place, found.root, steps.skipped)
        name = place.relative_to(found.root).as_posix()
        steps.read.append(f"{len(steps.reported) - before:,} steps from {'this folder' if name == '.' else name}.")
    return steps


def _apart(found: _Found) -> list[Skipped]:
    """What is there and was deliberately not opened."""
    if found.checkpoint is None:
        return []
    folder, skipped = found.checkpoint.folder, []
    if (folder / "qdrant").exists():
        skipped.append(
            Skipped("qdrant", "it holds pickles, which can run code; its memories are in the JSON files too")
        )
    if (folder / "cube" / "config.json").exists():
        skipped.append(Skipped("cube/config.json", "configurations may hold keys and are never read"))
    for place in sorted(p for p in folder.rglob("*") if p.suffix in PICKLES and "qdrant" not in p.parts):
        skipped.append(Skipped(place.relative_to(folder).as_posix(), "it is a pickle, which can run code"))
    return skipped


# --- what it becomes --------------------------------------------------------------------------------------------------


def _name(path: Path, checkpoint: Checkpoint) -> str:
    given = path.resolve()
    return given.name if checkpoint.folder in (given, given.parent) else f"{given.name}-{checkpoint.name}"


def _run_id(name: str, taken: Taken, reported: list[ReportedStep]) -> str:
    """A name that the same contents always get, and others never."""
    facts = hashlib.sha256()
    for memory_id, utility in taken.utilities.items():
        facts.update(f"{memory_id}\n{utility.q!r} {utility.visits}\n".encode())
    for step in reported:
        facts.update(f"{step.place}\n{step.task.intent}\n".encode())
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:40]
    return f"official-{plain}-{facts.hexdigest()[:6]}" if plain else f"official-{facts.hexdigest()[:6]}"


def _run(run: str, stores: Stores, taken: Taken, reported: list[ReportedStep], settings: Mapping[str, Any]) -> RunInfo:
    models = {item.metadata.get("model") for item in stores.cube.values()} | {step.model for step in reported}
    models = {model for model in models if isinstance(model, str) and model != UNKNOWN}
    return RunInfo(
        id=run,
        environment=reported[0].task.environment if reported else "imported",
        tasks="",
        policy="memrl",
        settings=settings,
        seed=0,
        model=text_of(models.pop()) if len(models) == 1 else UNKNOWN,
        simulated=False,
        embedder=UNKNOWN,
        base=None,
        base_step=0,
        created=moment(stores.meta.get("created_at")) or (reported[0].started if reported else ""),
    )


def _settings(choice: Choice | None) -> Mapping[str, Any]:
    """This program's own settings, with the official code's k1 and ties, and what the steps say."""
    reported: dict[str, Any] = {"k1_counts": "intent", "ties": "older"}
    if choice is not None:
        reported |= {"k1": choice.recall.k1, "delta": choice.recall.delta}
        reported |= {"k2": choice.decision.k2, "weight": choice.decision.weight}
    try:
        return MemRLSettings.of(reported).model_dump()
    except SettingsError:
        return MemRLSettings(k1_counts="intent", ties="older").model_dump()


# --- what to say of it ------------------------------------------------------------------------------------------------


def _account(
    found: _Found, taken: Taken, steps: _Steps, apart: list[Skipped], traces: tuple[StepTrace, ...]
) -> Account:
    read = list(taken.read)
    if found.checkpoint is not None and found.checkpoint.others:
        older = ", ".join(found.checkpoint.others)
        read.append(
            f"The newest checkpoint, {found.checkpoint.name}, was read; the folder also holds {older}: name one of "
            "them to read it."
        )
    lacks = ["which embedder made the vectors (without it no new intent can be recalled)"] if taken.memories else []
    lacks.append("the settings of the run; this program's own take their place, with k1 counting intents")
    lacks += taken.lacks
    lacks += dict.fromkeys(lack for trace in traces for lack in trace.lacks)
    return Account(
        SOURCE,
        read=(*read, *steps.read),
        skipped=(*taken.skipped, *steps.skipped, *apart),
        faults=tuple(taken.faults),
        lacks=tuple(lacks),
    )
