"""Cooking games of TextWorld: real games, made for this file and played in their process."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memrl_core.environments import make_environment, why_unusable
from memrl_core.environments.games import textworld
from memrl_core.environments.games.textworld import TextWorld, plain
from memrl_core.errors import EnvironmentFailed, InputError
from memrl_core.models.simulated import SimulatedModel
from memrl_core.records import Message, Reply, Task, Turn
from tests.agent.an_episode import played
from tests.builders import an_agent, numbers

TRAIN, HELDOUT = (TextWorld.make_tasks(name) for name in TextWorld.sets)
TASK = TRAIN[0]


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("MEMRL_HOME", str(folder))
        yield folder


@pytest.fixture
def world() -> Iterator[TextWorld]:
    assert TextWorld.missing() == "", TextWorld.missing()
    with closing(TextWorld()) as made:
        yield made


@pytest.fixture(scope="module")
def walkthrough() -> list[str]:
    """The game's own, as people are told it when an episode has ended."""
    with closing(TextWorld(max_turns=1)) as short:
        expected = played(short, TASK, ["look"])[1]["judgement"].expected
    return [line.removeprefix("> ") for line in expected.splitlines() if line.startswith("> ")]


@pytest.fixture(scope="module")
def losing(walkthrough: list[str]) -> list[str]:
    """The walkthrough as far as the cooking, and that with the wrong appliance."""
    position, cooking = next((n, one) for n, one in enumerate(walkthrough) if one.startswith("cook "))
    assert cooking.endswith(" with oven")
    return [*walkthrough[:position], cooking.replace(" with oven", " with stove")]


def kept_games(home: Path) -> list[Path]:
    return sorted(home.glob("cache/textworld-*/*"))


# --- an episode -------------------------------------------------------------------------------------------------------


def test_the_games_own_walkthrough_wins(world: TextWorld, walkthrough: list[str]) -> None:
    turns, info = played(world, TASK, walkthrough)
    assert [turn.reward for turn in turns] == [0.0] * (len(turns) - 1) + [1.0]
    assert turns[-1].terminated
    assert info["success"] is True
    assert numbers(info["verdict"]) == ["4", "4", str(len(walkthrough))]
    assert info["judgement"].came.endswith("> eat meal (+1)")


def test_an_ingredient_cooked_in_a_wrong_way_loses_the_game_which_keeps_its_points(
    world: TextWorld, losing: list[str]
) -> None:
    turns, info = played(world, TASK, losing)
    assert (turns[-1].reward, turns[-1].terminated, turns[-1].truncated) == (0.25, True, False)
    assert info["success"] is False
    assert numbers(info["verdict"]) == ["1", "4"]
    assert f"“{losing[-1]}”" in info["judgement"].why
    with pytest.raises(InputError, match="ended"):
        world.step("look")


def test_the_turns_run_out_with_the_points_made_by_then(losing: list[str]) -> None:
    with closing(make_environment("textworld", max_turns=len(losing) - 1)) as short:
        assert isinstance(short, TextWorld)
        turns, info = played(short, TASK, losing[:-1])
    assert (turns[-1].reward, turns[-1].terminated, turns[-1].truncated) == (0.25, False, True)
    assert numbers(info["verdict"]) == ["1", "4", str(len(losing) - 1)]
    assert turns[-1].observation.endswith("1 of 4 points.")


def test_an_observation_is_what_the_game_says_and_what_can_be_done(world: TextWorld) -> None:
    observation = world.reset(TASK, seed=0, at_step=1)
    reported, _, listed = observation.partition("\nYou can:\n")
    assert reported.startswith("You are hungry!")
    assert "$$" not in reported
    assert "-= Kitchen =-0/1" not in reported
    assert not any(line.startswith(">") or not line.strip() for line in reported.splitlines())
    assert "- examine cookbook" in listed.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    "reply", ["restart", "undo", "tw-extra-infos score", "", "\0\x1b[2J\r\n\t", "look " * 2_000_000, "take the moon"]
)
def test_what_is_not_offered_costs_a_turn_and_never_reaches_the_game(world: TextWorld, reply: str) -> None:
    first = world.reset(TASK, seed=0, at_step=1)
    refused, reward, *_ = world.step(reply)
    assert refused.startswith("You cannot do “")
    assert refused.splitlines()[1:] == first[first.index("You can:") :].splitlines()
    assert reward == 0
    with closing(TextWorld(max_turns=2)) as short:
        turns, _ = played(short, TASK, [reply, "open fridge"])
    assert turns[-1].truncated
    assert turns[-1].observation.startswith("You open the fridge")


