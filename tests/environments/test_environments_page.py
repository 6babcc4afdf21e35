"""The page on environments of one's own: its example is short, keeps the contract, and learns."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from memrl_core import environments
from memrl_core.environments import environment_class, environment_names, why_unusable
from memrl_core.environments.base import Environment, EnvironmentSpec
from memrl_core.environments.contract import CHECKS
from memrl_core.environments.tasks import tasks_of_set
from tests.builders import an_agent

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "own-environment.md").read_text(encoding="utf-8")
NAME = "guess_number"


def blocks(language: str) -> list[str]:
    """What stands on the page in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The class of the page, installed as the page says."""
    offered = tomllib.loads(blocks("toml")[0])["project"]["entry-points"]
    points = [f"[{group}]\n" + "".join(f"{n} = {t}\n" for n, t in found.items()) for group, found in offered.items()]
    information = tmp_path / f"{NAME}-0.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 0.1\n", encoding="utf-8")
    (information / "entry_points.txt").write_text("\n".join(points), encoding="utf-8")
    (tmp_path / f"{NAME}.py").write_text(blocks("python")[0], encoding="utf-8")
    with monkeypatch.context() as patched:
        patched.syspath_prepend(tmp_path)
        _forget()
        yield import_module(NAME).GuessNumber
    sys.modules.pop(NAME)
    _forget()


def _forget() -> None:
    environments.REGISTRY.foreign.cache_clear()
    environments.REGISTRY.loaded.cache_clear()


def test_the_example_is_short() -> None:
    assert len(blocks("python")[0].splitlines()) <= 30


def test_the_example_is_found_by_its_entry_point(example: Any) -> None:
    assert NAME in environment_names()
    assert why_unusable(NAME) == ""
    assert issubclass(environment_class(NAME), example)


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
