"""Layers point down: what may import what, read from the source."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "memrl_core"
FILES = sorted(CORE.rglob("*.py"))
PAGES = sorted((ROOT / "pages").rglob("*.py"))
TOP_DOWN = (
    {"benchmarks"},
    {"memrl_core.cli"},
    {"memrl_core.experiments", "memrl_core.lessons"},
    {"memrl_core.figures"},
    {"memrl_core.analysis", "memrl_core.exchange"},
    {"memrl_core.agent"},
    {
        "memrl_core.bank",
        "memrl_core.embedders",
        "memrl_core.environments",
        "memrl_core.guards",
        "memrl_core.models",
        "memrl_core.policies",
    },
    {"memrl_core.learning", "memrl_core.prompting", "memrl_core.retrieval"},
    {"memrl_core.logs", "memrl_core.plugins", "memrl_core.settings"},
    {"memrl_core.errors", "memrl_core.records"},
    {"memrl_core.numerals"},
)


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def imports() -> dict[str, frozenset[str]]:
    """Each module of the core and the pages with the names it imports; every file is parsed once."""
    return {module_of(file): frozenset(imports_of(file)) for file in (*FILES, *PAGES)}


def imports_of(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found


def layer_of(module: str) -> int | None:
    for number, names in enumerate(TOP_DOWN):
        if any(module == name or module.startswith(f"{name}.") for name in names):
            return number
    return None


def core() -> list[str]:
    return [module_of(file) for file in FILES if file != CORE / "__init__.py"]


def importers(library: str) -> set[str]:
    return {
        module
        for module, names in imports().items()
        if any(name == library or name.startswith(f"{library}.") for name in names)
    }


def test_every_core_module_stands_in_a_layer() -> None:
    assert len(core()) > 100
    assert [module for module in core() if layer_of(module) is None] == []


def test_a_core_module_imports_nothing_from_above() -> None:
    upward = [
        f"{module} imports {imported}"
        for module in core()
        for imported in sorted(imports()[module])
        if (theirs := layer_of(imported)) is not None and theirs < (layer_of(module) or 0)
    ]
    assert upward == []


def test_one_place_decides() -> None:
    # Methods of policies may refine what another one selects; the contract tries `select` with many seeds.
    known = {CORE / "policies" / "decide.py", CORE / "policies" / "contract.py"}
    files = [file for file in FILES if file not in known and "methods" not in file.parts]
    calls = (
        (file, node) for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    )  # fmt: skip
    deciding = [
        f"{module_of(file)}:{node.lineno}" for file, node in calls
        if node.func.attr in ("select", "consult") and "policy" in ast.unparse(node.func.value).lower()
    ]  # fmt: skip
    assert deciding == []


def test_no_core_module_imports_relatively() -> None:
    assert [module for module in core() if any(name.startswith(".") for name in imports()[module])] == []


def test_the_core_knows_no_screen() -> None:
    assert [module for module in importers("streamlit") if module.startswith("memrl_core")] == []


@pytest.mark.parametrize(
    ("libraries", "known_to"),
    [
        (["lancedb", "sqlalchemy"], r"memrl_core\.bank\..*"),
        (["ollama"], r".*ollama[^.]*"),
        (["openai", "httpx2"], r"(.*\.)?openai"),
    ],
)
def test_a_library_is_known_to_those_modules_alone_that_stand_for_it(libraries: list[str], known_to: str) -> None:
    found = set().union(*map(importers, libraries))
    assert found
    assert [module for module in found if not re.fullmatch(known_to, module)] == []


def test_no_two_core_modules_import_each_other() -> None:
    modules = {module_of(file) for file in FILES if file.name != "__init__.py"}
    try:
        TopologicalSorter({module: imports()[module] & modules for module in modules}).prepare()
    except CycleError as error:
        raise AssertionError(" → ".join(error.args[1])) from None


def test_a_screen_imports_no_other_screen() -> None:
    modules = {module_of(file) for file in PAGES}
    across = [
        f"{module} imports {imported}"
        for module in sorted(modules)
        for imported in sorted(imports()[module] & modules)
        if imported.split(".")[1:2] not in ([], module.split(".")[1:2], ["shared"])
    ]
    assert across == []
    assert sum(module.startswith("pages.shared.") for module in modules) > 10


def test_a_name_of_a_file_stands_once_or_for_the_same_job_on_two_things() -> None:
    same_job = {"base", "contract", "ollama", "openai", "__init__"}
    # A figure draws what the analysis of its name computes.
    drawn = {"comparison", "methods", "theory"}
    counted = Counter(file.stem for file in FILES)
    assert {name for name, count in counted.items() if count > 1} <= same_job | drawn
