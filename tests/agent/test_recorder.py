"""Recorder: other agents' steps as ordinary traces, from threads, processes, and agents that die."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from multiprocessing.synchronize import Barrier
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrl_core.agent.recorder import Recorder, unit
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.errors import InputError, StepError, UnknownRun
from memrl_core.settings import MemRLSettings
from tests.small_banks import DIMENSION, a_bank, a_vector

ROOT = Path(__file__).parents[2]
ALPHA = 0.3


@pytest.fixture
def bank(tmp_path: Path) -> MemoryBank:
    return MemoryBank.create(str(tmp_path / "bank"), "hashing-8", DIMENSION)


@pytest.fixture
def recorder(bank: MemoryBank) -> Recorder:
    return Recorder(bank, "mine", MemRLSettings(alpha=ALPHA), model="llama")


def three_memories(recorder: Recorder) -> list[str]:
    return [recorder.remember(f"intent {n}", f"experience {n}", a_vector(n), q=n / 10, visits=n) for n in range(3)]


# --- what is reported is what is stored -------------------------------------------------------------------------------


def test_what_was_reported_is_stored_as_it_was_reported(bank: MemoryBank, recorder: Recorder) -> None:
    a, b, c = three_memories(recorder)
    messages = [
        {"role": "system", "content": "Use these.\nexperience 2\nexperience 0"},
        {"role": "tool", "content": "a plate"},
    ]
    with recorder.step("heat the egg", embedding=2 * a_vector(9), task="egg", epoch=3) as s:
        s.recalled([(a, 0.4), (b, 0.9), (c, 0.1)], k1=5, delta=0.05)
        s.selected([c, a], scores={a: 0.5, b: -1.0, c: 2.5}, q={a: 7.0, b: 8.0, c: 9.0})
        s.prompted(messages, {"temperature": 0.5})
        s.answered("open the door", prompt_tokens=40, answer_tokens=3, observation="it is locked")
        s.answered("knock", prompt_tokens=50, answer_tokens=1)
        s.rewarded(0.25, "nobody answered")
        s.wrote("knock first")

    trace = MemoryBank.open(bank.uri).trace("mine", 1)
    assert trace == s.trace
    assert (trace.origin, trace.step, trace.epoch, trace.policy) == ("recorder", 1, 3, "memrl")
    assert (trace.task.id, trace.task.intent) == ("egg", "heat the egg")
    assert trace.embed.embedding == pytest.approx(a_vector(9), abs=1e-6)
    assert (trace.recall.k1, trace.recall.delta, trace.recall.memories) == (5, 0.05, 3)
    assert [(m.memory_id, m.similarity, m.rank_recall) for m in trace.recall.pool] == [
        (b, 0.9, 1),
        (a, 0.4, 2),
        (c, 0.1, 3),
    ]
    assert (trace.decision.selected, trace.decision.k2) == ((c, a), 2)
    assert [(x.memory_id, x.score, x.rank_select, x.q, x.visits) for x in trace.decision.candidates] == [
        (c, 2.5, 1, 9.0, 2),
        (a, 0.5, 2, 7.0, 0),
        (b, -1.0, 3, 8.0, 1),
    ]
    assert all(sum(t.contribution for t in x.terms) == x.score for x in trace.decision.candidates)
    sent = trace.generate
    assert (sent.model, sent.simulated, sent.options) == ("llama", False, {"temperature": 0.5})
    assert [(m.role, m.content) for m in sent.messages] == [
        ("system", "Use these.\nexperience 2\nexperience 0"),
        ("user", "a plate"),
    ]
    assert [sent.messages[p.message].content[p.start : p.end] for p in sent.spans] == ["experience 2", "experience 0"]
    assert [p.memory_id for p in sent.spans] == [c, a]
    assert [(t.reply.text, t.reply.prompt_tokens, t.reply.answer_tokens, t.observation) for t in sent.turns] == [
        ("open the door", 40, 3, "it is locked"),
        ("knock", 50, 1, ""),
    ]
    assert (trace.reward.reward, trace.reward.source, trace.reward.verdict) == (0.25, "environment", "nobody answered")
    assert trace.reward.credited == (c, a)
    (written,) = trace.write.operations
    assert (written.experience, written.parents, written.outcome) == ("knock first", (c, a), "success")
    assert bank.memory(written.memory_id).intent == "heat the egg"
    assert bank.embedding(written.memory_id) == pytest.approx(a_vector(9), abs=1e-6)
    (lacking,) = trace.lacks
    assert "λ, ε" in lacking
    assert {"RECALL", "SELECT", "GENERATE", "REWARD", "WRITE"} == set(trace.seconds)


def test_a_step_of_which_nothing_was_reported_says_all_that_it_lacks(recorder: Recorder) -> None:
    with recorder.step("heat the egg") as s:
        pass
    trace = s.trace
    parts = (trace.embed, trace.recall, trace.decision, trace.generate, trace.write)
    assert parts == (None,) * 5
    assert (trace.reward.reward, trace.reward.source) == (None, None)
    assert len(trace.lacks) == len(set(trace.lacks)) == 7


def test_a_similarity_that_was_not_reported_is_measured_and_said_to_be(bank: MemoryBank, recorder: Recorder) -> None:
    a, b, c = three_memories(recorder)
    with recorder.step("heat the egg", embedding=a_vector(9)) as s:
        s.recalled([a, (b, -0.5), c], k1=3, delta=-1)
    found = {m.memory_id: m.similarity for m in s.trace.recall.pool}
    assert found == {a: pytest.approx(float(a_vector(0) @ a_vector(9)), abs=1e-6), b: -0.5, c: pytest.approx(
        float(a_vector(2) @ a_vector(9)), abs=1e-6)}  # fmt: skip
    assert any(f"{a}, {c}" in lack for lack in s.trace.lacks)


def test_a_similarity_that_cannot_be_measured_leaves_phase_a_out_and_still_credits(
    bank: MemoryBank, recorder: Recorder
) -> None:
    a, b, _ = three_memories(recorder)
    with recorder.step("heat the egg") as s:
        s.recalled([a, (b, 0.5)])
        s.selected([b])
        s.rewarded(1.0)
    assert (s.trace.recall, s.trace.decision) == (None, None)
    assert any(f"{a}, {b}" in lack for lack in s.trace.lacks)
    assert s.trace.reward.credited == (b,)
    assert bank.utilities("mine")[b].q == pytest.approx(0.1 + ALPHA * (1.0 - 0.1))


def test_scores_and_q_that_were_not_reported_are_not_made_up(bank: MemoryBank, recorder: Recorder) -> None:
    a, b, c = three_memories(recorder)
    with recorder.step("heat the egg") as s:
        s.recalled({a: 0.3, b: 0.2, c: 0.1})
        s.selected([b], scores={b: 4.0})
    seen = {x.memory_id: x for x in s.trace.decision.candidates}
    assert [seen[m].score for m in (a, b, c)] == [None, 4.0, None]
    assert [seen[m].rank_select for m in (a, b, c)] == [None, 1, None]
    assert [seen[m].q for m in (a, b, c)] == [0.0, 0.1, 0.2]
    assert all(x.terms == () for x in seen.values())
    assert any("scores" in lack and f"{a}, {c}" in lack for lack in s.trace.lacks)
    assert any(f"{a}, {b}, {c}" in lack for lack in s.trace.lacks)


def test_two_memories_with_one_text_stand_in_two_places_of_the_prompt(recorder: Recorder) -> None:
    first, second = (recorder.remember("egg", "boil it", a_vector(n), memory_id=f"m{n}") for n in range(2))
    with recorder.step("egg") as s:
        s.selected([second, first])
        s.prompted([{"role": "user", "content": "boil it, boil it"}])
    assert [(p.memory_id, p.start, p.end) for p in s.trace.generate.spans] == [(second, 0, 7), (first, 9, 16)]


# --- q ----------------------------------------------------------------------------------------------------------------


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rewards=st.lists(st.floats(-1, 1), min_size=1, max_size=5), q=st.floats(-2, 2))
def test_q_moves_by_every_reward_as_equation_4_says(
    tmp_path_factory: pytest.TempPathFactory, rewards: list[float], q: float
) -> None:
    bank = MemoryBank.create(str(tmp_path_factory.mktemp("q") / "bank"), "hashing-8", DIMENSION)
    recorder = Recorder(bank, settings=MemRLSettings(alpha=ALPHA))
    memory = recorder.remember("egg", "boil it", a_vector(1), q=q)
    other = recorder.remember("toast", "grill it", a_vector(2), q=q)
    for reward in rewards:
        with recorder.step("egg") as s:
            s.selected([memory])
            s.rewarded(reward)
        (change,) = s.trace.update.changes if s.trace.update else ()
        assert change.before == pytest.approx(q)
        q += ALPHA * (reward - q)
        assert change.after == pytest.approx(q)
    again = MemoryBank.open(bank.uri).utilities("recorded")
    assert again[memory].q == pytest.approx(q) and again[memory].visits == len(rewards)
    assert again[other].visits == 0


def test_a_remembered_memory_comes_with_its_q_once(bank: MemoryBank, recorder: Recorder) -> None:
    first = recorder.remember("egg", "boil it", a_vector(1), memory_id="case 1", q=0.75, visits=4)
    again = recorder.remember("egg", "boil it", a_vector(1), memory_id="case 1", q=0.0)
    assert first == again == "case 1"
    known = MemoryBank.open(bank.uri).utilities("mine")
    assert {m: (u.q, u.visits) for m, u in known.items()} == {"case 1": (0.75, 4)}


def test_a_run_that_is_there_goes_on_under_its_own_settings(bank: MemoryBank, recorder: Recorder) -> None:
    with recorder.step("egg"):
        pass
    later = Recorder(bank, "mine", MemRLSettings(alpha=1.0))
    with later.step("toast") as s:
        pass
    assert (s.trace.step, s.trace.settings["alpha"]) == (2, ALPHA)


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_block_that_raises_is_stored_without_reward_and_goes_on(bank: MemoryBank, recorder: Recorder) -> None:
    a, *_ = three_memories(recorder)
    with pytest.raises(ZeroDivisionError), recorder.step("egg", embedding=a_vector(9)) as s:
        s.recalled([(a, 0.5)])
        s.selected([a])
        s.answered("half an")
        s.rewarded(1.0)
        _ = 1 / 0
    trace = bank.trace("mine", 1)
    assert trace.generate.turns[0].reply.text == "half an"
    assert trace.decision.selected == (a,)
    assert trace.reward.reward is None
    assert any("ZeroDivisionError" in lack for lack in trace.lacks)
    assert bank.utilities("mine")[a].visits == 0
    assert s.trace == trace


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda s, a: s.recalled(["nowhere"]), "“nowhere”"),
        (lambda s, a: s.recalled(["elsewhere"]), r"call remember"),
        (lambda s, a: s.recalled([a, a]), "named twice"),
        (lambda s, a: s.recalled([(a, 0.1, 0.2)]), "or as"),
        (lambda s, a: s.recalled([(a, math.nan)]), "nan"),
        (lambda s, a: s.recalled([(a, 7.5)]), "a cosine.* 7.5"),
        (lambda s, a: s.recalled([(a, 0.5)], k1=0), "pool size"),
        (lambda s, a: s.selected(a), "of ids"),
        (lambda s, a: s.selected([3]), "valid string.* 3"),
        (lambda s, a: s.selected(["nowhere"]), "“nowhere”"),
        (lambda s, a: s.selected([a], scores={a: 1.0}), "not recalled"),
        (lambda s, a: (s.recalled([]), s.selected([a])), "not recalled"),
        (lambda s, a: s.prompted([{"role": "wizard", "content": ""}]), "'wizard'"),
        (lambda s, a: s.prompted([], {"stop": {1, 2}}), "not JSON"),
        (lambda s, a: s.answered(None), "given: None"),
        (lambda s, a: s.answered("half \udc00"), "surrogates"),
        (lambda s, a: s.answered("", prompt_tokens=-1), "token count"),
        (lambda s, a: s.rewarded(True), "True"),
        (lambda s, a: s.rewarded(math.inf), "inf"),
        (lambda s, a: s.wrote("text"), "with one"),
        (lambda s, a: s.wrote("text", a), "has a memory .* already"),
    ],
)
def test_a_bad_call_is_a_sentence_and_the_step_keeps_what_it_had(
    bank: MemoryBank, recorder: Recorder, call: Any, sentence: str
) -> None:
    a, *_ = three_memories(recorder)
    Recorder(bank, "other").remember("x", "y", a_vector(5), memory_id="elsewhere")
    with recorder.step("egg") as s:
        with pytest.raises(InputError, match=sentence):
            call(s, a)
        s.answered("as before")
    assert s.trace.generate.turns[0].reply.text == "as before"
    assert s.trace.decision is None


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda r: r.step(" \n"), "not an intent"),
        (lambda r: r.step("egg", epoch=0), "epoch"),
        (lambda r: r.step("egg", embedding=[1.0, 2.0]), "8 numbers"),
        (lambda r: r.step("egg", embedding=["a"] * 8), "of numbers"),
        (lambda r: r.step("egg", embedding=[0.0] * 8), "all of it"),
        (lambda r: r.step("egg", embedding=[math.nan] * 8), "not finite"),
        (lambda r: r.remember("egg", "x", a_vector(1), q=math.nan), "not a q.*nan"),
        (lambda r: r.remember("egg", "x", a_vector(1), visits=-1), "visits"),
        (lambda r: r.remember("egg", "x", a_vector(1), memory_id="a\nb"), "printable characters"),
        (lambda r: r.remember("egg", "another", a_vector(1), memory_id="taken"), "another memory “taken”"),
        (lambda r: Recorder(r.bank, "a b"), "letters, digits"),
    ],
)
def test_a_bad_request_is_a_sentence_and_nothing_is_stored(recorder: Recorder, call: Any, sentence: str) -> None:
    recorder.remember("egg", "one", a_vector(1), memory_id="taken")
    before = recorder.bank.facts
    with pytest.raises(InputError, match=sentence):
        call(recorder)
    assert recorder.bank.facts == before


def test_calls_out_of_place_are_refused(recorder: Recorder) -> None:
    s = recorder.step("egg")
    with pytest.raises(StepError, match="`with`"):
        s.answered("early")
    with s:
        s.rewarded(1.0)
        s.selected([])
        with pytest.raises(StepError, match="called before"):
            s.rewarded(0.0)
        with pytest.raises(StepError, match="was selected"):
            s.recalled([])
        with pytest.raises(StepError, match="no trace before"):
            _ = s.trace
    with pytest.raises(StepError, match="`with`"):
        s.answered("late")
    with pytest.raises(StepError, match="begun already"), s:
        pass
    assert recorder.bank.next_step("mine") == 2
    with pytest.raises(UnknownRun):
        recorder.bank.run("yours")


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=8, max_size=8).filter(any))
def test_any_embedding_that_points_somewhere_becomes_a_unit_vector(numbers: list[float]) -> None:
    vector = unit(numbers, 8)
    assert vector.dtype == np.float32
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
    largest = int(np.abs(numbers).argmax())
    assert math.copysign(1, numbers[largest]) == math.copysign(1, vector[largest])


# --- threads, processes, and death ------------------------------------------------------------------------------------


def record(recorder: Recorder, who: str, steps: int, memory: str) -> None:
    for number in range(steps):
        with recorder.step(f"{who} {number}", embedding=a_vector(number)) as s:
            s.recalled([(memory, 0.5)])
            s.selected([memory])
            s.answered(who)
            s.rewarded(1.0)
            s.wrote(f"{who} did {number}")


def record_in_process(uri: str, who: str, steps: int, memory: str, together: Barrier) -> None:
    with MemoryBank.open(uri) as bank:
        recorder = Recorder(bank, "mine")
        together.wait(60)
        record(recorder, who, steps, memory)


def must_be_whole(uri: str, steps: int, memory: str) -> None:
    bank = MemoryBank.open(uri)
    traces = bank.traces("mine")
    assert [trace.step for trace in traces] == list(range(1, steps + 1))
    assert len({trace.task.intent for trace in traces}) == steps
    written = [op.memory_id for trace in traces for op in (trace.write.operations if trace.write else ())]
    assert len(set(written)) == steps
    q = 0.0
    for trace in traces:
        (change,) = trace.update.changes if trace.update else ()
        assert change.before == pytest.approx(q)
        q += ALPHA * (1.0 - q)
    assert bank.utilities("mine")[memory].q == pytest.approx(q)
    assert bank.utilities("mine")[memory].visits == steps
    assert bank.unfinished_steps("mine") == []
    assert [finding.sentence for finding in check(uri) if not finding.ok] == []


def test_threads_may_share_a_recorder(bank: MemoryBank, recorder: Recorder) -> None:
    memory = recorder.remember("egg", "boil it", a_vector(1))
    threads = [threading.Thread(target=record, args=(recorder, f"thread {n}", 5, memory)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    must_be_whole(bank.uri, 20, memory)


@pytest.mark.slow
def test_processes_number_their_steps_without_gaps_or_doubles(
    bank: MemoryBank, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tests of pages leave their script as the main module, and a new process would begin by running that.
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    memory = recorder.remember("egg", "boil it", a_vector(1))
    spawn = multiprocessing.get_context("spawn")
    together = spawn.Barrier(3)
    workers = [
        spawn.Process(target=record_in_process, args=(bank.uri, f"process {n}", 8, memory, together), daemon=True)
        for n in range(2)
    ]
    for worker in workers:
        worker.start()
    together.wait(60)
    record(recorder, "this process", 8, memory)
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0]
    must_be_whole(bank.uri, 24, memory)


@pytest.mark.slow
def test_a_step_left_open_by_a_kill_leaves_nothing_behind(bank: MemoryBank, recorder: Recorder) -> None:
    memory = recorder.remember("egg", "boil it", a_vector(1))
    before = MemoryBank.open(bank.uri).facts
    code = f"""
import time
from memrl_core.bank import MemoryBank
from memrl_core.agent.recorder import Recorder
from tests.small_banks import a_vector
with Recorder(MemoryBank.open({bank.uri!r}), "mine").step("never ends", embedding=a_vector(3)) as s:
    s.recalled([({memory!r}, 0.5)])
    s.selected([{memory!r}])
    s.rewarded(1.0)
    s.wrote("never kept")
    print("open", flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout.readline().strip() == "open"
        os.kill(victim.pid, signal.SIGKILL)
        assert victim.wait(30) == -signal.SIGKILL
    assert MemoryBank.open(bank.uri).facts == before
    record(recorder, "survivor", 2, memory)
    must_be_whole(bank.uri, 2, memory)


def test_a_run_of_this_programs_own_agent_can_be_continued(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "own", run="r", alpha=0.5)
    with Recorder(bank, "r").step("egg", embedding=a_vector(1)) as s:
        s.wrote("boil it")
    assert (s.trace.task.environment, s.trace.settings["alpha"]) == ("household", 0.5)
    assert bank.view("r").size == 1
