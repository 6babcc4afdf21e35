"""Recorder: other agents' steps as ordinary traces, from threads, processes, and agents that die."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrl_core.agent.recorder import Recorder, unit
from memrl_core.analysis.decision.explain import own_scores, warnings
from memrl_core.analysis.decision.labels import reason_sentence
from memrl_core.analysis.decision.outline import line
from memrl_core.analysis.decision.whatif import would_choose
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.errors import BankFull, InputError, StepError, UnknownRun
from memrl_core.exchange.new_banks import merge_runs
from memrl_core.figures.decision.recall import recall_picture
from memrl_core.records import Phase, WriteRecord
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


@pytest.fixture
def strict(bank: MemoryBank, recorder: Recorder) -> Recorder:
    return Recorder(bank, "mine", strict=True)


def cosine(one: int, other: int) -> float:
    return float(a_vector(one) @ a_vector(other))


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
        s.recalled([(a, -0.24), (b, -0.15), (c, 0.06)], k1=5, delta=0.05)
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
        (c, 0.06, 1),
        (b, -0.15, 2),
        (a, -0.24, 3),
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
        ("tool", "a plate"),
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
    parts = (trace.embed, trace.recall, trace.decision, trace.generate)
    assert parts == (None,) * 4
    assert (trace.reward.reward, trace.reward.source) == (None, None)
    assert len(trace.lacks) == len(set(trace.lacks)) == 6


def test_a_step_that_ends_without_writing_has_written_nothing_and_one_that_breaks_off_does_not_say(
    bank: MemoryBank, recorder: Recorder
) -> None:
    with recorder.step("heat the egg") as s:
        s.answered("no")
    with pytest.raises(ZeroDivisionError), recorder.step("heat the egg") as broken:
        _ = 1 / 0
    assert s.trace.write == WriteRecord(())
    assert not any("memory" in lack for lack in s.trace.lacks if "recalled" not in lack and "selected" not in lack)
    assert broken.trace.write is None


def test_a_similarity_that_was_not_reported_is_measured_and_said_to_be(bank: MemoryBank, recorder: Recorder) -> None:
    a, b, c = three_memories(recorder)
    with recorder.step("heat the egg", embedding=a_vector(9)) as s:
        s.recalled([a, (b, -0.16), c], k1=3, delta=-1)
    found = {m.memory_id: m.similarity for m in s.trace.recall.pool}
    assert found == {
        a: pytest.approx(cosine(0, 9), abs=1e-6),
        b: -0.16,
        c: pytest.approx(cosine(2, 9), abs=1e-6),
    }
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
        (lambda s, a: s.recalled(["elsewhere"]), r"remember\(\)"),
        (lambda s, a: s.recalled([a, a]), "named twice"),
        (lambda s, a: s.recalled([(a, 0.1, "egg", 2)]), "or as"),
        (lambda s, a: s.recalled([(a, math.nan)]), "nan"),
        (lambda s, a: s.recalled([(a, 7.5)]), "a cosine.* 7.5"),
        (lambda s, a: s.recalled([(a, 0.5)], k1=0), "pool size"),
        (lambda s, a: s.recalled(a), "of memories"),
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
def test_a_bad_call_of_a_strict_recorder_is_a_sentence_and_the_step_keeps_what_it_had(
    bank: MemoryBank, strict: Recorder, call: Any, sentence: str
) -> None:
    a, *_ = three_memories(strict)
    Recorder(bank, "other").remember("x", "y", a_vector(5), memory_id="elsewhere")
    with strict.step("egg") as s:
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
        (lambda r: Recorder(r.bank, "a b"), "A run.s name"),
    ],
)
def test_a_bad_request_to_a_strict_recorder_is_a_sentence_and_nothing_is_stored(
    strict: Recorder, call: Any, sentence: str
) -> None:
    strict.remember("egg", "one", a_vector(1), memory_id="taken")
    before = strict.bank.facts
    with pytest.raises(InputError, match=sentence):
        call(strict)
    assert strict.bank.facts == before


def test_a_strict_recorder_refuses_calls_out_of_place(strict: Recorder) -> None:
    s = strict.step("egg")
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
    assert strict.bank.next_step("mine") == 2
    with pytest.raises(UnknownRun):
        strict.bank.run("yours")


# --- scores that are no cosines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given_scores",
    [
        {"near": 12.7, "far": 3.2},
        {"near": 0.12, "far": 0.93},
        {"near": 0.0163, "far": 0.0161},
        {"near": 1.0, "far": 40.0},
        {"near": math.nan, "far": 7.0},
    ],
    ids=["bm25", "distance", "reciprocal rank", "one out of range", "one no number"],
)
def test_scores_that_are_no_cosines_stay_the_agents_own_in_its_order(
    bank: MemoryBank, recorder: Recorder, given_scores: dict[str, float]
) -> None:
    vectors = {"far": -a_vector(1), "near": a_vector(1)}
    for name in given_scores:
        recorder.remember(name, name, vectors[name], memory_id=name)
    with recorder.step("egg", embedding=a_vector(1)) as s:
        s.recalled(given_scores)
        s.selected(["near"], scores={name: score for name, score in given_scores.items() if score == score})
    (first, second), trace = s.trace.recall.pool, s.trace
    assert (first.memory_id, second.memory_id) == ("near", "far")
    assert (first.similarity, second.similarity) == (pytest.approx(1.0), pytest.approx(-1.0))
    kept = {"near": first.signal, "far": second.signal}
    assert kept == {name: None if score != score else score for name, score in given_scores.items()}
    assert trace.recall.rule == "own score"
    assert trace.decision.selected == trace.decision.greedy == ("near",)
    assert any("cosines" in lack and f"far {given_scores['far']:g}" in lack for lack in trace.lacks)
    assert "#" not in own_scores(trace.recall, "mine") and "near is nearest" in own_scores(trace.recall, "mine")
    (found,) = [finding for finding in check(bank.uri) if finding.name == "reported"]
    assert "step 1 of run mine" in found.sentence and found.remedy


def test_a_farther_memory_that_an_agent_ranks_first_is_a_finding_on_the_step(recorder: Recorder) -> None:
    recorder.remember("near", "near", a_vector(1), memory_id="near")
    recorder.remember("far", "far", -a_vector(1), memory_id="far")
    with recorder.step("egg", embedding=a_vector(1)) as s:
        s.recalled([("far", 0.93), ("near", 0.12)])
        s.selected(["far"])
    assert [(one.memory_id, one.rank_recall) for one in s.trace.recall.pool] == [("far", 1), ("near", 2)]
    assert "near is nearest" in warnings(s.trace.recall, s.trace.decision, "mine")[0]
    assert "ranked it last (2 of 2)" in warnings(s.trace.recall, s.trace.decision, "mine")[0]
    assert "0.93" in reason_sentence(s.trace.decision.candidates[0], s.trace.recall, s.trace.decision)


def test_cosines_within_two_hundredths_of_the_vectors_are_similarities(bank: MemoryBank, recorder: Recorder) -> None:
    recorder.remember("egg", "boil it", a_vector(1), memory_id="m")
    for off, rule in ((0.019, "similarity"), (0.021, "own score")):
        with recorder.step("egg", embedding=a_vector(2)) as s:
            s.recalled([("m", cosine(1, 2) + off)])
        assert s.trace.recall.rule == rule
    (found,) = [finding for finding in check(bank.uri) if finding.name == "reported"]
    assert "step 2 of run mine" in found.sentence and "step 1 of" not in found.sentence


def test_a_step_recorded_before_scores_were_compared_is_named_by_the_check(
    bank: MemoryBank, recorder: Recorder
) -> None:
    recorder.remember("egg", "boil it", a_vector(1), memory_id="m")
    with recorder.step("egg", embedding=a_vector(1)) as s:
        s.recalled([("m", 1.0)])
    (found,) = [finding for finding in check(bank.uri) if finding.name == "reported"]
    assert not found.remedy
    pool = (replace(s.trace.recall.pool[0], similarity=0.12),)
    older = replace(s.trace, id="older", step=2, recall=replace(s.trace.recall, pool=pool))
    bank.write.commit_step(older, {})
    bank.write.flush()
    (found,) = [finding for finding in check(bank.uri) if finding.name == "reported"]
    assert "step 2 of run mine" in found.sentence and found.remedy


KINDS = {
    "bm25": ({"far": 3.2, "near": 12.7}, ["near", "far"]),
    "dot": ({"far": -2.0, "near": 40.0}, ["near", "far"]),
    "distance": ({"far": 0.93, "near": 0.12}, ["near", "far"]),
    "rank": ({"far": 2, "near": 1}, ["near", "far"]),
    "other": ({"far": 0.0161, "near": 0.0163}, ["far", "near"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_a_declared_kind_rank_by_it_and_keep_their_name_and_numbers(recorder: Recorder, kind: Any) -> None:
    scores, order = KINDS[kind]
    for name, vector in {"far": -a_vector(1), "near": a_vector(1)}.items():
        recorder.remember(name, name, vector, memory_id=name)
    with recorder.step("egg", embedding=a_vector(1)) as s:
        s.recalled(scores, kind=kind)
        s.selected(["near"])
    recall, (retrieval,) = s.trace.recall, s.trace.retrievals
    assert [one.memory_id for one in recall.pool] == [one.memory_id for one in retrieval.hits] == order
    assert {one.memory_id: one.signal for one in recall.pool} == scores
    assert {one.memory_id: (one.score, round(one.cosine, 5)) for one in retrieval.hits} == {
        "near": (scores["near"], 1.0),
        "far": (scores["far"], -1.0),
    }
    name = "score" if kind == "other" else kind
    assert (recall.rule, recall.signal, retrieval.kind) == ("own score", name, kind)
    assert "similarity" not in line(s.trace, Phase.RECALL) and name in line(s.trace, Phase.RECALL)
    picture = recall_picture(recall, s.trace.decision, {}, "mine")
    assert [*picture.table[name]] == [scores[one] for one in order] and "similarity" not in picture.table
    assert f"{name} {scores['near']:g} · cosine 1.000" in {text for bar in picture.figure.data for text in bar.text}


def test_a_named_signal_is_of_its_kind_and_a_cosine_only_where_the_vectors_agree(recorder: Recorder) -> None:
    recorder.remember("egg", "boil it", a_vector(1), memory_id="m")
    given = [("bm25", 0.5), ("dense", cosine(1, 2)), ("rrf", 0.0163)]
    for name, score in given:
        with recorder.step("egg", embedding=a_vector(2)) as s:
            s.recalled([("m", score)], signal=name)
        assert (s.trace.retrievals[0].name, s.trace.retrievals[0].hits[0].score) == (name, score)
    assert [recorder.bank.trace("mine", n).retrievals[0].kind for n in (1, 2, 3)] == ["bm25", "cosine", "other"]
    with recorder.step("egg") as s:
        s.recalled([("m", 0.0163)], signal="rrf")
    assert s.trace.recall is None and s.trace.retrievals[0].hits[0].score == 0.0163
    assert "rrf" in line(s.trace, Phase.RECALL)


def test_several_signals_and_their_total_are_the_terms_of_the_agents_ranking(recorder: Recorder) -> None:
    for n, name in enumerate("abc", start=1):
        recorder.remember(name, name, a_vector(n), memory_id=name)
    words, dense = {"a": 12.7, "b": 3.2}, {"b": 0.9, "c": 0.8}
    with recorder.step("egg", embedding=a_vector(9)) as s:
        s.recalled(words, signal="bm25")
        s.recalled(dense, kind="other", signal="dense", query="an egg", asked_by="a tool", scope="only user 7's")
        s.scored(
            {"c": 1.7, "a": 1.27, "b": 1.22}, parts={"bm25": words, "age": {"c": 1.7, "b": 0.9}}, weights={"bm25": 0.1}
        )
        s.selected(["c", "a"])
    trace = s.trace
    assert [(r.name, r.query, r.asked_by, len(r.hits)) for r in trace.retrievals] == [
        ("bm25", "", "", 2),
        ("dense", "an egg", "a tool", 2),
        ("age", "", "", 2),
    ]
    assert all(r.at for r in trace.retrievals) and trace.retrievals[1].hits[0].cosine is None
    assert [one.memory_id for one in trace.recall.pool] == ["c", "a", "b"]
    assert (trace.recall.signal, trace.recall.why) == ("total", "only user 7's")
    best = trace.decision.candidates[0]
    assert (best.memory_id, best.score, [(t.name, t.contribution) for t in best.terms]) == (
        "c",
        1.7,
        [("bm25", 0.0), ("age", 1.7)],
    )
    assert MemoryBank.open(recorder.bank.uri).trace("mine", 1) == trace


def test_a_later_retrieval_of_a_step_adds_to_what_was_recalled_and_selected(recorder: Recorder) -> None:
    a, b, _ = three_memories(recorder)
    with recorder.step("egg", embedding=a_vector(9)) as s:
        s.recalled([a])
        s.selected([a])
        s.answered("look it up")
        s.recalled([b], query="pans", asked_by="turn 2")
        s.selected([b])
        s.rewarded(1.0)
    assert (s.trace.decision.selected, s.trace.reward.credited) == ((a, b), (a, b))
    assert len(s.trace.recall.pool) == len(s.trace.retrievals) == 2


def test_a_recorded_step_that_recalled_nothing_does_not_say_that_there_are_no_memories(bank: MemoryBank) -> None:
    Recorder(bank, "other").remember("egg", "boil it", a_vector(1))
    recorder = Recorder(bank, "mine")
    with recorder.step("egg", embedding=a_vector(1)) as s:
        s.recalled([])
    assert line(s.trace, Phase.RECALL) == "the agent recalled no memory"


def test_scores_out_of_range_without_a_vector_leave_phase_a_out_and_are_named(recorder: Recorder) -> None:
    recorder.remember("egg", "boil it", a_vector(1), memory_id="m")
    with recorder.step("egg") as s:
        s.recalled([("m", 12.7)])
        s.selected(["m"])
    assert s.trace.recall is None and s.trace.reward.credited == ("m",)
    assert any("m 12.7" in lack for lack in s.trace.lacks)


# --- what cannot be used ----------------------------------------------------------------------------------------------


class Evil:
    """A value that fails at every touch."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("evil")

    def __iter__(self) -> Any:
        yield "m"
        raise RuntimeError("evil")

    __len__ = __repr__ = __str__ = __bool__ = __eq__ = __hash__ = __iter__  # type: ignore[assignment]


