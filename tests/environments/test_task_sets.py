"""Sets of tasks by name: bundled, made by an environment, and kept by a person."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from memrl_core.environments.household import Household
from memrl_core.environments.own_tasks.files import check_file
from memrl_core.environments.tasks import (
    CheckedFile,
    damaged_sets,
    drop,
    environment_of,
    keep,
    kept_sets,
    named_tasks,
    sample_data_path,
    sample_tasks,
    set_names,
    task_count,
    tasks_of_set,
)
from memrl_core.errors import InputError
from memrl_core.records import Task

EXAMPLE = sample_data_path() / "task_files" / "example.jsonl"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def a_checked(*intents: str, name: str = "mine", environment: str = "task_file") -> CheckedFile:
    tasks = tuple(
        Task(f"t{n}", intent, environment, "f", {"reference": "é\u2028\n"}) for n, intent in enumerate(intents)
    )
    return CheckedFile(name, environment, tasks, ())


def file_of(home: Path, name: str) -> Path:
    return home / "tasks" / f"{name}.jsonl"


def test_what_is_kept_comes_back_as_it_was(home: Path) -> None:
    checked = check_file(EXAMPLE)
    name = keep(checked)
    assert name.startswith("example-") and tasks_of_set(name) == list(checked.accepted)
    odd = a_checked("one\u2028line", "two\nlines", "\U0001f642")
    assert tasks_of_set(keep(odd)) == list(odd.accepted)


def test_the_same_tasks_get_the_same_name_and_are_stored_once(home: Path) -> None:
    name = keep(a_checked("a", "b"))
    written = file_of(home, name).stat().st_mtime_ns
    assert keep(a_checked("a", "b")) == name
    assert file_of(home, name).stat().st_mtime_ns == written
    others = {keep(a_checked("a")), keep(a_checked("a", "c")), keep(a_checked("a", "b", name="other"))}
    assert len(others | {name}) == 4
    assert sorted(one.name for one in (home / "tasks").iterdir()) == sorted(f"{one}.jsonl" for one in others | {name})


def test_kept_sets_tell_their_environment_and_number(home: Path) -> None:
    name = keep(a_checked("a", "b"))
    (found,) = kept_sets()
    assert (found.name, found.environment, found.tasks) == (name, "task_file", 2)


@pytest.mark.parametrize("name", ["../up", "a b/c", "", "...", "日本", "-x-", "x" * 300, "con\x00trol"])
def test_any_name_of_a_file_makes_a_name_of_a_set(home: Path, name: str) -> None:
    made = keep(a_checked("a", name=name))
    assert file_of(home, made).is_file()
    assert [one.name for one in kept_sets()] == [made]
    assert tasks_of_set(made)[0].intent == "a"


def test_a_file_without_a_task_that_can_be_used_is_not_kept(home: Path) -> None:
    with pytest.raises(InputError, match="mine"):
        keep(a_checked())
    assert not home.exists()


def test_a_set_is_there_whole_or_not_at_all(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("memrl_core.environments.tasks.os.fsync", full)
    with pytest.raises(InputError, match="No space"):
        keep(a_checked("a"))
    assert list((home / "tasks").iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "changed", "emptied", "folder"])
def test_a_damaged_set_is_named_with_a_reason_and_mended_by_keeping_it_again(home: Path, damage: str) -> None:
    checked, whole = a_checked("a", "b"), keep(a_checked("c"))
    name = keep(checked)
    path = file_of(home, name)
    content = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    else:
        path.write_bytes({"cut": content[:-9], "changed": content.replace(b"a", b"e"), "emptied": b""}[damage])
    assert [one.name for one in kept_sets()] == [whole]
    (text,) = damaged_sets()
    assert text.where == name and text.reason
    with pytest.raises(InputError, match="Load"):
        tasks_of_set(name)
    if damage == "folder":
        path.rmdir()
    assert keep(checked) == name
    assert damaged_sets() == () and len(tasks_of_set(name)) == 2


def test_a_file_that_somebody_put_there_is_no_kept_set(home: Path) -> None:
    (home / "tasks").mkdir(parents=True)
    (home / "tasks" / "mine.jsonl").write_bytes(EXAMPLE.read_bytes())
    assert kept_sets() == () and [one.where for one in damaged_sets()] == ["mine"]


@pytest.mark.parametrize("content", [b"", b"\n", b"{}\n", b"[]\n", b"\xff\n"])
def test_a_file_that_was_made_to_look_kept_is_no_kept_set(home: Path, content: bytes) -> None:
    (home / "tasks").mkdir(parents=True)
    name = f"mine-{hashlib.sha256(content).hexdigest()[:8]}"
    file_of(home, name).write_bytes(content)
    assert kept_sets() == () and [one.where for one in damaged_sets()] == [name]


def test_a_dropped_set_is_gone_and_its_file_brings_it_back(home: Path) -> None:
    name = keep(a_checked("a"))
    drop(name)
    assert kept_sets() == () and set_names("task_file") == ()
    with pytest.raises(InputError, match=r"mine\.jsonl"):
        tasks_of_set(name)
    with pytest.raises(InputError, match="No set"):
        drop(name)
    assert keep(a_checked("a")) == name


@pytest.mark.parametrize("name", ["my tasks!.jsonl", "日本.txt", "x" * 39 + "-y z.json", "-a-.jsonl", "plain.json"])
def test_a_file_named_as_the_sentence_says_brings_its_set_back(home: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(json.dumps({"intent": "Well?"}))
    made = keep(check_file(tmp_path / name))
    drop(made)
    with pytest.raises(InputError) as caught:
        tasks_of_set(made)
    message = re.search(r"named (\S+\.jsonl)", str(caught.value))
    assert keep(check_file((tmp_path / name).rename(tmp_path / message[1]))) == made


def of_families(*families: str) -> str:
    tasks = tuple(Task(f"t{n}", "x", "task_file", one, {"reference": "y"}) for n, one in enumerate(families))
    return keep(CheckedFile("mine", "task_file", tasks, ()))


def test_a_family_with_a_comma_or_a_colon_can_be_measured_alone(home: Path) -> None:
    name = of_families("a", "b", "a, b", "c:d", " e ")
    for listed, chosen in (("a, b", ["a, b"]), ("a,b", ["a", "b"]), ("c:d", ["c:d"]), ("e", [" e "]), ("", None)):
        expected = chosen or ["a", "b", "a, b", "c:d", " e "]
        assert [task.family for task in named_tasks(f"{name}:{listed}")] == expected
    with pytest.raises(InputError, match="no family “z”"):
        named_tasks(f"{name}:a,z")


def test_what_only_people_can_judge_cannot_be_measured(home: Path) -> None:
    tasks = [Task("p", "x", "task_file", "for people"), Task("j", "x", "task_file", "judged", {"reference": "y"})]
    name = keep(CheckedFile("mine", "task_file", tuple(tasks), ()))
    assert named_tasks(name) == tasks and named_tasks(f"{name}:judged") == tasks[1:]
    with pytest.raises(InputError, match="people"):
        named_tasks(f"{name}:for people")
    with pytest.raises(InputError, match="people"):
        environment_of(keep(CheckedFile("mine", "task_file", (tasks[0],), ())))


@pytest.mark.parametrize(
    "name", ["../home/tasks/x-00000000", "/etc/passwd", "", "x", "x-0000000G", "a/b-00000000", "."]
)
def test_a_name_never_leads_out_of_the_folder(home: Path, name: str) -> None:
    keep(a_checked("a"))
    (home / "x-00000000.jsonl").write_text("{}")
    with pytest.raises(InputError, match="kept set"):
        drop(name)
    with pytest.raises(InputError, match="set of tasks"):
        tasks_of_set(name)
    assert (home / "x-00000000.jsonl").exists()


def test_bundled_sets_are_found_and_an_unknown_name_lists_all(home: Path) -> None:
    assert tasks_of_set("household-demo") == sample_tasks("household-demo")
    mine = keep(a_checked("a"))
    with pytest.raises(InputError, match="“moon”") as caught:
        tasks_of_set("moon")
    assert "household-train" in str(caught.value) and mine in str(caught.value)


def test_an_environment_may_make_a_set_itself(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [Task("m", "x", "household")]
    monkeypatch.setattr(Household, "sets", (*Household.sets, "household-made"))
    monkeypatch.setattr(
        Household, "make_tasks", classmethod(lambda cls, name: made if name == "household-made" else [])
    )
    assert tasks_of_set("household-made") == made
    assert (task_count("household-made"), task_count("household-demo")) == (None, len(sample_tasks("household-demo")))


def test_an_environment_has_its_own_sets_and_those_kept_for_it(home: Path) -> None:
    mine = keep(a_checked("a"))
    theirs = keep(a_checked("b", environment="household"))
    assert set_names("task_file") == (mine,)
    assert set_names("household") == (*Household.sets, theirs)
    assert task_count(mine) == 1
    with pytest.raises(InputError, match="“moon”"):
        set_names("moon")
