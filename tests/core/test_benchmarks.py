"""Benchmarks measure the real thing; how fast it is belongs to no test."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import headless, ratings, retrieval, step, suite, synthetic, whole_run
from benchmarks.measuring import Row, Sizes
from benchmarks.results import results_of
from benchmarks.suite import BENCHMARKS, DEFAULT, benchmark, run_benchmarks
from benchmarks.synthetic import RATED_EACH, RATERS, RUN, SETTINGS, rated_bank, synthetic_bank
from memrl_core.analysis.later_selections import compiled
from memrl_core.analysis.uses import uses
from memrl_core.bank import MemoryBank
from memrl_core.bank.integrity import check
from memrl_core.bank.ratings import Rating
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import InputError
from memrl_core.experiments.machine import this_machine, this_moment
from memrl_core.policies.methods.memrl import MemRL
from tests.builders import an_agent

MEMORIES, STEPS = 40, 30
TINY = Sizes(memories=8, steps=5, repeat=1, dimension=16)


@cache
def measured(name: str) -> tuple[Row, ...]:
    """What a benchmark finds of as little as can be."""
    return tuple(run_benchmarks([name], TINY))


def test_a_synthetic_bank_is_sound_and_as_large_as_asked() -> None:
    with synthetic_bank(MEMORIES, STEPS) as bank:
        assert len(bank.memories(RUN)) == MEMORIES
        assert [row.step for row in bank.step_rows(RUN)] == list(range(1, STEPS + 1))
        assert len(uses(bank, RUN)) == STEPS * SETTINGS.k1
        bank.flush()
        assert all(finding.ok for finding in check(bank.uri))


def test_the_rewards_of_a_synthetic_bank_move_its_q() -> None:
    with synthetic_bank(MEMORIES, STEPS) as bank:
        visits = sum(known.visits for known in bank.utilities(RUN).values())
        assert visits == STEPS * SETTINGS.k2
        assert bank.utilities(RUN) != bank.utilities(RUN, as_of=0)


def test_the_same_seed_makes_the_same_bank_and_another_another() -> None:
    with (
        synthetic_bank(MEMORIES, 5) as one,
        synthetic_bank(MEMORIES, 5) as two,
        synthetic_bank(MEMORIES, 5, 1) as other,
    ):
        assert one.traces(RUN) == two.traces(RUN)
        assert one.utilities(RUN) == two.utilities(RUN)
        assert np.array_equal(one.view(RUN).embeddings, two.view(RUN).embeddings)
        assert not np.array_equal(one.view(RUN).embeddings, other.view(RUN).embeddings)


def test_a_synthetic_bank_vanishes() -> None:
    with synthetic_bank(2) as bank:
        folder = Path(bank.uri).parent
        assert folder.is_dir()
    assert not folder.exists()


def test_a_rated_bank_is_sound_and_each_of_its_people_has_rated_some_steps() -> None:
    with rated_bank(MEMORIES, 2 * RATED_EACH) as bank:
        assert bank.next_step(RUN) == 2 * RATED_EACH + 1
        assert {rater: len(bank.deeds.done(rater)) for rater in RATERS} == dict.fromkeys(RATERS, 2)
        assert sum(known.visits for known in bank.utilities(RUN).values()) > 0
        assert all(finding.ok for finding in check(bank.uri))


def test_a_bank_made_in_portions_is_one_bank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "MEMORIES_AT_ONCE", 7)
    monkeypatch.setattr(synthetic, "SIMILARITIES_AT_ONCE", 100)
    with synthetic_bank(MEMORIES, 5, dimension=6) as bank:
        view = bank.view(RUN)
        assert view.ids == [f"m-{number:06d}" for number in range(MEMORIES)]
        assert view.embeddings.shape == (MEMORIES, 6)
        assert np.allclose(np.linalg.norm(view.embeddings, axis=1), 1)
        for trace in bank.traces(RUN):
            nearest = np.argsort(-(view.embeddings @ np.array(trace.embed.embedding)))[: SETTINGS.k1]
            assert {c.memory_id for c in trace.recall.pool} == {view.ids[row] for row in nearest}
        assert all(finding.ok for finding in check(bank.uri))


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFAULT)
def test_a_benchmark_measures_each_time_beside_its_reference(name: str) -> None:
    found = measured(name)
    assert {row.benchmark for row in found} == {name} == {benchmark(name).NAME}
    for row in found:
        assert np.isfinite(row.seconds).all() and row.memories >= 1
        assert row.reference and len(row.reference_seconds) >= 1 if row.seconds else row.value is not None and row.unit
    assert any(row.aim for row in found)
    assert all(row.peak_mb is None or row.peak_mb > 1 for row in found)
    assert len({(row.what, row.memories, row.dimension, row.size) for row in found}) == len(found)


@pytest.mark.slow
def test_a_step_is_measured_beside_an_append_at_first_and_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "GROUP", 3)
    monkeypatch.setattr(step, "WARM_UP", 1)
    found = {row.what: row for row in run_benchmarks(["step"], TINY)}
    first, later = found["a step without model and world"], found["the same, later"]
    assert len(first.seconds) == len(first.reference_seconds) == len(later.seconds) == 3
    assert found["a step later, against one at first"].reference_seconds == first.seconds
    assert (found["growth on disk ÷ bytes of the facts"].value or 0) > 0
    assert all(row.aim for what, row in found.items() if what != "the same, later")
    assert all(row.peak_mb for row in found.values())


def test_the_file_of_a_retrieval_has_what_others_read_in_it() -> None:
    kept = json.loads(results_of(measured("retrieval"), this_machine(), this_moment()).model_dump_json())
    assert set(kept) == {"machine", "date", "rows"}
    (exact,) = [row for row in kept["rows"] if row["what"] == "phases A+B exact"]
    assert (exact["memories"], exact["dimension"]) == (TINY.memories, TINY.dimension)
    assert all(exact[key] > 0 for key in ("ratio_median", "median_s", "p95_s", "peak_mb"))
    assert all(row["peak_mb"] for row in kept["rows"])


def test_a_recall_multiplies_the_only_copy_of_the_vectors() -> None:
    with synthetic_bank(2000) as bank:
        view = bank.view(RUN)
        assert np.shares_memory(view.embeddings, bank._known.mirror._matrix)
        policy, query = MemRL(SETTINGS), view.embeddings[7].copy()
        policy.recall(query, view)
        tracemalloc.start()
        policy.recall(query, view)
        further = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert further < view.embeddings.nbytes / 10


@pytest.mark.slow
def test_what_a_process_holds_of_a_bank_is_counted_in_copies_of_its_vectors() -> None:
    with synthetic_bank(MEMORIES, dimension=16) as bank:
        bank.close()
        (row,) = retrieval.held(bank.uri, MEMORIES, 16)
    assert row.unit == "copies of the vectors" and row.aim is None and np.isfinite(row.value or np.nan)


def test_the_whole_run_questions_are_asked_of_every_step() -> None:
    with synthetic_bank(MEMORIES, STEPS) as bank:
        before, after = whole_run.calibrations(bank)
        assert before == after == STEPS * SETTINGS.k2
        assert sum(whole_run.roles(bank).values()) > 0


def test_every_late_reward_that_is_measured_counts_and_is_another_than_the_one_before() -> None:
    with synthetic_bank(MEMORIES, STEPS) as bank:
        turns = ratings.rated_in_turn(bank, Rating(RUN, 3, 0.5, "rater"), repeat=3)
        given = [event.value for event in bank.events(RUN) if event.rater == "rater"]
        assert given == [0.5, -0.5, 0.5, -0.5]
        assert {len(turns.saved), len(turns.again), len(turns.appended), len(turns.anew)} == {3}
        assert ratings.from_nothing(bank) == bank.utilities(RUN)


def test_a_reward_is_measured_by_the_selections_that_come_after_it() -> None:
    with synthetic_bank(MEMORIES, STEPS) as bank:
        choices = compiled(bank, RUN)
        assert choices is not None and len(choices.of_step) == STEPS
        opposite = Rating(RUN, 1, -(bank.effective_reward(RUN, 1) or 0.0), "rater")
        found = ratings.would_differ(bank, choices, opposite)
        assert found
        assert all(differing.step > 1 for differing in found)


def test_a_late_reward_is_also_measured_where_it_reaches_a_memory_that_was_reworded() -> None:
    with synthetic_bank(MEMORIES, STEPS) as bank:
        late = Rating(RUN, 3, 0.5, "rater")
        new = ratings.reword(bank, late).id
        assert new in bank.ratings.supposed(late).moved
        before = bank.utilities(RUN)[new]
        ratings.rated_in_turn(bank, late, repeat=1)
        assert bank.utilities(RUN)[new] != before
        assert ratings.from_nothing(bank) == bank.utilities(RUN)


def test_the_queue_that_is_measured_holds_what_nobody_has_rated() -> None:
    with rated_bank(MEMORIES, STEPS) as bank:
        rated = {event.step for event in bank.events(RUN) if event.rater}
        assert len(rated) == 4
        assert [step.step for step in ratings.awaiting(bank)] == [n for n in range(1, STEPS + 1) if n not in rated]


def test_what_the_recorder_adds_is_what_its_commit_does_not_take() -> None:
    (row,) = measured("recorder")
    assert row.over_s is not None and row.median is not None
    assert 0 < row.over_s < row.median


def test_a_headless_run_knows_as_many_memories_as_asked_and_goes_on_from_there(tmp_path: Path) -> None:
    headless.grow(tmp_path / "bank", MEMORIES, HashingEmbedder())
    with MemoryBank.open(str(tmp_path / "bank")) as bank:
        assert bank.memory_count(headless.RUN) == MEMORIES
    done = headless.go_on(tmp_path / "bank", MEMORIES, steps=7, batch=3)
    assert done.steps == 7
    assert set(done.parts) == {*headless.PARTS, headless.REST}
    assert all(0 < taken < done.wall for taken in done.parts.values())
    with MemoryBank.open(str(tmp_path / "bank")) as bank:
        assert bank.next_step(headless.RUN) == MEMORIES + 1


@pytest.mark.slow
def test_the_shares_of_a_headless_step_add_up_to_the_whole() -> None:
    shares = [row for row in measured("headless") if row.unit == "%"]
    assert len(shares) == 2 * len((*headless.PARTS, headless.REST))
    for size in {row.size for row in shares}:
        assert sum(row.value or 0.0 for row in shares if row.size == size) == pytest.approx(100)


@pytest.mark.slow
def test_a_headless_run_is_measured_at_no_more_memories_than_its_aim_speaks_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(headless, "MEMORIES", 12)
    assert {row.memories for row in run_benchmarks(["headless"], Sizes(memories=10_000, steps=2, repeat=1))} == {12}


def test_a_crash_in_a_batch_loses_at_most_its_steps_and_no_part_of_one(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank")
    with agent.bank.batch(4):
        traces = list(agent.run(sample_tasks("household-train")[:10]))
        with MemoryBank.open(agent.bank.uri) as survived:
            assert [row.id for row in survived.step_rows(agent.run_id)] == [trace.id for trace in traces[:8]]
            assert survived.utilities(agent.run_id) == agent.bank.utilities(agent.run_id, as_of=8)
            assert len(survived.memories()) == 8
        assert all(finding.ok for finding in check(agent.bank.uri))
    agent.bank.close()


def test_each_benchmark_is_announced_before_it_begins() -> None:
    heard: list[str] = []
    list(run_benchmarks(["diagram", "diagram"], Sizes(20, 1, 1), heard.append))
    assert heard == ["diagram"]


@pytest.mark.parametrize(
    "wrong", [{"memories": 0}, {"steps": 0}, {"repeat": 0}, {"dimension": 0}, {"rounds": 0}, {"minutes": 0.0}]
)
def test_sizes_that_cannot_be_measured_are_refused_before_anything_begins(wrong: dict[str, Any]) -> None:
    heard: list[str] = []
    with pytest.raises(InputError, match="Nothing was measured"):
        run_benchmarks(["diagram"], replace(TINY, **wrong), heard.append)
    assert heard == []


def test_an_unknown_name_is_told_with_those_that_are_known() -> None:
    with pytest.raises(InputError, match="There is no benchmark “speed”"):
        run_benchmarks(["diagram", "speed"], TINY)


def test_what_a_benchmark_needs_and_is_not_installed_is_told_before_anything_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(suite, "BENCHMARKS", {**BENCHMARKS, "far": "benchmarks.nowhere"})
    with pytest.raises(InputError, match="needs benchmarks"):
        run_benchmarks(["diagram", "far"], TINY, heard.append)
    assert heard == []


def test_listing_the_benchmarks_imports_none_of_them() -> None:
    script = "import sys; from benchmarks.suite import BENCHMARKS as b; print({*b.values()} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_every_default_benchmark_is_listed() -> None:
    assert set(DEFAULT) <= set(BENCHMARKS)
