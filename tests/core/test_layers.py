"""Layers point down: what may import what, read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "memrl_core"
FILES = sorted(CORE.rglob("*.py"))
TOP_DOWN = (
    {"memrl_core.cli"},
    {"memrl_core.commands"},
    {"memrl_core.terminal"},
    {"memrl_core.report", "memrl_core.benchmarks", "memrl_core.experiments", "memrl_core.lessons"},
    {"memrl_core.lab"},
    {"memrl_core.twins"},
    {"memrl_core.workspace"},
    {"memrl_core.live"},
    {"memrl_core.figures"},
    {"memrl_core.analysis", "memrl_core.exchange"},
    {"memrl_core.agent", "memrl_core.recorder", "memrl_core.rerun", "memrl_core.credit"},
    {"memrl_core.asked"},
    {"memrl_core.learned"},
    {"memrl_core.bank", "memrl_core.writing", "memrl_core.turns", "memrl_core.asking", "memrl_core.fitting"},
    {"memrl_core.policies", "memrl_core.models", "memrl_core.embedders", "memrl_core.environments"},
    {
        "memrl_core.prompting",
        "memrl_core.retrieval",
        "memrl_core.shortlist",
        "memrl_core.exploration",
        "memrl_core.learning",
    },
    {"memrl_core.scales", "memrl_core.histories"},
    {"memrl_core.view", "memrl_core.settings", "memrl_core.background", "memrl_core.toml_files", "memrl_core.serving"},
    {"memrl_core.records", "memrl_core.errors", "memrl_core.home", "memrl_core.logs", "memrl_core.allocator"},
    {"memrl_core.deferred"},
)


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name} imports relatively"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer_of(module: str) -> int | None:
    for number, names in enumerate(TOP_DOWN):
        if any(module == name or module.startswith(f"{name}.") for name in names):
            return number
    return None


@pytest.mark.parametrize("file", FILES, ids=module_of)
def test_a_core_module_imports_nothing_from_above(file: Path) -> None:
    own = layer_of(module_of(file))
    if module_of(file) == "memrl_core":
        return
    assert own is not None, f"{module_of(file)} stands in no layer"
    for imported in imports_of(file):
        theirs = layer_of(imported)
        assert theirs is None or theirs >= own, f"{module_of(file)} imports {imported} from above"


def importers(library: str, folder: Path = CORE) -> set[str]:
    return {
        file.relative_to(ROOT).as_posix()
        for file in folder.rglob("*.py")
        if any(name == library or name.startswith(f"{library}.") for name in imports_of(file))
    }


def test_the_core_knows_no_screen() -> None:
    assert importers("streamlit") == set()


def test_only_the_bank_knows_lancedb() -> None:
    found = importers("lancedb") | importers("lancedb", ROOT / "pages")
    assert found
    assert all(name.startswith("memrl_core/bank/") for name in found)


def test_only_ollama_modules_know_the_ollama_client() -> None:
    found = importers("ollama") | importers("ollama", ROOT / "pages")
    assert found
    assert all("ollama" in Path(name).stem for name in found)


def test_no_two_core_modules_import_each_other() -> None:
    modules = [file for file in FILES if file.name != "__init__.py"]
    known = {module_of(file) for file in modules}
    graph = {module_of(file): {name for name in imports_of(file) if name in known} for file in modules}

    def reaches(start: str, goal: str, seen: set[str]) -> bool:
        if start in seen:
            return False
        seen.add(start)
        return goal in graph[start] or any(reaches(following, goal, seen) for following in graph[start])

    assert [name for name in known if reaches(name, name, set())] == []
