"""ScienceWorld: its own engine, in a Java program that is started once for this file and where a test ends it."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.environments import child, make_environment, why_unusable
from memrl_core.environments.child import Child, ChildFailed
from memrl_core.environments.games import scienceworld
from memrl_core.environments.games.scienceworld import ScienceWorld, choices
from memrl_core.errors import EnvironmentFailed, InputError
from memrl_core.models.simulated import SimulatedModel
from memrl_core.records import Outcome, Reply, Task, Turn
from tests.agent.an_episode import played
from tests.builders import an_agent, numbers

TASK = Task(
    "scienceworld-find-non-living-thing-0",
    "Find a non-living thing and move it to the red box.",
    "scienceworld",
    "find-non-living-thing",
    {"task": "find-non-living-thing", "variation": 0},
)
BOIL = Task("scienceworld-boil-0", "Boil water.", "scienceworld", "boil", {"task": "boil", "variation": 0})
PLAIN_ACTIONS = [
    *("teleport to art studio", "open cupboard", "look around"),
    *("teleport to kitchen", "activate sink", "wait"),
]
"""They begin among cups of paint, whose order and names differ where hashes decide them."""

LONG = 30.0
"""Seconds within which every process ends that ends at all."""


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of banks for this file, and a pool in which one engine waits."""
    assert ScienceWorld.missing() == "", ScienceWorld.missing()
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("MEMRL_HOME", str(folder))
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        patch.setattr(ScienceWorld, "child", "tests.environments.scienceworld_gold")
        patch.setattr(child, "MOST_IDLE", 1)
        yield folder


@pytest.fixture
def world() -> Iterator[ScienceWorld]:
    with closing(ScienceWorld(max_turns=len(PLAIN_ACTIONS))) as made:
        yield made


@pytest.fixture(scope="module")
def gold() -> list[str]:
    """The engine's own solution."""
    with closing(ScienceWorld()) as asked:
        asked.reset(TASK, seed=0, at_step=1)
        actions: list[str] = child_of(asked).ask({"do": "solve", **TASK.data}, LONG)["actions"]
        return actions


def child_of(world: ScienceWorld) -> Child:
    return world._child


def process_of(world: ScienceWorld) -> int:
    pid = child_of(world).pid
    assert pid is not None
    return pid


def java_of(world: ScienceWorld) -> int:
    """The Java program that was started by the process of this world, and by no other."""
    (java,) = started_by(process_of(world))
    return java


def started_by(parent: int) -> list[int]:
    found = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    return [process for process in found if facts_of(process)[1:2] == [str(parent)]]


