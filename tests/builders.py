"""Tiny builders of records for tests."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from memrl_core.agent import Agent
from memrl_core.bank import MemoryBank
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments import make_environment
from memrl_core.environments.tasks import load_tasks, sample_tasks
from memrl_core.models.simulated import SimulatedModel
from memrl_core.records import Task
from memrl_core.retrieval.view import MemoryView
from tests.small_banks import DIMENSION, a_bank, a_chain, a_run, a_step, a_vector, grown  # noqa: F401


def an_agent(path: Path, model: Any = None, environment: str = "household", run: str = "r", **settings: Any) -> Agent:
    """An agent with the embedded parts in a new bank with one run."""
    embedder = HashingEmbedder()
    bank = MemoryBank.create(str(path), embedder.name, embedder.dimension)
    bank.write.start_run(replace(a_run(run, **settings), environment=environment, embedder=embedder.name))
    return Agent(bank, run, model or SimulatedModel(), embedder, make_environment(environment))


def an_agent_after(path: Path, tasks: int, epochs: int = 1, **settings: Any) -> Agent:
    """An agent that has met the first tasks of the household's training set, so many times each."""
    agent = an_agent(path, **settings)
    list(agent.run(sample_tasks("household-train")[:tasks], epochs=epochs))
    return agent


def view_of(ids: Sequence[str], embeddings: Any, **others: Any) -> MemoryView:
    """Memories of these unit vectors (n, d), oldest first, with q and visits 0, each an intent of its own."""
    n = len(ids)
    vectors = np.asarray(embeddings, dtype=np.float32)
    vectors = vectors if vectors.ndim == 2 else vectors.reshape(0, DIMENSION)
    rows = {memory_id: row for row, memory_id in enumerate(ids)}
    usual = {"q": np.zeros(n), "visits": np.zeros(n, dtype=np.int64), "intent_groups": np.arange(n), "rows": rows}
    return MemoryView(ids=ids, embeddings=vectors, **{**usual, **others})


def alike_tasks() -> list[Task]:
    """24 household tasks of which many are alike: for what an agent does where a memory fits another task."""
    return load_tasks(Path(__file__).parent / "alike.jsonl")


def numbers(text: str) -> list[str]:
    """The numbers in a text, in order, with their signs as they are written: `["+0.30", "2,000", "5"]`."""
    return re.findall(r"[+−]?\d(?:[\d.,]*\d)?", text)


def awaited(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns. The thread of the tests may have a loop that runs, a browser's."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
