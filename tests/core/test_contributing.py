"""CONTRIBUTING.md names only what is there: files, tests, names in them, and targets of make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FOLDERS = ("memrl_core/", "pages/", "tests/", "docs/", "sample_data/")
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
QUOTED = sorted(set(re.findall(r"`([^`\n]+)`", PROSE)))
PATHS = [text for text in QUOTED if text.startswith(FOLDERS) or re.fullmatch(r"[\w-]+\.(py|md|toml)", text)]
TESTS = sorted(set(re.findall(r"\btest_\w+\b(?!\.py)", PROSE)))
TARGETS = sorted(set(re.findall(r"\bmake ([a-z]+)\b", "\n".join((*QUOTED, *re.findall(r"^make .*$", PAGE, re.M))))))
NAMES = {
    "_PHASES": "memrl_core/agent.py",
    "_OWN": "memrl_core/policies/__init__.py",
    "make_policy": "memrl_core/policies/__init__.py",
    "take_turn": "memrl_core/turns.py",
    "earned": "memrl_core/learning.py",
    "Fold": "memrl_core/learning.py",
    "commit_step": "memrl_core/bank/bank.py",
    "bare_layout": "memrl_core/figures/palette.py",
    "CHANGED": "tests/core/test_policy_contract.py",
    "TASKS": "tests/core/test_environment_contract.py",
    "all_pictures": "tests/figures/test_question_figures.py",
    "done": "tests/core/test_lessons.py",
}


def test_the_page_names_something_of_each_kind() -> None:
    assert len(PATHS) > 40 and len(TESTS) >= 3 and {"test", "lint", "fuzz", "audit", "bench"} <= set(TARGETS)
    assert len(PAGE.splitlines()) <= 200


@pytest.mark.parametrize("path", PATHS)
def test_a_path_on_the_page_is_there(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("name", TESTS)
def test_a_test_on_the_page_is_there(name: str) -> None:
    assert any(f"def {name}(" in file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_on_the_page_can_be_made(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("name", "path"), NAMES.items())
def test_a_name_on_the_page_is_where_it_says(name: str, path: str) -> None:
    assert f"`{name}`" in PAGE or f"`{name}" in PAGE
    source = (ROOT / path).read_text(encoding="utf-8")
    assert re.search(rf"^ *(def |class )?{name}\b", source, re.MULTILINE)
