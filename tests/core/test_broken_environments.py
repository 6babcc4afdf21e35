"""Environments of other packages that break the contract: each break is a sentence, and nothing of it is stored."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import Field, field_validator

from memrl_core.environments import make_environment, why_unusable
from memrl_core.environments.base import Environment, EnvironmentOptions
from memrl_core.environments.breaks import LONGEST_TOLD
from memrl_core.environments.guarded import guarded
from memrl_core.environments.texts import LONGEST, storable
from memrl_core.errors import EnvironmentFailed, InputError, OllamaDown
from memrl_core.records import Judgement, Task
from tests.builders import an_agent
from tests.core.foreign_environments import LEFT, Lamp, LampOptions, installed

TOO_LONG = "x" * (LONGEST + 1)
UNSTORABLE = "a\0b\ud800c"


def spelled(given: object) -> str:
    """The same name for the same parameter in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(given))


def odd(**given: Any) -> Any:
    """The lamp with something else in it."""
    return type("Odd", (Lamp,), given)


def gives(given: Any) -> Callable[..., Any]:
    """A method that gives this back."""
    return lambda *_, **__: given


def for_all(given: Any) -> Any:
    """A method of the class that gives this back."""
    return classmethod(gives(given))


def begun(**given: Any) -> Environment:
    """The guarded lamp with something else in it, in an episode."""
    world = guarded("odd", odd(**given))()
    world.reset(LEFT, seed=1, at_step=1)
    return world


def with_turns(most: Any) -> dict[str, Any]:
    """Another number of turns, whatever is given."""
    return {"max_turns": most, "__init__": lambda world: None}


END = {"verdict": "It is over.", "success": True}

# --- what cannot be used at all ---------------------------------------------------------------------------------------


class Needs(EnvironmentOptions):
    """An option that must be given."""

    presses: int


class Listed(EnvironmentOptions):
    """An option that no form can show."""

    presses: list[int] = Field(default_factory=list)


class OutOfRange(EnvironmentOptions):
    """A default that the option does not take."""

    presses: int = Field(0, ge=1)


class Aliased(EnvironmentOptions):
    """An option that is given under another name."""

    presses: int = Field(3, alias="Presses")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"spec": None}, "`spec` is None instead of an EnvironmentSpec"),
        ({"spec": replace(Lamp.spec, idea=5)}, r"`spec\.idea` is 5 instead of a text"),  # type: ignore[arg-type]
        ({"spec": replace(Lamp.spec, title=" ")}, r"`spec\.title` is ' ' instead of a text with something in it"),
        ({"Options": dict}, "`Options` is .* instead of a subclass of EnvironmentOptions"),
        ({"Options": Needs}, "the option “presses” has no default"),
        ({"Options": Listed}, "the option “presses” has no default"),
        ({"Options": OutOfRange, "simulated_options": {}}, "`Options` does not take its own defaults"),
        ({"Options": Aliased, "simulated_options": {}}, "`Options` does not take its own defaults"),
        ({"simulated_options": {"presses": 99}}, "`Options` does not take its `simulated_options`"),
        ({"simulated_options": {"presses": np.ones(1)}}, "`simulated_options` is .* after it was JSON"),
        ({"simulated_options": None}, "`simulated_options` is None"),
        ({"sets": "lamp-train"}, "`sets` is 'lamp-train' instead of a list"),
        ({"sets": (1,)}, "a name in `sets` is 1"),
        ({"sets": ("a\0b",)}, "a name in `sets` is .* ordinary characters"),
        ({"sets": ("a", "a")}, "its set of tasks “a” stands twice"),
        ({"sets": ("household-train",)}, "“household-train” has the name of one that comes with the program"),
        ({"reward_source": "nobody"}, "`reward_source` is 'nobody' instead of one of environment, person"),
        ({"instructions": None}, "`instructions` is None instead of a text"),
        ({"instructions": property(gives("a"))}, "`instructions` is .*property.* instead of a text"),
        (with_turns(0), "`max_turns` is 0 instead of a whole number of at least 1"),
        (with_turns(True), "`max_turns` is True"),
        (with_turns(2.0), "`max_turns` is 2.0"),
        (with_turns(None), "`max_turns` is None"),
        ({"__init__": lambda world, presses, lamps: None}, r"failed in __init__ \(TypeError: .*lamps"),
        (
            {"__init__": lambda world: setattr(world, "max_turns", -1)},
            "broke its contract in __init__: `max_turns` is -1",
        ),
        ({"missing": for_all(None)}, "broke its contract in missing: what is missing is None"),
        ({"missing": gives("")}, ""),
        ({"missing": "nothing"}, r"failed in missing \(TypeError"),
        ({"close": lambda world: 1 / 0}, r"failed in close \(ZeroDivisionError"),
    ],
    ids=spelled,
)
def test_what_cannot_be_used_is_left_out_and_its_page_says_why(
    monkeypatch: pytest.MonkeyPatch, wrong: Mapping[str, Any], sentence: str
) -> None:
    with installed(monkeypatch, odd=odd(**wrong)):
        if not sentence:
            assert why_unusable("odd") == ""
            return
        with pytest.raises(InputError, match=rf"“odd” .*{sentence}") as caught:
            make_environment("odd")
        assert why_unusable("odd") == str(caught.value)


