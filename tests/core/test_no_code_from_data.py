"""Data never becomes code: what could make it so is in no source file, or for a reason that stands here."""

from __future__ import annotations

import ast
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.exchange.archive import write_bank
from memrl_core.exchange.bring_in import read_any
from tests.builders import a_bank, a_step

ROOT = Path(__file__).parents[2]
SOURCES = sorted((*(ROOT / "memrl_core").rglob("*.py"), *(ROOT / "pages").rglob("*.py"), ROOT / "app.py"))
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "yaml", "jsonpickle", "runpy"}
NAMES = {"eval", "exec", "compile", "__import__"}
CALLS = {"joblib.load", "torch.load", "os.system", "os.popen", "st.html", "st.components.v1.html", "st.iframe"}
METHODS = {"read_pickle", "unsafe_load", "html_unsafe"}
LOADERS = {"np.load", "numpy.load"}
KEYWORDS = {"allow_pickle", "unsafe_allow_html", "unsafe_allow_javascript", "shell"}

ALLOWED = {
    "memrl_core/cli/main.py: runpy": "starts this program's own app in this process",
    "app.py: st.html(entry.STYLE)": "a constant of this program: a style sheet",
}
"""What is found, and why it may stay; an entry that is not needed any more fails too."""


def dangers(tree: ast.AST) -> Iterator[str]:
    """What in a source could make code of data. `allow_pickle` is what NumPy must be told to be False."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            called, given = ast.unparse(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords}
            plain = called in NAMES or called in CALLS or called.rsplit(".")[-1] in METHODS
            guarded = called in LOADERS and given.get("allow_pickle") != "False"
            switched = any(given.get(name, "False") != "False" for name in KEYWORDS)
            if plain or guarded or switched:
                yield ast.unparse(node)


def test_nothing_in_the_sources_makes_code_of_data_but_what_has_a_reason() -> None:
    found = {
        f"{file.relative_to(ROOT).as_posix()}: {danger}"
        for file in SOURCES
        for danger in dangers(ast.parse(file.read_text(encoding="utf-8")))
    }
    assert found == set(ALLOWED)


def test_the_search_finds_what_it_looks_for() -> None:
    for source in (
        "import pickle",
        "from yaml import load",
        "eval(text)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "st.markdown(text, unsafe_allow_html=True)",
        "subprocess.run(text, shell=True)",
        "pd.read_pickle(path)",
    ):
        assert len(list(dangers(ast.parse(source)))) == 1, source
    assert not list(dangers(ast.parse("np.load(path, allow_pickle=False); re.compile(text)")))


WATCHING: list[list[str]] = []


def _heard(event: str, given: tuple[object, ...]) -> None:
    if event == "pickle.find_class" and WATCHING:
        WATCHING[-1].append(str(given))


class Boom:
    """Unpickling it would be noticed."""

    def __reduce__(self) -> tuple[object, ...]:
        return (list, ((1,),))


def test_neither_a_bank_nor_an_archive_is_ever_unpickled(tmp_path: Path) -> None:
    sys.addaudithook(_heard)
    with a_bank(tmp_path / "bank") as bank:
        bank.write.commit_step(*a_step(1))
        write_bank(bank, tmp_path / "bank.zip")
    poison = pickle.dumps(Boom())
    (tmp_path / "bank" / "state.pkl").write_bytes(poison)
    with ZipFile(tmp_path / "bank.zip", "a") as archive:
        archive.writestr("state.pkl", poison)
    WATCHING.append([])
    try:
        with MemoryBank.open(str(tmp_path / "bank")) as again:
            assert again.traces("r")
        with pytest.raises(InputError):
            read_any(tmp_path / "bank.zip")
        assert WATCHING[-1] == []
        assert pickle.loads(poison) == [1] and WATCHING[-1], "The hook hears nothing."
    finally:
        WATCHING.pop()
