"""CONTRIBUTING.md, README.md and SECURITY.md name only what is there: files, tests, names, targets of make, links."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from benchmarks.suite import BENCHMARKS, DEFAULT

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FOLDERS = ("memrl_core/", "pages/", "tests/", "docs/", "sample_data/")
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
QUOTED = sorted(set(re.findall(r"`([^`\n]+)`", PROSE)))
PATHS = [text for text in QUOTED if text.startswith(FOLDERS) or re.fullmatch(r"[\w-]+\.(py|md|toml)", text)]
TESTS = sorted(set(re.findall(r"\btest_\w+\b(?!\.py)", PROSE)))
TARGETS = sorted(set(re.findall(r"\bmake ([a-z-]+)\b", "\n".join((*QUOTED, *re.findall(r"^make .*$", PAGE, re.M))))))
OTHERS = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "SECURITY.md")}
NAMED = re.compile(rf"(?<![\w/.-])((?:{'|'.join(FOLDERS)})[\w./-]*\w/?)|\]\(([^)#:]+)[)#]")
OTHER_PATHS = sorted({(name, "".join(found)) for name, text in OTHERS.items() for found in NAMED.findall(text)})
OTHER_TARGETS = [
    (name, target)
    for name, text in OTHERS.items()
    for target in sorted(set(re.findall(r"(?:^|`)make ([a-z-]+)\b", text, re.MULTILINE)))
]
NAMES = {
    "_PHASES": "memrl_core/agent/agent.py",
    "_OWN": "memrl_core/policies/__init__.py",
    "make_policy": "memrl_core/policies/__init__.py",
    "take_turn": "memrl_core/agent/turns.py",
    "earned": "memrl_core/learning/fold.py",
    "Fold": "memrl_core/learning/fold.py",
    "commit_step": "memrl_core/bank/bank.py",
    "bare_layout": "memrl_core/figures/palette.py",
    "CHANGED": "tests/core/test_policy_contract.py",
    "TASKS": "tests/core/test_environment_contract.py",
    "all_pictures": "tests/figures/test_question_figures.py",
    "done": "tests/core/test_lessons.py",
}


def missing(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if not (ROOT / path).exists()]


def unknown(targets: Iterable[str]) -> list[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)]


def test_the_page_names_something_of_each_kind() -> None:
    assert len(PATHS) > 40 and len(TESTS) >= 3
    assert {"test", "test-all", "lint", "fuzz", "audit", "bench"} <= set(TARGETS)
    assert len(PAGE.splitlines()) <= 200


def test_the_other_pages_name_paths_and_targets() -> None:
    assert {name for name, _ in OTHER_PATHS} >= {"README.md"} and len(OTHER_PATHS) > 10 and len(OTHER_TARGETS) > 5


def test_every_path_on_the_pages_is_there() -> None:
    assert missing(PATHS) == []
    assert missing(path for _, path in OTHER_PATHS) == []


def test_every_target_on_the_pages_can_be_made() -> None:
    assert unknown(TARGETS) == []
    assert unknown(target for _, target in OTHER_TARGETS) == []


def test_every_benchmark_in_the_readme_can_be_run() -> None:
    named = set(re.findall(r"`memrl bench ([a-z][a-z-]*)", OTHERS["README.md"]))
    assert named and named <= set(BENCHMARKS)


def test_the_benchmarks_that_run_only_by_name_are_those_of_the_readme() -> None:
    (told,) = re.findall(r"a\s+browser \(([^)]*)\) run when they are named", OTHERS["README.md"])
    assert set(re.findall(r"`([a-z-]+)`", told)) == set(BENCHMARKS) - set(DEFAULT)


def test_every_test_on_the_page_is_there() -> None:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    written = "\n".join(file.read_text(encoding="utf-8") for file in files)
    assert [name for name in TESTS if f"def {name}(" not in written] == []


def test_every_name_on_the_page_is_where_it_says() -> None:
    for name, path in NAMES.items():
        assert f"`{name}`" in PAGE or f"`{name}" in PAGE, name
        source = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"^ *(def |class )?{name}\b", source, re.MULTILINE), name