JUNK = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.integers(10**300, 10**301), st.floats(), st.binary(max_size=3),
        st.text(st.characters(exclude_categories=()), max_size=4), st.sampled_from(["m", "n", "gone", {1}]),
        st.builds(Evil), st.just(Evil),
        st.just(np.float32(0.5)), st.just(np.zeros(DIMENSION)), st.just(np.full(DIMENSION, 1e300)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner, inner), st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=5,
)  # fmt: skip


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_nothing_that_is_passed_raises_into_the_agent_and_every_step_is_kept(bank: MemoryBank, data: Any) -> None:
    recorder = Recorder(bank, "mine")
    recorder.remember("egg", "boil it", a_vector(1), memory_id="m")
    recorder.remember("egg", "fry it", a_vector(2), memory_id="n")
    junk = lambda: data.draw(JUNK)  # noqa: E731
    number = bank.next_step("mine")
    recorder.remember(junk(), junk(), junk(), memory_id=junk(), q=junk(), visits=junk())
    recorder.remember("egg", "poach it", a_vector(3), memory_id=junk(), q=junk(), visits=junk())
    embedding = data.draw(st.one_of(st.just(a_vector(4)), JUNK))
    with recorder.step(junk(), embedding=embedding, task=junk(), epoch=junk()) as s:
        s.recalled(data.draw(st.one_of(JUNK, st.dictionaries(st.sampled_from("mng"), JUNK))), k1=junk(), delta=junk())
        s.selected(data.draw(st.one_of(JUNK, st.lists(st.sampled_from("mng")))), scores=junk(), q=junk())
        s.prompted(data.draw(st.one_of(JUNK, st.lists(st.fixed_dictionaries({"role": JUNK, "content": JUNK})))), junk())
        s.answered(junk(), prompt_tokens=junk(), answer_tokens=junk(), observation=junk())
        s.rewarded(junk(), junk())
        s.wrote(junk(), junk())
        getattr(s, data.draw(st.sampled_from(["recalled", "rewarded", "wrote"])))(junk(), surprise=junk())
    s.answered("late")
    assert bank.trace("mine", number) == s.trace
    assert any("wrote" in lack or "rewarded" in lack or "recalled" in lack for lack in s.trace.lacks)
    assert MemoryBank.open(bank.uri).trace("mine", number) == s.trace


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda s: s.recalled(["m", "gone"]), "“gone”"),
        (lambda s: s.recalled(["m", "m"]), "twice"),
        (lambda s: s.recalled([("m", math.nan)]), "nan"),
        (lambda s: (s.recalled(["m"]), s.recalled(["n"], kind="karma")), "“karma” is no kind"),
        (lambda s: (s.recalled(["m"]), s.scored({"n": 1.0})), "“n”"),
        (lambda s: s.selected(["m", "gone"]), "“gone”"),
        (lambda s: (s.recalled(["m"]), s.selected(["m", "n"])), "“n”"),
        (lambda s: (s.recalled(["m"]), s.selected(["m"], q={"m": math.nan})), "a q of “m”"),
        (lambda s: s.prompted([{"role": "wizard", "content": "x"}, {"role": "user", "content": "y"}]), "wizard"),
        (lambda s: s.answered(None), "answer"),
        (lambda s: s.rewarded(math.nan), "a reward"),
        (lambda s: s.rewarded(1e300), "a reward"),
        (lambda s: s.wrote("text", "m"), "“m” already"),
        (lambda s: s.wrote(7), "an experience"),
        (lambda s: s.answered("x", tokens=3), "tokens"),
    ],
)
def test_what_cannot_be_used_is_a_sentence_of_the_step_and_the_rest_is_kept(
    bank: MemoryBank, recorder: Recorder, call: Any, named: str
) -> None:
    recorder.remember("egg", "boil it", a_vector(1), memory_id="m")
    recorder.remember("egg", "fry it", a_vector(2), memory_id="n")
    with recorder.step("egg", embedding=a_vector(3)) as s:
        call(s)
        s.answered("as before")
    (sentence,) = [lack for lack in s.trace.lacks if "(): " in lack]
    assert named in sentence
    if s.trace.recall is not None:
        assert s.trace.recall.pool[0].memory_id == "m"
    if s.trace.decision is not None:
        assert s.trace.decision.selected == ("m",)
    assert s.trace.reward.reward is None
    assert s.trace.generate.turns[-1].reply.text == "as before"
    if s.trace.operations:
        assert bank.memory(s.trace.operations[0].memory_id).experience == "text"


