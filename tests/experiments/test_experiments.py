"""Memories that are merged, and memories of other models: learned in ordinary runs, used frozen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memrl_core.bank import MemoryBank
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.errors import InputError
from memrl_core.experiments.frozen_use import (
    MEMORIES,
    MERGED,
    NO_MEMORY,
    Arm,
    FrozenUse,
    difference,
    frozen_use_reports,
    run_cross_model,
    run_modular_memory,
)
from memrl_core.experiments.study import Study
from memrl_core.models.base import ModelOptions
from memrl_core.models.simulated import SimulatedModel, SimulatedReader
from memrl_core.prompting import first_messages
from memrl_core.records import Memory

A, B = "household-train:place", "household-train:heat,cool"


def empty_bank(path: Path) -> MemoryBank:
    embedder = HashingEmbedder()
    return MemoryBank.create(str(path), embedder.name, embedder.dimension)


def a_study(bank: MemoryBank, *models: str, **more: Any) -> Study:
    return Study(bank, "study", models or ["simulated"], **more)


@pytest.fixture(scope="module")
def modular(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MemoryBank, FrozenUse]]:
    with empty_bank(tmp_path_factory.mktemp("modular") / "bank") as bank:
        yield bank, run_modular_memory(a_study(bank), A, B, tasks=6, seeds=[3, 8], epochs=2)


@pytest.fixture(scope="module")
def cross(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MemoryBank, FrozenUse]]:
    with empty_bank(tmp_path_factory.mktemp("cross") / "bank") as bank:
        yield bank, run_cross_model(a_study(bank, "simulated", "simulated-0"), A, tasks=6, seeds=[1, 2], epochs=2)


# --- frozen use -------------------------------------------------------------------------------------------------------


def test_a_memory_that_is_used_frozen_stays_bit_for_bit_as_it_was(modular: tuple[MemoryBank, FrozenUse]) -> None:
    bank, result = modular
    uses = [run for arm in result.arms for run in arm.runs]
    assert uses
    for run in uses:
        info = bank.run(run)
        before = {} if info.base is None else bank.utilities(info.base, as_of=info.base_step)
        assert bank.utilities(run) == before
        assert not [memory for memory in bank.memories() if memory.run == run]


def test_a_frozen_step_is_an_ordinary_step_without_update_and_write(modular: tuple[MemoryBank, FrozenUse]) -> None:
    bank, result = modular
    arm = next(arm for arm in result.arms if arm.memory == MERGED and arm.on == "A")
    traces = bank.traces(arm.runs[0])
    assert [trace.step for trace in traces] == list(range(1, 7))
    for trace in traces:
        assert trace.decision and trace.generate
        assert (trace.update, trace.write, trace.reward.credited) == (None, None, ())
    assert any(trace.decision and trace.decision.selected for trace in traces)


# --- modular memory ---------------------------------------------------------------------------------------------------


def test_every_memory_is_used_on_both_sets_with_every_seed(modular: tuple[MemoryBank, FrozenUse]) -> None:
    bank, result = modular
    assert [(arm.memory, arm.on) for arm in result.arms] == [(m, side) for m in MEMORIES for side in "AB"]
    for arm in result.arms:
        assert arm.success.shape == (2, 6)
        stored = [[t.reward.outcome == "success" for t in bank.traces(run) if t.reward] for run in arm.runs]
        assert np.array_equal(arm.success, np.array(stored, dtype=float))


def test_all_memories_meet_the_same_tasks_with_the_same_luck(modular: tuple[MemoryBank, FrozenUse]) -> None:
    bank, result = modular
    for side in "AB":
        arms = [arm for arm in result.arms if arm.on == side]
        for position in range(2):
            runs = [arm.runs[position] for arm in arms]
            assert len({bank.run(run).seed for run in runs}) == 1
            assert len({tuple(t.task.id for t in bank.traces(run)) for run in runs}) == 1
    learning = {bank.run(run).seed for run in result.learning}
    assert learning.isdisjoint(bank.run(run).seed for arm in result.arms for run in arm.runs)


def test_the_merged_memory_is_what_was_learned_apart(modular: tuple[MemoryBank, FrozenUse]) -> None:
    bank, result = modular
    first, second, merged, together = result.learning[:4]
    assert bank.utilities(merged) == {**bank.utilities(first), **bank.utilities(second)}
    assert not bank.steps.rows(merged)
    assert len(bank.steps.rows(together)) == len(bank.steps.rows(first)) + len(bank.steps.rows(second))
    assert {t.task.family for t in bank.traces(first)} == {"place"}
    assert {t.task.family for t in bank.traces(second)} <= {"heat", "cool"}


def test_the_merged_memory_is_compared_with_every_other(modular: tuple[MemoryBank, FrozenUse]) -> None:
    _, result = modular
    arms = {(arm.memory, arm.on): arm for arm in result.arms}
    assert len(result.differences) == 2 * (len(MEMORIES) - 1)
    for found in result.differences:
        means = arms[found.memory, found.on].mean, arms[found.other, found.on].mean
        assert None not in means
        assert found.mean == pytest.approx(means[0] - means[1])
        assert found.low <= found.high


def test_an_experiment_that_is_stopped_counts_the_seeds_that_were_over(tmp_path: Path) -> None:
    one_seed = 2 * 2 * 2 + 5 * 2 * 2
    reported: list[tuple[int, int]] = []
    with empty_bank(tmp_path / "bank") as bank:
        study = a_study(
            bank,
            on_progress=lambda done, total: reported.append((done, total)),
            cancelled=lambda: len(reported) >= one_seed + 3,
        )
        result = run_modular_memory(study, A, B, tasks=2, seeds=[0, 1], epochs=1)
        assert result.stopped
        assert {arm.n for arm in result.arms} == {1}
        assert {arm.sd for arm in result.arms} == {None}
        assert reported[-1][0] < reported[-1][1] == 2 * one_seed
        assert sum(len(bank.steps.rows(info.id)) for info in bank.runs()) == reported[-1][0]


def test_an_experiment_that_is_stopped_at_once_has_a_table_without_a_number(tmp_path: Path) -> None:
    with empty_bank(tmp_path / "bank") as bank:
        result = run_modular_memory(a_study(bank, cancelled=lambda: True), A, B, tasks=1, seeds=[0])
    assert result.differences == ()
    success, differences = frozen_use_reports(result)
    assert {cell for row in success.rows for cell in row[1:]} == {"– (n 0)"} and differences.rows == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"first": "household-train:fly"},
        {"second": "nowhere"},
        {"first": "conversation"},
        {"seeds": []},
        {"seeds": [1, 1]},
        {"seeds": [-1]},
        {"epochs": 0},
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_stored(tmp_path: Path, wrong: dict[str, object]) -> None:
    with empty_bank(tmp_path / "bank") as bank:
        with pytest.raises(InputError):
            run_modular_memory(a_study(bank), **{"first": A, "second": B, **wrong})
        assert bank.runs() == []


# --- other models -----------------------------------------------------------------------------------------------------


def test_every_model_uses_every_memory_and_none(cross: tuple[MemoryBank, FrozenUse]) -> None:
    bank, result = cross
    names = ("simulated", "simulated-0")
    assert [(arm.memory, arm.on) for arm in result.arms] == [(m, by) for m in (NO_MEMORY, *names) for by in names]
    for arm in result.arms:
        for run in arm.runs:
            base = bank.run(run).base
            assert {t.generate.model for t in bank.traces(run) if t.generate} == {arm.on}
            assert (base is None) == (arm.memory == NO_MEMORY)
            if base is not None:
                assert {t.generate.model for t in bank.traces(base) if t.generate} == {arm.memory}


def test_to_a_model_that_reads_nothing_every_memory_is_worth_nothing(cross: tuple[MemoryBank, FrozenUse]) -> None:
    _, result = cross
    without = [arm.success for arm in result.arms if arm.on == "simulated-0"]
    assert all(np.array_equal(success, without[0]) for success in without)
    zero = [d for d in result.differences if d.on == "simulated-0"]
    assert zero
    assert all((d.mean, d.low, d.high) == (0, 0, 0) for d in zero)


@pytest.mark.parametrize("models", [["simulated"], ["simulated", "simulated"], ["simulated", "simulated-101"]])
def test_models_that_cannot_be_compared_are_refused(tmp_path: Path, models: list[str]) -> None:
    with empty_bank(tmp_path / "bank") as bank:
        with pytest.raises(InputError):
            run_cross_model(a_study(bank, *models), A, tasks=1, seeds=[0])
        assert bank.runs() == []


def test_a_reader_reads_the_memories_in_its_share_of_the_steps() -> None:
    experience = "Task: heat the egg\nSteps that worked:\n> heat egg with stove"
    memory = Memory("m", "heat the egg", experience, "success", "k", (), "r", 1, "t", "")
    offered = "You can:\n- heat egg with stove\n- heat egg with microwave\n- put egg on shelf"
    with_memory, _ = first_messages("", [memory], "heat the egg", offered)
    without, _ = first_messages("", [], "heat the egg", offered)
    plain = SimulatedModel()
    for share in (0, 30, 100):
        reader, read = SimulatedReader(share), 0
        for seed in range(200):
            answer = reader.chat(with_memory, ModelOptions(seed=seed)).text
            as_read, as_without = (plain.chat(m, ModelOptions(seed=seed)).text for m in (with_memory, without))
            assert answer in (as_read, as_without)
            read += answer == as_read if as_read != as_without else 0
        different = sum(
            plain.chat(with_memory, ModelOptions(seed=s)).text != plain.chat(without, ModelOptions(seed=s)).text
            for s in range(200)
        )
        assert different > 50
        assert read / different == pytest.approx(share / 100, abs=0.12)


# --- measures ---------------------------------------------------------------------------------------------------------


def an_arm(success: object, memory: str = "m") -> Arm:
    return Arm(memory, "A", (), np.array(success, dtype=float))


def test_the_interval_of_one_seed_is_that_of_a_mean_over_tasks() -> None:
    rng = np.random.default_rng(4)
    one, other = rng.random((1, 400)) < 0.7, rng.random((1, 400)) < 0.5
    paired = one.astype(float) - other
    found = difference(an_arm(one), an_arm(other))
    half = 1.96 * paired.std(ddof=1) / 20
    assert found.low == pytest.approx(paired.mean() - half, abs=0.012)
    assert found.high == pytest.approx(paired.mean() + half, abs=0.012)


def test_seeds_that_disagree_widen_the_interval() -> None:
    agree = np.tile([0.0, 1.0], (4, 50))
    disagree = np.repeat([[0.0], [1.0], [0.0], [1.0]], 100, axis=1)
    zero = an_arm(np.zeros((4, 100)))
    narrow, wide = difference(an_arm(agree), zero), difference(an_arm(disagree), zero)
    assert narrow.mean == wide.mean == 0.5
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)
