"""New banks made of others, which stay as they are: two merged into one, or one with the vectors of another embedder.

Source of the question about merging: arXiv 2601.03192 v2, table 6 (memories learned apart, merged, and used together).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from memrl_core.agent.asking import asked_by
from memrl_core.bank import MemoryBank
from memrl_core.bank.ledger import now
from memrl_core.embedders.base import Embedder, embedded
from memrl_core.errors import InputError, SettingsError
from memrl_core.exchange.bring_in import bring_in
from memrl_core.exchange.contents import Contents, contents_of, started_with
from memrl_core.exchange.safe_files import drafted_folder
from memrl_core.models.base import Cancelled, Progress, never, unheard
from memrl_core.policies import make_policy
from memrl_core.records import EmbedRecord, RunInfo, StepTrace, Utility

MERGED = "merged"
ROLES_OF_FIRST = "The people of the two banks had different roles; those of the first bank hold."
AT_ONCE = 64
KEPT = "The bank is as it was."

Vector = npt.NDArray[np.float32]


# --- merging ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge did in the bank at `uri`.

    `run` is the new run and `memories` how many memories it knows; `sources` are the two runs by their names in this
    bank, with how many memories each knew. `shared` memories were known to both; where their q or visits differed
    (`disputed` of them), those of the run with more visits were taken. `notes` are sentences on what does not fit
    together. `renamed_*` map a name in the second bank to the one here, where the first bank had something else of that
    name.
    """

    uri: str
    run: str
    memories: int
    sources: tuple[tuple[str, int], tuple[str, int]]
    shared: int
    disputed: int
    notes: tuple[str, ...] = ()
    renamed_memories: Mapping[str, str] = field(default_factory=dict)
    renamed_runs: Mapping[str, str] = field(default_factory=dict)


def merge(first: MemoryBank, second: MemoryBank, uri: str, first_run: str = "", second_run: str = "") -> Merged:
    """Make a new bank at `uri`, a folder of this machine, that holds `first` and `second`, which stay as they are.

    Its run "merged" knows what `first_run` and `second_run` know now, which are the newest runs unless they are named
    (of one bank given twice: the newest two). The bank appears whole or not at all. Raises `InputError` for banks of
    different embedders, for a run merged with itself and for a place that is taken, `UnknownRun`, and what reading and
    writing a bank raises.
    """
    one, two = first.embedder, second.embedder
    if one.is_another(two.name, two.dimension, two.digest):
        raise InputError(
            f"The bank at {first.uri} holds {one.dimension:,}-dimensional vectors made by {one.name}, the bank at "
            f"{second.uri} {two.dimension:,}-dimensional vectors made by {two.name}"
            f"{', by other weights' if one.name == two.name else ''}. Nothing was merged; first embed one of them with "
            "the other's embedder (memrl reembed)."
        )
    is_one_bank = first.uri == second.uri
    last = _run_of(second, second_run)
    other = _run_of(first, first_run, besides=last if is_one_bank else "")
    with drafted_folder(uri, "Both banks are as they were.") as draft:
        bring_in(contents_of(first), str(draft))
        arrival = None if is_one_bank else bring_in(contents_of(second), str(draft))
        renamed = arrival.renamed_runs if arrival else {}
        with MemoryBank.open(str(draft)) as bank:
            done = merge_runs(bank, other, renamed.get(last, last))
    return replace(
        done,
        uri=uri,
        notes=(*done.notes, *((ROLES_OF_FIRST,) if first.people.roles() != second.people.roles() else ())),
        renamed_memories=arrival.renamed_memories if arrival else {},
        renamed_runs=renamed,
    )


def merge_runs(bank: MemoryBank, first: str, second: str, name: str = MERGED) -> Merged:
    """Start a run in `bank` that knows what two of its runs know now, with their q and visits.

    It is called `name`, or that with a number when there is one; its settings are those of `first`. Raises `InputError`
    for a run merged with itself, `UnknownRun`, and what writing a bank raises.
    """
    if first == second:
        raise InputError(f"Both sides are the run “{first[:80]}”. Nothing was merged; name two different runs.")
    with bank.write.alone():
        one, two = bank.run(first), bank.run(second)
        here, there = bank.utilities(first), bank.utilities(second)
        shared = here.keys() & there.keys()
        # Of two utilities of one memory, the one that rests on more visits; in the order of age.
        newer = {i: utility for i, utility in there.items() if i not in here or utility.visits > here[i].visits}
        joined = {**here, **newer}
        known: dict[str, Utility] = {i: joined[i] for i in bank.memory_ids() if i in joined}
        taken = {info.id for info in bank.runs()}
        names = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 3)))
        same_tasks = (one.environment, one.tasks, one.task_count) == (two.environment, two.tasks, two.task_count)
        info = replace(
            one,
            id=next(free for free in names if free not in taken),
            settings=dict(bank.settings(first)),
            base=None,
            base_step=0,
            first_step=1,
            created=now(),
            tasks=one.tasks if same_tasks else "",
            task_count=one.task_count if same_tasks else 0,
        )
        about = {**bank.metadata(second), **bank.metadata(first)}
        bank.write.adopt({}, started_with(info, known, max(event.seq for event in bank.events()) + 1, about), [])
    return Merged(
        bank.uri,
        info.id,
        len(known),
        ((first, len(here)), (second, len(there))),
        len(shared),
        sum(here[i] != there[i] for i in shared),
        tuple(_notes(bank, one, two)),
    )