def test_one_without_its_methods_says_which() -> None:
    class Unfinished(Environment):
        max_turns = 1

    with pytest.raises(InputError, match="“odd” offers an environment without reset and step"):
        guarded("odd", Unfinished)


@pytest.mark.parametrize("name", ["my lamp", "lamp/two", "", "lämp", "lamp\n"])
def test_a_name_that_no_run_can_have_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="a name that is not letters, digits"):
        guarded(name, Lamp)


def test_a_check_of_options_that_fails_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fragile(LampOptions):
        @field_validator("presses")
        @classmethod
        def known(cls, presses: int) -> int:
            return {2: 2, 3: 3}[presses]

    with installed(monkeypatch, odd=odd(Options=Fragile)):
        assert make_environment("odd", presses=3).max_turns == 3
        with pytest.raises(InputError, match=r"odd cannot be made so \(KeyError: 5\)"):
            make_environment("odd", presses=5)


def test_a_class_that_cannot_be_derived_from_is_a_sentence() -> None:
    class Final(Lamp):
        def __init_subclass__(cls) -> None:
            raise TypeError("this class is final")

    with pytest.raises(InputError, match=r"“odd” offers an environment that cannot be used \(TypeError: this class"):
        guarded("odd", Final)


# --- what a method raises ---------------------------------------------------------------------------------------------

CALLS: Mapping[str, Callable[[Any], Any]] = {
    "reset": lambda world: world.reset(LEFT, seed=1, at_step=1),
    "step": lambda world: world.step("press left"),
    "distil": lambda world: world.distil(LEFT, [], "success"),
    "close": lambda world: world.close(),
    "missing": lambda world: world.missing(),
    "first_memories": lambda world: world.first_memories(),
    "make_tasks": lambda world: world.make_tasks("lamp-train"),
    "faults": lambda world: world.faults(LEFT),
}


class Mute(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError


def test_every_method_is_guarded() -> None:
    public = {name for name, found in vars(Environment).items() if callable(getattr(Environment, name))}
    assert {name for name in public if not name.startswith("_")} == {*CALLS, "Options"}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KeyError("a lamp"), "KeyError: 'a lamp'"),
        (SystemExit(3), "SystemExit: 3"),
        (GeneratorExit(), "GeneratorExit: "),
        (StopIteration(1), "StopIteration: 1"),
        (Mute(), "Mute: it does not say why"),
        (ValueError("\ud800" + "x" * 1000), f"ValueError: {'x' * 199}"),
    ],
    ids=lambda given: type(given).__name__,
)
@pytest.mark.parametrize("method", CALLS)
def test_what_a_method_raises_is_a_sentence(method: str, error: BaseException, told: str) -> None:
    broken = False

    def fails(given: Any, *_: Any, **__: Any) -> Any:
        if broken:
            raise error
        return ""

    own = fails if method in ("reset", "step", "distil", "close", "first_memories") else classmethod(fails)
    world = guarded("odd", odd(**{method: own}))()
    broken = True
    with pytest.raises(EnvironmentFailed) as caught:
        CALLS[method](world)
    kept = "Nothing was started" if method == "first_memories" else "What came before is kept"
    assert str(caught.value) == (
        f"The environment “odd” failed in {method} ({told}). {kept}; mend the environment, then try again, or choose "
        "another one."
    )


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OllamaDown("Ollama is not running.")])
def test_ctrl_c_and_sentences_of_the_program_pass_through(error: BaseException) -> None:
    def fails(*_: Any) -> Any:
        raise error

    with pytest.raises(type(error)):
        begun(step=fails).step("press left")


