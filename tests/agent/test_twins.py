"""Twin runs: the same tasks, seeds and world on both sides, whatever interrupts them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memrl_core.agent.runs import start_run, tasks_of
from memrl_core.agent.twins import FASTEST, Side, TwinRuns, labels, open_twins, shifts_of, start_twins
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments.household import Household
from memrl_core.errors import InputError, ModelError, SettingsError, StepError, UnknownRun
from memrl_core.models.base import ModelOptions
from memrl_core.models.simulated import SimulatedModel
from memrl_core.records import Message, Reply
from memrl_core.settings import MemRLSettings
from tests.builders import a_run

EMBEDDER = HashingEmbedder()
LONG = 30.0
MODEL_GONE = "The model went away. Start it again."


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[MemoryBank]:
    with MemoryBank.create(str(tmp_path / "bank"), EMBEDDER.name, EMBEDDER.dimension) as made:
        yield made


def sides(left: dict[str, Any] | None = None, right: dict[str, Any] | None = None) -> tuple[Side, Side]:
    return Side(MemRLSettings.of(left or {})), Side(MemRLSettings.of(right or {}))


def twins_of(bank: MemoryBank, left: dict[str, Any] | None = None, right: dict[str, Any] | None = None) -> TwinRuns:
    return start_twins(bank, sides(left, right), task_count=4, seed=3)


def steps_of(twins: TwinRuns) -> list[list[int]]:
    return [[row.step for row in twins.bank.steps.rows(run)] for run in twins.runs]


def whole(twins: TwinRuns, steps: int) -> None:
    """Both have exactly the steps 1 … `steps`, each with its memory, and the bank is sound."""
    assert steps_of(twins) == [list(range(1, steps + 1))] * 2
    assert [len(twins.bank.utilities(run)) for run in twins.runs] == [steps, steps]
    assert [found.sentence for found in check(str(twins.bank.uri)) if not found.ok] == []


class Interrupted:
    """The embedded model, with something done before its answer number `at`."""

    name = "simulated"
    simulated = True
    binds = False

    def __init__(self, at: int = 0, act: Callable[[], object] = lambda: None) -> None:
        self._model, self._at, self._act = SimulatedModel(), at, act
        self.asked = 0

    def chat(
        self,
        messages: Sequence[Message],
        options: ModelOptions,
        on_text: Any = None,
        cancelled: Any = None,
        schema: Any = None,
    ) -> Reply:
        self.asked += 1
        if self.asked == self._at:
            self._act()
        return self._model.chat(messages, options, on_text, cancelled)


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give the sides of the next pair these models, left and right."""

    def give(*given: Interrupted) -> None:
        left = list(given)
        monkeypatch.setattr("memrl_core.agent.runs.make_model", lambda *_: left.pop(0) if left else SimulatedModel())

    return give


# --- equal luck -------------------------------------------------------------------------------------------------------


