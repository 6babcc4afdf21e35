"""The page on environments of one's own: its example is short, keeps the contract, and learns."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from memrl_core.environments import GROUP, environment_class, why_unusable
from memrl_core.environments.base import Environment, EnvironmentSpec
from memrl_core.environments.contract import CHECKS
from memrl_core.environments.task_sets import tasks_of_set
from tests.builders import an_agent
from tests.core.foreign_environments import installed

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text(encoding="utf-8")
NAME = "guess_number"


def blocks(language: str) -> list[str]:
    """What stands on the page in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The class of the page, installed as the page says."""
    module = ModuleType(NAME)
    exec(compile(blocks("python")[0], f"{NAME}.py", "exec"), vars(module))
    monkeypatch.setitem(sys.modules, NAME, module)
    with installed(monkeypatch, **{NAME: module.GuessNumber}):
        yield module.GuessNumber


def test_the_example_is_short() -> None:
    assert len(blocks("python")[0].splitlines()) <= 30


def test_the_example_is_found_by_its_entry_point(example: Any) -> None:
    ((name, target),) = tomllib.loads(blocks("toml")[0])["project"]["entry-points"][GROUP].items()
    module, _, found = target.partition(":")
    assert name == NAME
    assert getattr(sys.modules[module], found) is example
    assert why_unusable(NAME) == ""


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_example_keeps_the_contract_alone_and_guarded(example: Any, check: Any) -> None:
    for made in (example, environment_class(NAME)):
        for task in tasks_of_set(f"{NAME}-train"):
            check(made, task)


def test_the_checks_of_the_page_run(example: Any) -> None:
    given: dict[str, Any] = {}
    exec(blocks("python")[1], given)
    assert given["TASKS"] == tasks_of_set(f"{NAME}-train")
    for check in CHECKS:
        given["test_it_keeps_the_contract"](check, given["TASKS"][0])


def test_memory_gains_in_a_run_of_the_example_with_the_simulated_model(example: Any, tmp_path: Path) -> None:
    tasks = tasks_of_set(f"{NAME}-train")
    agent = an_agent(tmp_path / "bank", environment=NAME)
    found = [trace.reward.outcome == "success" for trace in agent.run(tasks, epochs=4) if trace.reward is not None]
    epochs = [sum(found[at : at + len(tasks)]) for at in range(0, len(found), len(tasks))]
    assert len(epochs) == 4
    assert epochs[0] < epochs[-1] <= len(tasks)


def test_the_page_names_every_part_of_an_environment() -> None:
    parts = {name for name in (*vars(Environment), *Environment.__annotations__) if not name.startswith("_")}
    named = {part for row in re.findall(r"^\| `(\w+)", PAGE, re.MULTILINE) for part in [row]}
    assert named == parts - {"name"}
    assert all(f"`{field}`" in PAGE for field in EnvironmentSpec.__slots__)
