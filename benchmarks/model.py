"""What stands beside a language model's own time: our part of a step, and the command that looks for models."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measuring import Aim, Row, Sizes, peak, repeated
from benchmarks.step import RUN, clocked_in, grow, household_tasks
from memrl_core.agent import Agent
from memrl_core.bank import MemoryBank
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments.household import Household
from memrl_core.models.simulated import SimulatedModel

NAME = "model"
STEPS = 50
WARM_UP = 10


def measure(sizes: Sizes) -> list[Row]:
    """Steps on a bank of `sizes.memories` memories without what model and world take, then `memrl doctor`."""
    embedder = HashingEmbedder(sizes.dimension)
    with TemporaryDirectory(prefix="memrl-bench-", ignore_cleanup_errors=True) as folder, peak() as highest:
        place = Path(folder) / "bank"
        grow(place, sizes.memories, embedder)
        ours = _our_part(place, sizes.memories, embedder)
        doctor = repeated(partial(_doctor, Path(folder) / "home"), max(3, sizes.repeat))
    return [
        Row(NAME, "our part of a step beside the model", sizes.memories, embedder.dimension, ours,
            aim=Aim("median_s", 0.03), peak_mb=highest.mb),
        Row(NAME, "memrl doctor", 40, 1024, doctor, aim=Aim("median_s", 3.0)),
    ]  # fmt: skip


def _our_part(place: Path, memories: int, embedder: HashingEmbedder) -> tuple[float, ...]:
    spent, seconds = {"outside": 0.0}, list[float]()
    model, environment = SimulatedModel(), Household()
    clocked_in(spent, "outside", model, "chat")
    clocked_in(spent, "outside", environment, "reset", "step", "distil")
    with MemoryBank.open(str(place)) as bank:
        agent = Agent(bank, RUN, model, embedder, environment)
        for task in household_tasks(memories, WARM_UP + STEPS):
            begun, apart = time.perf_counter(), spent["outside"]
            for _ in agent.run([task]):
                pass
            seconds.append(time.perf_counter() - begun - (spent["outside"] - apart))
    return tuple(seconds[WARM_UP:])


def _doctor(home: Path) -> None:
    """With a home of its own, and no Ollama: nothing listens there."""
    environment = {**os.environ, "MEMRL_HOME": str(home), "OLLAMA_HOST": "127.0.0.1:9"}
    subprocess.run([sys.executable, "-m", "memrl_core.cli", "doctor"], env=environment, capture_output=True, check=True)
