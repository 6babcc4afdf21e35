"""Which environment and tasks a command is about: names win, and any file that is there counts as one of tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memrl_core.commands.choosing import environment_and_set
from memrl_core.environments.tasks import kept_sets
from memrl_core.errors import InputError

JUDGED = json.dumps({"intent": "Two and two?", "reference": "4"})
FOR_PEOPLE = json.dumps({"intent": "Thank a neighbour."})


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(name: str, *lines: str) -> str:
    Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return name


@pytest.mark.parametrize("name", ["plain.txt", "tasks", "mine.jsonl", "two words.JSON"])
def test_a_file_of_any_name_is_a_file_of_tasks(name: str) -> None:
    environment, task_set = environment_and_set(written(name, JUDGED), "")
    assert (environment, [task_set]) == ("task_file", [one.name for one in kept_sets()])
    assert environment_and_set("task_file", name) == (environment, task_set)


def test_names_of_environments_and_sets_win_over_files_named_alike() -> None:
    written("household", JUDGED)
    written("household-heldout", JUDGED)
    assert environment_and_set("household", "") == ("household", "household-train")
    assert environment_and_set("household", "household-heldout") == ("household", "household-heldout")


@pytest.mark.parametrize("name", ["moon", "x" * 5000, "a\x00b", ""])
def test_what_is_neither_a_name_nor_a_file_is_no_environment(name: str) -> None:
    with pytest.raises(InputError, match="no environment"):
        environment_and_set(name, "")


def test_a_file_that_is_not_there_is_told_as_a_file() -> None:
    with pytest.raises(InputError, match=r"mine\.jsonl"):
        environment_and_set("mine.jsonl", "")


@pytest.mark.parametrize("task_set", ["nonsense", "household-train", "mine.jsonl"])
def test_a_set_beside_a_file_is_refused(task_set: str) -> None:
    with pytest.raises(InputError, match="leave --set out"):
        environment_and_set(written("mine.jsonl", JUDGED), task_set)
    assert kept_sets() == ()


def test_a_file_for_another_environment_is_refused() -> None:
    with pytest.raises(InputError, match="task_file"):
        environment_and_set("household", written("mine.jsonl", JUDGED))


def test_a_file_of_which_nothing_can_be_used_names_the_command_that_tells_why() -> None:
    with pytest.raises(InputError, match=r"tasks check list\.json$"):
        environment_and_set(written("list.json", f"[{JUDGED}]"), "")


def test_tasks_that_only_people_can_judge_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    _, name = environment_and_set(written("mixed.jsonl", JUDGED, FOR_PEOPLE), "")
    for _ in range(2):
        assert "1 of 2" in " ".join(capsys.readouterr().out.split())
        environment_and_set("task_file", name)
    environment_and_set(written("judged.jsonl", JUDGED), "")
    capsys.readouterr()
    environment_and_set("task_file", "judged.jsonl")
    assert "People" not in capsys.readouterr().out


def test_an_environment_without_tasks_of_its_own_asks_for_a_file() -> None:
    with pytest.raises(InputError, match="--env"):
        environment_and_set("task_file", "")
