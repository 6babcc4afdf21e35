"""`memrl tasks`: what it prints, what it leaves, and how it ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from memrl_core.bank import MemoryBank
from memrl_core.cli import main as cli
from memrl_core.cli import parts
from memrl_core.cli.parts import environment_and_set
from memrl_core.environments.own_tasks.files import check_file
from memrl_core.environments.tasks import keep, kept_sets, sample_data_path
from memrl_core.errors import InputError
from tests.cli.conftest import memrl, printed

EXAMPLE = sample_data_path() / "task_files" / "example.jsonl"
GOOD = json.dumps({"intent": "What is two plus two?", "family": "sums", "reference": "4"})
LONG_TAIL = json.dumps({"intent": "x", "checker": "exact", "colour " + "and more " * 20: 1})


def a_file(folder: Path, *lines: str) -> str:
    return written(str(folder / "mine.jsonl"), *lines)


def test_a_sound_file_is_reported_and_ends_well(home: Path) -> None:
    message = printed("tasks", "check", str(EXAMPLE))
    assert message.splitlines()[-1] == "12 accepted, 0 reported"
    assert "task_file" in message and "choices 2" in message
    assert "the answer" in message
    assert kept_sets() == ()


@pytest.mark.parametrize("columns", ["20", "40", "160"])
def test_every_fault_is_reported_with_its_line_and_the_last_line_is_exact(
    home: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(parts.console, "_width", int(columns))
    code, message = memrl("tasks", "check", a_file(home, GOOD, "{oops", GOOD, LONG_TAIL, "[]"))
    assert code == 1
    assert message.endswith("\n2 accepted, 3 reported\n")
    words = " ".join(message.split())
    for line in (2, 4, 5):
        assert f"line {line}" in words or columns == "20"
    assert "JSON" in words


def test_what_cannot_be_read_is_a_sentence_on_the_error_stream_and_code_2(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["memrl", "tasks", "check", str(home / "nothing.jsonl")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    message = capsys.readouterr()
    assert (ended.value.code, message.out) == (2, "")
    assert "no file" in message.err and "Traceback" not in message.err
    assert memrl("tasks", "check", str(home))[0] == 2
    assert memrl("tasks", "check", a_file(home))[0] == 2


def test_markup_and_control_characters_of_a_file_are_shown_as_they_are(home: Path) -> None:
    hostile = {"intent": "x", "[red]": 1, "[/]": 2, "[link=http://a]": 3, ":boom:": 4, "\x1b[2J": 5}
    family = json.dumps({"intent": "x", "family": "[bold]f[/bold] [/]"})
    code, message = memrl("tasks", "check", a_file(home, json.dumps(hostile), family))
    assert code == 1
    for shown in ("“[red]”", "“[/]”", "“[link=http://a]”", "“:boom:”", "“ [2J”", "[bold]f[/bold] [/] 1"):
        assert shown in message
    assert "\x1b" not in message
    assert message.endswith("\n1 accepted, 1 reported\n")


def test_all_faults_are_listed_however_many(home: Path) -> None:
    _, message = memrl("tasks", "check", a_file(home, *["{oops"] * 300))
    assert all(f"line {number} " in message for number in range(1, 301))
    assert message.endswith("\n0 accepted, 300 reported\n")


def test_the_list_names_environments_with_their_sets_and_starts_no_engine(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "environment_names", lambda: ("household", "task_file", "conversation", "gone"))
    monkeypatch.setattr(parts, "why_unusable", lambda name: "The [engine] is not here." if name == "gone" else "")
    monkeypatch.setattr(parts, "task_count", lambda name: None if name == "household-demo" else 7)
    mine = keep(check_file(EXAMPLE))
    (home / "home" / "tasks" / "odd-00000000.jsonl").write_text("[red]")
    message = printed("tasks", "list")
    lines = {line.split()[0]: line for line in message.splitlines() if line.strip()}
    assert "household-train" in lines["household"] and lines["household"].rstrip().endswith("7")
    assert "asked for" in lines["household-demo"]
    assert mine in lines["task_file"]
    assert "not here" in lines["gone"]
    assert "damaged" in lines["odd-00000000"]


def test_the_example_can_be_saved_and_checked(home: Path) -> None:
    code, message = memrl("tasks", "example")
    assert (code, message) == (0, EXAMPLE.read_text(encoding="utf-8"))


def test_a_run_takes_a_file_of_tasks(home: Path) -> None:
    path = a_file(home, GOOD, "{oops", json.dumps({"intent": "Which?", "choices": ["x", "y"], "reference": "y"}))
    message = printed("run", "--env", path, "--epochs", "3", "--bank", str(home / "bank"))
    assert "2 accepted, 1 reported" in message
    with MemoryBank.open(str(home / "bank")) as bank:
        (info,) = bank.runs()
        (kept,) = kept_sets()
        assert (info.environment, info.tasks) == ("task_file", kept.name)
        assert bank.trace(info.id, 6).reward.reward == 1.0
    code, message = memrl("run", "--resume", info.id, "--epochs", "1", "--bank", str(home / "bank"))
    assert code == 2 and "has 6 steps, and 1 epoch of its 2 tasks is 2" in " ".join(message.split())


# --- which tasks a command is about: names win, and any other file that is there counts as one of tasks ---------------

JUDGED = json.dumps({"intent": "Two and two?", "reference": "4"})
FOR_PEOPLE = json.dumps({"intent": "Thank a neighbour."})


@pytest.fixture(autouse=True)
def here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def written(name: str, *lines: str) -> str:
    Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return name


@pytest.mark.parametrize("name", ["plain.txt", "tasks", "mine.jsonl", "two words.JSON"])
def test_a_file_of_any_name_is_a_file_of_tasks(name: str) -> None:
    environment, task_set = environment_and_set(written(name, JUDGED), "")
    assert (environment, [task_set]) == ("task_file", [one.name for one in kept_sets()])
    assert environment_and_set("task_file", name) == (environment, task_set)


def test_an_array_and_a_table_are_files_of_tasks_too() -> None:
    written("list.json", f"[{JUDGED}]")
    written("table.csv", "intent;reference\nWhat?;4\n")
    names = [environment_and_set(name, "") for name in ("list.json", "table.csv")]
    assert [(one.environment, one.tasks) for one in kept_sets()] == [("task_file", 1)] * 2
    assert sorted(names) == [("task_file", one.name) for one in kept_sets()]


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
    written("list.json", "[7]")
    with pytest.raises(InputError, match=sentence):
        environment_and_set(environment, task_set)
    assert kept_sets() == ()


def test_a_file_for_another_environment_is_refused() -> None:
    with pytest.raises(InputError, match="task_file"):
        environment_and_set("household", written("mine.jsonl", JUDGED))


def test_tasks_that_only_people_can_judge_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    _, name = environment_and_set(written("mixed.jsonl", JUDGED, FOR_PEOPLE), "")
    for _ in range(2):
        assert "1 of 2" in " ".join(capsys.readouterr().out.split())
        environment_and_set("task_file", name)
    environment_and_set(written("judged.jsonl", JUDGED), "")
    capsys.readouterr()
    environment_and_set("task_file", "judged.jsonl")
    assert "People" not in capsys.readouterr().out
