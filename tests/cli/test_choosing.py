"""Which environment and tasks a command is about: names win, and any file that is there counts as one of tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memrl_core.cli.parts import environment_and_set
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


@pytest.mark.parametrize(
    ("environment", "task_set", "sentence"),
    [
        *((name, "", "no environment") for name in ("moon", "x" * 5000, "a\x00b", "")),
        ("not there.jsonl", "", r"not there\.jsonl"),
        *(("mine.jsonl", task_set, "leave --set out") for task_set in ("nonsense", "household-train", "mine.jsonl")),
        ("list.json", "", r"tasks check list\.json$"),
        ("task_file", "", "--env"),
    ],
)
def test_what_gives_no_environment_with_tasks_is_refused(environment: str, task_set: str, sentence: str) -> None:
    written("mine.jsonl", JUDGED)
    written("list.json", f"[{JUDGED}]")
    with pytest.raises(InputError, match=sentence):
        environment_and_set(environment, task_set)
    assert kept_sets() == ()


def test_a_file_for_another_environment_is_refused() -> None:
    with pytest.raises(InputError, match="task_file"):
        environment_and_set("household", written("mine.jsonl", JUDGED))


def test_tasks_that_only_people_can_judge_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    _, name = environment_and_set(written("mixed.jsonl", JUDGED, FOR_PEOPLE), "")
    for _ in range(2):
        assert "1 of 2" in " ".join(capsys.readouterr().out.split())
        environment_and_set("task_file", name)
    environment_and_set(written("judged.jsonl", JUDGED), "")
    capsys.readouterr()
    environment_and_set("task_file", "judged.jsonl")
    assert "People" not in capsys.readouterr().out
