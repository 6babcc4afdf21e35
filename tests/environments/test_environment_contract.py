"""The contract of environments: the program's own keep it, and its checks find what breaks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from memrl_core.environments import ENVIRONMENTS, contract, environment_class, make_environment
from memrl_core.environments.base import Environment
from memrl_core.environments.contract import CHECKS, layout_breaks
from memrl_core.environments.tasks import sample_tasks, tasks_of_set
from memrl_core.records import Outcome, Task, Turn
from tests.environments.foreign_environments import LEFT, Lamp

Check = Callable[[Callable[[], Environment], Task], None]

BOATS = {
    "tables": [
        {
            "name": "boats",
            "create": "CREATE TABLE boats (name TEXT, crew INT)",
            "rows": [["Ada", 4], ["Bo", 2], ["Cleo", 7]],
        }
    ],
    "kind": "query",
    "reference": "SELECT name FROM boats WHERE crew > 3 ORDER BY crew",
    "ordered": True,
    "near_misses": ["SELECT name FROM boats WHERE crew > 3 ORDER BY crew DESC", "SELECT name FROM boats"],
}
FLEET = {**BOATS, "kind": "modification", "reference": "DELETE FROM boats WHERE crew = 2", "ordered": False}
FLEET["near_misses"] = ["DELETE FROM boats WHERE crew > 2"]


def some(environment: str, *data: Mapping[str, Any]) -> list[Task]:
    """Tasks made by hand."""
    return [Task(f"t-{number}", f"do number {number}", environment, "", one) for number, one in enumerate(data)]


TASKS: Mapping[str, Callable[[], Sequence[Task]]] = {
    "household": lambda: sample_tasks("household-train")[:3],
    "helpdesk": lambda: environment_class("helpdesk").make_tasks("helpdesk-train")[::150],
    "parametric": lambda: environment_class("parametric").make_tasks("parametric-middle")[::900],
    "sql": lambda: sample_tasks("sql-train")[:2],
    "lifelong_db": lambda: some("lifelong_db", BOATS, FLEET),
    "scienceworld": lambda: some("scienceworld", {"task": "find-non-living-thing", "variation": 0}),
    "textworld": lambda: environment_class("textworld").make_tasks("textworld-train")[:1],
    "reasoning": lambda: environment_class("reasoning").make_tasks("reasoning-train")[::55],
    "task_file": lambda: some("task_file", {"checker": "numeric", "reference": "7351"}, {"reference": "quetzal"}, {}),
    "conversation": lambda: sample_tasks("conversation")[:1],
}

# Starting Java, and making a game, takes seconds.
NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if name in ("scienceworld", "textworld") else name
    for name in ENVIRONMENTS
]


@pytest.fixture(scope="module", autouse=True)
def _games(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What engines make for their tasks is made once."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MEMRL_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_the_programs_own_environments_keep_the_contract(name: str, check: Check) -> None:
    found = environment_class(name)
    if lacking := found.missing():
        pytest.fail(lacking)
    shorter = {"max_turns": 6} if "max_turns" in found.Options.model_fields else {}
    options = [{}, found.simulated_options] if found.simulated_options else [{}]
    for given in options:
        for task in TASKS[name]():
            check(lambda given=given: make_environment(name, **{**given, **shorter}), task)


@pytest.mark.parametrize("name", NAMES)
def test_in_every_environment_a_person_decides_whether_the_model_adds_its_own_words(name: str) -> None:
    usual = environment_class(name).Options.model_fields["own_words"].default
    made = [make_environment(name), make_environment(name, own_words="true"), make_environment(name, own_words="false")]
    assert [world.own_words for world in made] == [usual, True, False]
    assert environment_class(name).own_words is usual is (name not in {"helpdesk", "parametric"})


@pytest.mark.parametrize("name", NAMES)
def test_every_set_that_an_environment_names_has_tasks_of_it(name: str) -> None:
    found = environment_class(name)
    assert found.name == name
    if found.sets and (lacking := found.missing()):
        pytest.fail(lacking)
    for tasks in map(tasks_of_set, found.sets):
        assert tasks and {task.environment for task in tasks} == {name}
        assert len({task.id for task in tasks}) == len(tasks)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_lamp_keeps_the_contract(check: Check) -> None:
    check(a_lamp(), LEFT)


# --- what the checks find out -----------------------------------------------------------------------------------------


def a_lamp(**given: Any) -> Callable[[], Environment]:
    """Makes the lamp, with something else in it."""
    return lambda: type("Odd", (Lamp,), {"name": "lamp", **given})()


def gives(given: Any) -> Callable[..., Any]:
    """A method that gives this back."""
    return lambda *_, **__: given


class Remembers(Lamp):
    """Knows in a new episode how far the last one came."""

    name = "lamp"
    pressed = 0

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        reported = super().reset(task, seed=seed, at_step=at_step)
        self.left -= self.pressed % 2
        return reported

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        given = super().step(action)
        self.pressed = 0 if given[2] or given[3] else self.pressed + 1
        return given


class Tells(Lamp):
    """Writes the number that it was made with, which nobody can see, into what is remembered."""

    name = "lamp"
    seed_option = "number"

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self.number = number

    def distil(self, task: Task, turns: Sequence[Turn], outcome: Outcome) -> str:
        return f"{super().distil(task, turns, outcome)}\nIt was {self.number}."


class Breaks(Lamp):
    """Cannot be reset once it was closed."""

    name = "lamp"
    closed = False

    def close(self) -> None:
        self.closed = True

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        if self.closed:
            raise RuntimeError("the lamp is gone")
        return super().reset(task, seed=seed, at_step=at_step)


def with_end(**info: Any) -> Callable[..., Any]:
    """A `step` whose last turn tells something else."""

    def step(world: Lamp, action: str) -> Any:
        *turn, reported = Lamp.step(world, action)
        return (*turn, {**reported, **{key: one(world) for key, one in info.items()}} if reported else reported)

    return step


def needs_a_word(world: Any, action: str) -> Any:
    """A `step` that fails when nothing is said."""
    if not action.strip():
        raise IndexError("list index out of range")
    return Lamp.step(world, action)


def echo(world: Any, action: str) -> Any:
    """A `step` that says again all that it was told."""
    observation, *rest = Lamp.step(world, action)
    return (action + observation, *rest)


def hidden(world: Any, task: Task, **_: Any) -> str:
    """A `reset` that names no switch."""
    world.works, world.left = "xlii", 3
    return "The lamp is off."


drawn = count()


@pytest.mark.parametrize(
    ("check", "make", "sentence"),
    [
        (contract.knows_its_task, a_lamp(name="light"), "“lamp”.*“light”"),
        (contract.knows_its_task, a_lamp(faults=classmethod(gives(["It is dark."]))), "It is dark"),
        (contract.ends_within_its_turns, a_lamp(step=gives(("", 2.0, True, False, {}))), "reward is 2"),
        (contract.ends_within_its_turns, a_lamp(step=gives(("", 1.0, True, False, {}))), "None"),
        (contract.ends_within_its_turns, a_lamp(step=gives(("", 0.0, False, False, {}))), "not ended"),
        (
            contract.plays_alike_from_the_same_seed,
            a_lamp(reset=lambda world, task, **_: f"{Lamp.reset(world, task, **_)}{task.data.update(seen=True) or ''}"),
            "changes the data",
        ),
        (
            contract.plays_alike_from_the_same_seed,
            a_lamp(reset=lambda world, task, **_: f"{Lamp.reset(world, task, **_)} {next(drawn)}"),
            "first observation",
        ),
        (
            contract.plays_alike_from_the_same_seed,
            a_lamp(step=lambda world, action: (f"{next(drawn)}", *Lamp.step(world, action)[1:])),
            "turn 1",
        ),
        (
            contract.plays_alike_from_the_same_seed,
            a_lamp(step=with_end(verdict=lambda world: f"It took {next(drawn)} s.")),
            "at the end",
        ),
        (contract.ends_within_its_turns, a_lamp(step=needs_a_word), "nothing: IndexError"),
        (contract.ends_within_its_turns, a_lamp(step=echo), "ten megabytes"),
        (
            contract.ends_within_its_turns,
            a_lamp(step=lambda world, action: (*Lamp.step(world, action)[:2], False, False, {})),
            "3 actions",
        ),
        (
            contract.gives_no_answer_away,
            a_lamp(step=with_end(verdict=lambda world: "It was number  XLII."), reset=hidden),
            "verdict",
        ),
        (contract.begins_anew, lambda: Remembers(), "After an unfinished episode"),
        (contract.begins_anew, lambda: Breaks(), "`reset`: RuntimeError: the lamp is gone"),
        (contract.distils_however_it_ended, a_lamp(distil=gives("I pressed a switch.")), "“Task: light the"),
        (contract.distils_however_it_ended, a_lamp(distil=gives(None)), "`distil`.*success"),
        (
            contract.remembers_only_what_was_seen,
            a_lamp(distil=lambda world, task, *_: f"Task: {task.intent}\nTry press {task.data['switch']}."),
            "“switch”.*“Try press left.”",
        ),
        (
            contract.remembers_only_what_was_seen,
            a_lamp(distil=lambda world, task, *_: f"Task: {task.intent}\nOf the kind {task.family}."),
            "family.*“Of the kind lamp.”",
        ),
        (contract.remembers_only_what_was_seen, lambda: Tells(), "number.*“It was 0.”"),
        (contract.fits_the_layout, a_lamp(instructions=" "), "`instructions` is ' '"),
        (contract.fits_the_layout, a_lamp(offered=gives("You can:\n- press left\nNow!")), "offer"),
    ],
)
def test_what_breaks_the_contract_is_found_by_its_check(check: Check, make: Any, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check(make, replace(LEFT, data=dict(LEFT.data)))


@pytest.mark.parametrize("data", [{"switch": {"left"}}, {"switch": ("left",)}])
def test_a_task_that_is_no_json_is_found(data: Mapping[str, Any]) -> None:
    with pytest.raises(AssertionError, match="data"):
        contract.knows_its_task(a_lamp(), replace(LEFT, data=data))


def test_what_a_model_has_read_is_not_given_away() -> None:
    reported = with_end(verdict=lambda world: f"Press the {world.works} switch.")
    contract.gives_no_answer_away(a_lamp(step=reported), LEFT)


@pytest.mark.parametrize(
    ("observation", "fits"),
    [
        ("", True),
        ("You see a lamp.", True),
        ("A lamp.\nYou can:\n- press left\n- press right", True),
        ("- a list of things\n- without a choice", True),
        ("You can:", False),
        ("You can:\n- ", False),
        ("You can:\n- press left\n\n- press right", False),
        ("You can:\n* press left", False),
        ("## Your task\n", False),
        ("[memory r-0001]", False),
    ],
)
def test_an_observation_fits_the_layout_or_not(observation: str, fits: bool) -> None:
    assert (layout_breaks(observation) == "") is fits
