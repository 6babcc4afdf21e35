"""Malicious memories: who sees them and when, what following them comes to, where they spread, and how they go."""

from __future__ import annotations

from pathlib import Path

import pytest

from memrl_core.bank import MemoryBank
from memrl_core.environments.household import GOAL_FAMILIES, INSTRUCTIONS, Household
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import InputError
from memrl_core.experiments.cells import cells_of, poison, prune, run_cell
from memrl_core.models.base import ModelOptions
from memrl_core.models.simulated import SimulatedModel
from memrl_core.prompting import first_messages
from memrl_core.records import EventKind, Memory, Message, Task
from tests.builders import a_bank, a_step, an_agent
from tests.experiments.tiny_experiment import a_plan

TASKS = sample_tasks("household-train")


def an_episode(task: Task, memory: Memory, seed: int) -> tuple[float, int]:
    """The reward of the task, and its turns, with this one memory in the prompt."""
    world, model = Household(), SimulatedModel()
    messages = list(first_messages(INSTRUCTIONS, [memory], task.intent, world.reset(task, seed=seed, at_step=1))[0])
    for turn in range(1, world.max_turns + 1):
        reply = model.chat(messages, ModelOptions(seed=seed))
        reported, reward, terminated, truncated, _ = world.step(reply.text)
        if terminated or truncated:
            return reward, turn
        messages += [Message("assistant", reply.text), Message("user", reported)]
    raise AssertionError("An episode ends with its last turn.")


