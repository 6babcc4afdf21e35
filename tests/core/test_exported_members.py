"""What `memrl_core` gives to programs outside is what `__all__` says, and costs nothing until it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import memrl_core
from memrl_core import Agent, Bank, Environment, Memory, MemoryRecord, Policy, Recorder, open_bank
from memrl_core.bank import MemoryBank
from memrl_core.errors import BankMissing


def test_every_exported_member_is_there_and_documented() -> None:
    assert memrl_core.__all__ == sorted(memrl_core.__all__)
    assert [name for name in memrl_core.__all__ if getattr(memrl_core, name, None) is None] == []
    for exported in (Agent, Bank, Environment, Memory, MemoryRecord, Policy, Recorder, open_bank):
        assert exported.__doc__
    assert set(memrl_core.__all__) <= set(dir(memrl_core))


def test_the_exported_members_are_those_of_their_modules(tmp_path: Path) -> None:
    assert Bank is MemoryBank
    assert Agent.__module__ == "memrl_core.agent.agent" and Recorder.__module__ == "memrl_core.agent.recorder"
    with pytest.raises(BankMissing):
        open_bank(str(tmp_path / "none"))
    with Bank.create(str(tmp_path / "bank"), "hashing", 8), open_bank(str(tmp_path / "bank")) as bank:
        assert isinstance(bank, Bank)
    with pytest.raises(AttributeError, match="Banks"):
        memrl_core.Banks  # noqa: B018


def test_importing_the_core_loads_no_module_of_it() -> None:
    code = "import sys, memrl_core; print(sorted(name for name in sys.modules if name.startswith('memrl_core')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['memrl_core']"