def facts_of(process: int) -> list[str]:
    """State, parent … of a process; nothing of one that has gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def until_gone(*processes: int) -> None:
    deadline = time.monotonic() + LONG
    while left := {i: facts[:2] for i in processes if (facts := facts_of(i)) and facts[0] != "Z"}:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


# --- an episode -------------------------------------------------------------------------------------------------------


def test_the_engines_own_solution_makes_all_points(world: ScienceWorld, gold: list[str]) -> None:
    turns, info = played(world, TASK, gold)
    assert [turn.reward for turn in turns] == [0.0] * (len(turns) - 1) + [1.0]
    assert turns[-1].terminated
    assert info["success"] is True
    assert numbers(info["verdict"]) == ["100", "100", str(len(gold))]
    assert f"> {gold[-1]} (+25)" in info["judgement"].came
    with pytest.raises(InputError, match="has ended"):
        world.step("wait")


def test_points_made_before_the_turns_run_out_are_the_reward(gold: list[str]) -> None:
    with closing(ScienceWorld(max_turns=len(gold) - 1)) as short:
        turns, info = played(short, TASK, gold[:-1])
    assert [turn.reward for turn in turns] == [0.0] * (len(turns) - 1) + [0.75]
    assert (turns[-1].terminated, turns[-1].truncated, info["success"]) == (False, True, False)
    assert numbers(info["verdict"]) == ["75", "100", str(len(gold) - 1)]
    assert "Score: 75 of 100 (+50)." in turns[-1].observation
    assert "move" in info["judgement"].why


def test_to_focus_on_the_wrong_thing_ends_the_game_without_points(world: ScienceWorld) -> None:
    turns, info = played(world, BOIL, ["teleport to kitchen", "activate stove", "focus on agent"])
    assert (turns[-1].reward, turns[-1].terminated, info["success"]) == (0.0, True, False)
    assert turns[-1].observation.splitlines()[1] == "Score: 0 of 100 (-2)."
    assert "“focus on agent”" in info["verdict"]
    assert world.distil(BOIL, turns, "failure").splitlines()[2:] == [
        "Avoid:",
        "> focus on agent",
        "Try instead:",
        "> teleport to kitchen",
        "> activate stove",
    ]


def test_the_first_observation_tells_room_inventory_score_and_turns(world: ScienceWorld) -> None:
    reported, _, listed = world.reset(TASK, seed=0, at_step=1).partition("\nYou can:\n")
    assert reported.startswith("This room is called the hallway.")
    assert "In your inventory, you see:\n  an orange\n" in reported
    assert reported.endswith("Score: 8 of 100. 6 turns left.")
    assert "- teleport to kitchen" in listed.splitlines()


@pytest.mark.parametrize("reply", ["go to the moon", "", "\0\x1b[2J\ud800", "wait " * 2_000_000])
def test_what_the_game_does_not_know_costs_a_turn(world: ScienceWorld, reply: str) -> None:
    world.reset(TASK, seed=0, at_step=1)
    refused, reward, *_ = world.step(reply)
    assert refused.startswith("You cannot do “")
    assert "\nScore: 8 of 100. 5 turns left.\n" in refused
    assert reward == 0


def test_an_action_with_two_meanings_is_chosen_by_its_number(world: ScienceWorld) -> None:
    world.reset(TASK, seed=0, at_step=1)
    world.step("> teleport to kitchen.")
    asked = world.step("focus on orange")[0]
    assert asked.endswith("5 of 100. 4 turns left.\nYou can:\n- 0\n- 1")
    assert world.step("1")[0].startswith("You focus on the orange.")


def test_left_out_actions_are_counted_and_can_be_typed() -> None:
    with closing(make_environment("scienceworld", most_offered=10)) as world:
        world.reset(TASK, seed=0, at_step=1)
        reported, _, listed = world.step("teleport to kitchen")[0].partition("\nYou can:\n")
        assert len(listed.splitlines()) == 10
        assert int(reported.partition("left out of the list: ")[2].partition(".")[0]) > 800
        assert "pick up thermometer" not in listed
        assert world.step("pick up thermometer")[0].startswith("You move the thermometer to the inventory.")


def test_without_simplifications_doors_are_shut_and_nobody_teleports() -> None:
    with closing(make_environment("scienceworld", simplifications="none", most_offered=1000)) as world:
        observation = world.reset(TASK, seed=0, at_step=1)
    assert "(that is closed)" in observation
    assert "teleport" not in observation


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"task": "boil", "variation": 30}, "0 to 29"),
        ({"task": "fly", "variation": 0}, "“fly”. Known: boil, "),
        ({"task": "boil", "variation": -1}, "variation is"),
        ({"task": "boil", "variation": True}, "variation is"),
        ({"variation": 0}, "task is a text"),
        ({"task": "boil", "variation": 0, "seed": 1}, "“seed” is not known"),
    ],
)
def test_what_is_no_task_is_refused_with_the_reason(world: ScienceWorld, data: dict[str, Any], says: str) -> None:
    task = Task("t", "Boil water.", "scienceworld", "boil", data)
    with pytest.raises(InputError) as refused:
        world.reset(task, seed=0, at_step=1)
    assert says in str(refused.value)
    world.close()
    assert [says in fault for fault in ScienceWorld.faults(task)] == [True]
    assert ScienceWorld.faults(TASK) == []


# --- the engine -------------------------------------------------------------------------------------------------------


class Tired:
    """A child that fails while it is running, and then answers."""

    running = True

    def ask(self, question: dict[str, Any], within: float) -> dict[str, Any]:
        if self.running:
            self.running = False
            raise ChildFailed("its process ended")
        return {"text": "A room.", "score": 1, "offered": []}


def test_an_engine_that_failed_while_it_was_idle_is_replaced() -> None:
    world = ScienceWorld()
    world._child = Tired()
    assert "Score: 1 of 100" in world.reset(TASK, seed=0, at_step=1)


def test_what_is_missing_is_said_with_its_remedy(
    world: ScienceWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        assert "pip install 'memrl-inspector[scienceworld]'" in why_unusable("scienceworld")
        with pytest.raises(EnvironmentFailed, match="pip install"):
            ScienceWorld.make_tasks("scienceworld-train")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "default-jre-headless" in why_unusable("scienceworld")
    with pytest.raises(EnvironmentFailed, match="JAVA_HOME"):
        world.reset(TASK, seed=0, at_step=1)
    a_java(tmp_path / "bin", "exit 1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert why_unusable("scienceworld") == ""


@pytest.mark.parametrize(("does", "says"), [("exit 1", "Java"), ("exec sleep 60", "1.0 seconds|1 second")])
def test_a_java_that_does_not_start_is_explained(
    does: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_java(tmp_path / "bin", does)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(child, "_idle", {})
    monkeypatch.setattr(ScienceWorld, "seconds_to_start", 1.0 if "sleep" in does else LONG)
    with closing(ScienceWorld()) as world, pytest.raises(EnvironmentFailed, match=f"{says}.*`java -version`"):
        world.reset(TASK, seed=0, at_step=1)


def a_java(folder: Path, does: str) -> None:
    folder.mkdir()
    (folder / "java").write_text(f"#!/bin/sh\n{does}\n")
    (folder / "java").chmod(0o755)


# --- with an agent ----------------------------------------------------------------------------------------------------


def test_the_simulated_model_repeats_what_worked_and_no_memory_knows_the_goals(tmp_path: Path, gold: list[str]) -> None:
    agent = an_agent(tmp_path / "bank", Scripted(gold), "scienceworld")
    with closing(agent.environment):
        agent.environment.most_offered = 1000
        (won,) = agent.run([TASK])
        agent.model = SimulatedModel()
        (again,) = agent.run([TASK])
    assert agent.bank.traces("r") == [won, again]
    for trace in (won, again):
        assert trace.reward.reward == 1
        goal = trace.reward.judgement.expected.splitlines()[2].removeprefix("> ")
        assert goal not in trace.write.operations[0].experience
        assert all(goal not in message.content for message in trace.generate.messages)


class Scripted:
    """A model that says these lines."""

    name, simulated, binds = "scripted", True, False

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = list(lines)

    def chat(self, *_: Any, **__: Any) -> Reply:
        return Reply(self.lines.pop(0))


# --- the sets ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ScienceWorld.sets)
def test_each_set_has_a_task_of_every_type(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scienceworld, "VARIATIONS_EACH", 1)
    tasks = ScienceWorld.make_tasks(name)
    assert len({task.family for task in tasks}) == len(tasks) == 30
    first = {"train": 0, "dev": 14, "test": 21}[name.rpartition("-")[2]]
    assert tasks[0].id == f"scienceworld-boil-{first}"
    assert tasks[0].data == {"task": "boil", "variation": first}
    assert tasks[0].intent.startswith("Your task is to boil ")
    assert not any("\n" in task.intent for task in tasks)


LISTED = [("boil", 0, "Boil\n  water."), ("boil", 1, "Boil tin."), ("melt", 5, "Melt ice.")]


@pytest.fixture
def listings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The splits that are asked for; the engine is made up, and the folder of banks is empty."""
    asked: list[str] = []

    class Engine:
        def __init__(self, module: str) -> None:
            pass

        def ask(self, question: dict[str, Any], within: float) -> dict[str, Any]:
            asked.append(question["split"])
            return {"tasks": LISTED}

        def close(self) -> None:
            pass

    monkeypatch.setattr(scienceworld, "Child", Engine)
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path))
    return asked


