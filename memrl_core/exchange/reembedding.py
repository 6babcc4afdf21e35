"""A bank whose vectors are made anew by another embedder: a new bank beside it, with everything else as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from memrl_core.agent.asking import asked_by
from memrl_core.bank import MemoryBank
from memrl_core.bank.storage.addresses import is_local, plain
from memrl_core.embedders.base import Embedder, embedded
from memrl_core.errors import InputError, SettingsError
from memrl_core.exchange.bring_in import bring_in
from memrl_core.exchange.contents import Contents, contents_of
from memrl_core.exchange.whole_files import drafted_folder
from memrl_core.models.base import Cancelled
from memrl_core.policies import make_policy, policy_class
from memrl_core.records import EmbedRecord, Memory, StepTrace

AT_ONCE = 64
KEPT = "The bank is as it was."


@dataclass(frozen=True, slots=True)
class Reembedded:
    """The new bank at `uri`: how many `memories` and `steps` have new vectors, and the `runs` whose q moved by that.

    q of a method that learns from vectors is learned anew; that of every other stays to the bit.
    """

    uri: str
    memories: int
    steps: int
    runs: tuple[str, ...]


def reembed(
    bank: MemoryBank,
    embedder: Embedder,
    uri: str,
    on_progress: Callable[[int, int], None] | None = None,
    cancelled: Cancelled | None = None,
) -> Reembedded | None:
    """Make a bank at `uri`, a new folder of this machine, that holds `bank` with the vectors of `embedder`.

    Memories, q, visits, ledger and traces are the same, and what steps recorded about similarity; the map is left out.
    `on_progress` hears how many of how many texts are embedded. None when `cancelled()` turned true: nothing is left of
    the new bank then. Raises `InputError` for a place that is taken and for memories whose texts are not stored,
    `ModelError`, and what reading and writing a bank raises.
    """
    target = _free_place(uri)
    found = contents_of(bank)
    _must_be_of_intents(found.traces)
    keys = {trace.id: _key(trace) for trace in found.traces if trace.embed is not None}
    texts = _texts([*found.memories.values()])
    wanted = list(dict.fromkeys([*texts.values(), *keys.values()]))
    vectors: dict[str, npt.NDArray[np.float32]] = {}
    for start in range(0, len(wanted), AT_ONCE):
        batch = wanted[start : start + AT_ONCE]
        vectors.update(zip(batch, embedded(embedder, batch), strict=True))
        if on_progress is not None:
            on_progress(len(vectors), len(wanted))
        if cancelled is not None and cancelled():
            return None
    made = replace(
        found,
        embedder=embedder.name,
        dimension=embedder.dimension,
        digest=embedder.digest,
        memories={i: (memory, vectors[texts[i]]) for i, (memory, _) in found.memories.items()},
        traces=tuple(
            _asked_anew(trace, embedder.name, vectors[keys[trace.id]]) if trace.id in keys else trace
            for trace in found.traces
        ),
        places=None,
    )
    with drafted_folder(target, KEPT) as draft:
        runs = _written(made, bank, embedder, str(draft))
    return Reembedded(uri, len(made.memories), len(keys), runs)


def _written(made: Contents, bank: MemoryBank, embedder: Embedder, draft: str) -> tuple[str, ...]:
    """Write the new bank; the runs in which a memory has another q, or another number of visits."""
    before = (*bank.embedder.before, bank.embedder.name)
    MemoryBank.create(draft, made.embedder, made.dimension, made.digest, embedder.version, before).close()
    bring_in(made, draft)
    with MemoryBank.open(draft) as new:
        return tuple(info.id for info in bank.runs() if dict(new.utilities(info.id)) != dict(bank.utilities(info.id)))


def _free_place(uri: str) -> Path:
    if not is_local(plain(uri)):
        raise InputError(f"The new bank is made on this machine. {KEPT} Name a folder with --to.")
    path = Path(plain(uri)).absolute()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"Something is already stored at {uri}. {KEPT} Name another folder with --to.")
    return path


def _must_be_of_intents(traces: Sequence[StepTrace]) -> None:
    for trace in traces:
        try:
            policy = policy_class(trace.policy)
        except SettingsError:
            continue  # Of another program, which gave intents with their embeddings.
        if not policy.embeds_intents and trace.write is not None and trace.write.operations:
            raise InputError(
                f"The memories of run {trace.run} are found by more than their intent ({policy.spec.title}), and that "
                f"text is not stored. {KEPT} Start its run anew in a bank of the other embedder."
            )


def _texts(memories: Sequence[tuple[Memory, npt.NDArray[np.float32]]]) -> dict[str, str]:
    """What to embed for each memory: its intent, or that of the older memory whose vector it was given."""
    first: dict[tuple[str, bytes], str] = {}
    return {m.id: first.setdefault((m.intent_key, vector.tobytes()), m.intent) for m, vector in memories}


def _key(trace: StepTrace) -> str:
    """What memory was asked by in a step."""
    try:
        return make_policy(trace.policy, trace.settings).key(asked_by(trace))
    except SettingsError:
        return trace.task.intent


def _asked_anew(trace: StepTrace, embedder: str, vector: npt.NDArray[np.float32]) -> StepTrace:
    assert trace.embed is not None
    decided_by = trace.embed.decided_by or trace.embed.embedder
    return replace(trace, embed=EmbedRecord(embedder, len(vector), tuple(map(float, vector)), decided_by))
