"""Rememberer: values of actions in states against hand-worked and plain-Python numbers, advice, and what is kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.agent import Agent
from memrl_core.agent.learned_state import learned_now
from memrl_core.environments.household import Household
from memrl_core.models.base import ModelOptions
from memrl_core.policies import make_policy
from memrl_core.policies.base import Lesson
from memrl_core.policies.methods.rememberer import Action, Done, State, Table, advice_on, learn
from memrl_core.prompting import DISCOURAGED, ENCOURAGED
from memrl_core.records import Message, Reason, Reply, StepTrace, Task
from memrl_core.retrieval.view import MemoryView
from tests.builders import alike_tasks, an_agent, numbers
from tests.policies.policy_run import a_view, an_agent_of, cosines, prompt_of
from tests.small_banks import give_reward

HOUSEHOLD = alike_tasks()
EXAMINE = HOUSEHOLD[14]
WALK = Task("walk", "walk to the end", "household")
PAPER = {"variant": "paper"}


class Rooms:
    """Three rooms in a row; the only reward is at the end of the last."""

    spec = Household.spec
    name, reward_source, instructions, max_turns, repeats = "household", "environment", "Walk.", 3, 0

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        self._room = 0
        return "Room 0."

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._room += 1
        ended = self._room == 3
        return f"Room {self._room}.", float(ended), ended, False, {"verdict": "There."}

    def distil(self, task: Task, turns: Sequence[Any], outcome: str) -> str:
        return "Walked."


class Walker:
    """A model that says the same in every room, not always written alike."""

    name, simulated, binds = "walker", True, False

    def chat(self, messages: Sequence[Message], options: ModelOptions, *args: Any, **kwargs: Any) -> Reply:
        return Reply("go on" if len(messages) % 4 else "Go   ON")


def a_walk(path: Path, **settings: Any) -> Agent:
    return an_agent_of(path, "rememberer", Walker(), Rooms(), **settings)


def values_of(agent: Agent) -> dict[str, float]:
    policy = make_policy("rememberer", agent.bank.settings("r"))
    return dict(policy.values(learned_now(agent.bank, "r")))


def asking(view: MemoryView, observation: str, step: int = 1, turn: int = 0) -> MemoryView:
    return replace(view, asked=replace(view.asked, observation=observation, step=step, turn=turn))


def a_table(view: MemoryView, observations: Sequence[str], tries: Sequence[int]) -> Table:
    """A table with a state for each memory of the view, in which one thing was done so often."""
    table = Table()
    for memory_id, observation, visits in zip(view.ids, observations, tries, strict=True):
        state = State(view.memories[memory_id].intent, observation)
        state.actions["go"] = Action("go", 1.0, visits)
        table.states[state.task, state.observation] = state
        table.link(state, memory_id)
    return table


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"variant": "code"}, {**PAPER, "n": 3}])
def test_a_return_as_long_as_the_episode_reaches_every_state_at_once(tmp_path: Path, settings: Any) -> None:
    agent = a_walk(tmp_path / "bank", **settings)
    list(agent.run([WALK]))
    assert list(values_of(agent).values()) == [1.0, 1.0, 1.0]


def test_with_one_step_the_reward_needs_an_episode_for_each_state(tmp_path: Path) -> None:
    agent = a_walk(tmp_path / "bank", **PAPER, n=1)
    seen = []
    for _ in agent.run([WALK], epochs=4):
        seen.append(list(values_of(agent).values()))
    assert seen == [
        pytest.approx([0, 0, 1]),
        pytest.approx([0, 1 / 2, 1]),
        pytest.approx([1 / 6, 2 / 3, 1]),
        pytest.approx([7 / 24, 3 / 4, 1]),
    ]
    first = agent.bank.trace("r", 4).update.changes[0]
    assert (first.target, first.name, first.visits, round(first.after, 3)) == ("action", "go on", 4, 0.292)
    assert {"0.6667", "0.1667", "4", "0.2917"} <= set(numbers(first.formula))


EPISODES = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from([0.0, 0.5, 1.0])), max_size=5), max_size=5
)
OF_NEAREST = 0.25


def settings_by(n: int | None = None, gamma: float = 1.0, **others: Any) -> Any:
    """Settings with a return of n steps (None: to the end)."""
    returns = {} if n is None else {**PAPER, "n": n}
    return make_policy("rememberer", {"gamma": gamma, **returns, **others}).settings


@given(EPISODES, st.sampled_from([None, 1, 2, 3]), st.sampled_from([1.0, 0.9]))
def test_values_are_those_of_plain_arithmetic(episodes: Any, n: int | None, gamma: float) -> None:
    table, oracle = Table(), {}
    stranger = State("", "", actions={"go": Action("go", OF_NEAREST, 1)})
    for episode in episodes:
        done = [Done(("walk", str(state)), f"do {action}", reward) for state, action, reward in episode]
        learn(table, done, settings_by(n, gamma), lambda key: stranger)
        for t, (state, action, _) in enumerate(episode):
            q, count = oracle.get((state, action), (0.0, 0))
            oracle[state, action] = q, count + 1
            last = len(episode) if n is None else min(len(episode), t + n)
            target = sum(gamma ** (i - t) * episode[i][2] for i in range(t, last))
            if last < len(episode):
                of_next = [value for (s, _), (value, _) in oracle.items() if s == episode[last][0]]
                target += gamma**n * (max(of_next) if of_next else OF_NEAREST)
            oracle[state, action] = q + (target - q) / (count + 1), count + 1
    found = {
        (int(observation), int(name.removeprefix("do "))): (action.q, action.visits)
        for (_, observation), state in table.states.items()
        for name, action in state.actions.items()
    }
    assert found.keys() == oracle.keys()
    for key, (q, count) in oracle.items():
        assert found[key] == (pytest.approx(q), count)


def test_a_state_never_met_has_the_value_of_the_nearest_record() -> None:
    policy = make_policy("rememberer", {**PAPER, "n": 1})
    table = Table()
    for observation, q in (("a red room with a door", 0.25), ("a blue cellar", 0.75)):
        table.states["walk", observation] = State("walk", observation, actions={"go": Action("go", q, 1)})
    episode = [Done(("walk", "a green hall"), "go", 0.0), Done(("walk", "a red room with a window"), "go", 1.0)]
    nearest = policy._nearest(table, a_lesson_of("walk"))
    changes = learn(table, episode, policy.settings, nearest)
    assert [change.after for change in changes] == [0.25, 1.0]


def a_lesson_of(intent: str) -> Any:
    trace = StepTrace("s", "r", 1, 1, Task("t", intent, "household"), "rememberer", {}, "")
    return Lesson(trace, 1.0, "success", lambda _: np.zeros(0), lambda _: None)


def test_a_persons_reward_takes_the_place_of_the_last(tmp_path: Path) -> None:
    agent = a_walk(tmp_path / "bank")
    (trace,) = agent.run([WALK])
    event = give_reward(agent.bank, "r", 1, trace.id, (), -1.0, "ada")
    assert list(values_of(agent).values()) == [0.0, 0.0, 0.0]
    give_reward(agent.bank, "r", 1, trace.id, (), 0.0, "ada")
    assert list(values_of(agent).values()) == [0.5, 0.5, 0.5]
    assert event.value == -1.0


def test_an_unrated_episode_teaches_nothing_until_somebody_rates_it(tmp_path: Path) -> None:
    quiet = Rooms()
    quiet.reward_source = "person"
    agent = an_agent_of(tmp_path / "bank", "rememberer", Walker(), quiet)
    first, second = agent.run([WALK], epochs=2)
    assert (first.update.changes, values_of(agent)) == ((), {})
    assert [one.op for one in first.operations] == ["ADD"] * 3
    assert second.decision.selected == ()
    give_reward(agent.bank, "r", 1, first.id, (), 1.0, "ada")
    assert list(values_of(agent).values()) == [1.0, 1.0, 1.0]


# --- what is chosen ---------------------------------------------------------------------------------------------------

TASKS = ("a", "b", "c", "d", "e")
OBSERVATIONS = ("red door", "red door open", "a red door", "blue wall", "")
NOW = "a red door"


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_records_are_ranked_by_both_similarities(weight: float) -> None:
    view = a_view(TASKS)
    view = asking(replace(view, learned=a_table(view, OBSERVATIONS, [1] * 5)), NOW)
    policy = make_policy("rememberer", {"task_weight": weight, "delta": -1.0})
    decision = policy.select(policy.recall(view.asked.embedding, view), view, 1)

    def shared(observation: str) -> float:
        here, there = set(NOW.split()), set(observation.split())
        return len(here & there) / len(here | there)

    oracle = {
        memory_id: weight * cosine + (1 - weight) * shared(observation)
        for (memory_id, cosine), observation in zip(cosines(view).items(), OBSERVATIONS, strict=True)
    }
    ranked = [candidate for candidate in decision.candidates if candidate.rank_select]
    assert {c.memory_id: pytest.approx(c.score, abs=1e-6) for c in ranked} == oracle
    assert list(decision.selected) == sorted(oracle, key=oracle.__getitem__, reverse=True)[:2]


def test_ties_go_to_the_record_with_more_tries() -> None:
    view = a_view(("a", "a", "a"))
    view.embeddings[:] = view.asked.embedding
    states = a_table(view, ["x one", "x two", "x three"], [2, 5, 3])
    view = asking(replace(view, learned=states), "x")
    policy = make_policy("rememberer", {"k1": 2})
    recalled = policy.recall(view.asked.embedding, view)
    decision = policy.select(recalled, view, 1)
    assert decision.selected == decision.greedy == ("m-01", "m-02")
    assert [(c.memory_id, c.rank_select) for c in decision.candidates[:2]] == [("m-01", 1), ("m-02", 2)]
    assert [(missed.memory_id, missed.reason) for missed in recalled.left_out] == [("m-00", Reason.BEYOND_K1)]


def test_memories_without_actions_are_not_read(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank")
    list(agent.run(HOUSEHOLD[:3]))
    policy = make_policy("rememberer", {})
    view = replace(agent.bank.view("r"), learned=policy.start(()), asked=a_view(("a",)).asked)
    recalled = policy.recall(agent.bank.embedding("r-0001"), view)
    assert (recalled.pool, recalled.memories) == ((), 3)
    assert numbers(recalled.why) == ["3", "3"]


# --- advice -----------------------------------------------------------------------------------------------------------

CHOICES = ("look up", "look down", "wait")
SEES = "Something.\nYou can:\n" + "\n".join(f"- {choice}" for choice in CHOICES)


def advised(values: dict[str, float], observation: str = SEES, seed: int = 0) -> Any:
    actions = {name: Action(name, q, 2) for name, q in values.items()}
    return advice_on(State("t", observation, actions=actions), np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("values", "changes", "lines"),
    [
        (
            {"look up": 0.5, "look down": 0.0, "wait": 0.75, "sit": 0.0},
            {},
            ["Encouraged: value 0.75 after 2 tries\n> wait", "Discouraged: value 0.00\n> look down\n> sit"],
        ),
        ({"an answer": 0.0}, {"observation": "Answer."}, ["Discouraged: value 0.00\n> an answer"]),
        ({"an answer": 1.0}, {"observation": "Answer."}, ["Encouraged: value 1.00 after 2 tries\n> an answer"]),
    ],
)
def test_the_best_action_is_encouraged_and_the_worst_or_those_without_value_are_discouraged(
    values: dict[str, float], changes: dict[str, Any], lines: list[str]
) -> None:
    assert [one.text for one in advised(values, **changes)] == lines


def test_where_no_action_has_value_a_random_one_is_encouraged_and_called_invented() -> None:
    drawn = set()
    for seed in range(40):
        encouraged, *rest = advised({"look up": 0.0}, seed=seed)
        drawn.add(encouraged.actions[0])
        assert (encouraged.heading, encouraged.invented) == (ENCOURAGED, True) and 0 < encouraged.value < 0.5
        assert encouraged.text.startswith(f"Encouraged: invented, value {encouraged.value:.2f}\n> ")
        assert [one.actions for one in rest] == ([] if encouraged.actions == ("look up",) else [("look up",)])
    assert drawn == set(CHOICES)


def test_where_every_action_has_value_a_random_other_one_is_discouraged() -> None:
    for seed in range(10):
        encouraged, discouraged = advised({"look up": 0.5, "wait": 0.25}, seed=seed)
        assert (encouraged.actions, encouraged.invented) == (("look up",), False)
        assert (discouraged.heading, discouraged.invented, discouraged.value) == (DISCOURAGED, True, 0.0)
        assert discouraged.actions[0] in ("look down", "wait")


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory) -> tuple[Agent, list[StepTrace]]:
    """Twelve tries of one household task."""
    agent = an_agent_of(tmp_path_factory.mktemp("examine") / "bank", "rememberer")
    return agent, list(agent.run([EXAMINE], epochs=12))


def test_invented_advice_is_reported_in_the_text_and_in_the_decision(examined: Any) -> None:
    reported = 0
    for trace in examined[1]:
        texts = [(prompt_of(trace), trace.decision.note)]
        texts += [(t.recalled.text, t.recalled.decision.note) for t in trace.generate.turns if t.recalled]
        for text, note in texts:
            invented = re.findall(r"(?:Encouraged|Discouraged): invented, value (\d\.\d\d)\n> (.+)", text)
            noted = re.findall(r"“(.+?)”, value (\d\.\d\d)", note)
            assert noted == [(action, value) for value, action in invented]
            reported += len(invented)
    assert reported > 10


# --- a whole run ------------------------------------------------------------------------------------------------------


def test_each_state_has_one_memory_and_each_action_in_it_one_value(examined: Any) -> None:
    agent, traces = examined
    states, actions = set(), set()
    for trace in traces:
        turns = trace.generate.turns
        seen = [prompt_of(trace).split(f"Task: {EXAMINE.intent}\n")[-1], *(turn.observation for turn in turns)]
        states |= set(seen[:-1])
        actions |= {(observation, turn.reply.text) for observation, turn in zip(seen, turns, strict=False)}
    assert agent.bank.view("r").size == len(states)
    assert len(values_of(agent)) == len(actions)


def test_a_value_that_moved_is_reported_under_the_memory_that_holds_it(examined: Any) -> None:
    agent, traces = examined
    new = traces[0].update.changes
    assert {change.memory_id for change in new} == {""} and new[0].name.endswith("(new state, turn 1)")
    changes = traces[-1].update.changes
    assert len(changes) == len(traces[-1].generate.turns)
    values = values_of(agent)
    held = [change for change in changes if change.memory_id]
    assert held
    for change in held:
        assert values[f"{change.memory_id}:{change.name}"] == change.after
        assert agent.bank.memory(change.memory_id).intent == EXAMINE.intent


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_a_full_table_keeps_its_size(tmp_path: Path) -> None:
    agent = an_agent_of(tmp_path / "bank", "rememberer", capacity=8)
    traces = list(agent.run(HOUSEHOLD[:2], epochs=2))
    did = [one for trace in traces for one in trace.operations]
    assert agent.bank.view("r").size == len(learned_now(agent.bank, "r").states) == 8
    assert {one.op for one in did} == {"ADD", "NOOP"}
    assert {name.partition(":")[0] for name in values_of(agent)} <= set(agent.bank.utilities("r"))