def test_types_take_turns_in_a_set(listings: list[str]) -> None:
    tasks = ScienceWorld.make_tasks("scienceworld-dev")
    assert [task.id for task in tasks] == ["scienceworld-boil-0", "scienceworld-melt-5", "scienceworld-boil-1"]
    assert [task.intent for task in tasks] == ["Boil water.", "Melt ice.", "Boil tin."]
    assert listings == ["dev"]


def test_a_set_is_listed_once_and_again_when_its_file_is_damaged(listings: list[str], tmp_path: Path) -> None:
    tasks = ScienceWorld.make_tasks("scienceworld-dev")
    assert ScienceWorld.make_tasks("scienceworld-dev") == tasks
    assert listings == ["dev"]
    (file,) = (tmp_path / "cache").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-3])
    assert ScienceWorld.make_tasks("scienceworld-dev") == tasks
    assert listings == ["dev", "dev"]
    assert [(path, path.read_bytes()) for path in (tmp_path / "cache").iterdir()] == [(file, whole)]


# --- in words ---------------------------------------------------------------------------------------------------------


def test_what_shares_words_with_the_task_is_offered_first() -> None:
    valid = ["wait", "task", "open jar", "pour water in pot", "eat water", "use pot on jar"]
    assert choices(valid, "Your task is to boil water in the pot.", 10) == [
        "pour water in pot",
        "eat water",
        "use pot on jar",
        "open jar",
        "task",
        "wait",
    ]


def test_no_verb_crowds_out_the_others() -> None:
    valid = [f"move {thing} to water" for thing in "abcdef"] + ["open jar", "wait"]
    assert choices(valid, "boil water", 4) == ["move a to water", "move b to water", "open jar", "wait"]


@given(st.lists(st.text("ab c", min_size=1).filter(str.strip)), st.text("ab c"), st.integers(1, 12))
def test_as_many_are_offered_as_may_be_each_once(valid: list[str], intent: str, most: int) -> None:
    offered = choices(valid, intent, most)
    assert len(offered) == len(set(offered)) == min(most, len(set(valid)))
    assert set(offered) <= set(valid)
    assert choices(valid[::-1], intent, most) == offered


def turns_of(*reported: tuple[str, str]) -> list[Turn]:
    return [Turn(Reply(action), observed, 0.0, terminated=False, truncated=False) for action, observed in reported]


