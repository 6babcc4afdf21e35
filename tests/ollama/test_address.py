"""Where Ollama is: what a person types, and what the environment says."""

from __future__ import annotations

from contextlib import suppress

import pytest

from memrl_core.embedders.ollama import OllamaEmbedder
from memrl_core.errors import InputError, ModelError
from memrl_core.models.base import ModelOptions
from memrl_core.models.ollama import OllamaModel, ollama_status
from memrl_core.models.ollama_client import checked_address, default_address, is_local
from memrl_core.records import Message
from tests.ollama.server import OllamaServer


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
        *("", "http://", "http://a b", "http://host/\x00", "http://[::1", "http://host?model=x"),
        *["localhost:11434", "ftp://127.0.0.1", "file:///etc/passwd", "http://host:port", "http://host:99999"],
        "http://user:secret@host",
    ],
)
def test_other_texts_are_refused_with_an_example(typed: str) -> None:
    with pytest.raises(InputError, match=r"127\.0\.0\.1"):
        checked_address(typed)


SECRETS = (
    "169.254.169.254 169.254.169.254. 169.254.43518 2852039166 0xa9fea9fe [::ffff:169.254.169.254] [fe80::1%25eth0] "
    "[64:ff9b::a9fe:a9fe] [64:ff9b:1::169.254.169.254] [2001:db8:122::a9fe:a9fe] [2002:a9fe:a9fe::1] [::a9fe:a9fe] "
    "[::ffff:0:a9fe:a9fe] [2001:0:102:304::5601:5601] [64:ff9b::6464:64c8] 169.16689662 "
    "[fd00:ec2::254] 100.100.100.200 metadata.google.internal METADATA.google.internal."
)


@pytest.mark.parametrize("host", SECRETS.split())
def test_where_a_machine_is_told_its_secrets_is_no_address_of_ollama(host: str) -> None:
    with pytest.raises(InputError, match="own secrets"):
        checked_address(f"http://{host}:80/latest")


@pytest.mark.parametrize("host", ["[64:ff9b::c000:221]", "[2001:db8::1]", "10.0.0.1", "[fd00::7]", "192.168.1.5"])
def test_machines_of_ones_own_network_may_be_asked(host: str) -> None:
    assert checked_address(f"http://{host}:11434") == f"http://{host}:11434"


def test_only_what_is_surely_this_machine_counts_as_it() -> None:
    for host in ["127.0.0.1:11434", "127.8.8.8", "[::1]:11434", "localhost:1"]:
        assert is_local(f"http://{host}"), host
    for host in ["127.1:11434", "0.0.0.0:11434", "localhost.example", "127.0.0.1.example", "10.0.0.1"]:
        assert not is_local(f"http://{host}"), host


@pytest.mark.parametrize("path", ["/api/chat", "/api/tags", "/api/version", "/api/embed"])
def test_a_redirection_is_not_followed(server: OllamaServer, path: str) -> None:
    with OllamaServer() as another:
        server.faults.instead, server.faults.elsewhere = {path: 307}, another.address
        with suppress(ModelError):
            OllamaModel("llama3.2", server.address).chat([Message("user", "a secret")], ModelOptions())
        with suppress(ModelError):
            OllamaEmbedder("nomic-embed-text", server.address)
        ollama_status(server.address)
        assert server.asked(path) and another.requests == []


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
