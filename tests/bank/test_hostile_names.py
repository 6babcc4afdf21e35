"""Names are data: no quote in them ends a filter, and no text makes a search go on for ever."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.agent.recorder import Recorder
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.people.roles import person_name
from memrl_core.errors import InputError
from memrl_core.exchange.archive import write_bank
from memrl_core.exchange.bring_in import read_any
from memrl_core.records import WriteRecord
from tests.builders import a_bank, a_run, a_step

ROOT = Path(__file__).parents[2]
NAMES = (
    "' OR '1'='1",
    "'; DROP TABLE steps; --",
    "x' UNION SELECT * FROM memories --",
    "\\' OR 1=1 --",
    "''",
    '"run"',
    "`run`",
    "run\x00",
    "%",
    "_",
    "r/*",
    "’ or ’1’=’1",
    "{run}",
    "🙂",
)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    """A bank with a memory of each name."""
    opened = a_bank(tmp_path_factory.mktemp("names") / "bank")
    for step, name in enumerate(NAMES, start=1):
        trace, vectors = a_step(step)
        (vector,) = vectors.values()
        (op,) = trace.write.operations if trace.write else ()
        trace = replace(trace, id=f"step {name}", write=WriteRecord((replace(op, memory_id=name),)))
        opened.write.commit_step(trace, {name: vector})
    return opened


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".x", "-rf", "--", "a/b", "a b", "a\n", "ü", "x" * 201, "con", "NUL", "Com1.txt"]
)
def test_no_run_gets_a_name_that_means_something_to_a_shell_or_a_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    opened = MemoryBank.create(str(tmp_path / "bank"), "hashing-8", 8)
    with pytest.raises(InputError, match="A run's name"):
        opened.write.start_run(a_run(name))
    with pytest.raises(InputError, match="A run's name"):
        Recorder(opened, name)
    assert opened.runs() == [] and opened.events() == []
    with monkeypatch.context() as patched:  # What another program, or an earlier one, wrote.
        patched.setattr("memrl_core.bank.writing.is_run_name", lambda _: True)
        opened.write.start_run(a_run(name))
    write_bank(opened, tmp_path / "bank.zip")
    with pytest.raises(InputError, match="A run's name"):
        read_any(tmp_path / "bank.zip")


@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_found_by_its_whole_name_and_no_other_is(bank: MemoryBank, name: str) -> None:
    step = 1 + NAMES.index(name)
    assert bank._vectors.read(["id"], [name])["id"].to_pylist() == [name]
    assert MemoryBank.open(bank.uri).memory(name).step == step
    assert bank.write.ratings.rate(Rating("r", step, 0.5, name)).rater == person_name(name)
    assert [event.step for event in bank.ratings.of("r", step) if event.source == "person"] == [step]


@given(st.text(alphabet="'\"\\;-% r_\x00", max_size=12))
def test_no_name_finds_what_is_not_called_so(bank: MemoryBank, name: str) -> None:
    assert bank._vectors.read(["id"], [name])["id"].to_pylist() == [one for one in NAMES if one == name]
    assert [event.id for event in bank.events_of([name])] == []


def test_a_bank_of_such_names_reads_and_writes_as_any_other(tmp_path: Path) -> None:
    with a_bank(tmp_path / "bank") as bank:
        for name in NAMES:
            info = replace(a_run(), id=name)
            event = replace(bank.events()[0], id=name, run=name, payload={**bank.events()[0].payload, "id": name})
            bank.write.adopt({}, [event], [])
            bank.write.commit_step(*a_step(1, run=name))
            assert bank.run(name).id == info.id
        for name in NAMES:
            assert [trace.run for trace in bank.traces(name)] == [name]
            assert bank.trace(name, 1).write.operations[0].memory_id == f"{name}-0001"
            assert list(bank.utilities(name)) == [f"{name}-0001"]
        assert bank.traces("r") == []
        assert all(found.ok for found in check(bank.uri))


SEARCH_ALL = r"""
import importlib, pkgutil, re, sys
import memrl_core, pages.shared.text, pages.shared.picture
for module in pkgutil.walk_packages(memrl_core.__path__, "memrl_core."):
    if not module.name.endswith(("_child", ".adk_memory")):
        importlib.import_module(module.name)
parts = *"a \n\\'\"([1-*|=é", "a.", ":a", "1,", "a b ", "/*", "--", "''"
found = {
    (name, key): value
    for name, module in sys.modules.items() if name.startswith(("memrl_core", "pages."))
    for key, value in vars(module).items() if isinstance(value, re.Pattern)
}
for (name, key), pattern in sorted(found.items()):
    print(name, key, flush=True)
    for part in parts:
        for text in (part * 150, part * 150 + "\x00", "x" + part * 150 + "!"):
            given = text.encode() if isinstance(pattern.pattern, bytes) else text
            pattern.search(given)
print("all", len(found))
"""


@pytest.mark.slow
def test_no_pattern_of_the_program_goes_on_for_ever() -> None:
    """What is exponential would not end before the end of the world; the limit is only that of the test."""
    ran = subprocess.run([sys.executable, "-c", SEARCH_ALL], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert int(ran.stdout.split()[-1]) > 40