EPISODE = turns_of(
    ("look around", "This room is the hall.\nScore: 8 of 100. 5 turns left."),
    ("> open jar.", "The jar is now open.\nScore: 8 of 100. 4 turns left."),
    ("fly", "You cannot do “fly” here: there is no such action, or no such thing.\nScore: 8 of 100. 3 turns left."),
    ("open jar", "The jar is already open.\nScore: 8 of 100. 2 turns left."),
    ("read note", "It says: tin.\nScore: 20 of 100 (+12). 1 turn left."),
    ("wait", "You wait.\nScore: 20 of 100."),
)


@pytest.mark.parametrize(
    ("outcome", "lines"),
    [
        ("failure", ["What went wrong: 20 of 100 points after 6 turns.", "Try instead:", "> open jar", "> read note"]),
        (
            "success",
            ["Steps that worked:", "> open jar", "> read note", "What went wrong: 20 of 100 points after 6 turns."],
        ),
    ],
)
def test_a_memory_holds_what_changed_something_up_to_the_last_gain(
    world: ScienceWorld, outcome: Outcome, lines: list[str]
) -> None:
    assert world.distil(TASK, EPISODE, outcome).splitlines() == [f"Task: {TASK.intent}", *lines]


def test_without_a_gain_a_failure_gives_no_steps_to_follow(world: ScienceWorld) -> None:
    assert world.distil(TASK, EPISODE[:3], "failure").splitlines()[1:] == [
        "What went wrong: 8 of 100 points after 3 turns.",
        "Steps taken:",
        "> open jar",
    ]


def test_a_choice_among_meanings_is_kept_or_avoided_with_its_action(world: ScienceWorld) -> None:
    which = "Ambiguous request: Please enter the number\n0:  eat jar\nScore: 0 of 100. 2 turns left."
    chosen = turns_of(("eat jar", which), ("0", "You eat the jar.\nScore: 9 of 100 (+9). 1 turn left."))
    assert world.distil(TASK, chosen, "failure").endswith("> eat jar\n> 0\n")
    lost = turns_of(
        ("eat jar", which), ("0", "You eat.\nScore: 0 of 100.\nThe game ends here and takes all points away.")
    )
    assert world.distil(TASK, lost, "failure").endswith("Avoid:\n> eat jar\n")


def test_a_solved_task_that_a_person_judged_badly_is_what_to_avoid(world: ScienceWorld) -> None:
    solved = turns_of(("open jar", "The jar is now open.\nScore: 100 of 100 (+100)."))
    assert world.distil(TASK, solved, "failure").endswith("Avoid:\n> open jar\n")


# --- what ends the engine: last, because a test after it would have to start one --------------------------------------


@pytest.mark.slow
def test_an_episode_goes_on_after_java_was_killed_or_hung_and_java_never_outlives_its_process(
    world: ScienceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = played(world, TASK, PLAIN_ACTIONS)
    first, second, third, *rest = PLAIN_ACTIONS
    world.reset(TASK, seed=0, at_step=1)
    came = [world.step(first)]
    os.kill(java_of(world), signal.SIGKILL)
    with pytest.raises(EnvironmentFailed, match="Java"):
        world.step(second)
    came.append(world.step(second))
    java = java_of(world)
    os.kill(java, signal.SIGSTOP)
    with monkeypatch.context() as patch, pytest.raises(EnvironmentFailed, match=r"0\.2 seconds"):
        patch.setattr(ScienceWorld, "seconds_to_act", 0.2)
        world.step(third)
    until_gone(java)
    came += [world.step(action) for action in (third, *rest)]
    assert [turn[0] for turn in came] == [turn.observation for turn in undisturbed[0]]
    assert came[-1][4] == undisturbed[1]
    java = java_of(world)
    os.kill(process_of(world), signal.SIGKILL)
    until_gone(java)


@pytest.mark.slow
@pytest.mark.parametrize("goes_on", ["while True: world._play(actions := [*actions, 'wait'])", "time.sleep(99)"])
def test_nothing_is_left_of_a_killed_program_even_if_java_hangs(goes_on: str) -> None:
    program = (
        "import time\n"
        "from memrl_core.environments.games.scienceworld import ScienceWorld\n"
        "from memrl_core.records import Task\n"
        "world = ScienceWorld(max_turns=200)\n"
        "world.reset(Task('t', 'Boil.', 'scienceworld', 'boil', {'task': 'boil', 'variation': 0}), seed=0, at_step=1)\n"
        "print(world._child.pid, flush=True)\n"
        "actions = []\n"
        f"{goes_on}\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as running:
        process = int(running.stdout.readline())
        (java,) = started_by(process)
        os.kill(java, signal.SIGSTOP)
        running.kill()
    until_gone(process, java)
