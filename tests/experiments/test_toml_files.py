"""Faults in a TOML file are reported with the line, the key and what is allowed."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from memrl_core.errors import InputError
from memrl_core.experiments import toml_files
from memrl_core.experiments.plan import Plan
from memrl_core.experiments.toml_files import line_of, read_model

TEXT = '''title = "a"
text = """
[not.a.table]
x = 3
"""

[world]
shift = [1, 2]

[[arms]]
name = "one"
settings = { k1 = 3 }

[[arms]]
name = "two"
[arms.settings]
k1 = -4
'''


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")
    k1: int = Field(3, ge=1)


class AnArm(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    settings: Settings = Settings()


class World(BaseModel):
    model_config = ConfigDict(extra="forbid")
    shift: list[int] = []
    kind: Literal["calm", "stormy"] = "calm"


class File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    title: str
    text: str = ""
    world: World | None = None
    arms: list[AnArm] = []


def fault_of(tmp_path: Path, text: str) -> str:
    path = tmp_path / "f.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_model(path, File)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "where", "line"),
    [
        (TEXT, ("world", "shift", 1), 8),
        (TEXT, ("world",), 7),
        (TEXT, ("arms", 0, "settings", "k1"), 12),
        (TEXT, ("arms", 1, "name"), 15),
        (TEXT, ("arms",), 10),
        (TEXT, ("arms", 1, "missing"), 14),
        (TEXT, ("nowhere",), None),
        (TEXT, (), None),
        ("[[a]]\n[[a.b]]\nx = 1\n[[a]]\n[[a.b]]\nx = 3\n", ("a", 1, "b", 0, "x"), 6),
        ("x = 1\n" + "#\n" * 100_000, ("nowhere",), None),
    ],
)
def test_a_key_is_found_on_its_line(text: str, where: tuple[str | int, ...], line: int | None) -> None:
    assert line_of(text, where) == line


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        pytest.param(TEXT, ["f.toml, line 17: arms.2.settings.k1: ", "-4"], id="out of range"),
        pytest.param('title = "a"\n[[arms]]\nname = "b"\nsetings = {}\n', ["arms.1.setings"], id="unknown key"),
        pytest.param('title = "a"\n[world]\nkind = "windy"\n', ["world.kind"], id="unknown choice"),
        pytest.param('text = "a"\n', ["is missing"], id="missing key"),
        pytest.param('title = "a"\nworld = [1,\n= 3\n', ["is not TOML", "line 3"], id="not TOML"),
        pytest.param(f"title = {'[' * 3000}{']' * 3000}\n", ["too deeply"], id="lists in lists"),
        pytest.param(f"{'a.' * 99}a = 1\n", ["more than 16 parts"], id="key of many parts"),
        pytest.param("[" + '"a" . ' * 99 + "a]\n", ["more than 16 parts"], id="table of many parts"),
        pytest.param(f"title = {'9' * 5000}\n", ["too many digits"], id="endless number"),
    ],
)
def test_a_fault_is_reported_with_its_place(tmp_path: Path, text: str, reported: list[str]) -> None:
    assert all(part in fault_of(tmp_path, text) for part in reported)


def test_of_many_faults_ten_are_reported_and_long_values_are_cut(tmp_path: Path) -> None:
    reported = fault_of(tmp_path, "title = 'a'\n" + "".join(f"{'k' * 200}{n} = 1\n" for n in range(40)))
    assert reported.count("there is no such key") == 10
    assert reported.count("Allowed: ") == 1, "What is allowed in one table is listed once."
    assert "; and 30 more." in reported
    assert len(fault_of(tmp_path, f"title = ['{'x' * 5000}']\n")) < 300


def test_a_good_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text(TEXT.replace("-4", "4"), encoding="utf-8")
    found = read_model(path, File)
    assert [arm.settings.k1 for arm in found.arms] == [3, 4]
    assert found.world.shift == [1, 2]


def test_a_file_that_no_person_wrote_is_refused_by_its_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.toml"
    path.write_text("".join(f"k{number} = 1\n" for number in range(200_000)))
    monkeypatch.setattr(toml_files.tomllib, "loads", lambda _: pytest.fail("it was read"))
    with pytest.raises(InputError, match="letters"):
        read_model(path, Plan)


def test_a_file_with_many_faults_is_read_a_few_times_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = tmp_path / "plan.toml", []
    path.write_text("".join(f"k{number} = 1\n" for number in range(10_000)))
    monkeypatch.setattr(
        toml_files, "_parsed", lru_cache(maxsize=301)(lambda text: read.append(len(text)) or tomllib.loads(text))
    )
    with pytest.raises(InputError, match="line 1: k0: there is no such key"):
        read_model(path, Plan)
    assert sum(length > toml_files.MOST_LETTERS for length in read) == 1
    assert len(read) <= toml_files.MOST_LINES + 1
