"""The household: what an action does follows from the task, the seed and the action alone."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from memrl_core.agent.turns import write_experience
from memrl_core.embedders.wordllama import WordLlamaEmbedder
from memrl_core.environments.household import PLACES, TREATMENTS, Household
from memrl_core.environments.tasks import check_intent, load_tasks, sample_data_path, sample_tasks
from memrl_core.errors import InputError
from memrl_core.models.simulated import SimulatedModel
from memrl_core.prompting import offered
from memrl_core.records import Outcome, Reply, Task, Turn

HOT_EGG = Task(
    "t",
    "put a hot egg on the table",
    "household",
    "heat",
    {"object": "egg", "target": "table", "treatment": "heat", "things": {"egg": "cabinet", "mug": "desk"}},
)


def played(world: Household, task: Task, actions: list[str], seed: int = 0, at_step: int = 1) -> list[Turn]:
    world.reset(task, seed=seed, at_step=at_step)
    turns = []
    for action in actions:
        observation, reward, terminated, truncated, _ = world.step(action)
        turns.append(Turn(Reply(action), observation, reward, terminated, truncated))
        if terminated or truncated:
            break
    return turns


PLAN = ["search cabinet", "take egg from cabinet", "heat egg with {}", "put egg on table"]


def share_solved(appliance: str, at_step: int = 1, shift_at: int = 0) -> float:
    world = Household(shift_at=shift_at)
    plan = [action.format(appliance) for action in PLAN]
    return float(np.mean([played(world, HOT_EGG, plan, seed, at_step)[-1].reward for seed in range(400)]))


@pytest.mark.parametrize("appliance", list(TREATMENTS["heat"]))
def test_either_appliance_reaches_the_goal_as_often_as_it_is_reliable(appliance: str) -> None:
    assert share_solved(appliance) == pytest.approx(TREATMENTS["heat"][appliance], abs=0.08)


def test_a_shift_swaps_the_reliabilities_from_its_step_on() -> None:
    assert share_solved("microwave", at_step=9, shift_at=10) == pytest.approx(0.5, abs=0.08)
    assert share_solved("microwave", at_step=10, shift_at=10) == pytest.approx(0.95, abs=0.05)
    assert Household(shift_at=10).reliability("heat", "stove", 10) == 0.5


def test_only_the_treated_object_in_its_place_solves_the_task() -> None:
    raw = ["search cabinet", "take egg from cabinet", "put egg on table", "take egg from table", "heat egg with stove"]
    turns = played(Household(), HOT_EGG, [*raw, "put egg on desk", "take egg from desk", "put egg on table"], seed=1)
    assert [turn.reward for turn in turns] == [0, 0, 0, 0, 0, 0, 0, 1]


def test_what_is_not_offered_changes_nothing_and_time_runs_out() -> None:
    turns = played(Household(), HOT_EGG, ["fly to the moon", "put egg on table", "<b>x</b>"] * 5)
    assert len(turns) == Household.max_turns
    assert turns[-1].truncated
    assert turns[0].observation.startswith("You cannot do “fly to the moon” here.")


def test_every_task_can_be_solved_with_what_is_offered() -> None:
    for task in ALL_TASKS:
        world = Household()
        world.reset(task, seed=0, at_step=1)
        thing, target = task.data["object"], task.data["target"]
        place = task.data["things"][thing]
        once = [f"take {thing} from {place}", f"put {thing} on {target}"]
        plan = once * task.data["count"]
        treatment = task.data.get("treatment")
        if treatment:
            verb = {"light": "examine"}.get(treatment, treatment)
            plan.insert(1, f"{verb} {thing} with {max(TREATMENTS[treatment], key=TREATMENTS[treatment].__getitem__)}")
        plan.insert(0, f"search {place}")
        solved = any(played(world, task, plan, seed)[-1].reward == 1 for seed in range(5))
        assert solved, task.id


ALL_TASKS = [task for name in ("household-train", "household-heldout") for task in sample_tasks(name)]


def test_no_task_has_a_twin_and_the_nearest_other_intent_is_rarely_about_the_same() -> None:
    wants = {(task.family, task.data["object"], task.data["target"]) for task in ALL_TASKS}
    assert len(wants) == len(ALL_TASKS) == 300
    examined = [task.data["object"] for task in ALL_TASKS if task.family == "examine"]
    assert len(set(examined)) == len(examined), "an examined thing is put nowhere, so its target tells nothing apart"
    about = [(task.family, task.data["object"]) for task in ALL_TASKS]
    vectors = np.array(WordLlamaEmbedder().embed([task.intent for task in ALL_TASKS]))
    alike = vectors @ vectors.T
    np.fill_diagonal(alike, -1)
    assert np.mean([about[i] == about[j] for i, j in enumerate(alike.argmax(1))]) < 0.1


def test_every_intent_names_its_thing_its_target_and_how_many_and_no_other() -> None:
    kinds = {thing.partition("#")[0] for task in ALL_TASKS for thing in task.data["things"]}
    for task in ALL_TASKS:
        words = set(re.findall(r"\w+", task.intent.lower()))
        assert {kind for kind in kinds if words & {kind, f"{kind}s", f"{kind}es"}} == {task.data["object"]}, task.intent
        assert words & set(PLACES) == (set() if task.family == "examine" else {task.data["target"]}), task.intent
        assert bool(words & {"two", "both"}) is (task.data["count"] == 2), task.intent


def test_what_a_failure_writes_finds_the_thing_and_the_target_in_every_intent() -> None:
    for task in ALL_TASKS:
        thing, place = task.data["object"], task.data["things"][task.data["object"]]
        take = f"take {thing} from {place}"
        text = Household().distil(task, played(Household(), task, [f"search {place}", take] + ["fly"] * 9), "failure")
        assert f"> {take}\n" in text.partition("Try instead:")[2], task.intent
        if "treatment" not in task.data:
            target = task.data["target"]
            assert text.count(f"> put {thing} on {target}\n") == task.data["count"], task.intent


def test_a_success_becomes_a_script_without_detours() -> None:
    actions = ["search drawer", "search cabinet", "take mug from desk", "put mug on desk", *PLAN[1:]]
    turns = played(Household(), HOT_EGG, [a.format("stove") for a in actions], seed=1)
    assert turns[-1].reward == 1
    text = Household().distil(HOT_EGG, turns, "success")
    assert "search drawer" not in text
    assert "> search cabinet\n> take egg from cabinet\n> heat egg with stove\n> put egg on table" in text


def test_a_failure_becomes_a_caution_that_names_another_way() -> None:
    plan = [action.format("microwave") for action in PLAN]
    turns = next(t for t in (played(Household(), HOT_EGG, plan, seed) for seed in range(20)) if t[-1].reward == 0)
    text = Household().distil(HOT_EGG, turns, "failure")
    avoid, _, instead = text.partition("Try instead:")
    assert "The microwave fails" in avoid
    assert "> heat egg with microwave" in avoid
    assert "> heat egg with stove" in instead
    assert "microwave" not in instead


def other_labels(task: Task) -> list[Task]:
    """The task with other hidden labels: its intent and where its things are stay."""
    treatments = [{"treatment": one} for one in TREATMENTS if one != task.data.get("treatment")]
    more = [{"object": "soup"}, {"target": "desk"}, {"count": 3}]
    return [replace(task, family="", data={**task.data, **changed}) for changed in [*treatments, *more]]


def test_no_hidden_label_that_the_episode_did_not_reveal_reaches_a_memory_or_a_models_reflection() -> None:
    asked: list[str] = []

    class Reflects(SimulatedModel):
        simulated = False
        binds = False

        def chat(self, messages: Any, *_: Any, **__: Any) -> Reply:
            asked.append(repr(messages))
            return Reply("Look before you leap.")

    def remembered(task: Task, turns: list[Turn], outcome: Outcome) -> str:
        trace = SimpleNamespace(
            task=task,
            generate=SimpleNamespace(turns=turns, options={}),
            reward=SimpleNamespace(outcome=outcome, verdict="Failed."),
        )
        return write_experience(Reflects(), Household(), cast(Any, trace)) + asked[-1]

    compared = set()
    for task in sample_tasks("household-train")[:40]:
        world = Household()
        for seed in range(4):
            rng = np.random.default_rng(seed)
            observation, turns = world.reset(task, seed=seed, at_step=1), []
            while not (turns and (turns[-1].terminated or turns[-1].truncated)):
                choices = offered(observation)
                # Now and then the first thing that is named in the intent, so that it comes into the hand.
                message = next((c for c in choices if c.split(" ")[1] in task.intent), str(rng.choice(choices)))
                observation, reward, terminated, truncated, _ = world.step(message)
                turns.append(Turn(Reply(message), observation, reward, terminated, truncated))
            for other in other_labels(task):
                if played(Household(), other, [turn.reply.text for turn in turns], seed) == turns:
                    compared.add((task.id, str(other.data)))
                    assert remembered(other, turns, "failure") == remembered(task, turns, "failure")
                    assert remembered(other, turns, "success") == remembered(task, turns, "success")
    assert len(compared) > 100


def test_where_no_treatment_was_tried_none_is_named() -> None:
    untreated = played(Household(), HOT_EGG, [*PLAN[:2], "put egg on table"] + ["search pantry"] * 9)
    text = Household().distil(HOT_EGG, untreated, "failure")
    assert text.endswith("Try instead:\n> search cabinet\n> take egg from cabinet\n")


def test_a_treatment_that_worked_is_reported_once_it_is_offered_no_longer() -> None:
    wrong_then_right = [*PLAN[:2], "clean egg with sink", "heat egg with stove", "put egg on shelf", "search pantry"]
    runs = (played(Household(), HOT_EGG, wrong_then_right + ["fly"] * 9, seed) for seed in range(20))
    turns = next(turns for turns in runs if turns[-1].truncated)
    text = Household().distil(HOT_EGG, turns, "failure")
    assert text.endswith(
        "Try instead:\n> search cabinet\n> take egg from cabinet\n> heat egg with stove\n> put egg on table\n"
    )


def test_a_stopped_answer_that_nobody_rated_has_no_steps_that_worked() -> None:
    stopped = Turn(Reply("take candle from drawer", stopped=True), "", 0.0, terminated=False, truncated=False)
    begun = played(Household(), HOT_EGG, PLAN[:2])
    assert Household().distil(HOT_EGG, [stopped], "unrated") == "Task: put a hot egg on the table\nSteps taken:\n"
    text = Household().distil(HOT_EGG, [*begun, stopped], "unrated")
    assert text.endswith("Steps taken:\n> search cabinet\n> take egg from cabinet\n")


def test_the_task_sets_are_what_their_maker_writes(tmp_path: Path) -> None:
    maker = sample_data_path() / "make_tasks.py"
    copy = tmp_path / "make_tasks.py"
    copy.write_text(maker.read_text())
    subprocess.run([sys.executable, str(copy)], check=True)
    for name in ("household-train", "household-heldout"):
        made = (tmp_path / "tasks" / f"{name}.jsonl").read_text()
        assert made == (sample_data_path() / "tasks" / f"{name}.jsonl").read_text()
    train = {task.intent for task in sample_tasks("household-train")}
    assert not train & {task.intent for task in sample_tasks("household-heldout")}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 2.*JSON"),
        ('{"id": "a"}', "line 2.*intent"),
        ('{"id": 7, "intent": "x", "environment": "household"}', "line 2.*id"),
        ("[" * 100_000, "line 2"),
        ("9" * 5000, "line 2"),
    ],
)
def test_a_bad_line_of_a_task_file_is_named(tmp_path: Path, line: str, says: str) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"id": "good", "intent": "do it", "environment": "household"}\n' + line + "\n")
    with pytest.raises(InputError, match=says):
        load_tasks(file)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ({"things": None}, "not a household task"),
        ({"things": ["egg"]}, "not a household task"),
        ({"count": "many"}, "not a household task"),
        ({"count": float("inf")}, "not a household task"),
        ({"count": 0}, "count"),
        ({"count": 2}, "2 of “egg”"),
        ({"object": "moon"}, "1 of “moon”"),
        ({"target": "drawer"}, "“drawer”"),
        ({"treatment": "fry"}, "“fry”"),
        ({"things": {"egg": "attic"}}, "“attic”"),
    ],
)
def test_a_damaged_task_is_reported(damage: dict[str, object], says: str) -> None:
    reported = Household.faults(Task("t", "x", "household", "", {**HOT_EGG.data, **damage}))
    assert any(says in one for one in reported)


def test_no_task_that_comes_with_the_program_has_faults() -> None:
    assert Household.faults(Task("t", "x", "household")) and Household.faults(HOT_EGG) == []
    assert not [task.id for name in Household.sets for task in sample_tasks(name) if Household.faults(task)]


def test_control_characters_leave_an_intent() -> None:
    assert check_intent("a\x00b\x1b[31m\u202ec\n") == "ab[31mc"


def test_the_order_of_what_is_offered_says_nothing_about_which_appliance_is_reliable() -> None:
    first = []
    for seed in range(200):
        choices = offered(played(Household(), HOT_EGG, PLAN[:2], seed)[-1].observation)
        first.append(next(choice for choice in choices if choice.startswith("heat egg")))
    assert 0.4 < np.mean([choice == "heat egg with stove" for choice in first]) < 0.6


def test_each_house_has_reliable_appliances_of_its_own_and_all_are_equally_hard() -> None:
    of_house = [[Household(house=n).reliability("heat", name, 1) for name in TREATMENTS["heat"]] for n in range(1, 200)]
    assert {tuple(sorted(pair)) for pair in of_house} == {(0.5, 0.95)}
    assert 0.4 < np.mean([pair[0] > pair[1] for pair in of_house]) < 0.6


def test_the_handbook_has_cases_of_other_things_and_the_share_that_is_stale() -> None:
    world = Household(house=4, handbook=5, stale=0.4)
    cases = world.first_memories()
    kinds = {task.data["object"] for name in Household.sets for task in sample_tasks(name)}
    assert len(cases) == 30 and not any(set(intent.split()) & kinds for intent, _ in cases)
    reliable = [
        world.reliability(treatment, appliance, 0) == 0.95
        for _, case in cases
        for treatment, pair in TREATMENTS.items()
        for appliance in pair
        if case.partition(f"with {appliance}")[1]
    ]
    assert len(reliable) == 4 * 5 and sum(reliable) == 4 * 3
    assert not Household(house=4).first_memories()