def test_both_meet_the_same_tasks_epochs_and_draws(bank: MemoryBank, monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[tuple[str, int, int]] = []
    reset = Household.reset

    def noted(self: Household, task: Any, *, seed: int, at_step: int) -> str:
        met.append((task.id, seed, at_step))
        return reset(self, task, seed=seed, at_step=at_step)

    monkeypatch.setattr(Household, "reset", noted)
    twins = twins_of(bank, {"weight": 0.0}, {"weight": 1.0})
    twins.step(9)
    assert met[::2] == met[1::2] and len(set(met)) == 9
    left, right = ([(row.step, row.task, row.epoch) for row in bank.steps.rows(run)] for run in twins.runs)
    tasks = [task.id for task in tasks_of(bank.run(twins.runs[0]))]
    assert left == right == [(n + 1, tasks[n % 4], n // 4 + 1) for n in range(9)]


# --- step, play, pause ------------------------------------------------------------------------------------------------


def test_played_steps_come_to_an_end_and_are_counted_on(bank: MemoryBank) -> None:
    twins = twins_of(bank)
    twins.step(2)
    twins.play(FASTEST, 3)
    assert twins.wait(LONG) and twins.error is None
    twins.play(FASTEST, 1)
    assert twins.wait(LONG)
    whole(twins, 6)


def test_nothing_is_stepped_by_hand_while_they_play(bank: MemoryBank, models: Callable[..., None]) -> None:
    reached, go_on = threading.Event(), threading.Event()
    models(Interrupted(1, lambda: (reached.set(), go_on.wait(LONG))), Interrupted())
    twins = twins_of(bank)
    twins.play(FASTEST, 1)
    assert reached.wait(LONG) and twins.playing
    with pytest.raises(StepError, match="Pause them first"):
        twins.step()
    assert not twins.wait(0.01)
    go_on.set()
    assert twins.wait(LONG)
    whole(twins, 1)


@pytest.mark.parametrize("at", [1, 4])
def test_a_pause_under_the_left_step_drops_it_and_both_go_on(
    bank: MemoryBank, models: Callable[..., None], at: int
) -> None:
    pausing: list[TwinRuns] = []
    models(Interrupted(at, lambda: pausing[0].pause()), Interrupted())
    twins = twins_of(bank)
    pausing.append(twins)
    twins.play(FASTEST)
    assert twins.wait(LONG) and twins.error is None
    done = twins.steps
    whole(twins, done)
    twins.play(FASTEST, 2)
    assert twins.wait(LONG)
    whole(twins, done + 2)


def test_after_a_pause_between_left_and_right_the_one_behind_catches_up_alone(
    bank: MemoryBank, models: Callable[..., None]
) -> None:
    pausing: list[TwinRuns] = []
    models(Interrupted(), Interrupted(1, lambda: pausing[0].pause()))
    twins = twins_of(bank)
    pausing.append(twins)
    twins.play(FASTEST)
    assert twins.wait(LONG) and twins.error is None
    assert steps_of(twins) == [[1], []] and twins.steps == 0
    twins.step()
    whole(twins, 1)
    twins.step(3)
    whole(twins, 4)
    untroubled = start_twins(bank, sides(), task_count=4, seed=3)
    untroubled.step(4)
    for one, other in zip(twins.runs, untroubled.runs, strict=True):
        assert [row.outcome for row in bank.steps.rows(one)] == [row.outcome for row in bank.steps.rows(other)]


def test_who_presses_play_while_a_pause_is_under_way_is_obeyed(bank: MemoryBank, models: Callable[..., None]) -> None:
    reached, go_on = threading.Event(), threading.Event()
    models(Interrupted(1, lambda: (reached.set(), go_on.wait(LONG))), Interrupted())
    twins = twins_of(bank)
    twins.play(FASTEST)
    assert reached.wait(LONG)
    twins.pause()
    threading.Timer(0.05, go_on.set).start()
    twins.play(FASTEST, 2)
    assert twins.wait(LONG)
    whole(twins, 2)


@pytest.mark.parametrize("speed", [0, -1, FASTEST + 1, float("nan"), float("inf")])
def test_a_speed_out_of_range_is_refused(bank: MemoryBank, speed: float) -> None:
    twins = twins_of(bank)
    for asked in (twins.play, twins.change_speed):
        with pytest.raises(InputError, match="50"):
            asked(speed)
    assert not twins.playing and twins.steps == 0


def test_a_new_speed_holds_from_the_next_step_on(bank: MemoryBank, models: Callable[..., None]) -> None:
    reached, go_on = threading.Event(), threading.Event()
    models(Interrupted(1, lambda: (reached.set(), go_on.wait(LONG))), Interrupted())
    twins = twins_of(bank)
    twins.play(0.001, 3)
    assert reached.wait(LONG)
    twins.change_speed(FASTEST)
    go_on.set()
    # At the first speed the three steps take 3000 seconds.
    assert twins.wait(LONG)
    whole(twins, 3)


# --- what goes wrong --------------------------------------------------------------------------------------------------


def failing() -> None:
    raise ModelError(MODEL_GONE)


@pytest.mark.parametrize("side", [0, 1])
def test_where_the_step_of_one_fails_the_other_goes_on_and_both_go_on_later(
    bank: MemoryBank, models: Callable[..., None], side: int
) -> None:
    given = [Interrupted(), Interrupted()]
    given[side] = Interrupted(12, failing)
    models(*given)
    twins = twins_of(bank)
    twins.play(FASTEST, 16)
    assert twins.wait(LONG) and twins.error is None
    assert MODEL_GONE in str(twins.errors[side]) and twins.errors[1 - side] is None
    done = [len(steps) for steps in steps_of(twins)]
    assert done[1 - side] == 16 > done[side] > 0
    twins.play(FASTEST, 16 - done[side])
    assert twins.wait(LONG) and twins.errors == [None, None]
    whole(twins, 16)


def test_where_both_fail_the_play_ends(bank: MemoryBank, models: Callable[..., None]) -> None:
    models(Interrupted(12, failing), Interrupted(15, failing))
    twins = twins_of(bank)
    twins.play(FASTEST)
    assert twins.wait(LONG) and MODEL_GONE in str(twins.error)


@pytest.mark.parametrize("side", [0, 1])
def test_an_unexpected_error_stops_the_play_and_loses_nothing(
    bank: MemoryBank, models: Callable[..., None], side: int
) -> None:
    given = [Interrupted(), Interrupted()]
    given[side] = Interrupted(12, lambda: 1 / 0)
    models(*given)
    twins = twins_of(bank)
    twins.play(FASTEST)
    assert twins.wait(LONG)
    assert twins.error is not None and "ZeroDivisionError" in str(twins.error)
    done = twins.steps
    assert done > 0 and [len(steps) for steps in steps_of(twins)] == [done + side, done]
    twins.play(FASTEST, 2)
    assert twins.error is None
    assert twins.wait(LONG) and twins.error is None
    whole(twins, done + 2)


def test_stepping_by_hand_raises_what_a_step_raises(bank: MemoryBank, models: Callable[..., None]) -> None:
    models(Interrupted(), Interrupted(1, failing))
    twins = twins_of(bank)
    with pytest.raises(ModelError, match="went away"):
        twins.step(2)
    twins.step(2)
    whole(twins, 2)


# --- a shift ----------------------------------------------------------------------------------------------------------


def worlds(twins: TwinRuns, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float]]:
    """Play on three steps; what each step found the reliability of the microwave, the better one in house 3, to be."""
    found: list[tuple[int, float]] = []
    reset = Household.reset

    def noted(self: Household, task: Any, *, seed: int, at_step: int) -> str:
        found.append((at_step, self.reliability("heat", "microwave", at_step)))
        return reset(self, task, seed=seed, at_step=at_step)

    with monkeypatch.context() as patched:
        patched.setattr(Household, "reset", noted)
        twins.step(3)
    return found


def test_the_world_of_both_is_swapped_from_the_next_step_on(bank: MemoryBank, monkeypatch: pytest.MonkeyPatch) -> None:
    twins = twins_of(bank)
    assert worlds(twins, monkeypatch) == [(step, 0.95) for step in (1, 1, 2, 2, 3, 3)]
    assert twins.shift() == 4
    assert twins.shifts == (4,)
    assert worlds(twins, monkeypatch) == [(step, 0.5) for step in (4, 4, 5, 5, 6, 6)]
    assert twins.shift() == 7
    assert worlds(twins, monkeypatch) == [(step, 0.95) for step in (7, 7, 8, 8, 9, 9)]


def test_a_shift_is_on_record_in_both_and_known_when_the_pair_is_opened_again(
    bank: MemoryBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = twins_of(bank)
    twins.step(2)
    twins.shift()
    with MemoryBank.open(bank.uri) as reopened:
        again = open_twins(reopened, *twins.runs)
        assert again.shifts == (3,)
        assert [shifts_of(reopened, run) for run in twins.runs] == [(3,), (3,)]
        assert worlds(again, monkeypatch) == [(step, 0.5) for step in (3, 3, 4, 4, 5, 5)]


def test_a_second_shift_before_the_next_step_takes_the_first_back(
    bank: MemoryBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = twins_of(bank)
    twins.step(2)
    assert twins.shift() == twins.shift() == 3
    assert twins.shifts == ()
    assert worlds(twins, monkeypatch)[0] == (3, 0.95)


def test_a_run_that_is_behind_catches_up_in_the_world_the_other_met(
    bank: MemoryBank, models: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    models(Interrupted(), Interrupted(1, failing))
    twins = twins_of(bank)
    with pytest.raises(ModelError):
        twins.step()
    assert twins.shift() == 2
    assert worlds(twins, monkeypatch) == [(1, 0.95), (2, 0.5), (2, 0.5), (3, 0.5), (3, 0.5)]


def test_a_world_that_cannot_shift_says_so(bank: MemoryBank) -> None:
    same: dict[str, Any] = {"environment": "conversation", "tasks": "conversation", "seed": 1}
    for run in ("a", "b"):
        start_run(bank, run=run, **same)
    with pytest.raises(InputError, match="parametric world can shift"):
        open_twins(bank, "a", "b").shift()


# --- opening ----------------------------------------------------------------------------------------------------------


def test_a_pair_is_opened_again_and_goes_on_as_if_nothing_had_been(bank: MemoryBank) -> None:
    straight, broken = twins_of(bank), twins_of(bank)
    straight.step(6)
    broken.step(3)
    with MemoryBank.open(bank.uri) as reopened:
        again = open_twins(reopened, *broken.runs)
        again.step(3)
        whole(again, 6)
        for one, other in zip(straight.runs, again.runs, strict=True):
            assert [row.outcome for row in bank.steps.rows(one)] == [row.outcome for row in reopened.steps.rows(other)]


@pytest.mark.parametrize(
    ("changed", "named"),
    [({"seed": 4}, "seed"), ({"task_count": 5}, "task count"), ({"tasks": "household-heldout"}, "tasks"),
     ({"environment_options": {"shift_at": 3}}, "environment options"), ({"model": "simulated-50"}, "model")],
)  # fmt: skip
def test_runs_that_are_no_twins_are_refused_with_what_differs(
    bank: MemoryBank, changed: dict[str, Any], named: str
) -> None:
    same: dict[str, Any] = {"environment": "household", "tasks": "household-train", "task_count": 4, "seed": 3}
    start_run(bank, run="one", **same)
    start_run(bank, run="other", **{**same, **changed})
    with pytest.raises(InputError, match=named):
        open_twins(bank, "one", "other")


def test_runs_without_a_list_of_tasks_or_of_another_world_are_refused(bank: MemoryBank) -> None:
    for run in ("typed-1", "typed-2"):
        start_run(bank, environment="conversation", tasks="", run=run)
    for run in ("far-1", "far-2"):
        bank.write.start_run(replace(a_run(run), environment="alfworld", embedder=EMBEDDER.name))
    for left, right in (("typed-1", "typed-2"), ("far-1", "far-2")):
        with pytest.raises(InputError, match="of tasks"):
            open_twins(bank, left, right)
    with pytest.raises(UnknownRun, match="nobody"):
        open_twins(bank, "typed-1", "nobody")
    with pytest.raises(InputError, match="itself"):
        open_twins(bank, "far-1", "far-1")


@pytest.mark.parametrize(
    ("left", "right", "options"),
    [({}, {"policy": "nope"}, {}), ({"policy": "nope"}, {}, {}), ({}, {}, {"task_count": 10_000}),
     ({}, {}, {"tasks": "nowhere"})],
)  # fmt: skip
def test_a_part_that_does_not_exist_is_refused_before_anything_is_written(
    bank: MemoryBank, left: dict[str, Any], right: dict[str, Any], options: dict[str, Any]
) -> None:
    with pytest.raises((InputError, SettingsError)):
        start_twins(bank, (Side(**left), Side(**right)), **options)
    assert bank.runs() == []


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [({"weight": 0.0}, {}, ("λ = 0", "λ = 0.5")),
     ({"k2": 0, "alpha": 0.05}, {"k2": 3, "alpha": 0.9}, ("k2 = 0, α = 0.05", "k2 = 3, α = 0.9")),
     ({"normaliser": "fixed"}, {}, ("Normaliser = fixed", "Normaliser = pool")),
     ({}, {}, ("left", "right"))],
)  # fmt: skip
def test_the_sides_go_by_the_settings_that_differ(
    bank: MemoryBank, left: dict[str, Any], right: dict[str, Any], message: tuple[str, str]
) -> None:
    assert labels(bank, *twins_of(bank, left, right).runs) == message


def test_the_sides_go_by_their_policies_where_those_differ(bank: MemoryBank) -> None:
    for run, policy in (("a", "memrl"), ("b", "rag")):
        bank.write.start_run(replace(a_run(run), policy=policy))
    assert labels(bank, "a", "b") == ("memrl", "rag")


# --- a process that is killed -----------------------------------------------------------------------------------------
