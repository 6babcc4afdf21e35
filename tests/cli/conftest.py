"""The command line in this process, with its own home folder and no Ollama."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from memrl_core.cli import main as cli
from memrl_core.errors import MemRLError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path


def memrl(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli.app, list(words))
    if isinstance(done.exception, MemRLError):
        return 2, str(done.exception)
    return done.exit_code, done.output


def printed(*words: str) -> str:
    """What a command prints that ends well. Raises the program's own errors."""
    done = CliRunner().invoke(cli.app, list(words))
    if isinstance(done.exception, MemRLError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output