def test_a_reward_off_the_scale_of_the_run_counts_as_given_and_is_named(bank: MemoryBank, recorder: Recorder) -> None:
    recorder.remember("egg", "boil it", a_vector(1), memory_id="m")
    for reward, named in ((5.0, 1), (1.0, 0)):
        with recorder.step("egg") as s:
            s.selected(["m"])
            s.rewarded(reward)
        assert s.trace.reward.reward == reward
        assert sum("scale" in lack for lack in s.trace.lacks) == named
    assert bank.utilities("mine")["m"].q == pytest.approx(ALPHA * 1.0 + (1 - ALPHA) * ALPHA * 5.0)


def test_a_text_with_half_a_character_is_kept_with_the_rest(recorder: Recorder) -> None:
    with recorder.step("egg \ud800") as s:
        s.answered("half \udc00")
    assert s.trace.task.intent == "egg \ufffd"
    assert s.trace.generate.turns[0].reply.text == "half \ufffd"
    assert sum("surrogates" in lack for lack in s.trace.lacks) == 2


def test_a_text_that_is_too_long_is_kept_from_its_beginning(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrl_core.agent.recorder.LONGEST_TEXT", 20)
    with recorder.step("egg") as s:
        s.answered("0123456789" * 3)
    assert s.trace.generate.turns[0].reply.text == "0123456789" * 2
    assert any("at most 20 characters" in lack for lack in s.trace.lacks)


def test_what_failed_between_steps_is_kept_by_the_next_step_and_by_no_other(recorder: Recorder) -> None:
    with recorder.step("egg") as first:
        pass
    first.rewarded(1.0)
    assert recorder.remember("egg", "boil it", [math.nan] * DIMENSION, memory_id="m") == "m"
    assert recorder.remember("egg", "boil it", a_vector(1), memory_id="kept", q=math.nan) == "kept"
    steps = []
    for _ in range(2):
        with recorder.step("egg") as s:
            s.recalled(["m"])
        steps.append([lack for lack in s.trace.lacks if "before this step" in lack])
    assert [len(lacks) for lacks in steps] == [3, 0]
    assert "rewarded" in steps[0][0] and "remember" in steps[0][1] and "remember" in steps[0][2]
    assert recorder.bank.utilities("mine")["kept"].q == 0.0


def test_a_thousand_reports_that_cannot_be_used_stay_a_short_list(recorder: Recorder) -> None:
    with recorder.step("egg") as s:
        for _ in range(1000):
            s.rewarded(math.nan)
    assert len(s.trace.lacks) < 100
    assert any("950 more" in lack for lack in s.trace.lacks)


def test_a_bank_that_fails_does_not_stop_the_agent_and_its_own_error_passes(bank: MemoryBank) -> None:
    recorder = Recorder(bank, "mine")
    recorder.remember("egg", "boil it", a_vector(1), memory_id="m")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bank.write, "commit_step", _full)
        with recorder.step("egg") as lost:
            lost.answered("of no use")
        mine = ValueError("the agent's own")
        with pytest.raises(ValueError) as caught, recorder.step("egg"):
            raise mine
    assert caught.value is mine and not hasattr(mine, "__notes__")
    with pytest.raises(StepError):
        _ = lost.trace
    with recorder.step("egg") as s:
        pass
    assert s.trace.step == 3
    lacks = [lack for trace in bank.traces("mine") for lack in trace.lacks]
    assert sum("could not be stored: The disk is full" in lack for lack in lacks) == 2
    first, second = bank.traces("mine", (1, 2))
    assert first.generate.turns[0].reply.text == "of no use"
    assert all(any("waited in" in lack for lack in trace.lacks) for trace in (first, second))
    assert any("ValueError ended it" in lack for lack in second.lacks)


