"""What the Lab asks of a pair of runs, held against counting by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from memrl_core.agent.preferences import Preferences, banks_folder
from memrl_core.agent.runs import live_run, start_run
from memrl_core.agent.twins import Side, TwinRuns, open_twins, start_twins
from memrl_core.bank import MemoryBank
from memrl_core.experiments import lab
from memrl_core.experiments.lab import QUESTIONS, arms_of, lab_bank, opening_pair, pairs_in, settings_for, streams_of
from memrl_core.figures.run.stability import grid_picture
from memrl_core.settings import MemRLSettings

TASKS = 5


@pytest.fixture
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryBank]:
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path))
    with lab_bank() as made:
        yield made


def a_pair(bank: MemoryBank, steps: int) -> TwinRuns:
    sides = Side(MemRLSettings(k2=0)), Side(MemRLSettings(weight=1.0))
    twins = start_twins(bank, sides, task_count=TASKS, seed=2)
    if steps:
        twins.step(steps)
    return twins


def grid_of(twins: TwinRuns, run: str) -> list[list[bool | None]]:
    """Solved or not by epoch and task, read from the traces."""
    steps = twins.steps
    grid: list[list[bool | None]] = [[None] * min(TASKS, steps) for _ in range(math.ceil(steps / TASKS))]
    for trace in twins.bank.traces(run):
        if trace.step <= steps and trace.reward is not None and trace.reward.outcome != "unknown":
            grid[(trace.step - 1) // TASKS][(trace.step - 1) % TASKS] = trace.reward.outcome == "success"
    return grid


# --- the bank and its pairs -------------------------------------------------------------------------------------------


def test_the_bank_of_the_lab_is_made_once_and_then_opened(bank: MemoryBank) -> None:
    twins = a_pair(bank, 1)
    assert Path(bank.uri) == banks_folder() / lab.BANK
    with lab_bank() as again:
        assert {info.id for info in again.runs()} == set(twins.runs)
        assert again.embedder == bank.embedder


def test_pairs_are_found_newest_first_and_other_runs_are_none(bank: MemoryBank) -> None:
    assert pairs_in(bank) == []
    first, second = a_pair(bank, 0), a_pair(bank, 0)
    for run in ("household-1", "twins-lone-left", "twins-lone2-right", "notwins-left", "notwins-right"):
        start_run(bank, environment="household", tasks="household-train", run=run)
    assert pairs_in(bank) == [second.runs, first.runs]


@pytest.mark.parametrize("question", list(QUESTIONS))
def test_a_question_changes_what_it_names_and_nothing_else(question: str) -> None:
    standard = MemRLSettings().model_dump()
    left, right = (settings.model_dump() for settings in settings_for(question))
    assert left != right
    different = {name for name in standard if left[name] != right[name]}
    assert len(different) == 1
    for value in numbers_after_equals(question):
        assert value in {float(side[name]) for side in (left, right) for name in different}


def numbers_after_equals(question: str) -> list[float]:
    return [float(part.split()[0]) for part in question.split(" = ")[1:]]


# --- figures of a pair ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, TASKS - 1, TASKS, 3 * TASKS + 2])
def test_arms_and_streams_are_what_counting_by_hand_gives(bank: MemoryBank, steps: int) -> None:
    twins = a_pair(bank, steps)
    for run, arm, stream in zip(twins.runs, arms_of(twins), streams_of(twins), strict=True):
        grid = grid_of(twins, run)
        reported = np.array([[math.nan if won is None else float(won) for won in row] for row in grid])
        np.testing.assert_array_equal(arm.success, reported)
        assert list(arm.tasks) == [trace.task.intent for trace in twins.bank.traces(run, (1, min(TASKS, steps)))]
        met = [won for row in grid for won in row][:steps]
        assert list(stream.outcomes) == [float(bool(won)) for won in met]
        assert arm.name == stream.name
    assert [arm.name for arm in arms_of(twins)] == ["k2 = 0, λ = 0.5", "k2 = 3, λ = 1"]


def test_before_the_first_step_there_is_nothing_and_no_number_is_made_up(bank: MemoryBank) -> None:
    twins = a_pair(bank, 0)
    assert [arm.success.size for arm in arms_of(twins)] == [0, 0]
    assert [len(stream.outcomes) for stream in streams_of(twins)] == [0, 0]


def test_a_step_that_only_one_side_has_is_in_no_figure(bank: MemoryBank) -> None:
    twins = a_pair(bank, 3)
    alone = live_run(bank, twins.runs[0], Preferences()).agent
    alone.begin(twins.tasks[3]).finish()
    assert [len(bank.steps.rows(run)) for run in twins.runs] == [4, 3]
    assert [len(stream.outcomes) for stream in streams_of(twins)] == [3, 3]
    assert [arm.success.shape for arm in arms_of(twins)] == [(1, 3), (1, 3)]


def lab_twins(bank: MemoryBank) -> TwinRuns:
    return TwinRuns(bank, *pairs_in(bank)[0], Preferences())


@pytest.mark.parametrize(("before", "at", "place"), [(0, 1, 0.5), (TASKS, TASKS + 1, 1.5), (7, 8, 1.9)])
def test_a_shift_lies_where_its_step_is_on_the_axis_of_epochs(
    bank: MemoryBank, before: int, at: int, place: float
) -> None:
    twins = a_pair(bank, before)
    assert twins.shift() == at
    # A shift before the first step of an epoch must not lie beyond the axis.
    assert all(mark.at <= len(arm.success) + 0.5 for arm in arms_of(twins) for mark in arm.marks)
    twins.step(TASKS)
    assert [[mark.at for mark in arm.marks] for arm in arms_of(twins)] == [[pytest.approx(place)]] * 2
    # Both meet it, and one chart that shows both has it once.
    assert [[mark.at for mark in stream.marks] for stream in streams_of(twins)] == [[at], []]


def test_changed_settings_are_marked_on_their_side_where_they_begin_to_hold(bank: MemoryBank) -> None:
    twins = a_pair(bank, TASKS)
    assert twins.change(1, alpha=0.9) == TASKS + 1
    twins.change(1, alpha=0.6, weight=0.0)  # Before the next step: what counts is what it meets.
    twins.step(2)
    twins.change(0, alpha=0.3)  # As it was.
    left, right = arms_of(twins)
    assert left.marks == ()
    assert [(mark.at, mark.text) for mark in right.marks] == [(1.5, "λ 1 → 0, α 0.3 → 0.6")]
    assert [(mark.at, mark.text) for mark in streams_of(twins)[1].marks] == [(TASKS + 1, "λ 1 → 0, α 0.3 → 0.6")]
    assert [bank.trace(twins.runs[1], step).settings["alpha"] for step in (TASKS, TASKS + 1)] == [0.3, 0.6]


def test_the_opening_pair_begins_with_its_first_step_goes_through_a_shift_and_is_made_once(
    bank: MemoryBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("TASKS", 3), ("EPOCHS_BEFORE_THE_SHIFT", 1)):
        monkeypatch.setattr(lab, name, value)
    twins = opening_pair(bank)
    assert (twins.steps, twins.shifts, streams_of(twins)[0].marks) == (0, (), ())
    twins.step(6)
    assert (twins.shifts, [mark.at for mark in streams_of(twins)[0].marks]) == ((4,), [4])
    assert [bank.settings(run)["weight"] for run in twins.runs] == [0.0, 0.5]
    assert opening_pair(bank).runs == twins.runs


def test_the_opening_pair_is_known_by_its_settings_and_its_fall_is_that_of_its_epochs(
    bank: MemoryBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("TASKS", 3), ("EPOCHS_BEFORE_THE_SHIFT", 1)):
        monkeypatch.setattr(lab, name, value)
    falls = lab.fall_at_the_shift(2, bank)
    twins = open_twins(bank, *pairs_in(bank)[0])
    arms = arms_of(twins)
    assert falls == tuple(100 * (arm.success[0].mean() - arm.success[1].mean()) for arm in arms)
    assert all(arm.chance is not None and not np.isnan(arm.chance[arm.success == 1]).any() for arm in arms)
    assert lab.opens_the_lab(twins)
    twins.change(1, alpha=0.9)
    assert not lab.opens_the_lab(twins) and not lab.opens_the_lab(a_pair(bank, 0))


def test_an_agent_without_memories_forgets_nothing_and_one_with_them_does(bank: MemoryBank) -> None:
    sides = Side(MemRLSettings(k2=0)), Side(MemRLSettings())
    twins = start_twins(
        bank, sides, seed=3, environment="parametric", tasks="parametric-far", task_count=12, shift_at=[12 * 3 + 1]
    )
    twins.step(12 * 6)
    without, with_memories = grid_picture(arms_of(twins)).table.filter(like="epoch").to_numpy().reshape(2, -1)
    assert "failed by luck" in without and not any(said.startswith("forgotten") for said in without)
    assert any(said.startswith("forgotten") for said in with_memories)