def _run_of(bank: MemoryBank, run: str, besides: str = "") -> str:
    if run:
        return bank.run(run).id
    others = [info.id for info in bank.runs() if info.id != besides]
    if not others:
        what = "no other run" if besides else "no run"
        raise InputError(f"The bank at {bank.uri} has {what} to merge. Nothing was merged; start one, or name another.")
    return others[-1]


def _notes(bank: MemoryBank, first: RunInfo, second: RunInfo) -> list[str]:
    notes = []
    one, two = bank.settings(first.id), bank.settings(second.id)
    differing = sorted(key for key in {*one, *two} if one.get(key) != two.get(key))
    if differing:
        notes.append(
            f"The runs had different settings ({', '.join(differing)}); the merged run has those of {first.id}."
        )
    if {"reward_failure", "reward_success"} & set(differing):
        notes.append(
            "Their rewards had different scales, so that the q of one side cannot be compared with those of the other "
            "until its memories are used again."
        )
    if first.policy != second.policy:
        notes.append(f"The q were learned by different policies, {first.policy} and {second.policy}.")
    return notes


# --- other vectors ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reembedded:
    """The new bank at `uri`: how many `memories` and `steps` have new vectors, and the `runs` whose q moved by that.

    q of a method that learns from vectors is learned again; that of every other stays to the bit.
    """

    uri: str
    memories: int
    steps: int
    runs: tuple[str, ...]


def reembed(
    bank: MemoryBank,
    embedder: Embedder,
    uri: str,
    on_progress: Progress = unheard,
    cancelled: Cancelled = never,
) -> Reembedded | None:
    """Make a bank at `uri`, a new folder of this machine, that holds `bank` with the vectors of `embedder`.

    Memories, q, visits, ledger and traces are the same, and what steps recorded about similarity; the map is left out.
    `on_progress` gets how many of how many texts are embedded. None when `cancelled()` turned true: nothing is left of
    the new bank then. Raises `InputError` for a place that is taken, `ModelError`, and what reading and writing a bank
    raises.
    """
    with drafted_folder(uri, KEPT) as draft:
        found = contents_of(bank)
        keys = {trace.id: _key(trace) for trace in found.traces if trace.embed is not None}
        written = _texts_written(found.traces)
        # Of memories that share a vector, the text of the oldest was embedded.
        first: dict[tuple[str, bytes], str] = {}
        texts = {
            i: first.setdefault((memory.intent_key, vector.tobytes()), written.get(i, memory.intent))
            for i, (memory, vector) in found.memories.items()
        }
        wanted = list(dict.fromkeys([*texts.values(), *keys.values()]))
        vectors: dict[str, Vector] = {}
        for start in range(0, len(wanted), AT_ONCE):
            batch = wanted[start : start + AT_ONCE]
            vectors.update(zip(batch, embedded(embedder, batch), strict=True))
            on_progress(len(vectors), len(wanted))
            if cancelled():
                return None
        made = replace(
            found,
            embedder=embedder.name,
            dimension=embedder.dimension,
            digest=embedder.digest,
            memories={i: (memory, vectors[texts[i]]) for i, (memory, _) in found.memories.items()},
            traces=tuple(
                _with_vector(trace, embedder.name, vectors[keys[trace.id]]) if trace.id in keys else trace
                for trace in found.traces
            ),
            layout=None,
        )
        runs = _written(made, bank, embedder, str(draft))
    return Reembedded(uri, len(made.memories), len(keys), runs)


def _written(made: Contents, bank: MemoryBank, embedder: Embedder, draft: str) -> tuple[str, ...]:
    """Write the new bank; the runs in which a memory has another q, or another number of visits."""
    before = (*bank.embedder.before, bank.embedder.name)
    MemoryBank.create(draft, made.embedder, made.dimension, made.digest, embedder.version, before).close()
    bring_in(made, draft)
    with MemoryBank.open(draft) as new:
        return tuple(info.id for info in bank.runs() if dict(new.utilities(info.id)) != dict(bank.utilities(info.id)))


def _texts_written(traces: Sequence[StepTrace]) -> dict[str, str]:
    """The text that was embedded, by the id of each memory that a step of a known policy wrote."""
    texts = {}
    for trace in traces:
        try:
            policy = make_policy(trace.policy, trace.settings)
        except SettingsError:
            continue  # Of another program, which gave intents with their embeddings.
        for op in trace.operations:
            if op.op not in ("NOOP", "DELETE"):
                texts[op.memory_id] = policy.embedded_text(op, trace)
    return texts


def _key(trace: StepTrace) -> str:
    """The text by which memory was asked in a step."""
    try:
        return make_policy(trace.policy, trace.settings).key(asked_by(trace))
    except SettingsError:
        return trace.task.intent


def _with_vector(trace: StepTrace, embedder: str, vector: Vector) -> StepTrace:
    assert trace.embed is not None
    decided_by = trace.embed.decided_by or trace.embed.embedder
    return replace(trace, embed=EmbedRecord(embedder, len(vector), tuple(map(float, vector)), decided_by))
