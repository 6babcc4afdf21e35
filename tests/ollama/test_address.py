"""Where Ollama is: what a person types, and what the environment says."""

from __future__ import annotations

import pytest

from memrl_core.errors import InputError
from memrl_core.models.ollama import OllamaModel
from memrl_core.models.ollama_status import checked_address, default_address


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("http://127.0.0.1:11434", "http://127.0.0.1:11434"),
        ("  http://localhost:11434/ ", "http://localhost:11434"),
        ("https://models.example/ollama/", "https://models.example/ollama"),
        ("http://[::1]:11434", "http://[::1]:11434"),
    ],
)
def test_web_addresses_are_kept(typed: str, kept: str) -> None:
    assert checked_address(typed) == kept


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "localhost:11434",
        "ftp://127.0.0.1",
        "file:///etc/passwd",
        "http://",
        "http://host:port",
        "http://host:99999",
        "http://a b",
        "http://host/\x00",
        "http://user:secret@host",
        "http://host?model=x",
        "http://[::1",
    ],
)
def test_other_texts_are_refused_with_an_example(typed: str) -> None:
    with pytest.raises(InputError, match=r"Write it like http://127\.0\.0\.1:11434"):
        checked_address(typed)


@pytest.mark.parametrize(
    ("variable", "address"),
    [
        ("", "http://127.0.0.1:11434"),
        ("localhost", "http://localhost:11434"),
        (":5000", "http://127.0.0.1:5000"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:5000", "http://127.0.0.1:5000"),
        ("gpu.example:5000", "http://gpu.example:5000"),
        ("gpu.example/ollama", "http://gpu.example:11434/ollama"),
        ("https://gpu.example", "https://gpu.example"),
        ('"http://gpu.example:80/"', "http://gpu.example:80"),
    ],
)
def test_the_environment_decides_the_default(monkeypatch: pytest.MonkeyPatch, variable: str, address: str) -> None:
    monkeypatch.setenv("OLLAMA_HOST", variable)
    assert default_address() == address
    assert OllamaModel("llama3.2").address == address


def test_an_unusable_environment_is_reported_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "what is this")
    given = default_address()
    with pytest.raises(InputError, match="what is this"):
        checked_address(given)
