"""A bank with a run for each of several methods, on the same four tasks: twelve steps, which are three epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from memrl_core.agent import Agent
from memrl_core.analysis.run.learned.deciding import Watching
from memrl_core.bank import MemoryBank
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments import make_environment
from memrl_core.models.simulated import SimulatedModel
from memrl_core.policies import settings_of
from tests.builders import a_run, alike_tasks

STEPS = 12


def a_bank_of(path: Path, runs: Mapping[str, Mapping[str, Any]], model: Any = None, steps: int = STEPS) -> MemoryBank:
    """Each run is named after its method, with more behind a dot where a method has several; it maps to settings."""
    embedder = HashingEmbedder()
    bank = MemoryBank.create(str(path), embedder.name, embedder.dimension)
    tasks = alike_tasks()[
        16:20
    ]  # Asked in the same words in every epoch: methods that merge or delete have a reason to.
    for run, given in runs.items():
        policy = run.partition(".")[0]
        settings = settings_of(policy, given).model_dump()
        bank.write.start_run(replace(a_run(run), policy=policy, settings=settings, seed=2, embedder=embedder.name))
        agent = Agent(bank, run, model or SimulatedModel(), embedder, make_environment("household"))
        with bank.write.batch(steps):
            list(agent.run(tasks, epochs=steps // len(tasks)))
    return bank


def watched(bank: MemoryBank, run: str, policy: str = "", step: int = STEPS) -> Watching:
    """A run as its own method, or another, has watched it."""
    return Watching(bank, run, step, policy or bank.run(run).policy)
