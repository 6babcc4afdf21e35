"""Two banks, or two runs of one, as one: everything of both is kept, and a new run knows the memories of both.

Source of the question: arXiv 2601.03192 v2, table 6 (memories learned apart, merged, and used together).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from memrl_core.bank import MemoryBank
from memrl_core.bank.ledger import now
from memrl_core.bank.storage import codec
from memrl_core.bank.storage.addresses import is_local, shown
from memrl_core.errors import InputError
from memrl_core.exchange.bring_in import bring_in
from memrl_core.exchange.contents import contents_of
from memrl_core.exchange.whole_files import drafted_folder
from memrl_core.records import EventKind, LedgerEvent, RunInfo, Utility

MERGED = "merged"
ROLES_OF_FIRST = "The people of the two banks had different roles; those of the first bank hold."


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge did in the bank at `uri`.

    `run` is the new run and `memories` how many memories it knows; `sources` are the two runs by their names in this
    bank, with how many memories each knew. `shared` memories were known to both; where their q or visits differed
    (`disputed` of them), those of the run with more visits were taken. `notes` are sentences on what does not fit
    together. The other counts and names are of the whole bank: `renamed_*` map a name in the second bank to the one
    here, where the first bank had something else of that name.
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
    target = _free_place(uri)
    _must_agree(first, second)
    one_bank = first.uri == second.uri
    last = _run_of(second, second_run)
    other = _run_of(first, first_run, besides=last if one_bank else "")
    with drafted_folder(target, "Both banks are as they were.") as draft:
        bring_in(contents_of(first), str(draft))
        arrival = None if one_bank else bring_in(contents_of(second), str(draft))
        roles_differ = first.people.roles() != second.people.roles()
        renamed_runs = arrival.renamed_runs if arrival else {}
        with MemoryBank.open(str(draft)) as bank:
            done = merge_runs(bank, other, renamed_runs.get(last, last))
    return replace(
        done,
        uri=uri,
        notes=(*done.notes, *((ROLES_OF_FIRST,) if roles_differ else ())),
        renamed_memories=arrival.renamed_memories if arrival else {},
        renamed_runs=renamed_runs,
    )


def merge_runs(bank: MemoryBank, first: str, second: str, name: str = MERGED) -> Merged:
    """Start a run in `bank` that knows what two of its runs know now, with their q and visits.

    It is called `name`, or that with a number when there is one; its settings are those of `first`. Raises `InputError`
    for a run merged with itself, `UnknownRun`, and what writing a bank raises.
    """
    if first == second:
        raise InputError(f"Both sides are the run “{first[:80]}”. Nothing was merged; name two different runs.")
    with bank.alone():
        infos = bank.run(first), bank.run(second)
        beliefs = bank.utilities(first), bank.utilities(second)
        shared = [i for i in beliefs[0] if i in beliefs[1]]
        known = _joined(bank, *beliefs)
        info = _started(bank, *infos, name)
        bank.adopt({}, _events(bank, info, known), [])
    return Merged(
        bank.uri,
        info.id,
        len(known),
        ((first, len(beliefs[0])), (second, len(beliefs[1]))),
        len(shared),
        sum(beliefs[0][i] != beliefs[1][i] for i in shared),
        tuple(_notes(bank, *infos)),
    )


def _free_place(uri: str) -> Path:
    if not is_local(uri):
        raise InputError(
            f"A merged bank is made on this machine; {shown(uri)} is not. Nothing was merged; name a folder."
        )
    path = Path(uri)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"Something is already stored at {uri}. Nothing was merged; choose another place.")
    return path


def _must_agree(first: MemoryBank, second: MemoryBank) -> None:
    one, two = first.embedder, second.embedder
    if one.is_another(two.name, two.dimension, two.digest):
        raise InputError(
            f"The bank at {first.uri} holds {one.dimension:,}-dimensional vectors made by {one.name}, the bank at "
            f"{second.uri} {two.dimension:,}-dimensional vectors made by {two.name}"
            f"{', by other weights' if one.name == two.name else ''}. Nothing was merged; embed one of them anew with "
            "the other's embedder first (memrl reembed)."
        )


def _run_of(bank: MemoryBank, run: str, besides: str = "") -> str:
    if run:
        return bank.run(run).id
    others = [info.id for info in bank.runs() if info.id != besides]
    if not others:
        what = "no other run" if besides else "no run"
        raise InputError(f"The bank at {bank.uri} has {what} to merge. Nothing was merged; start one, or name another.")
    return others[-1]


def _joined(bank: MemoryBank, first: Mapping[str, Utility], second: Mapping[str, Utility]) -> dict[str, Utility]:
    """Both beliefs in the order of age; of two about one memory, the one that rests on more visits."""
    joined = dict(first)
    for memory_id, utility in second.items():
        here = joined.get(memory_id)
        if here is None or utility.visits > here.visits:
            joined[memory_id] = utility
    return {memory_id: joined[memory_id] for memory_id in bank.memory_ids() if memory_id in joined}


def _started(bank: MemoryBank, first: RunInfo, second: RunInfo, name: str) -> RunInfo:
    taken = {info.id for info in bank.runs()}
    free = name if name not in taken else next(f"{name}-{n}" for n in count(2) if f"{name}-{n}" not in taken)
    same_tasks = (first.environment, first.tasks, first.task_count) == (
        second.environment,
        second.tasks,
        second.task_count,
    )
    return replace(
        first,
        id=free,
        settings=dict(bank.settings(first.id)),
        base=None,
        base_step=0,
        first_step=1,
        created=now(),
        tasks=first.tasks if same_tasks else "",
        task_count=first.task_count if same_tasks else 0,
    )


def _events(bank: MemoryBank, info: RunInfo, known: Mapping[str, Utility]) -> list[LedgerEvent]:
    clock = max(event.seq for event in bank.events()) + 1
    started = LedgerEvent(
        id=f"{info.id}:started",
        seq=clock,
        run=info.id,
        step=0,
        step_id="",
        known_at=0,
        kind=EventKind.RUN_STARTED,
        payload=codec.run_payload(info),
        created=info.created,
    )
    imported = [
        replace(
            started,
            id=f"{info.id}:{memory_id}",
            seq=clock + position,
            kind=EventKind.MEMORY_IMPORTED,
            memory_ids=(memory_id,),
            value=utility.q,
            payload={"visits": utility.visits},
        )
        for position, (memory_id, utility) in enumerate(known.items(), start=1)
    ]
    return [started, *imported]


def _notes(bank: MemoryBank, first: RunInfo, second: RunInfo) -> list[str]:
    notes = []
    one, two = bank.settings(first.id), bank.settings(second.id)
    differing = sorted(key for key in {*one, *two} if one.get(key) != two.get(key))
    if differing:
        notes.append(
            f"The runs had different settings ({', '.join(differing)}); the merged run has those of {first.id}."
        )
    scales = [(s.get("reward_failure"), s.get("reward_success")) for s in (one, two)]
    if scales[0] != scales[1]:
        notes.append(
            "Their rewards had different scales, so that the q of one side cannot be compared with those of the other "
            "until its memories are used again."
        )
    if first.policy != second.policy:
        notes.append(f"The q were learned by different policies, {first.policy} and {second.policy}.")
    return notes
