"""The sound things that are spoiled, each made once a process, and what has to hold of a bank whatever was tried."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from memrl_core.agent import Agent
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments import make_environment
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import MemRLError
from memrl_core.exchange.archive import bank_bytes, read_bank, write_bank
from memrl_core.exchange.bring_in import bring_in
from memrl_core.models.simulated import SimulatedModel
from tests.bank.people.bank_of_people import a_bank_of_people
from tests.builders import DIMENSION, a_run, a_step
from tests.exchange.official_writer import CheckpointWriter, a_selected, an_llb_record, three

LONGEST_SENTENCE = 2000
CONTRADICTIONS = ("references", "ledger and steps", "texts", "runs")
"""What the doctor calls amiss where the parts of a bank gainsay each other: an import takes such a file over."""
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where the files of cases lie: no disk has to be waited for."""


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="memrl-fuzz-", dir=MEMORY)


def source_path(name: str) -> Path:
    """A place for what is made once; it goes with the process."""
    return Path(_folder().name) / name


@cache
def bank_path() -> Path:
    """A bank with events of every kind: people's, an agent's, a credit, a note, a fork that went on, and a map."""
    path, file = source_path("bank"), source_path("bank.zip")
    with a_bank_of_people(source_path("in the making")) as bank:
        bank.write.start_run(replace(a_run("agent", delta=0.0), environment="household"))
        agent = Agent(bank, "agent", SimulatedModel(), HashingEmbedder(DIMENSION), make_environment("household"))
        first, second = sample_tasks("household-train")[:2]
        traces = list(agent.run([first, second, first]))
        last = traces[-1]
        assert last.reward is not None
        bank.write.credits.assign(
            "agent", last.step, last.id, {last.reward.credited[0]: 0.75}, "ann", "tried without it"
        )
        bank.write.notes.pin("agent", 2, "why?", "ann", last.reward.credited[:1], a=last.reward.credited[0], ask="drop")
        bank.write.change_settings("agent", {**bank.settings("agent"), "alpha": 0.7}, 4)
        bank.write.change_environment("agent", {}, "ann")
        bank.write.layouts.save("PCA", {memory_id: (0.5, float(n)) for n, memory_id in enumerate(bank.memory_ids())})
        bank.write.start_run(replace(a_run("fork", base="r", base_step=3, alpha=0.9), first_step=4))
        bank.write.commit_step(*a_step(4, ("r-0001",), 0.5, "fork"))
        write_bank(bank, file)
    # Every case copies it: what came in at once lies in few files.
    bring_in(read_bank(file), str(path))
    return path


@cache
def small_bank_path() -> Path:
    """Another bank of the same embedder, which holds something else under a name of the first."""
    path = source_path("small")
    with MemoryBank.create(str(path), "hashing-8", DIMENSION) as bank:
        bank.write.start_run(a_run("r", alpha=0.25))
        for step in (1, 2):
            bank.write.commit_step(*a_step(step, (), -0.5))
    return path


@cache
def archive() -> bytes:
    """The zip of `bank_path`."""
    with MemoryBank.open(str(bank_path())) as bank:
        return bank_bytes(bank, "zip")


def _checkpoint() -> CheckpointWriter:
    return CheckpointWriter(three(), dimension=4)


@cache
def official_files() -> dict[str, Any]:
    """What the official code left: the JSON value of each file, the lines of `.jsonl` as a list."""
    folder = _checkpoint().write(source_path("official"))
    made: dict[str, Any] = {
        name: json.loads((folder / name).read_bytes())
        for name in (
            "cube/textual_memory.json",
            "local_cache/dict_memory.json",
            "local_cache/query_embeddings.json",
            "local_cache/q_cache.json",
            "local_cache/mem_cache.json",
            "snapshot_meta.json",
        )
    }
    made["snapshot_meta.json"].pop("textual_memory_md5")
    chosen = {"successed": [a_selected("m1", 0.5, 0.2)], "failed": [a_selected("m2", 0.1, 1.5)]}
    made["trace.jsonl"] = [an_llb_record("7", "count the rows", chosen, turns=2), an_llb_record("8", "unseen", {})]
    key = {"task_id": "BigCodeBench/1", "epoch": 1, "phase": "train"}
    made["train/memory_retrieval.jsonl"] = [{**key, "selected_ids": ["m1"]}]
    made["train/samples.jsonl"] = [
        {**key, "prompt": "write f", "raw_response": "def f(): ...", "model": "gpt", "status": "PASS", "error": None}
    ]
    meta = {"question_id": "q1", "question": "text of q1"}
    asked = [{"role": "user", "content": [{"type": "text", "text": "what is it?"}, {"type": "image_url"}]}]
    made["local_cache/llm_calls.jsonl"] = [
        {"ts": "2026-01-01T00:00:00", "type": "solution", "meta": meta, "messages": asked, "response": "a frog"},
        {"type": "judge", "meta": meta, "parsed": {"correct": "yes", "reasoning": "since"}},
    ]
    return made


def make_all() -> None:
    """Make every source now, so that a fault in one is not taken for a fault of a case."""
    small_bank_path()
    archive()
    official_files()


def is_a_sentence(error: MemRLError) -> None:
    """What a person is told says something, and is not the whole of what was wrong."""
    reported = str(error)
    assert reported.strip(), f"{type(error).__name__} says nothing"
    assert len(reported) <= LONGEST_SENTENCE, f"a sentence of {len(reported):,} characters: {reported[:200]!r}"
    assert "Traceback" not in reported


def copied(bank: Path, folder: Path) -> Path:
    """The bank again, in a folder."""
    return Path(shutil.copytree(bank, folder / "copy"))


def facts_of(uri: Path) -> tuple[int, list[str], dict[str, Any]]:
    """What a bank holds, in short: equal as long as nothing was changed."""
    with MemoryBank.open(str(uri)) as bank:
        return bank.facts, [event.id for event in bank.events()], {i.id: bank.utilities(i.id) for i in bank.runs()}


def can_be_looked_at(bank: MemoryBank) -> None:
    """Every q is finite, now and in the past, and every view and history can be had."""
    for info in bank.runs():
        utilities = bank.utilities(info.id)
        view = bank.view(info.id)
        histories = bank.histories(info.id)
        past = bank.view(info.id, 2)
        for memory_id, utility in (*utilities.items(), *bank.editing.away(info.id).items()):
            assert math.isfinite(utility.q), f"the q of {memory_id} in {info.id} is {utility.q}"
            assert histories[memory_id][-1].after == utility.q
        assert len(view.positions()) == len(utilities)
        assert all(math.isfinite(q) for q in past.q)
        for _, _ in bank.walk(info.id):
            pass
        for row in bank.steps.rows(info.id):
            bank.ratings.effective(info.id, row.step)
        bank.next_step(info.id)
    bank.events()


def is_whole(uri: Path) -> None:
    """The doctor finds nothing that cannot be read, and everything can be looked at, the steps too."""
    amiss = [
        found.sentence for found in check(str(uri)) if not found.ok and found.name not in (*CONTRADICTIONS, "disk")
    ]
    assert not amiss, f"the doctor says: {' '.join(amiss)}"
    with MemoryBank.open(str(uri)) as bank:
        can_be_looked_at(bank)
        for info in bank.runs():
            assert len(bank.traces(info.id)) == len(bank.steps.rows(info.id))