def test_what_a_bank_cannot_take_waits_beside_it_and_is_stored_whole_by_the_next_process(
    bank: MemoryBank, recorder: Recorder
) -> None:
    recorder.remember("egg", "boil it", a_vector(1), memory_id="m", q=0.5)
    beside = Path(f"{bank.uri}.recorded.jsonl")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bank.write, "commit_step", _full)
        patched.setattr(bank.write, "adopt", _full)
        assert recorder.remember("pan", "oil it", a_vector(2), memory_id="late") == "late"
        with recorder.step("egg", embedding=a_vector(1), task="t") as s:
            s.recalled([("m", 12.7)], kind="bm25")
            s.selected(["m"], scores={"m": 12.7})
            s.answered("boil", prompt_tokens=4)
            s.rewarded(1.0, "good")
            s.wrote("boiled it", "new")
            s.rewarded("nonsense")
    assert [json.loads(text)["call"] for text in beside.read_text().splitlines()] == ["remember", "step"]
    with beside.open("a") as lines:
        lines.write('{"run": "mine", "call": "st')
    with MemoryBank.open(bank.uri) as other:
        Recorder(other, "mine")
        trace = other.trace("mine", 1)
        assert (trace.retrievals[0].hits[0].score, trace.recall.signal, trace.decision.selected) == (
            12.7,
            "bm25",
            ("m",),
        )
        assert (trace.reward.reward, trace.reward.verdict, trace.task.id) == (1.0, "good", "t")
        assert trace.generate.turns[0].reply.prompt_tokens == 4
        assert other.memory("new").experience == "boiled it" and other.memory("late").experience == "oil it"
        assert other.utilities("mine")["m"].q == pytest.approx(0.5 + ALPHA * 0.5)
        assert any("rewarded()" in lack for lack in trace.lacks)
        Recorder(other, "mine")
        assert len(other.steps.rows("mine")) == 1
    assert beside.read_text() == '{"run": "mine", "call": "st\n'