def test_a_malicious_memory_is_seen_from_the_next_step_on(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank", delta=-1.0, k1=20)
    list(agent.run(TASKS[:4]))
    bank = agent.bank
    before = dict(bank.utilities("r"))
    names = poison(bank, "r", TASKS[:6], 3, 0.25, seed=5)
    assert len(names) == 3 and not set(names) & set(before)
    list(agent.run(TASKS[4:5]))
    seen = [
        {candidate.memory_id for candidate in trace.decision.candidates} if trace.decision else set()
        for trace in bank.traces("r")
    ]
    assert [len(pool & set(names)) for pool in seen] == [0, 0, 0, 0, 3]
    with MemoryBank.open(bank.uri) as again:
        assert set(again.utilities("r")) == {*before, *names, *(m.id for m in again.memories("r") if m.step == 5)}
        for name in names:
            memory = again.memory(name)
            assert (memory.outcome, memory.parents, memory.run, memory.step) == ("success", (), "r", 4)
            assert memory.intent == next(task.intent for task in TASKS if task.id == memory.task)
            point = again.history("r", name)[0]
            assert point.after == 0.25


def test_the_seed_alone_draws_the_tasks_that_are_poisoned(tmp_path: Path) -> None:
    def drawn(name: str, seed: int, count: int = 5) -> list[str | None]:
        with an_agent(tmp_path / name).bank as bank:
            return [bank.memory(memory_id).task for memory_id in poison(bank, "r", TASKS[:8], count, 0.0, seed)]

    assert drawn("a", 1) == drawn("b", 1) != drawn("c", 2)
    assert len(set(drawn("d", 1))) == 5
    assert len(drawn("e", 1, count=20)) == 20


def test_a_malicious_memory_that_is_followed_alone_never_solves_its_own_task(tmp_path: Path) -> None:
    by_id = {task.id: task for task in TASKS}
    with an_agent(tmp_path / "bank").bank as bank:
        memories = [bank.memory(name) for name in poison(bank, "r", TASKS, len(TASKS), 0.0, seed=0)]
    assert {by_id[str(memory.task)].family for memory in memories} == set(GOAL_FAMILIES)
    assert len({memory.task for memory in memories}) == len(TASKS)
    for seed, memory in enumerate(memories):
        task = by_id[str(memory.task)]
        lines = [line.removeprefix("> ") for line in memory.experience.splitlines() if line.startswith("> ")]
        assert lines
        assert an_episode(task, memory, seed) == (0.0, Household.max_turns)


def test_only_tasks_of_a_world_with_misleading_memories_can_be_poisoned(tmp_path: Path) -> None:
    with an_agent(tmp_path / "bank").bank as bank:
        with pytest.raises(InputError, match="cannot be poisoned"):
            poison(bank, "r", [Task("t", "talk to me", "conversation")], 1, 0.0, seed=0)
        assert bank.memories() == []


@pytest.mark.parametrize(("q_below", "visits"), [(0.0, 1), (0.0, 0), (0.31, 1), (5.0, 2), (-3.0, 0)])
def test_pruning_forgets_exactly_what_it_says_and_the_ledger_has_it(
    tmp_path: Path, q_below: float, visits: int
) -> None:
    with a_bank(tmp_path / "bank", alpha=0.3) as bank:
        bank.write.commit_step(*a_step(1))
        bank.write.commit_step(*a_step(2, ("r-0001",), 1.0))
        bank.write.commit_step(*a_step(3, ("r-0002",), -1.0, q0=-0.5))
        bank.write.commit_step(*a_step(4, ("r-0002",), -1.0, q0=0.5))
        before = {name: (utility.q, utility.visits) for name, utility in bank.utilities("r").items()}
        # q0 and what the rewards made of it, worked by hand with alpha = 0.3.
        assert {name: (round(q, 6), n) for name, (q, n) in before.items()} == {
            "r-0001": (0.3, 1),
            "r-0002": (-0.51, 2),
            "r-0003": (-0.5, 0),
            "r-0004": (0.5, 0),
        }
        doomed = {name for name, (q, n) in before.items() if q < q_below and n >= visits}
        assert set(prune(bank, "r", q_below, visits)) == doomed
        assert set(bank.utilities("r")) == set(before) - doomed
        assert set(bank.utilities("r", as_of=3)) == {"r-0001", "r-0002", "r-0003"}
        reported = [event for event in bank.events("r") if event.kind is EventKind.MEMORY_FORGOTTEN]
        assert {memory_id for event in reported for memory_id in event.memory_ids} == doomed
        assert len(reported) == bool(doomed)
        assert all(f"q below {q_below:g} after at least {visits} updates" in event.reason for event in reported)


def test_what_descends_from_poison_is_what_the_parents_of_the_memories_say(tmp_path: Path) -> None:
    arms = [{"name": "a", "settings": {"delta": -1.0, "weight": 0.0}, "poison": {"after": 0.3, "memories": 3, "q": 1}}]
    (cell,) = cells_of(a_plan(count=6, epochs=4, arms=arms))
    table = run_cell(cell, str(tmp_path / "bank")).to_pandas()
    with MemoryBank.open(str(tmp_path / "bank")) as bank:
        memories = {memory.id: memory for memory in bank.memories("learn")}
        traces = bank.traces("learn")
    poisoned = {name for name in memories if "poison" in name}
    assert len(poisoned) == 3

    def descends(name: str) -> bool:
        return name in poisoned or any(descends(parent) for parent in memories[name].parents)

    expected = [any(descends(name) for name in trace.decision.selected) for trace in traces if trace.decision]
    assert list(table["tainted"]) == expected
    flags = [[name in poisoned for name in used] for used in table["used"]]
    assert [list(reported) for reported in table["used_poison"]] == flags
    assert {1} == set(table["epoch"]) - set(table.loc[table["tainted"], "epoch"])
    through_children = table["tainted"] & ~table["used_poison"].map(any)
    assert through_children.any(), "the run is long enough that poison arrives through what descends from it"


@pytest.mark.slow
def test_a_pruned_arm_is_the_same_as_the_poisoned_one_until_it_prunes(tmp_path: Path) -> None:
    harmed = {"settings": {"delta": -1.0}, "poison": {"after": 0.25, "memories": 4}}
    pruned = {**harmed, "prune": {"after": 0.75, "q_below": 0.0, "visits": 1}}
    plan = a_plan(
        count=6,
        epochs=4,
        settings={"reward_failure": -1.0},
        arms=[{"name": "poisoned", **harmed}, {"name": "pruned", **pruned}],
    )
    one, other = (
        run_cell(cell, str(tmp_path / cell.arm.name)).to_pandas().drop(columns="arm") for cell in cells_of(plan)
    )
    early = one["epoch"] <= 3
    assert one[early].equals(other[early])
    with MemoryBank.open(str(tmp_path / "pruned")) as bank:
        reported = [event for event in bank.events("learn") if event.kind is EventKind.MEMORY_FORGOTTEN]
        gone = {memory_id for event in reported for memory_id in event.memory_ids}
    assert {event.step for event in reported} == {18} and gone
    assert not gone & {name for used in other[~early]["used"] for name in used}
