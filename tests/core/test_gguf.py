"""Models in the process: what is known of a file of weights, whatever is in it."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import pytest

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