def test_an_agent_waits_once_for_a_process_that_writes_for_long(
    bank: MemoryBank, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrl_core.bank.storage.connecting.PATIENCE", 0.2)
    monkeypatch.setattr("memrl_core.agent.recorder.BUSY", 0.05)
    with closing(sqlite3.connect(Path(bank.uri) / "bank.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with recorder.step("egg", id="first"):
            pass
        with recorder.step("pan"):
            pass
        recorder.remember("egg", "boil it", a_vector(1), memory_id="m")
        recorder.reward("first", 1.0)
        other.execute("ROLLBACK")
    with recorder.step("toast") as last:
        last.recalled(["m"])
    assert [trace.task.intent for trace in bank.traces("mine")] == ["egg", "pan", "toast"]
    assert bank.ratings.effective("mine", 1) == 1.0 and bank.memory("m").experience == "boil it"
    waited = [lack for lack in (*bank.trace("mine", 1).lacks, *last.trace.lacks) if "could not be stored" in lack]
    assert ["is still writing" in lack for lack in waited] == [False, True, True, True]


def test_a_recorder_of_a_bank_that_cannot_be_written_begins_its_run_later(bank: MemoryBank) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bank.write, "start_run", _full)
        with pytest.raises(BankFull):
            Recorder(bank, "mine", strict=True)
        recorder = Recorder(bank, "mine")
        recorder.remember("egg", "boil it", a_vector(1), memory_id="m")
        with recorder.step("egg", embedding=a_vector(1)) as s:
            s.recalled([("m", 12.7)], kind="bm25")
    assert bank.runs() == []
    with recorder.step("pan"):
        pass
    first, second = bank.traces("mine")
    assert (first.retrievals[0].hits[0].score, second.task.intent, bank.memory_ids()) == (12.7, "pan", ["m"])


def test_what_is_recorded_into_a_bank_that_was_deleted_waits_until_it_is_back(
    bank: MemoryBank, recorder: Recorder
) -> None:
    recorder.remember("egg", "boil it", a_vector(1), memory_id="m")
    away = Path(f"{bank.uri}-away")
    Path(bank.uri).rename(away)
    with recorder.step("egg", embedding=a_vector(1)) as lost:
        lost.recalled([("m", 12.7)], kind="bm25")
        lost.called("timer", {"minutes": 4}, "rings")
    recorder.remember("pan", "oil it", a_vector(2), memory_id="late")
    with pytest.raises(StepError):
        _ = lost.trace
    assert not Path(bank.uri).exists()
    away.rename(bank.uri)
    with recorder.step("pan") as s:
        pass
    first = bank.trace("mine", 1)
    assert s.trace.step == 2 and "late" in bank.memory_ids() and first.retrievals[0].hits[0].score == 12.7
    assert [tool.result for tool in first.turns[0].tools] == ["rings"]
    lacks = [lack for trace in (first, s.trace) for lack in trace.lacks]
    assert sum("deleted, moved or replaced" in lack for lack in lacks) == 2


def test_a_report_that_does_not_fit_stops_no_other_and_a_line_cut_short_spoils_none(
    bank: MemoryBank, recorder: Recorder
) -> None:
    beside = Path(f"{bank.uri}.recorded.jsonl")
    beside.write_text('{"run": "mine", "call": "step", "given": {}}\n{"run": "mine", "call": "st')
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bank.write, "commit_step", _full)
        with recorder.step("egg") as s:
            s.answered("boil")
    with recorder.step("pan"):
        pass
    assert [trace.task.intent for trace in bank.traces("mine")] == ["egg", "pan"]
    assert len(beside.read_text().splitlines()) == 2


def test_what_threads_report_while_the_bank_fails_is_stored_once_each(bank: MemoryBank, recorder: Recorder) -> None:
    commit, count = bank.write.commit_step, iter(range(10**6))

    def now_and_then(*given: Any) -> Any:
        if next(count) % 3:
            raise BankFull("The disk is full.")
        return commit(*given)

    def report(number: int) -> None:
        with recorder.step(f"task {number}") as s:
            s.answered("x")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bank.write, "commit_step", now_and_then)
        patched.setattr("memrl_core.agent.recorder._append", _no_file)
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(report, range(24)))
    report(24)
    assert sorted(trace.task.intent for trace in bank.traces("mine")) == sorted(f"task {n}" for n in range(25))


