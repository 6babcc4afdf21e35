"""Environments of other packages: they work like the program's own, and what fails in one is a sentence, not a loss."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import Field, field_validator

from memrl_core.bank import MemoryBank
from memrl_core.environments import ENVIRONMENTS, environment_class, environment_names, make_environment, why_unusable
from memrl_core.environments.base import Environment, EnvironmentOptions
from memrl_core.environments.household import Household
from memrl_core.errors import EnvironmentFailed, InputError, OllamaDown
from memrl_core.guards import LONGEST_FOR_PEOPLE, guarded_environment
from memrl_core.plugins import LONGEST, storable
from memrl_core.records import Judgement, Task
from tests.builders import an_agent
from tests.environments.foreign_environments import LEFT, Lamp, LampOptions, installed

UNSTORABLE = "a\0b\ud800c"
END = {"verdict": "It is over.", "success": True}


def odd(**own: Any) -> Any:
    """The lamp with something else in it."""
    return type("Odd", (Lamp,), own)


def gives(given: Any) -> Callable[..., Any]:
    """A method that gives this."""
    return lambda *_, **__: given


def begun(**own: Any) -> Environment:
    """The guarded lamp with something else in it, in an episode."""
    world = guarded_environment("odd", odd(**own))()
    world.reset(LEFT, seed=1, at_step=1)
    return world


# --- one that works ---------------------------------------------------------------------------------------------------


def test_an_environment_of_another_package_runs_like_the_programs_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with installed(monkeypatch, lamp=Lamp):
        agent = an_agent(tmp_path / "bank", environment="lamp")
        traces = list(agent.run(environment_class("lamp").make_tasks("lamp-train"), epochs=2))
    rewards = [trace.reward for trace in traces if trace.reward is not None]
    assert all((reward.outcome == "success") == (reward.verdict == "The lamp is on.") for reward in rewards)
    assert [reward.judgement.expected for reward in rewards if reward.judgement] == 2 * ["left", "middle", "right"]
    assert MemoryBank.open(agent.bank.uri).traces("r") == traces


def test_it_is_listed_after_the_programs_own_which_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def renames(world: Any, *_: Any, **__: Any) -> str:
        world.name = "household"
        return ""

    with installed(monkeypatch, household=Lamp, lamp=odd(reset=renames)):
        assert environment_names() == (*ENVIRONMENTS, "lamp")
        assert environment_class("household") is Household
        world = make_environment("lamp")
        world.reset(LEFT, seed=1, at_step=1)
        assert {world.name, *(task.environment for task in world.make_tasks("lamp-train"))} == {"lamp"}
        with pytest.raises(InputError, match=r"kitchen.*household.*lamp"):
            make_environment("kitchen")


def test_its_options_have_their_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fragile(LampOptions):
        @field_validator("presses")
        @classmethod
        def known(cls, presses: int) -> int:
            return {2: 2, 3: 3}[presses]

    with installed(monkeypatch, lamp=Lamp, odd=odd(Options=Fragile)):
        for name, wrong in (("lamp", {"colour": "red"}), ("lamp", {"presses": 10}), ("odd", {"presses": 5})):
            with pytest.raises(InputError, match=f"{name}.*{next(iter(wrong)) if name == 'lamp' else 'KeyError'}"):
                make_environment(name, **wrong)


# --- what cannot be used at all ---------------------------------------------------------------------------------------


class Listed(EnvironmentOptions):
    """An option that no form can show."""

    presses: list[int] = Field(default_factory=list)


class Unfinished(Environment):
    """Without its methods."""

    spec, instructions = Lamp.spec, "Wait."


@pytest.mark.parametrize(
    ("behind", "reported"),
    [
        (ModuleNotFoundError("No module named 'lost'"), "lost"),
        (BaseException("panic\0\ud800"), "panic"),
        (dict, "Environment"),
        (odd(sets=("a b", "a b")), "“a b”"),
        (Unfinished, "reset"),
        (odd(spec=None), "`spec`"),
        (odd(spec=replace(Lamp.spec, idea=5)), "idea"),
        (odd(Options=Listed), "presses"),
        (odd(simulated_options={"presses": 99}), "presses"),
        (odd(sets=("a\0b",)), "set of tasks"),
        (odd(sets=("household-train",)), "household-train"),
        (odd(reward_source="nobody"), "reward_source"),
        (odd(instructions=None), "instructions"),
        (odd(max_turns=0, __init__=lambda world: None), "max_turns"),
        (odd(__init__=lambda world, presses, lamps: None), "__init__.*lamps"),
        (odd(close=lambda world: 1 / 0), "close.*ZeroDivisionError"),
    ],
)
def test_what_cannot_be_used_is_listed_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, behind: Any, reported: str
) -> None:
    with installed(monkeypatch, odd=behind) as points:
        for _ in range(2):
            with pytest.raises(InputError, match=f"“odd”.*{reported}") as caught:
                make_environment("odd")
        assert why_unusable("odd") == str(caught.value)
        assert "odd" in environment_names()
        points["odd"].behind = Lamp
        assert why_unusable("odd") == ""


def test_an_interrupt_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, odd=KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        why_unusable("odd")


# --- what a method raises ---------------------------------------------------------------------------------------------

CALLS: Mapping[str, Callable[[Any], Any]] = {
    "reset": lambda world: world.reset(LEFT, seed=1, at_step=1),
    "step": lambda world: world.step("press left"),
    "distil": lambda world: world.distil(LEFT, [], "success"),
    "close": lambda world: world.close(),
    "missing": lambda world: world.missing(),
    "first_memories": lambda world: world.first_memories(),
    "chance": lambda world: world.chance(LEFT, "press left", 1),
    "kind_of": lambda world: world.kind_of("light", LEFT),
    "misleading": lambda world: world.misleading(LEFT),
    "make_tasks": lambda world: world.make_tasks("lamp-train"),
    "faults": lambda world: world.faults(LEFT),
}
OF_CLASS = ("missing", "kind_of", "misleading", "make_tasks", "faults")


def test_every_method_is_guarded() -> None:
    public = {name for name, found in vars(Environment).items() if callable(getattr(Environment, name))}
    assert {name for name in public if not name.startswith("_")} == {*CALLS, "Options"}


@pytest.mark.parametrize("error", [KeyError("a lamp"), SystemExit(3), StopIteration(1), ValueError("\ud800" * 1000)])
@pytest.mark.parametrize("method", CALLS)
def test_what_a_method_raises_names_the_plugin_and_the_method(method: str, error: BaseException) -> None:
    broken = False

    def fails(*_: Any, **__: Any) -> Any:
        if broken:
            raise error
        return ""

    world = guarded_environment("odd", odd(**{method: classmethod(fails) if method in OF_CLASS else fails}))()
    broken = True
    with pytest.raises(EnvironmentFailed, match=rf"“odd” failed in {method} \({type(error).__name__}"):
        CALLS[method](world)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OllamaDown("Ollama is not running."), InputError("No lamp.")])
def test_an_interrupt_and_errors_of_the_program_pass(error: BaseException) -> None:
    def fails(*_: Any) -> Any:
        raise error

    with pytest.raises(type(error)):
        begun(step=fails).step("press left")


def test_a_step_goes_on_once_the_environment_is_corrected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blown = [True]

    def step(world: Any, action: str) -> Any:
        if blown[0]:
            raise OSError("the fuse is blown")
        return Lamp.step(world, action)

    with installed(monkeypatch, fuse=odd(step=step)):
        agent = an_agent(tmp_path / "bank", environment="fuse")
        episode = agent.begin(LEFT)
        for _ in range(2):
            with pytest.raises(EnvironmentFailed, match="the fuse is blown"):
                episode.finish()
        assert not agent.bank.steps.rows("r")
        blown[0] = False
        episode.finish()
        assert [row.step for row in agent.bank.steps.rows("r")] == [1]


# --- what a method gives ----------------------------------------------------------------------------------------------

TASK = Task("t", "light a lamp", "lamp", "", {"switch": "left"})


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("step", None),
        ("step", (None, 0.0, False, False, {})),
        ("step", ("", nan, False, False, {})),
        ("step", ("", "1", False, False, {})),
        ("step", ("", 0.0, True, False, {})),
        ("step", ("", 0.0, True, False, {**END, "judgement": Judgement("a", "b", 3)})),
        ("distil", "\n"),
        ("first_memories", [("an intent", None)]),
        ("faults", "It is dark."),
        ("make_tasks", None),
        ("make_tasks", [replace(TASK, id="\0")]),
        ("make_tasks", [TASK, TASK]),
        ("make_tasks", [replace(TASK, intent=None)]),
    ],
)
def test_what_a_method_must_not_give_is_a_sentence(method: str, given: Any) -> None:
    own = classmethod(gives(given)) if method in OF_CLASS else gives(given)
    with pytest.raises(EnvironmentFailed, match=f"“odd” broke its contract in {method}|“odd” failed in {method}"):
        CALLS[method](begun(**{method: own}))


def test_of_info_only_what_is_known_is_kept_and_numbers_of_numpy_become_plain() -> None:
    assert begun(step=gives(("", 0.0, False, False, {"answer": "left"}))).step("")[4] == {}
    end = {**END, "success": np.bool_(False), "answer": "left"}
    ended = begun(step=gives(("", np.float32(0.5), np.bool_(True), np.bool_(False), end))).step("")
    assert json.loads(json.dumps(ended)) == ["", 0.5, True, False, {**END, "success": False}]


@pytest.mark.parametrize(("source", "success"), [("environment", False), ("person", None)])
def test_an_episode_that_does_not_end_is_truncated(source: str, success: bool | None) -> None:
    world = begun(step=gives(("Go on.", 0.25, False, False, {})), reward_source=source)
    for _ in range(2):
        assert [world.step("")[3] for _ in range(2)] == [False, False]
        *_, truncated, info = world.step("")
        assert truncated and info["success"] is success
        world.reset(LEFT, seed=1, at_step=1)


def test_texts_are_cut_and_freed_of_what_cannot_be_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = "x" * LONGEST + UNSTORABLE
    info = {**END, "verdict": text, "judgement": Judgement(text, text, text)}
    own = {"reset": gives(text), "distil": gives(text), "instructions": text}
    world = begun(step=gives((text, 0.0, True, False, info)), **own)
    observation, *_, ending = world.step("")
    judgement = ending["judgement"]
    for longest, texts in (
        (LONGEST_FOR_PEOPLE, (ending["verdict"], judgement.expected, judgement.came, judgement.why)),
        (LONGEST, (observation, world.instructions, CALLS["reset"](world), CALLS["distil"](world))),
    ):
        assert all(len(one) <= longest and one.endswith("abc") and one.encode() for one in texts)
    assert storable("beginning" + text + "end").startswith("beginning")
    with installed(monkeypatch, odd=odd(step=gives((UNSTORABLE, 1.0, True, False, {**END, "verdict": UNSTORABLE})))):
        agent = an_agent(tmp_path / "bank", environment="odd")
        agent.begin(LEFT).finish()
        assert agent.bank.trace("r", 1).reward.verdict == "abc"
