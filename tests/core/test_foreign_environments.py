"""Environments of other packages: they work like the program's own, and one that cannot be used says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memrl_core.bank import MemoryBank
from memrl_core.environments import (
    ENVIRONMENTS,
    environment_class,
    environment_names,
    make_environment,
    why_unusable,
)
from memrl_core.environments.contract import CHECKS
from memrl_core.environments.household import Household
from memrl_core.errors import EnvironmentFailed, InputError
from memrl_core.records import Judgement, Task
from tests.builders import an_agent
from tests.core.foreign_environments import LEFT, Lamp, installed

# --- one that works ---------------------------------------------------------------------------------------------------


def test_an_environment_of_another_package_runs_like_the_programs_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with installed(monkeypatch, lamp=Lamp):
        tasks = environment_class("lamp").make_tasks("lamp-train")
        agent = an_agent(tmp_path / "bank", environment="lamp")
        traces = list(agent.run(tasks, epochs=2))
    rewards = [trace.reward for trace in traces if trace.reward is not None]
    assert len(rewards) == 6
    assert {reward.source for reward in rewards} == {"environment"}
    assert all((reward.outcome == "success") == (reward.verdict == "The lamp is on.") for reward in rewards)
    assert [reward.judgement.expected for reward in rewards if reward.judgement] == 2 * ["left", "middle", "right"]
    assert MemoryBank.open(agent.bank.uri).traces("r") == traces


def test_what_it_gives_is_what_it_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, lamp=Lamp):
        guarded = make_environment("lamp", presses=2)
    own = Lamp(presses=2)
    for world in (guarded, own):
        world.reset(LEFT, seed=1, at_step=1)
    for action in ("press middle", "press left"):
        assert guarded.step(action) == own.step(action)
    assert guarded.distil(LEFT, [], "success") == own.distil(LEFT, [], "success")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_guarding_keeps_the_contract(monkeypatch: pytest.MonkeyPatch, check: Callable[..., Any]) -> None:
    with installed(monkeypatch, lamp=Lamp):
        check(lambda: make_environment("lamp"), LEFT)


def test_it_is_known_by_the_name_of_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    class Renames(Lamp):
        def reset(self, task: Task, *, seed: int, at_step: int) -> str:
            self.name = "household"
            return super().reset(task, seed=seed, at_step=at_step)

    with installed(monkeypatch, lamp=Renames):
        world = make_environment("lamp")
        world.reset(LEFT, seed=1, at_step=1)
        assert {world.name, environment_class("lamp").name} == {"lamp"}
        assert {task.environment for task in world.make_tasks("lamp-train")} == {"lamp"}


def test_it_is_listed_after_the_programs_own_which_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, household=Lamp, lamp=Lamp):
        assert environment_names() == (*ENVIRONMENTS, "lamp")
        assert environment_class("household") is Household


def test_an_option_that_it_does_not_take_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, lamp=Lamp):
        with pytest.raises(InputError, match="lamp does not take: colour"):
            make_environment("lamp", colour="red")
        with pytest.raises(InputError, match="presses: Input should be less than or equal to 9"):
            make_environment("lamp", presses=10)


def test_a_set_that_it_does_not_make_names_those_that_it_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, lamp=Lamp), pytest.raises(InputError, match=r"“lamp-test”. It makes: lamp-train\."):
        environment_class("lamp").make_tasks("lamp-test")


def test_its_own_sentences_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, lamp=Lamp), pytest.raises(InputError, match="about no lamp"):
        make_environment("lamp").reset(Task("t", "open a door", "lamp"), seed=1, at_step=1)


def test_what_this_machine_lacks_is_why_it_is_unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(kind: type) -> str:
        return "There is no bulb. Install one."

    def unlit(world: Lamp) -> None:
        raise OSError("no bulb")

    dark = type("Dark", (Lamp,), {"missing": classmethod(missing), "__init__": unlit})
    with installed(monkeypatch, dark=dark, lamp=Lamp):
        assert (why_unusable("dark"), why_unusable("lamp")) == ("There is no bulb. Install one.", "")
        assert environment_class("dark").spec.title == "Lamp"


# --- packages that offer none -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behind", "sentence"),
    [
        (
            ModuleNotFoundError("No module named 'lost'"),
            r"cannot be loaded \(ModuleNotFoundError: No module named 'lost'",
        ),
        (SystemExit(3), r"cannot be loaded \(SystemExit: 3\)"),
        (BaseException("panic\0\ud800"), r"cannot be loaded \(BaseException: panic\)"),
        (dict, r"offers no subclass of memrl_core\.environments\.base\.Environment\. Nothing was started; mend"),
        (Lamp(), "offers no subclass"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_package_without_an_environment_is_listed_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, behind: Any, sentence: str
) -> None:
    with installed(monkeypatch, odd=behind, lamp=Lamp):
        assert environment_names()[-2:] == ("odd", "lamp")
        for _ in range(2):
            with pytest.raises(InputError, match=f"“odd” .*{sentence}"):
                environment_class("odd")
        assert "“odd”" in why_unusable("odd")
        assert [name for name in ("odd", "lamp") if not why_unusable(name)] == ["lamp"]


def test_ctrl_c_while_a_package_is_imported_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, odd=KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        why_unusable("odd")


def test_a_package_that_was_mended_is_taken_without_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, odd=ImportError("half written")) as points:
        assert "half written" in why_unusable("odd")
        points["odd"].behind = Lamp
        assert why_unusable("odd") == ""


def test_an_unknown_environment_names_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, lamp=Lamp):
        with pytest.raises(InputError, match=r"no environment “kitchen”. Known: household, .*conversation, lamp\."):
            make_environment("kitchen")
        assert "x" * 81 not in why_unusable("x" * 5000)


# --- failures in a step -----------------------------------------------------------------------------------------------


def test_a_failure_in_a_step_is_a_sentence_and_the_step_goes_on_once_it_is_mended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Fuse(Lamp):
        blown = True

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            if self.blown:
                raise OSError("the fuse is blown")
            return super().step(action)

    with installed(monkeypatch, fuse=Fuse):
        agent = an_agent(tmp_path / "bank", environment="fuse")
        episode = agent.begin(LEFT)
        for _ in range(2):
            with pytest.raises(
                EnvironmentFailed,
                match=r"“fuse” failed in step \(OSError: the fuse is blown\)\. What came before is kept",
            ):
                episode.finish()
        assert not agent.bank.step_rows("r")
        monkeypatch.setattr(Fuse, "blown", False)
        episode.finish()
        assert [row.step for row in agent.bank.step_rows("r")] == [1]


def test_a_task_is_kept_as_it_is_whatever_a_world_does_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Takes(Lamp):
        def reset(self, task: Task, *, seed: int, at_step: int) -> str:
            told = super().reset(task, seed=seed, at_step=at_step)
            task.data.clear()  # type: ignore[attr-defined]
            return told

    task = Task("t", "light the left lamp", "lamp", "", {"switch": "left"})
    with installed(monkeypatch, lamp=Takes):
        make_environment("lamp").reset(task, seed=1, at_step=1)
    assert task.data == {"switch": "left"}


def test_a_judgement_is_for_people_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, lamp=Lamp):
        world = make_environment("lamp", presses=1)
        world.reset(LEFT, seed=1, at_step=1)
        observation, *_, info = world.step("press right")
        assert info["judgement"] == Judgement("left", "press right", "The lamp stayed off.")
        assert "left" not in observation + info["verdict"]