# --- what a method gives ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (None, "it is None instead of"),
        (("", 0.0, False, False), "it is .* instead of"),
        ((None, 0.0, False, False, {}), "the observation is None"),
        (("", None, False, False, {}), "the reward is None"),
        (("", nan, False, False, {}), "the reward is nan instead of a number from 0 to 1"),
        (("", 1.5, False, False, {}), "the reward is 1.5"),
        (("", -0.1, False, False, {}), "the reward is -0.1"),
        (("", "1", False, False, {}), "the reward is '1'"),
        (("", 0.0, 1, False, {}), "terminated is 1 instead of true or false"),
        (("", 0.0, False, None, {}), "truncated is None"),
        (("", 0.0, False, False, None), "info is None"),
        (("", 0.0, True, False, {}), "the verdict is None"),
        (("", 0.0, True, False, {"verdict": " "}), "the verdict is ' '"),
        (("", 0.0, False, True, {**END, "success": "yes"}), "success is 'yes'"),
        (("", 0.0, True, False, {**END, "judgement": "left"}), "the judgement is 'left' instead of a Judgement"),
        (("", 0.0, True, False, {**END, "judgement": Judgement("a", "b", 3)}), "the judgement is 3"),  # type: ignore[arg-type]
    ],
    ids=spelled,
)
def test_what_step_must_not_give_is_a_sentence(given: Any, sentence: str) -> None:
    with pytest.raises(EnvironmentFailed, match=rf"“odd” broke its contract in step: {sentence}.*What came before is"):
        begun(step=gives(given)).step("press left")


def test_numbers_and_truths_of_numpy_are_taken_as_what_they_are() -> None:
    given = ("", np.float32(0.5), np.bool_(True), np.bool_(False), {"verdict": "Half.", "success": np.bool_(False)})
    took = begun(step=gives(given)).step("press left")
    assert json.loads(json.dumps(took)) == ["", 0.5, True, False, {"verdict": "Half.", "success": False}]


def test_of_info_only_what_is_known_is_kept() -> None:
    world = begun(step=gives(("", 0.0, False, False, {"answer": "left"})))
    assert world.step("")[4] == {}
    ended = begun(step=gives(("", 0.0, True, False, {**END, "judgement": None, "answer": "left"})))
    assert ended.step("")[4] == END


def test_an_episode_that_does_not_end_is_truncated() -> None:
    endless = gives(("Go on.", 0.25, False, False, {}))
    for source, success in (("environment", False), ("person", None)):
        world = begun(step=endless, reward_source=source)
        for _ in range(2):
            assert world.step("")[2:] == (False, False, {})
            world.step("")
            assert world.step("") == (
                "Go on.",
                0.25,
                False,
                True,
                {"verdict": "Failed: not done after 3 turns.", "success": success},
            )
            world.reset(LEFT, seed=1, at_step=1)