@pytest.mark.slow
def test_a_full_disk_loses_no_step(tmp_path: Path) -> None:
    program = """
import os, resource, sys
from memrl_core import Bank, Recorder
bank = Bank.create(sys.argv[1], "x", 4)
recorder = Recorder(bank, "r")
def report(number):
    with recorder.step(f"task {number}", embedding=[1.0, 0, 0, number]) as s:
        s.answered("word " * 2000)
report(0)
largest = max(os.path.getsize(os.path.join(place, name)) for place, _, names in os.walk(sys.argv[1]) for name in names)
resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 20_000, resource.RLIM_INFINITY))
for number in range(1, 30):
    report(number)
stored = bank.next_step("r") - 1
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
report(30)
print(stored, sorted(int(trace.task.intent.split()[1]) for trace in bank.traces("r")) == list(range(31)))
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "bank")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    stored, all_of_them = done.stdout.split()
    assert int(stored) < 30 and all_of_them == "True"


def _no_file(*_: Any) -> None:
    raise OSError("The disk is full.")


def test_a_step_recorded_in_the_background_is_stored_once_the_recorder_is_closed(bank: MemoryBank) -> None:
    with Recorder(bank, "mine", background=True) as recorder:
        with recorder.step("egg") as first:
            first.answered("boil")
        with recorder.step("pan"):
            pass
    assert [trace.task.intent for trace in bank.traces("mine")] == ["egg", "pan"]
    assert first.trace.step == 1


def _full(*_: Any) -> None:
    raise BankFull("The disk is full.")


def test_a_block_that_is_entered_twice_is_stored_once(recorder: Recorder) -> None:
    with recorder.step("egg") as s, s:
        s.answered("once")
    assert recorder.bank.next_step("mine") == 2
    assert any("begun already" in lack for lack in s.trace.lacks)


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
    assert bank.steps.unfinished("mine") == []
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


# --- tools, operations, late rewards ----------------------------------------------------------------------------------


def test_tools_and_what_a_turn_cost_stand_with_their_turn(recorder: Recorder) -> None:
    with recorder.step("egg") as s:
        s.called("clock", result="noon")
        s.answered("search", prompt_tokens=3, seconds=1.5, cost=0.25)
        s.called("search", {"q": "egg"}, ["a", 1])
        s.answered("boil it", cost=math.nan)
    first, last = recorder.bank.trace("mine", 1).turns
    assert [(t.name, t.arguments, t.result) for t in first.tools] == [
        ("clock", "", "noon"),
        ("search", '{"q": "egg"}', '["a", 1]'),
    ]
    assert (first.reply.seconds, first.reply.cost, last.reply.cost, last.tools) == (1.5, 0.25, None, ())
    assert any("a cost" in lack for lack in s.trace.lacks)


def test_operations_on_memories_leave_the_old_text_for_the_steps_that_had_it(recorder: Recorder) -> None:
    bank = recorder.bank
    for n, name in enumerate("abcd", start=1):
        recorder.remember(name, f"text {name}", a_vector(n), memory_id=name, q=n / 10)
    with recorder.step("egg", embedding=a_vector(9)) as old:
        old.recalled(["a", "d"])
    with recorder.step("tidy up") as s:
        s.wrote("text a, newer", "a", op="update", reason="it changed")
        s.wrote("b and c", op="merge", replaces=["b", "c"], metadata={"user": 7})
        s.wrote("instead of d", "e", op="supersede", replaces="d")
        s.wrote("of nothing", op="update", replaces=["nowhere"])
    assert [(o.op, o.memory_id, o.replaces) for o in s.trace.operations] == [
        ("UPDATE", "a~2", ("a",)),
        ("MERGE", "b~2", ("b", "c")),
        ("ADD", "e", ()),
        ("DELETE", "", ("d",)),
    ]
    assert s.trace.operations[3].data == {"replaced_by": "e"} and any("nowhere" in lack for lack in s.trace.lacks)
    assert set(bank.utilities("mine")) == {"a~2", "b~2", "e"} and bank.utilities("mine")["a~2"].q == 0.1
    assert bank.metadata("mine") == {"b~2": {"user": 7}}
    assert bank.memory("d").experience == "text d" and old.trace.recall.pool[0].memory_id in "ad"
    for agent in (recorder, Recorder(bank, "mine")):
        with agent.step("egg", embedding=a_vector(9)) as s:
            s.recalled([("a", 0.9), ("d", 0.8)], kind="other")
        assert [(hit.memory_id, hit.known) for hit in s.trace.retrievals[0].hits] == [("a~2", True), ("d", False)]
    with recorder.step("tidy up") as s:
        s.wrote(op="delete", replaces=["a"])
    assert set(bank.utilities("mine")) == {"b~2", "e"}


def test_what_is_known_of_a_memory_goes_with_it_to_what_replaces_it_and_to_other_runs(recorder: Recorder) -> None:
    bank = recorder.bank
    for n, name in enumerate("abc", start=1):
        about = {"user": 7, "tags": [name]}
        recorder.remember(name, f"text {name}", a_vector(n), memory_id=name, metadata=about)
    before = bank.metadata("mine")
    bank.write.start_run(replace(bank.run("mine"), id="ours", base="mine", base_step=0))
    with recorder.step("tidy up") as s:
        s.wrote("text b and c", op="merge", replaces=["b", "c"])
    bank.write.editing.edit("mine", "a", "a", "text a, corrected", HashingEmbedder(DIMENSION), "ann")
    assert bank.metadata("mine") == {**before, "a.2": {"user": 7, "tags": ["a"]}, "b~2": {"user": 7}}
    assert bank.metadata("ours") == before
    merge_runs(bank, "ours", "mine")
    assert bank.metadata("merged") == {**before, "a.2": {"user": 7, "tags": ["a"]}, "b~2": {"user": 7}}


def test_what_an_agent_reports_of_one_memory_reads_no_others(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = recorder.bank
    recorder.remember("egg", "boil it", a_vector(1), memory_id="m")
    asked, raw = [], bank._database.raw
    monkeypatch.setattr(bank._database, "raw", lambda query, *given: asked.append(query) or raw(query, *given))
    recorder.remember("egg", "boil it", a_vector(1), memory_id="m")
    recorder.remember("pan", "oil it", a_vector(2))
    with recorder.step("egg", embedding=a_vector(1)) as s:
        s.wrote("fry it", "n")
        s.wrote("bake it", "m")
    assert set(bank.utilities("mine")) == {"m", "n", "mine-0001", "mine-0002"}
    assert any("“m” already" in lack for lack in s.trace.lacks)
    assert not [query for query in asked if "DISTINCT memory_id" in query]


def test_a_reward_that_comes_late_moves_q_once_and_finds_its_step_by_the_agents_own_id(
    bank: MemoryBank, recorder: Recorder, strict: Recorder
) -> None:
    recorder.remember("egg", "boil it", a_vector(1), memory_id="m", q=0.5, metadata={"user": 7, "tags": ["a"]})
    assert bank.metadata("mine") == {"m": {"user": 7, "tags": ["a"]}}
    with recorder.step("egg", embedding=a_vector(1), id="call-1") as s:
        s.recalled(["m"])
        s.selected(["m"])
    with strict.step("egg"):
        pass
    for _ in range(2):
        recorder.reward("call-1", 1.0, reason="it worked")
    assert bank.ratings.effective("mine", 1) == 1.0
    assert bank.utilities("mine")["m"].q == pytest.approx(0.5 + ALPHA * 0.5)
    for call in (("call-1", 0.0), ("call-9", 1.0), (9, 1.0), (1, math.nan), (None, 1.0)):
        with pytest.raises(InputError):
            strict.reward(*call)
        recorder.reward(*call)
    strict.reward(1, -1.0, rater="Ann")
    assert {event.rater: event.value for event in bank.ratings.of("mine", 1)} == {"": 1.0, "Ann": -1.0}
    with pytest.raises(InputError, match="call-1"):
        strict.step("egg", id="call-1")
    with recorder.step("egg", id="call-1") as again:
        pass
    assert again.trace.step == 3 and sum("reward()" in lack for lack in again.trace.lacks) == 5


def test_steps_with_reports_that_could_not_be_used_are_counted(bank: MemoryBank, recorder: Recorder) -> None:
    with recorder.step("egg") as s:
        s.rewarded(math.nan)
        s.wrote(7)
    with recorder.step("egg"):
        pass
    assert bank.steps.unusable_reports("mine") == 1


def test_what_our_rules_would_have_chosen_stands_beside_another_agents_choice(recorder: Recorder) -> None:
    recorder.remember("near", "near", a_vector(1), memory_id="near")
    recorder.remember("far", "far", -a_vector(1), memory_id="far")
    for embedding, ours in ((a_vector(1), "near"), (None, None)):
        with recorder.step("egg", embedding=embedding) as s:
            s.recalled([("far", 12.7)], kind="bm25")
            s.selected(["far"])
        found = would_choose(recorder.bank, s.trace)
        assert found is None if ours is None else found is not None and found[0] == ours
