"""Memories that no step wrote, put into a run: a world's handbook, or those of an attack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memrl_core.bank import MemoryBank
from memrl_core.bank.ledger import now
from memrl_core.embedders.base import Embedder
from memrl_core.policies.base import intent_key
from memrl_core.records import EventKind, LedgerEvent, Memory


def give(
    bank: MemoryBank, run: str, kind: str, texts: Sequence[tuple[str, str, str]], embedder: Embedder, q: float = 0.0
) -> list[str]:
    """The ids of new memories, which `run` sees from its next step on, labelled successes, with the utility `q`.

    `texts` are intent, experience and the id of the task that each is about ("" for none); `kind` is a part of the ids.
    Raises what the embedder and the bank raise.
    """
    bank.flush()
    vectors = embedder.embed([intent for intent, _, _ in texts])
    step, seq = bank.next_step(run) - 1, bank.clock
    memories, events = {}, []
    for number, ((intent, experience, task), vector) in enumerate(zip(texts, vectors, strict=True), start=1):
        name = f"{run}-{kind}-{number:03d}"
        memory = Memory(name, intent, experience, "success", intent_key(intent), (), run, step, task, now())
        memories[name] = (memory, np.asarray(vector, dtype=np.float32))
        events.append(
            LedgerEvent(
                f"{name}:imported", seq + number, run, step, "", step, EventKind.MEMORY_IMPORTED, (name,), q,
                payload={"visits": 0}, created=now(),
            )
        )  # fmt: skip
    bank.adopt(memories, events, [])
    return list(memories)
