"""Memory: what an agent recalls is a step of the run, and rewards and experiences follow it."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from memrl_core import Memory, MemoryRecord
from memrl_core.agent.memory import is_open
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.errors import EmbedderMismatch, InputError
from tests.builders import awaited


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path / "home"))
    settings = {"alpha": 0.5, "delta": -1.0, "q0_success": 0.25}
    return Memory.open(tmp_path / "bank", run="prod", embedder="hashing-64", settings=settings)


def test_a_recall_is_a_step_whose_reward_and_experience_come_after_it(memory: Memory) -> None:
    first = memory.recall("heat the egg")
    assert (first.step, first.memories, first.text) == (1, (), "")
    assert first.messages[-1]["role"] == "user" and "heat the egg" in first.messages[-1]["content"]
    assert all(message["content"] for message in first.messages)
    first.reward(1.0, reason="hot")
    egg = first.write("use the microwave")
    second = memory.recall("heat the egg", task="egg")
    assert [(m.id, m.outcome, m.step) for m in second.memories] == [(egg, "success", 1)]
    assert isinstance(second.memories[0], MemoryRecord) and second.text == "use the microwave"
    assert any("use the microwave" in message["content"] for message in second.messages)
    assert second.trace.decision.selected == (egg,)
    second.reward(1.0)
    second.reward(1.0)
    assert memory.bank.utilities("prod")[egg].q == pytest.approx(0.25 + 0.5 * 0.75)
    assert memory.bank.trace("prod", 2) == second.trace
    with pytest.raises(InputError, match="already"):
        second.reward(0.0)
    failed = memory.recall("cool the egg")
    assert memory.bank.memory(failed.write("it does not work", outcome="failure")).outcome == "failure"
    with pytest.raises(InputError, match="no step 9"):
        memory.reward(9, 1.0)
    for call in (lambda: failed.write(" "), lambda: memory.write(9, "x"), lambda: memory.recall(" ")):
        with pytest.raises(InputError):
            call()
    with pytest.raises(InputError, match="is a text"):
        memory.recall(None)
    assert all(finding.ok for finding in check(memory.bank.uri) if finding.name != "disk")


def test_the_same_lesson_told_twice_is_one_memory(memory: Memory) -> None:
    hit, vector = memory.recall("heat the egg"), memory.embedder.embed(["an omelette"])[0]
    assert hit.write("boil it") == hit.write(" boil it") != hit.write("boil it", outcome="failure")
    fried, again = (memory.remember("an omelette", "fry it", vector) for _ in range(2))
    assert again == fried != memory.remember("an omelette", "bake it", vector)
    assert memory.bank.memory_count("prod") == 4
    assert memory.recall("heat the egg").write("boil it") != hit.write("boil it")
    memory.bank.write.editing.forget("prod", [fried], "ann")
    memory.remember("an omelette", "fry it", vector)
    assert fried in memory.bank.utilities("prod")


@pytest.mark.parametrize("duplicates", ["keep", "skip", "group"])
def test_what_equals_an_older_memory_is_stored_as_the_run_is_set(tmp_path: Path, duplicates: str) -> None:
    with Memory.open(
        tmp_path / "bank", "prod", "hashing-64", settings={"duplicates": duplicates, "duplicate_threshold": 0.5}
    ) as memory:
        old = memory.recall("heat the egg").write("boil it")
        new = memory.recall("heat the eggs").write("boil it")
        other = memory.recall("heat the eggs").write("fry it")
        assert (new == old) is (duplicates == "skip") and other not in (old, new)
        vectors = [memory.bank.embedding(one).tolist() for one in (old, other)]
        assert (vectors[0] == vectors[1]) is (duplicates == "group")


def _opened(place: str, started: threading.Barrier) -> int:
    started.wait()
    with Memory.open(place, run="prod", embedder="hashing-64") as memory:
        return memory.recall("heat the egg").step


def test_programs_that_begin_at_once_share_a_new_bank(tmp_path: Path) -> None:
    started = threading.Barrier(6)
    with ThreadPoolExecutor(6) as threads:
        steps = list(threads.map(_opened, [str(tmp_path / "new")] * 6, [started] * 6))
    assert sorted(steps) == [1, 2, 3, 4, 5, 6]


def test_a_memory_is_opened_again_with_the_embedder_and_the_settings_that_it_has(memory: Memory) -> None:
    memory.recall("heat the egg").write("boil it")
    memory.close()
    with Memory.open(memory.bank.uri, run="prod") as again:
        assert again.recall("heat the egg").text == "boil it"
        assert again.bank.settings("prod")["alpha"] == 0.5
    with pytest.raises(EmbedderMismatch):
        Memory.open(memory.bank.uri, run="prod", embedder="hashing-32")


def test_a_recall_that_nobody_rewards_is_open_for_a_time(memory: Memory) -> None:
    trace = memory.recall("heat the egg").trace
    assert "open until" in is_open(trace, rewarded=False) and is_open(trace, rewarded=True) == ""
    past = replace(trace, task=replace(trace.task, data={"open_until": "2020-01-01T00:00:00+00:00"}))
    assert "ended at 2020" in is_open(past, rewarded=False)


def test_a_link_leads_to_the_step(memory: Memory) -> None:
    hit = memory.recall("heat the egg")
    assert hit.url == "http://localhost:8501/step?bank=bank&run=prod&step=1" == hit.url


def test_threads_and_coroutines_share_a_memory(memory: Memory) -> None:
    threads = [threading.Thread(target=lambda: memory.recall("egg").reward(1.0)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def several() -> list[int]:
        return [hit.step for hit in await asyncio.gather(*(memory.arecall("pan") for _ in range(3)))]

    assert sorted(awaited(several())) == [5, 6, 7]


def _recall(uri: str) -> None:
    with Memory.open(uri, run="prod") as memory:
        for _ in range(3):
            memory.recall("egg").write("boil it")


@pytest.mark.slow
def test_processes_share_a_memory(memory: Memory) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_recall, args=(memory.bank.uri,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    bank = MemoryBank.open(memory.bank.uri)
    assert [row.step for row in bank.steps.rows("prod")] == [1, 2, 3, 4, 5, 6] and bank.memory_count("prod") == 6
