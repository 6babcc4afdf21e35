"""Benchmarks measure the real thing; how fast it is belongs to no test."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from memrl_core.analysis.later_selections import compiled
from memrl_core.analysis.uses import uses
from memrl_core.bank import MemoryBank
from memrl_core.bank.integrity import check
from memrl_core.bank.ratings import Rating
from memrl_core.benchmarks import headless, ratings, whole_run
from memrl_core.benchmarks.measuring import Measurement, repeated
from memrl_core.benchmarks.suite import BENCHMARKS, Machine, run_benchmarks, this_machine
from memrl_core.benchmarks.synthetic import RATED_EACH, RATERS, RUN, SETTINGS, rated_bank, synthetic_bank
from memrl_core.benchmarks.table import benchmark_table
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import InputError
from tests.builders import an_agent

MEMORIES, STEPS = 40, 30


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


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_gives_a_value_for_each_repetition(name: str) -> None:
    found = run_benchmarks([name], MEMORIES, STEPS, repeat=2)
    assert found
    assert {m.benchmark for m in found} == {name}
    assert all(len(m.values) == 2 and np.isfinite(m.values).all() for m in found)
    assert sum(bool(m.budget) for m in found) >= 1


def test_the_whole_run_questions_are_asked_of_every_step() -> None:
    with synthetic_bank(MEMORIES, STEPS) as bank:
        before, after = whole_run.calibrations(bank)
        assert before == after == STEPS * SETTINGS.k2
        assert sum(whole_run.roles(bank).values()) > 0


def test_every_late_reward_that_is_measured_counts_and_is_another_than_the_one_before() -> None:
    with synthetic_bank(MEMORIES, STEPS) as bank:
        saved, again = ratings.rated_in_turn(bank, Rating(RUN, 3, 0.5, "rater"), repeat=3)
        given = [event.value for event in bank.events(RUN) if event.rater == "rater"]
        assert given == [0.5, -0.5, 0.5, -0.5]
        assert len(saved) == len(again) == 3
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


def test_what_the_recorder_adds_is_a_part_of_the_reported_step() -> None:
    found = {m.what: m.values for m in run_benchmarks(["recorder"], MEMORIES, 1, 2)}
    added, whole = found["added to the commit of a step"], found["a reported step"]
    assert len(added) == len(whole) == 2
    assert all(0 < part < total for part, total in zip(added, whole, strict=True))


def test_a_headless_run_knows_as_many_memories_as_asked_and_goes_on_from_there(tmp_path: Path) -> None:
    headless.grow(tmp_path / "bank", MEMORIES)
    with MemoryBank.open(str(tmp_path / "bank")) as bank:
        assert bank.memory_count(headless.RUN) == MEMORIES
    done = headless.go_on(tmp_path / "bank", MEMORIES, steps=7, batch=3)
    assert done.steps == 7
    assert set(done.parts) == {*headless.PARTS, headless.REST}
    assert all(0 < taken < done.wall for taken in done.parts.values())
    with MemoryBank.open(str(tmp_path / "bank")) as bank:
        assert bank.next_step(headless.RUN) == MEMORIES + 1


def test_the_shares_of_a_headless_step_add_up_to_the_whole() -> None:
    shares = [m for m in run_benchmarks(["headless"], 20, 10, 2) if m.unit == "%"]
    assert len(shares) == 2 * len((*headless.PARTS, headless.REST))
    for size in {m.size for m in shares}:
        of_a_round = np.sum([m.values for m in shares if m.size == size], axis=0)
        assert np.allclose(of_a_round, 100)


def test_a_headless_run_is_measured_at_no_more_memories_than_its_budget_speaks_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(headless, "MEMORIES", 12)
    assert {m.size.partition(" memories")[0] for m in run_benchmarks(["headless"], 10_000, 2, 1)} == {"12"}


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


def test_a_call_that_warms_up_is_not_counted() -> None:
    calls: list[int] = []
    assert len(repeated(lambda: calls.append(1), 3)) == 3
    assert len(calls) == 4


def test_each_benchmark_is_announced_before_it_begins() -> None:
    heard: list[str] = []
    run_benchmarks(["diagram"], 20, 1, 1, heard.append)
    assert heard == ["diagram"]


@pytest.mark.parametrize("wrong", [{"names": ["speed"]}, {"memories": 0}, {"steps": 0}, {"repeat": 0}])
def test_what_cannot_be_measured_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        run_benchmarks(**wrong)  # type: ignore[arg-type]


def test_the_table_names_the_machine_the_median_the_spread_and_the_budget() -> None:
    machine = Machine("2026-01-02 03:04 UTC", "Linux x86_64", 2, 23.5, "0.1.0", "3.12.1")
    console = Console(width=160, file=StringIO(), record=True)
    console.print(benchmark_table([Measurement("b", "this", "ten", "s", (0.5, 3.0, 1.25), "under 1 s")], machine))
    text = " ".join(console.export_text().split())
    for part in (
        "2026-01-02",
        "2 cores",
        "23.5 GiB",
        "memrl 0.1.0",
        "Python 3.12.1",
        "1.25 s",
        "0.500 – 3.00",
        "under 1",
    ):
        assert part in text


def test_this_machine_says_how_large_it_is() -> None:
    machine = this_machine()
    assert machine.cores >= 1
    assert machine.memory is None or machine.memory > 0.1
