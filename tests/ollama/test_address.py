"""Where Ollama is: what a person types, and what the environment says."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from memrl_core.embedders.ollama import OllamaEmbedder
from memrl_core.embedders.openai import OpenAIEmbedder
from memrl_core.errors import InputError, ModelError, ServerDown
from memrl_core.models import proxies
from memrl_core.models.base import ModelOptions
from memrl_core.models.ollama import OllamaModel, ollama_status
from memrl_core.models.ollama_client import (
    checked_address,
    default_address,
    is_local,
    odd_environment,
    ollama_client,
)
from memrl_core.models.openai import OpenAIModel, client
from memrl_core.models.proxies import proxy_for
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
    "169。254。169。254 168.63.129.16 metadata.azure.internal "
    "[fd00:ec2::254] 100.100.100.200 metadata.google.internal METADATA.google.internal."
)


@pytest.mark.parametrize("host", SECRETS.split())
def test_where_a_machine_is_told_its_secrets_is_no_address_of_ollama(host: str) -> None:
    with pytest.raises(InputError, match="own secrets"):
        checked_address(f"http://{host}:80/latest")


@pytest.mark.parametrize("found", ["169.254.169.254", "fe80::1%eth0", "64:ff9b::a9fe:a9fe", "100.100.100.200"])
def test_a_name_that_leads_to_a_machines_secrets_is_not_asked(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    asked: list[str] = []

    def looked_up(host: str, *given: Any, **more: Any) -> list[Any]:
        asked.append(host)
        return [(0, 0, 0, "", ("10.0.0.1", 0)), (0, 0, 0, "", (found, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    for ask in (ollama_client, lambda address, timeout: OpenAIEmbedder("openai:some", f"{address}/v1", timeout)):
        with pytest.raises(InputError, match="secrets"):
            ask("http://models.example", 1.0)
    assert asked == ["models.example"] * 2


@pytest.mark.parametrize("host", ["[64:ff9b::c000:221]", "[2001:db8::1]", "10.0.0.1", "[fd00::7]", "192.168.1.5"])
def test_machines_of_ones_own_network_may_be_asked(host: str) -> None:
    assert checked_address(f"http://{host}:11434") == f"http://{host}:11434"


def test_only_what_is_surely_this_machine_counts_as_it() -> None:
    for host in ["127.0.0.1:11434", "127.8.8.8", "[::1]:11434", "[::ffff:127.0.0.1]", "localhost:1"]:
        assert is_local(f"http://{host}"), host
    for host in [
        "127.1:11434",
        "0.0.0.0:11434",
        "localhost.example",
        "127.0.0.1.example",
        "10.0.0.1",
        "[::ffff:10.0.0.1]",
    ]:
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
        ("'127.0.0.1:11434'", "http://127.0.0.1:11434"),
        ('" 127.0.0.1:5000 "', "http://127.0.0.1:5000"),
        ("localhost:", "http://localhost:11434"),
        ("::1", "http://[::1]:11434"),
        ("[::1]:5000", "http://[::1]:5000"),
        ("http://::1", "http://[::1]"),
        ("2001:db8::7", "http://[2001:db8::7]:11434"),
        ("::", "http://[::1]:11434"),
        ("[::]:5000", "http://[::1]:5000"),
        ("http://[0:0:0:0:0:0:0:0]:5000", "http://[::1]:5000"),
    ],
)
def test_the_environment_decides_the_default(monkeypatch: pytest.MonkeyPatch, variable: str, address: str) -> None:
    monkeypatch.setenv("OLLAMA_HOST", variable)
    assert default_address() == address
    assert OllamaModel("llama3.2").address == address


UNUSABLE = [
    "what is this",
    "localhost:abc",
    "localhost:99999",
    "localhost:0",
    "[::1",
    "a..b",
    "x" * 300,
    "tcp://gpu:1",
    "xn--a",
]


@pytest.mark.parametrize("value", UNUSABLE)
def test_an_unusable_environment_is_reported_where_it_is_used(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("OLLAMA_HOST", value)
    given = default_address()
    with pytest.raises(InputError, match=rf"{re.escape(value[:40])}.*OLLAMA_HOST"):
        checked_address(given)
    assert [odd.variable for odd in odd_environment()] == ["OLLAMA_HOST"]
    assert value[:40] in ollama_status(given).sentence


FAR, NEAR = "http://gpu.example:5000", "http://127.0.0.1:9"
UNUSABLE_PROXIES = ["socks4://127.0.0.1:9", "http://proxy:abc", "http://proxy:99999", "http://[::1", "http://", "a b"]


@pytest.mark.parametrize("value", [*UNUSABLE_PROXIES, "socks5://127.0.0.1:9", "socks5h://u:secret@h:1"])
@pytest.mark.parametrize("variable", ["ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"])
def test_a_proxy_that_cannot_be_used_is_named_where_it_is_needed(
    no_proxies: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    no_proxies.setitem(sys.modules, "socksio", None)
    no_proxies.setattr(proxies, "find_spec", lambda name: None)
    no_proxies.setenv(variable, value)
    assert ollama_client(NEAR, 1)
    for ask in (ollama_client, client):
        with pytest.raises(ModelError, match=f"{variable}, the proxy for {FAR}, cannot be used") as refused:
            ask(FAR, 1)
        assert "secret" not in str(refused.value)
    assert variable in ollama_status(FAR).sentence
    (odd,) = odd_environment()
    assert odd.variable == variable and "secret" not in odd.sentence
    assert ("pip install socksio" in odd.remedy) == value.startswith("socks5")


def test_only_the_proxy_of_an_addresss_own_scheme_stands_in_its_way(no_proxies: pytest.MonkeyPatch) -> None:
    no_proxies.setenv("HTTPS_PROXY", "socks4://h")
    assert proxy_for(FAR) is None
    no_proxies.setenv("HTTP_PROXY", "' proxy.example:3128 '")
    assert proxy_for(FAR) == "http://proxy.example:3128"
    with pytest.raises(ModelError, match="HTTPS_PROXY"):
        proxy_for("https://gpu.example")


@pytest.mark.parametrize(
    ("value", "address", "direct"),
    [
        ("localhost,[fd00::1]", "http://[fd00::1]:8", True),
        ("fd00::/8, 10.0.0.0/8", "http://[fd00::5]:8", True),
        ("fd00::/8, 10.0.0.0/8", "http://10.1.2.3", True),
        ("fd00::/8, 10.0.0.0/8", "http://11.1.2.3", False),
        (".example", FAR, True),
        ("*", FAR, True),
        ("[,/8,http://h,::1::", FAR, False),
    ],
)
def test_no_proxy_is_understood_with_brackets_and_networks(
    no_proxies: pytest.MonkeyPatch, value: str, address: str, direct: bool
) -> None:
    no_proxies.setenv("HTTP_PROXY", "http://proxy:1")
    no_proxies.setenv("no_proxy", value)
    assert (proxy_for(address) is None) == direct
    assert ollama_client(address, 1)
    assert [odd.variable for odd in odd_environment()] == (["no_proxy"] if "::1::" in value else [])


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "a.localhost", "localhost.", "[::ffff:127.0.0.1]"])
def test_no_spelling_of_this_machine_is_asked_through_a_proxy(no_proxies: pytest.MonkeyPatch, host: str) -> None:
    no_proxies.setenv("HTTP_PROXY", "http://proxy.example:3128")
    assert proxy_for(f"http://{host}:11434") is None


@pytest.mark.parametrize("host", ["10.1", "127.1.example", "localhost.example", "notlocalhost", "[::ffff:10.0.0.1]"])
def test_another_machine_is_asked_through_the_proxy(no_proxies: pytest.MonkeyPatch, host: str) -> None:
    no_proxies.setenv("HTTP_PROXY", "http://proxy.example:3128")
    assert proxy_for(f"http://{host}:11434") == "http://proxy.example:3128"


@pytest.mark.parametrize("kind", ["ollama", "openai"])
def test_a_proxy_that_gives_no_connection_is_named_and_not_the_server(
    no_proxies: pytest.MonkeyPatch, nobody: str, kind: str
) -> None:
    no_proxies.setenv("HTTP_PROXY", nobody)
    model = OllamaModel("llama3.2", FAR) if kind == "ollama" else OpenAIModel("openai:some", f"{FAR}/v1")
    with pytest.raises(ServerDown, match=f"The proxy “{nobody}” of HTTP_PROXY, through which {FAR}"):
        model.chat([Message("user", "hello")], ModelOptions())
    assert nobody in ollama_status(FAR).sentence and "not running" not in ollama_status(FAR).sentence


def test_certificates_and_keys_that_cannot_be_used_are_named(no_proxies: pytest.MonkeyPatch) -> None:
    no_proxies.setenv("SSL_CERT_FILE", "/missing.pem")
    assert ollama_client(FAR, 1)
    for ask in (ollama_client, client):
        with pytest.raises(ModelError, match="SSL_CERT_FILE"):
            ask("https://gpu.example", 1)
    no_proxies.setenv("OLLAMA_API_KEY", "schlüssel")
    no_proxies.setenv("OPENAI_API_KEY", "schlüssel")
    for ask, key in ((ollama_client, "OLLAMA_API_KEY"), (client, "OPENAI_API_KEY")):
        with pytest.raises(ModelError, match=f"{key} cannot be used") as refused:
            ask(FAR, 1)
        assert "schl" not in str(refused.value)
    assert [odd.variable for odd in odd_environment()] == ["OLLAMA_API_KEY", "OPENAI_API_KEY", "SSL_CERT_FILE"]


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for variable in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(variable)
    for variable in ("OLLAMA_HOST", "OPENAI_BASE_URL", "SSL_CERT_FILE"):
        monkeypatch.delenv(variable, raising=False)
    return monkeypatch


def test_importing_starts_no_client_whatever_the_environment_says(server: OllamaServer, tmp_path: Path) -> None:
    odd = {"ALL_PROXY": "socks5://127.0.0.1:9", "no_proxy": "[::1],fd00::/8", "SSL_CERT_FILE": "/missing"}
    code = (
        "import sys, httpx\n"
        "made, begin = [], httpx.Client.__init__\n"
        "httpx.Client.__init__ = lambda self, *given, **more: made.append(given) or begin(self, *given, **more)\n"
        "from memrl_core import Recorder\n"
        "import memrl_core.cli.main\n"
        "assert not made and 'ollama' not in sys.modules\n"
        "from memrl_core.models.ollama import OllamaModel, ollama_status\n"
        "from memrl_core.models.base import ModelOptions\n"
        "from memrl_core.records import Message\n"
        f"assert ollama_status({server.address!r}).models\n"
        f"assert OllamaModel('llama3.2', {server.address!r}).chat([Message('user', 'Hi')], ModelOptions()).text\n"
    )
    environment = {**os.environ, **odd, "OLLAMA_HOST": "localhost:abc", "MEMRL_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