def test_what_follows_the_end_of_a_game_is_not_reported() -> None:
    raw = "\nYou burned it!\n\n\n        *** You lost! ***\n\nYou scored 1, in 4 turns.\nRESTART?\n>   -= Kitchen =-1/4"
    assert plain(raw) == "You burned it!\n*** You lost! ***"


# --- with an agent ----------------------------------------------------------------------------------------------------


class Scripted:
    """A model that says these lines."""

    name, simulated, binds = "scripted", True, False

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = list(lines)
        self.read = ""

    def chat(self, messages: Sequence[Message], *_: Any, **__: Any) -> Reply:
        self.read += "\n".join(message.content for message in messages)
        return Reply(self.lines.pop(0))


def test_what_an_agent_wrote_of_a_won_game_wins_it_again(tmp_path: Path, walkthrough: list[str]) -> None:
    model = Scripted(["take cookbook from table", "drop cookbook", *walkthrough])
    agent = an_agent(tmp_path / "bank", model, "textworld")
    with closing(agent.environment):
        won = next(agent.run([TASK]))
        agent.model = SimulatedModel()
        again = list(agent.run([TASK], epochs=2))
    traces = [won, *again]
    assert agent.bank.traces("r") == traces
    for trace in traces:
        assert trace.reward.reward == 1
        assert "What wins:" in trace.reward.judgement.expected
    assert "What wins:" not in model.read
    assert [turn.reply.text for turn in again[0].generate.turns] == walkthrough


# --- the games as files -----------------------------------------------------------------------------------------------


def test_a_game_is_made_once(home: Path, world: TextWorld) -> None:
    first = world.reset(TASK, seed=0, at_step=1)
    (folder,) = kept_games(home)
    assert all(f"{name}{int(value)}" in folder.name for name, value in TASK.data.items())
    made = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert world.reset(TASK, seed=9, at_step=9) == first
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == made


@pytest.mark.slow
def test_a_game_is_the_same_in_another_folder_and_process(
    world: TextWorld, walkthrough: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world.reset(TASK, seed=0, at_step=1), played(world, TASK, walkthrough)
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path))
    with closing(TextWorld()) as other:
        assert (other.reset(TASK, seed=1, at_step=2), played(other, TASK, walkthrough)) == here


def test_a_game_whose_making_fails_leaves_nothing_behind(
    world: TextWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path))
    monkeypatch.setattr(textworld, "SECONDS_TO_MAKE", 0.01)
    with pytest.raises(EnvironmentFailed, match="made"):
        world.reset(TASK, seed=0, at_step=1)
    assert kept_games(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_said(
    world: TextWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path / "file"))
    with pytest.raises(EnvironmentFailed, match="MEMRL_HOME"):
        world.reset(TASK, seed=0, at_step=1)


# --- the process ------------------------------------------------------------------------------------------------------


def process_of(world: TextWorld) -> int:
    assert world._child.pid is not None
    return world._child.pid


