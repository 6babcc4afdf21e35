"""Regret: chances worked by hand, and held against playing the real household many times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memrl_core.agent import Agent
from memrl_core.analysis.run.cost import chance, cumulative_regret, step_regret
from memrl_core.bank import MemoryBank
from memrl_core.environments.household import Household
from memrl_core.environments.tasks import sample_tasks
from memrl_core.models.base import ModelOptions
from memrl_core.models.simulated import SimulatedModel, plans
from memrl_core.prompting import conversation_so_far, first_messages
from memrl_core.records import Candidate, Decision, Memory, Message, Outcome, Reason, StepTrace, Task, Turn
from tests.builders import DIMENSION, a_run, a_step, an_agent

HOT_EGG = Task(
    "egg",
    "put a hot egg on the table",
    "household",
    "heat",
    {"object": "egg", "target": "table", "treatment": "heat", "things": {"egg": "cabinet", "mug": "desk"}},
)
FETCH = ("search cabinet", "take egg from cabinet")
SOLVED = "put egg on table"
PLAYS = 300


# --- the chance of a plan ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((*FETCH, "heat egg with stove", SOLVED), 0.95),
        ((*FETCH, "heat egg with microwave", SOLVED), 0.5),
        ((*FETCH, "cool egg with fridge", "heat egg with stove", SOLVED), 0.5 * 0.95),
        ((*FETCH, "fly to the moon", "heat egg with stove", "sing", SOLVED), 0.95),
        ((*FETCH, "heat egg with stove", "heat egg with microwave", SOLVED), 0.95),
        ((*FETCH, "heat egg with stove"), 0.0),
        ((*FETCH, SOLVED), 0.0),
        (
            (*FETCH, *[f"search {place}" for place in ("drawer", "basket", "pantry")], "heat egg with stove", SOLVED),
            0.95,
        ),
        ((*[line for _ in range(5) for line in ("take mug from desk", "put mug on desk")], *FETCH), 0.0),
        ((), 0.0),
    ],
)
def test_the_chance_of_a_plan_worked_by_hand(lines: Sequence[str], expected: float) -> None:
    assert chance(Household(), HOT_EGG, lines, at_step=1) == pytest.approx(expected)


def test_the_chance_follows_every_shift_of_the_world() -> None:
    world = Household([10, 20])
    plan = (*FETCH, "heat egg with stove", SOLVED)
    assert [chance(world, HOT_EGG, plan, step) for step in (9, 10, 19, 20)] == [0.95, 0.5, 0.5, 0.95]


def test_asking_for_a_chance_leaves_an_episode_under_way_as_it_was() -> None:
    told = []
    for asks in (False, True):
        world = Household()
        world.reset(HOT_EGG, seed=3, at_step=1)
        told.append([])
        for line in (*FETCH, "heat egg with microwave"):
            if asks:
                chance(world, HOT_EGG, FETCH, at_step=1)
            told[-1].append(world.step(line))
    assert told[0] == told[1]


# --- against playing the real world -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    agent = an_agent(tmp_path_factory.mktemp("regret") / "bank", k1=8, k2=3, delta=0.2)
    list(agent.run(sample_tasks("household-train")[:15], epochs=4))
    return agent


def played(task: Task, memories: Sequence[Memory], seed: int, at_step: int) -> tuple[bool, list[str]]:
    """Whether the simulated model solves the task with these memories in the real household, and what it did."""
    world, model = Household(), SimulatedModel()
    observation = world.reset(task, seed=seed, at_step=at_step)
    messages, _ = first_messages(world.instructions, memories, task.intent, observation)
    turns: list[Turn] = []
    while not turns or not (turns[-1].terminated or turns[-1].truncated):
        reply = model.chat(conversation_so_far(messages, turns), ModelOptions(seed=seed))
        observation, reward, terminated, truncated, _ = world.step(reply.text)
        turns.append(Turn(reply, observation, reward, terminated, truncated))
    return turns[-1].reward == 1, [turn.reply.text for turn in turns]


def lines_of(memories: Sequence[Memory], task: Task) -> list[tuple[str, ...]]:
    messages, _ = first_messages("", memories, task.intent, "")
    return plans(messages[-1].content)


@pytest.mark.slow
def test_with_one_memory_the_simulated_model_solves_a_task_as_often_as_the_chance_says(lived: Agent) -> None:
    tasks = sample_tasks("household-heldout")
    found: dict[tuple[str, float], tuple[Task, Memory]] = {}
    for memory in lived.bank.memories("r"):
        for task in tasks:
            lines = next(iter(lines_of([memory], task)), ())
            found.setdefault((memory.outcome, chance(Household(), task, lines, 1)), (task, memory))
    assert {truth for _, truth in found} >= {0.0, 0.5, 0.95, 1.0}
    assert ("failure", 0.95) in found
    for (_, truth), (task, memory) in found.items():
        games = [played(task, [memory], seed, 1) for seed in range(PLAYS if truth else 40)]
        if truth:
            assert np.mean([won for won, _ in games]) == pytest.approx(truth, abs=0.1)
        else:
            plan = set(next(iter(lines_of([memory], task)), ()))
            assert all(set(done) - plan for won, done in games if won), "the plan alone solved it"


@pytest.mark.slow
def test_what_a_step_got_is_what_its_own_prompt_brings_when_it_is_played_again(lived: Agent) -> None:
    bank, shown = lived.bank, {}
    for trace in bank.traces("r"):
        regret = step_regret(bank, trace)
        if len(trace.decision.selected) == 3 and regret.got:
            shown.setdefault(regret.got, trace)
    assert len(shown) >= 2
    for got, trace in shown.items():
        memories = [bank.memory(memory_id) for memory_id in trace.decision.selected]
        games = [played(trace.task, memories, seed, trace.step)[0] for seed in range(PLAYS)]
        assert np.mean(games) == pytest.approx(got, abs=0.1)


# --- the regret of a step ---------------------------------------------------------------------------------------------

SAFE = (*FETCH, "heat egg with stove", SOLVED)
RISKY = (*FETCH, "heat egg with microwave", SOLVED)
FIRST_HALF = FETCH
SECOND_HALF = ("heat egg with stove", SOLVED)


def a_kitchen(path: Path, *known: tuple[Outcome, Sequence[str]], **run: Any) -> MemoryBank:
    """A bank whose memories r-0001, r-0002 … are of `HOT_EGG`, each with an outcome and lines to do."""
    bank = MemoryBank.create(str(path), f"hashing-{DIMENSION}", DIMENSION)
    bank.start_run(replace(a_run(), **run))
    for step, (outcome, lines) in enumerate(known, start=1):
        trace, vectors = a_step(step)
        title = "Try instead:" if outcome == "failure" else "Steps that worked:"
        text = f"Task: {HOT_EGG.intent}\n{title}\n" + "".join(f"> {line}\n" for line in lines)
        (operation,) = trace.write.operations
        operation = replace(operation, intent=HOT_EGG.intent, experience=text, outcome=outcome)
        bank.commit_step(replace(trace, write=replace(trace.write, operations=(operation,))), vectors)
    return bank


def a_decided_step(step: int, pool: Sequence[str], selected: Sequence[str], missed: Sequence[str] = ()) -> StepTrace:
    """A step on `HOT_EGG` that chose `selected` from `pool`; `missed` did not get into the pool."""
    candidates = [Candidate(i, 0.9, 0.0, 0, (), 0.0, 1, 1, i in selected, Reason.TOP_K2) for i in pool]
    candidates += [Candidate(i, 0.1, 0.0, 0, (), None, 1, None, False, Reason.BELOW_DELTA) for i in missed]
    chosen = tuple(selected)
    decision = Decision(2, 0.5, "pool", (), tuple(candidates), chosen, chosen, "greedy", 0.0, None, 0, 1.0)
    return replace(a_step(step)[0], task=HOT_EGG, decision=decision)


def test_the_regret_is_what_the_best_of_the_pool_would_have_done_better(tmp_path: Path) -> None:
    bank = a_kitchen(tmp_path / "bank", ("success", RISKY), ("success", SAFE))
    found = step_regret(bank, a_decided_step(3, ["r-0001", "r-0002"], ["r-0001"]))
    assert (found.step, found.best, found.first, found.got) == (3, 0.95, 0.5, 0.5)
    assert found.regret == pytest.approx(0.45)
    assert step_regret(bank, a_decided_step(3, ["r-0001", "r-0002"], ["r-0002", "r-0001"])).regret == 0.0


def test_a_memory_that_missed_the_pool_was_not_available(tmp_path: Path) -> None:
    bank = a_kitchen(tmp_path / "bank", ("success", RISKY), ("success", SAFE))
    found = step_regret(bank, a_decided_step(3, ["r-0001"], ["r-0001"], missed=["r-0002"]))
    assert (found.best, found.got) == (0.5, 0.5)


def test_an_empty_pool_has_no_regret_and_an_unused_pool_has_all_of_it(tmp_path: Path) -> None:
    bank = a_kitchen(tmp_path / "bank", ("success", SAFE))
    empty = step_regret(bank, a_decided_step(2, [], []))
    assert (empty.best, empty.first, empty.got, empty.regret) == (0.0, 0.0, 0.0, 0.0)
    assert step_regret(bank, a_decided_step(2, ["r-0001"], [])).regret == 0.95


def test_successes_are_read_before_cautions_and_these_before_unrated_ones(tmp_path: Path) -> None:
    bank = a_kitchen(tmp_path / "bank", ("unrated", RISKY), ("failure", SAFE), ("success", RISKY))
    pool = ["r-0001", "r-0002", "r-0003"]
    assert step_regret(bank, a_decided_step(4, pool, pool[:2])).got == 0.95
    assert step_regret(bank, a_decided_step(4, pool, pool)).got == 0.5


def test_memories_that_only_together_solve_a_task_have_a_regret_below_zero(tmp_path: Path) -> None:
    bank = a_kitchen(tmp_path / "bank", ("success", FIRST_HALF), ("success", SECOND_HALF))
    found = step_regret(bank, a_decided_step(3, ["r-0001", "r-0002"], ["r-0001", "r-0002"]))
    assert (found.best, found.first, found.got, found.regret) == (0.0, 0.0, 0.95, -0.95)


def test_a_memory_that_goes_before_decides_as_soon_as_it_can_be_applied(tmp_path: Path) -> None:
    late = ("heat egg with microwave",)
    bank = a_kitchen(tmp_path / "bank", ("success", late), ("success", SAFE))
    found = step_regret(bank, a_decided_step(3, ["r-0001", "r-0002"], ["r-0001", "r-0002"]))
    assert (found.first, found.got) == (0.95, 0.5)
    memories = [bank.memory("r-0001"), bank.memory("r-0002")]
    assert np.mean([played(HOT_EGG, memories, seed, 1)[0] for seed in range(PLAYS)]) == pytest.approx(0.5, abs=0.1)


def test_the_chances_are_those_of_the_runs_own_world(tmp_path: Path) -> None:
    bank = a_kitchen(tmp_path / "bank", ("success", RISKY), ("success", SAFE), environment_options={"shift_at": 10})
    pool = ["r-0001", "r-0002"]
    assert [step_regret(bank, a_decided_step(step, pool, ["r-0002"])).got for step in (9, 10)] == [0.95, 0.5]
    assert step_regret(bank, a_decided_step(10, pool, ["r-0001"])).regret == 0.0


def test_other_worlds_and_steps_without_a_decision_have_no_regret(tmp_path: Path) -> None:
    bank = a_kitchen(tmp_path / "bank", ("success", SAFE))
    decided = a_decided_step(2, ["r-0001"], ["r-0001"])
    assert step_regret(bank, replace(decided, decision=None)) is None
    assert step_regret(bank, replace(decided, task=Task("t", "say hello", "conversation"))) is None
    assert list(cumulative_regret(bank, "r").columns) == ["step", "best", "first", "got", "regret", "cumulative"]
    assert len(cumulative_regret(bank, "r")) == 0
    elsewhere = a_kitchen(tmp_path / "other", ("success", SAFE), environment="conversation")
    assert step_regret(elsewhere, decided) is None


def test_the_regret_of_a_run_adds_up_step_by_step(lived: Agent) -> None:
    table = cumulative_regret(lived.bank, "r")
    assert list(table["step"]) == list(range(1, 61))
    total = 0.0
    for row, trace in zip(table.itertuples(), lived.bank.traces("r"), strict=True):
        found = step_regret(lived.bank, trace)
        total += found.best - found.got
        assert (row.best, row.got, row.regret) == (found.best, found.got, found.regret)
        assert row.cumulative == pytest.approx(total)
        assert found.first <= found.best
        assert len(trace.decision.selected) > 1 or found.first == found.got
    assert (table["regret"] != 0).any() and (table["first"] < table["got"]).any()


def test_a_prompt_is_read_as_the_simulated_model_reads_it(lived: Agent) -> None:
    """What a step's prompt says to do first is what the model did first."""
    compared = 0
    for trace in lived.bank.traces("r"):
        first = trace.generate.messages[-1].content
        said = [line for plan in plans(first) for line in plan]
        reply = SimulatedModel().chat([Message("user", first)], ModelOptions(seed=1)).text
        offered = [line for line in said if f"\n- {line}\n" in first + "\n"]
        if offered:
            assert reply == offered[0]
            compared += 1
    assert compared > 5