def test_a_world_that_takes_a_step_of_its_own_in_reset_loses_no_turn() -> None:
    def reset(world: Any, task: Task, *, seed: int, at_step: int) -> str:
        Lamp.reset(world, task, seed=seed, at_step=at_step)
        world.left += 1
        return str(world.step("look")[0])

    world = begun(reset=reset)
    assert [world.step("wait")[3] for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("most", [0, nan, None, "3"])
def test_a_number_of_turns_that_a_task_spoils_is_a_sentence(most: Any) -> None:
    def reset(world: Any, *_: Any, **__: Any) -> str:
        world.max_turns = most
        return ""

    with pytest.raises(EnvironmentFailed, match="broke its contract in reset: `max_turns` is"):
        begun(reset=reset)


@pytest.mark.parametrize(
    ("method", "given", "sentence"),
    [
        ("reset", None, "the observation is None"),
        ("distil", b"Task: a", "the experience is b'Task: a'"),
        ("distil", "\n", "the experience is"),
    ],
)
def test_what_is_no_text_is_a_sentence(method: str, given: Any, sentence: str) -> None:
    world = guarded("odd", odd(**{method: gives(given)}))()
    with pytest.raises(EnvironmentFailed, match=f"broke its contract in {method}: {sentence}"):
        CALLS[method](world)


def test_texts_are_cut_and_freed_of_what_cannot_be_stored() -> None:
    for text in (UNSTORABLE, TOO_LONG + UNSTORABLE):
        info = {**END, "verdict": text, "judgement": Judgement(text, text, text)}
        world = begun(
            reset=gives(text), distil=gives(text), step=gives((text, 0.0, True, False, info)), instructions=text
        )
        observation, *_, ending = world.step("")
        judgement = ending["judgement"]
        people_read = (ending["verdict"], judgement.expected, judgement.came, judgement.why)
        models_read = (observation, world.instructions, *(CALLS[method](world) for method in ("reset", "distil")))
        for longest, told in ((LONGEST_TOLD, people_read), (LONGEST, models_read)):
            assert all(len(one) <= longest and one.endswith("abc") and one.encode() for one in told)


def test_of_a_long_text_the_beginning_and_the_end_are_kept() -> None:
    kept = storable("beginning" + TOO_LONG + "end")
    assert len(kept) <= LONGEST
    assert kept.startswith("beginning") and kept.endswith("end") and "13 characters and more were left out" in kept


def test_what_it_is_told_to_be_is_storable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    texts = odd(reset=gives(UNSTORABLE), instructions=UNSTORABLE, distil=gives(UNSTORABLE))
    with installed(monkeypatch, odd=texts):
        agent = an_agent(tmp_path / "bank", environment="odd")
        monkeypatch.setattr(texts, "step", gives((UNSTORABLE, 1.0, True, False, {**END, "verdict": UNSTORABLE})))
        agent.begin(LEFT).finish()
        assert agent.bank.trace("r", 1).reward.verdict == "abc"  # type: ignore[union-attr]


TASK = Task("t", "light a lamp", "lamp", "", {"switch": "left"})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (None, "it is None instead of a list"),
        ([], "it gave back no task"),
        ([{"id": "a"}], "a task is .* instead of a Task"),
        ([replace(TASK, id=1)], "the id of a task is 1"),  # type: ignore[arg-type]
        ([replace(TASK, id="")], "the id of a task is ''"),
        ([replace(TASK, id="\ud800")], "the id of a task is"),
        ([TASK, TASK], "two tasks have the id “t”"),
        ([replace(TASK, intent=None)], "the intent of “t” is None"),  # type: ignore[arg-type]
        ([replace(TASK, intent="?")], r"the intent of “t” cannot be used \(The task is empty"),
        ([replace(TASK, family=None)], "the family of “t” is None"),  # type: ignore[arg-type]
        ([replace(TASK, data=None)], "the data of “t” is None"),  # type: ignore[arg-type]
        ([replace(TASK, data={"a": {1}})], "the data of “t” is .* after it was JSON"),
        ([replace(TASK, data={"a": nan})], "the data of “t”"),
        ([replace(TASK, data={"a": (1,)})], "the data of “t”"),
        ([replace(TASK, data={1: "a"})], "the data of “t”"),
        ([replace(TASK, data={"a": "\ud800"})], "the data of “t”"),
    ],
    ids=spelled,
)
def test_tasks_that_cannot_be_used_are_a_sentence(given: Any, sentence: str) -> None:
    with pytest.raises(EnvironmentFailed, match=f"“odd” broke its contract in make_tasks: {sentence}"):
        guarded("odd", odd(make_tasks=for_all(given))).make_tasks("lamp-train")


def test_tasks_are_of_the_environment_by_its_name_here_and_their_intents_are_clean() -> None:
    made = guarded("odd", odd(make_tasks=for_all((replace(TASK, intent=" light\0 it "),)))).make_tasks("lamp-train")
    assert made == [replace(TASK, intent="light it", environment="odd")]


@pytest.mark.parametrize("given", ["It is dark.", [5], [""], None])
def test_faults_that_are_no_list_of_texts_are_a_sentence(given: Any) -> None:
    with pytest.raises(EnvironmentFailed, match="“odd” broke its contract in faults"):
        guarded("odd", odd(faults=for_all(given))).faults(LEFT)