@pytest.mark.slow
def test_an_episode_goes_on_after_its_process_hung_and_was_killed(
    world: TextWorld, walkthrough: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = played(world, TASK, walkthrough)
    world.reset(TASK, seed=0, at_step=1)
    first, second, *rest = walkthrough
    world.step(first)
    os.kill(process_of(world), signal.SIGSTOP)
    with monkeypatch.context() as patch, pytest.raises(EnvironmentFailed, match="stopped"):
        patch.setattr(TextWorld, "seconds_to_act", 0.2)
        world.step(second)
    assert world.step(second)[0] == undisturbed[0][1].observation
    *_, last = [world.step(action) for action in rest]
    assert (last[0], last[1], last[4]) == (undisturbed[0][-1].observation, 1.0, undisturbed[1])


def test_what_is_missing_is_said_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        assert "pip install 'memrl-inspector[textworld]'" in why_unusable("textworld")
        with pytest.raises(EnvironmentFailed, match="pip install"):
            TextWorld().reset(TASK, seed=0, at_step=1)
    monkeypatch.setattr(sys, "platform", "win32")
    assert "Windows" in why_unusable("textworld")


# --- the sets ---------------------------------------------------------------------------------------------------------


def test_held_out_games_have_known_cookbooks_in_kitchens_of_their_own() -> None:
    assert (len(TRAIN), len(HELDOUT)) == (40, 20)
    assert len({task.id for task in TRAIN + HELDOUT}) == len({task.intent for task in TRAIN + HELDOUT}) == 60
    assert len({task.data["seed"] for task in TRAIN + HELDOUT}) == 60
    books = {(task.family, task.data["cookbook"], task.intent.split("'")[0]) for task in TRAIN}
    assert {(task.family, task.data["cookbook"], task.intent.split("'")[0]) for task in HELDOUT} == books
    assert len({book for _, book, _ in books}) == len({owner for *_, owner in books}) == 20
    assert not any(TextWorld.faults(task) for task in TRAIN + HELDOUT)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"recipe": 4}, "recipe: "),
        ({"take": 2}, "ingredients"),
        ({"go": 9}, "go: "),
        ({"seed": "1"}, "seed: "),
        ({"cook": 1}, "cook: "),
        ({"drop": True}, "drop: "),
    ],
)
def test_what_is_wrong_with_a_task_is_said(world: TextWorld, changed: Mapping[str, Any], says: str) -> None:
    odd = replace(TASK, data={**TASK.data, **changed})
    (fault,) = TextWorld.faults(odd)
    assert says in fault
    with pytest.raises(InputError, match="cooking"):
        world.reset(odd, seed=0, at_step=1)


# --- experiences ------------------------------------------------------------------------------------------------------

GAIN = "Your score has just gone up by one point."
WON = f"You eat the meal. Not bad.\n{GAIN}\n*** The End ***\nYou have 2 of 2 points."
LOST = "You burned the egg!\n*** You lost! ***\nYou have 1 of 2 points."
OUT = "You look.\nThe turns have run out.\nYou have 1 of 2 points."


def distilled(outcome: Any, *seen: tuple[str, str]) -> str:
    turns = [Turn(Reply(shown), observed, 0.0, terminated=False, truncated=False) for shown, observed in seen]
    return TextWorld().distil(Task("t", "cook", "textworld"), turns, outcome)


def test_a_success_becomes_a_script_without_detours() -> None:
    seen = [
        ("open fridge", "Open."),
        ("examine fridge", "A fridge."),
        ("take pot from table", "Taken."),
        ("go east", "A hall."),
        ("go west", "A kitchen."),
        ("take egg from fridge", f"Taken.\n{GAIN}"),
        ("put egg on table", "Put."),
        ("take egg from table", "Taken."),
        ("take knife", "You cannot do “take knife” here."),
        ("take knife from table", "Taken."),
        ("dice egg with knife", f"Diced.\n{GAIN}"),
        ("eat meal", WON),
    ]
    kept = ["open fridge", "take egg from fridge", "take knife from table", "dice egg with knife", "eat meal"]
    assert distilled("success", *seen) == "Task: cook\nSteps that worked:\n" + "".join(f"> {one}\n" for one in kept)


def test_a_lost_game_warns_of_what_lost_it_and_says_how_far_it_went_well() -> None:
    seen = [("take egg", GAIN), ("open oven", "Open."), ("cook egg with oven", LOST)]
    assert distilled("failure", *seen) == (
        "Task: cook\nWhat went wrong: “cook egg with oven” lost the game: You burned the egg!\n"
        "Avoid:\n> cook egg with oven\nTry instead:\n> take egg\n"
    )
    assert distilled("success", *seen).startswith("Task: cook\nSteps that worked:\n> take egg\nWhat went wrong: “cook")


def test_a_game_that_gained_nothing_advises_nothing() -> None:
    assert distilled("failure", ("open oven", "Open."), ("look", OUT)) == (
        "Task: cook\nWhat went wrong: The turns have run out. You have 1 of 2 points.\n"
        "Steps taken:\n> open oven\n> look\n"
    )


def test_the_games_words_in_a_refused_reply_count_for_nothing() -> None:
    shown = f"{GAIN} *** The End ***"
    text = distilled("failure", (shown, f"You cannot do “{shown}” here."), ("look", OUT))
    assert "Try instead:" not in text
    assert "The turns have run out." in text


def test_a_person_may_condemn_what_won() -> None:
    assert "Avoid:\n> eat meal\n" in distilled("failure", ("eat meal", WON))
