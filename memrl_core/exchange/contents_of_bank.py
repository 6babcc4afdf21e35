"""What a bank holds, read out of it for another bank."""

from __future__ import annotations

from memrl_core.bank import MemoryBank
from memrl_core.exchange.contents import Account, Contents, Places
from memrl_core.records import EventKind


def contents_of(bank: MemoryBank) -> Contents:
    """Everything that was written to `bank` until now, as it was written, with its newest map.

    Raises `BankDamaged` for a step that cannot be read.
    """
    bank.flush()
    bank.refresh()
    # A writer appends memories, then the ledger, then the step: read the other way round, no reference dangles.
    runs = [info.id for info in bank.runs()]
    traces = tuple(trace for run in runs for trace in bank.traces(run))
    events = tuple(e for e in bank.events() if e.run in runs or e.kind is EventKind.ROLE_ASSIGNED)
    memories = {memory.id: (memory, bank.embedding(memory.id)) for memory in bank.memories()}
    layout = bank.layouts.newest()
    places = None
    if layout is not None:
        known = {i: place for i, place in layout.coordinates.items() if i in memories}
        places = Places(layout.method, known, tuple(i for i in layout.fitted if i in known))
    read = f"{len(memories):,} memories, {len(traces):,} steps and {len(events):,} events of {len(runs):,} runs."
    return Contents(
        bank.embedder.name,
        bank.embedder.dimension,
        memories,
        events,
        traces,
        places,
        Account(f"the bank at {bank.uri}", (read,)),
        bank.embedder.digest,
    )
