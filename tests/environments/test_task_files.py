"""A person's file of tasks: what is taken, and a reason for every line that is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrl_core.environments.own_tasks import files
from memrl_core.environments.own_tasks.files import check_file
from memrl_core.environments.tasks import LONGEST_INTENT, CheckedFile, sample_data_path
from memrl_core.errors import InputError
from tests.builders import numbers

EXAMPLE = sample_data_path() / "task_files" / "example.jsonl"
GOOD = {"intent": "What is two plus two?", "checker": "numeric", "reference": 4}
TABLE = "CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (1), (2)"
HOUSEHOLD = json.loads((sample_data_path() / "tasks" / "household-demo.jsonl").read_text().splitlines()[0])


def a_file(folder: Path, *lines: Any, name: str = "mine.jsonl", end: bytes = b"\n") -> Path:
    shown = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    (folder / name).write_bytes(end.join([*shown, b""]))
    return folder / name


def checked(folder: Path, *lines: Any, **how: Any) -> CheckedFile:
    return check_file(a_file(folder, *lines, **how))


def reason(folder: Path, line: Any) -> str:
    """Why a line between two good ones is reported; these must be taken."""
    found = checked(folder, {**GOOD, "id": "a"}, line, {**GOOD, "id": "b"})
    assert [task.id for task in found.accepted] == ["a", "b"]
    (reported,) = found.reported
    assert reported.where == "line 2"
    return reported.reason


def test_the_example_is_accepted_whole_and_has_every_checker() -> None:
    found = check_file(EXAMPLE)
    assert (found.name, found.environment, found.reported) == ("example", "task_file", ())
    assert 8 <= len(found.accepted) <= 12
    assert {t.data.get("checker") for t in found.accepted} == {"exact", "numeric", "regex", "choice", "sql", None}
    assert [note.where for note in found.notes] == ["line 12"]


def test_ids_and_checkers_that_are_left_out_are_made(tmp_path: Path) -> None:
    found = checked(tmp_path, {"intent": "Capital?", "reference": "Rome", "family": "towns"}, b"", {"intent": "Well?"})
    first, second = found.accepted
    assert (first.id, second.id) == ("mine-0001", "mine-0003")
    assert (first.family, dict(first.data)) == ("towns", {"checker": "exact", "reference": "Rome"})
    assert dict(second.data) == {}
    chosen = checked(tmp_path, {"intent": "Which?", "reference": "B", "choices": ["x", "y"], "setup": None})
    assert dict(chosen.accepted[0].data) == {"checker": "choice", "reference": "B", "choices": ["x", "y"]}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{not json", "Not JSON"),
        (b'{"intent": "cut off', "Not JSON"),
        (b"[1, 2]", "a JSON object"),
        (b"null", "a JSON object"),
        ({"reference": "x"}, "intent is missing"),
        ({"intent": None}, "intent is missing"),
        ({"intent": 5}, "intent is a text"),
        ({"intent": "  \u200b "}, "intent: "),
        ({"intent": "x" * (LONGEST_INTENT + 1)}, "20,001"),
        ({**GOOD, "checker": "numerical"}, "“numerical”"),
        ({**GOOD, "colour": "red"}, "“colour”"),
        ({**GOOD, "id": 7}, "id is a text"),
        ({**GOOD, "id": ""}, "id is empty"),
        ({**GOOD, "id": "\x1b[31m"}, "cannot be shown"),
        ({**GOOD, "family": ["a"]}, "family is a text"),
        ({"intent": "Count.", "checker": "sql", "setup": TABLE, "reference": "SELECT m FROM t"}, "no such column: m"),
        ({**GOOD, "id": "a"}, "line 1"),
        (b'{"intent": "x", "reference": NaN}', "Not JSON"),
        (b'{"intent": "x", "checker": "numeric", "reference": 1e999}', "no finite"),
        (b'{"intent": "x", "checker": "numeric", "reference": ' + b"9" * 9000 + b"}", "Not JSON"),
        (b'{"intent": "x", "reference": "\\ud800"}', "Not JSON"),
        (b'{"intent": "caf\xe9"}', "0xE9: probably Windows-1252 (cp1252), in which it reads “café”"),
        ('{"intent": "Сколько дней?"}'.encode("cp1251"), "Not UTF-8 at the byte 0xD1: perhaps Windows-1251"),
        ('{"intent": "wie schön"}'.encode("cp850"), "Not UTF-8 at the byte 0x94"),
        (b'{"intent": "a\x00b"}', "Not JSON"),
        (b'{"intent": "x", "reference": "a\\u0000b"}', "cannot be shown"),
        (b"\x00" * 50, "Not JSON"),
        (b"[" * 200_000, "Not JSON"),
        (b'{"intent": "' + b"x" * 1_000_000 + b'"}', "1,000,014"),
        ({**HOUSEHOLD, "id": "z"}, "household"),
        ({"intent": "x", "environment": "moon"}, "“moon”"),
        ({"intent": "x", "environment": "task_file", "reference": "y"}, "“reference”"),
        ({"intent": "x", "environment": "task_file", "data": []}, "data is an object"),
    ],
)
def test_a_line_that_cannot_be_used_is_reported_and_the_others_are_kept(tmp_path: Path, line: Any, says: str) -> None:
    assert says in reason(tmp_path, line)


def test_the_programs_own_form_goes_through_its_environment(tmp_path: Path) -> None:
    found = checked(tmp_path, HOUSEHOLD, {**GOOD, "id": "mine"})
    assert (found.environment, [task.data for task in found.accepted]) == ("household", [HOUSEHOLD["data"]])
    assert "task_file" in found.reported[0].reason
    tried = {"intent": "x", "environment": "sql", "data": {"tables": [], "kind": "query", "reference": "SELECT 1"}}
    assert "tables" in checked(tmp_path, tried).reported[0].reason


def test_a_mark_and_line_ends_of_other_systems_make_no_difference(tmp_path: Path) -> None:
    plain = checked(tmp_path, GOOD, {"intent": "Well?"})
    for end in (b"\r\n", b"\r"):
        assert checked(tmp_path, b"\xef\xbb\xbf" + json.dumps(GOOD).encode(), {"intent": "Well?"}, end=end) == plain


def test_a_file_of_other_json_is_reported_once(tmp_path: Path) -> None:
    for lines, how in (([b"{", b'  "intent": "x"', b"}"], "array"), ([b"{", b' "tasks": []', b"}"], "“tasks”")):
        (reported,) = checked(tmp_path, *lines).reported
        assert reported.where == "line 1" and "one JSON object" in reported.reason and how in reported.reason


def test_a_json_array_is_read_like_lines(tmp_path: Path) -> None:
    good = {**GOOD, "id": "a"}
    for indent in (None, 2):
        array = json.dumps([good, {"intent": "Well?"}, {**GOOD, "checker": "odd"}, 7], indent=indent).encode()
        found = checked(tmp_path, array, name="mine.json")
        assert [task.id for task in found.accepted] == ["a", "mine-0002"]
        assert [(one.where, one.reason[:20]) for one in found.reported] == [
            ("entry 3", "There is no checker "),
            ("entry 4", "A task is a JSON obj"),
        ]
        assert [note.where for note in found.notes] == ["entry 2"]
    lines = checked(tmp_path, good, {"intent": "Well?"})
    assert lines.accepted == found.accepted


def test_a_json_array_that_is_no_utf8_or_means_nothing_is_reported_once(tmp_path: Path) -> None:
    for array, where, says in (
        ('[\n {"intent": "x"},\n {"intent": "heiß"}\n]'.encode("cp1252"), "line 3", "“heiß”"),
        (b'[{"intent": "x", "reference": NaN}]', "line 1", "Not JSON"),
    ):
        found = checked(tmp_path, array, name="mine.json")
        assert found.accepted == ()
        assert [one.where for one in found.reported] == [where] and says in found.reported[0].reason


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_is_read_by_its_heading(tmp_path: Path, separator: str) -> None:
    rows = (
        ("Intent", "reference", "checker", "choices", "tolerance", "family"),
        ("How many, exactly?", "366", "numeric", "", "0.5", "days"),
        ('"Which?\nSay one."', "Elbe", "", "Elbe | Etna", "", ""),
        ("", "", "", "", "", ""),
        ("Well?", "", "", "", "", ""),
    )
    quoted = [[f'"{cell}"' if separator in cell else cell for cell in row] for row in rows]
    data = b"\xef\xbb\xbf" + "\r\n".join(separator.join(row) for row in quoted).encode()
    found = checked(tmp_path, data, name="mine.tsv" if separator == "\t" else "mine.csv")
    assert found.reported == ()
    assert [(task.intent, task.family, dict(task.data)) for task in found.accepted] == [
        ("How many, exactly?", "days", {"checker": "numeric", "reference": "366", "tolerance": 0.5}),
        ("Which?\nSay one.", "", {"checker": "choice", "reference": "Elbe", "choices": ["Elbe", "Etna"]}),
        ("Well?", "", {}),
    ]
    assert [note.where for note in found.notes] == ["line 6"]


@pytest.mark.parametrize(
    ("table", "where", "says"),
    [
        (b"question,reference\nWhat?,4", "line 1", "“question” is no key of a task; those are "),
        (b"reference,checker\n4,exact", "line 1", "no column “intent”"),
        (b"intent,intent\na,b", "line 1", "two columns"),
        (b'intent,reference\nWhat?,"4\nNext?,5', "line 2", "look for a quote"),
        (b"intent,reference\nHow many, then?,4\n", "line 2", "3 cells, not 2"),
        (b'intent,reference,tolerance,checker\nHow many?,4,"0,5",numeric\n', "line 2", "0.5, not “0,5”"),
        ("intent,reference\nWhat?,4\nheiß?,5".encode("cp1252"), "line 3", "“heiß”"),
        (b"intent,reference,checker\nWhat?,four,numeric", "line 2", "not one number"),
    ],
)
def test_what_a_table_lacks_is_named_with_its_line(tmp_path: Path, table: bytes, where: str, says: str) -> None:
    (reported,) = checked(tmp_path, table, name="mine.csv").reported
    assert reported.where == where and says in reported.reason


def test_a_first_line_that_is_damaged_costs_no_other(tmp_path: Path) -> None:
    for damaged in (b"{", b"[", b"{}", b'"', b'{"0": {}}'):
        found = checked(tmp_path, damaged, GOOD, b"oops")
        assert (len(found.accepted), [one.where for one in found.reported]) == (1, ["line 1", "line 3"])


def test_a_file_of_db_bench_goes_to_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"instruction": "How many?", "table_info": {}}
    seen: list[bytes] = []

    monkeypatch.setattr(files, "read_lifelong", lambda raw: seen.append(raw) or _Nothing())
    for indent in (None, 1):
        text = json.dumps({"0": entry, "1": entry}, indent=indent).encode()
        assert checked(tmp_path, text, name="standard.json").reported == (("entry 0", "no"),)
        assert json.loads(seen.pop()) == {"0": entry, "1": entry}


class _Nothing:
    tasks, reported, notes = (), (("entry 0", "no"),), ()


def test_what_cannot_be_read_as_a_whole_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "huge").touch()
    with (tmp_path / "huge").open("r+b") as file:
        file.truncate(200_000_001)
    (tmp_path / "blank").write_bytes(b"\xef\xbb\xbf \n\r\n\t\n")
    (tmp_path / "wide").write_text(json.dumps(GOOD), encoding="utf-16")
    (tmp_path / "unmarked").write_text(json.dumps(GOOD), encoding="utf-16-be")
    (tmp_path / "mine.xlsx").write_bytes(b"PK\x03\x04 and so on")
    (tmp_path / "mine.parquet").write_bytes(b"PAR1 and so on")
    for name, says in (
        ("", "is a folder"),
        ("nothing", "There is no file"),
        ("huge", "200 MB"),
        ("blank", "is empty"),
        ("wide", "UTF-16"),
        ("unmarked", "UTF-16"),
        ("mine.xlsx", "Excel"),
        ("mine.parquet", "Parquet"),
    ):
        with pytest.raises(InputError, match=says):
            check_file(tmp_path / name)


def test_an_unreadable_file_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    path = a_file(tmp_path, GOOD)
    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(InputError, match="Permission denied"):
        check_file(path)


def test_many_tasks_for_people_make_one_note(tmp_path: Path) -> None:
    (note,) = checked(tmp_path, GOOD, {"intent": "Well?"}, {"intent": "And?"}).notes
    assert numbers(note.where) == ["2", "2"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=60).filter(lambda line: not {10, 13} & set(line)), max_size=5), st.integers(0, 5))
def test_every_filled_line_is_either_accepted_or_reported(tmp_path: Path, noise: list[bytes], at: int) -> None:
    lines = [b'{"intent": "first"}', *noise]
    lines.insert(at + 1, b'{"intent": "good", "reference": "x"}')
    found = checked(tmp_path, *lines)
    filled = sum(bool(line.strip()) for line in lines)
    assert len(found.accepted) + len(found.reported) == filled
    assert "good" in {task.intent for task in found.accepted}
