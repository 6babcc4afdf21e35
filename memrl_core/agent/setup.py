"""What a run begins with: whether its method can learn in its environment, and memories that no step wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memrl_core.bank import MemoryBank
from memrl_core.bank.ledger import now
from memrl_core.embedders.base import Embedder
from memrl_core.environments import make_environment
from memrl_core.policies import make_policy
from memrl_core.policies.base import Need, intent_key
from memrl_core.records import EventKind, LedgerEvent, Memory

_WORDS: Mapping[Need, str] = {
    "episode reward": "a reward at the end of a task",
    "step reward": "a reward after each action",
    "next state": "what the world looks like after an action",
}
"""What only an environment can give; what else a method needs, the model and the program give everywhere."""


def fits(policy: str, environment: str, settings: Mapping[str, Any] | None = None, people_reward: bool = False) -> str:
    """What is missing for a policy to learn in an environment, as a sentence; "" when nothing is.

    The reward at the end of a task counts as missing where a person would have to give it, unless `people_reward`.
    Raises `SettingsError` and `InputError` for names and settings that do not exist.
    """
    spec, world = make_policy(policy, settings or {}).spec, make_environment(environment)
    judged, goes_on = world.reward_source == "environment", world.max_turns > 1
    given = {"episode reward": judged or people_reward, "step reward": judged and goes_on, "next state": goes_on}
    missing = [words for need, words in _WORDS.items() if need in spec.needs and not given[need]]
    if not missing:
        return ""
    return f"{spec.title} needs {' and '.join(missing)}, which {environment} does not give by itself."


def give(
    bank: MemoryBank, run: str, kind: str, texts: Sequence[tuple[str, str, str]], embedder: Embedder, q: float = 0.0
) -> list[str]:
    """The ids of new memories, which `run` sees from its next step on, labelled successes, with the utility `q`.

    `texts` are intent, experience and the id of the task that each is about ("" for none); `kind` is a part of the ids.
    Raises what the embedder and the bank raise.
    """
    bank.write.flush()
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
    bank.write.adopt(memories, events, [])
    return list(memories)
