"""`memrl tasks`: what it prints, what it leaves, and how it ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from memrl_core.bank import MemoryBank
from memrl_core.cli import main as cli
from memrl_core.cli import parts
from memrl_core.environments.own_tasks.files import check_file
from memrl_core.environments.tasks import keep, kept_sets, sample_data_path
from tests.cli.test_cli import home, memrl

__all__ = ["home"]

EXAMPLE = sample_data_path() / "task_files" / "example.jsonl"
GOOD = json.dumps({"intent": "What is two plus two?", "family": "sums", "reference": "4"})
LONG_TAIL = json.dumps({"intent": "x", "checker": "exact", "colour " + "and more " * 20: 1})


def a_file(folder: Path, *lines: str) -> str:
    path = folder / "mine.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def test_a_sound_file_is_told_and_ends_well(home: Path) -> None:
    code, message = memrl("tasks", "check", str(EXAMPLE))
    assert code == 0
    assert message.splitlines()[-1] == "12 accepted, 0 reported"
    assert "task_file" in message and "choices 2" in message
    assert "the answer" in message
    assert kept_sets() == ()


@pytest.mark.parametrize("columns", ["20", "40", "160"])
def test_every_fault_is_told_with_its_line_and_the_last_line_is_exact(
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
    code, message = memrl("tasks", "list")
    assert code == 0
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
    code, message = memrl("run", "--env", path, "--epochs", "3", "--bank", str(home / "bank"))
    assert code == 0, message
    assert "2 accepted, 1 reported" in message
    with MemoryBank.open(str(home / "bank")) as bank:
        (info,) = bank.runs()
        (kept,) = kept_sets()
        assert (info.environment, info.tasks) == ("task_file", kept.name)
        assert bank.trace(info.id, 6).reward.reward == 1.0
