"""Where an Ollama server is, how it is reached, and what its failures mean to a person."""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
import socket
from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import httpx
import ollama

from memrl_core.errors import InputError, ModelError, ModelInterrupted, ModelMissing, ModelSlow, OllamaDown, one_line
from memrl_core.models.base import Cancelled
from memrl_core.models.stream import MOST_BYTES, Ask, Bounded, Part, ReplyTooLong, Stream
from memrl_core.records import Message

DEFAULT_ADDRESS = "http://127.0.0.1:11434"
OPENAI = "https://api.openai.com/v1"
OPENAI_COMPATIBLE = ("an OpenAI-compatible server", "http://127.0.0.1:8080/v1")
"""What its address is one of, and how one is written."""

CONNECT_TIMEOUT = 2.0
"""Seconds until an address without a server is given up."""

METADATA = frozenset({"metadata", "metadata.goog", "metadata.google.internal", "instance-data"})
METADATA_ADDRESSES = frozenset({"100.100.100.200", "192.0.0.192", "fd00:ec2::254"})
"""Where a rented machine gets its own secrets, beside the link-local addresses: no server of models is there."""

LONGEST_NAME = 200

FAILURES = (
    ConnectionError,
    httpx.HTTPError,
    ReplyTooLong,
    ollama.ResponseError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
)
"""What the official client raises: its own error, httpx's, the builtin one when a server is down outside a stream, and
for replies that are not Ollama's whatever its unguarded parsing trips over (pydantic's and json's errors are
`ValueError`s; JSON that is nested too deep is a `RecursionError`)."""


def default_address() -> str:
    """`OLLAMA_HOST` as a URL, or the address of a local server. A value that is no address is returned as it is."""
    given = os.environ.get("OLLAMA_HOST", "").strip().strip("\"'")
    if not given:
        return DEFAULT_ADDRESS
    try:
        return ollama_address(given)
    except InputError:
        return given


def ollama_address(given: str) -> str:
    """A host as Ollama's own programs take it, which may lack scheme and port, as a URL. Raises `InputError`."""
    if "://" not in given:
        host, slash, path = given.partition("/")
        host = f"127.0.0.1{host}" if host.startswith(":") else host
        given = f"http://{host}{'' if _port(f'http://{host}') else ':11434'}{slash}{path}"
    # Servers are told to listen on every interface with this name; it is not one to connect to on every system.
    return checked_address(given.replace("://0.0.0.0", "://127.0.0.1", 1))


def openai_address() -> str:
    """`OPENAI_BASE_URL` without a slash at its end, or OpenAI's own; a password or parameters in it are left out, for
    an address is shown and stored."""
    return _without_secrets(os.environ.get("OPENAI_BASE_URL", "").strip() or OPENAI).rstrip("/")


def _without_secrets(address: str) -> str:
    return re.sub(r"//[^/]*@", "//", re.split(r"[?#]", address, maxsplit=1)[0])


def checked_address(text: str, of: str = "Ollama", like: str = DEFAULT_ADDRESS) -> str:
    """`text` as scheme://host[:port][/path], the address of what `of` names.

    Raises `InputError` when it is not the address of a web server, or one of link-local addresses and of services that
    tell a rented machine its secrets.
    """
    given = text.strip()
    try:
        parts = urlsplit(given)
        port = parts.port
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0
        httpx.URL(given)
    except (ValueError, httpx.InvalidURL):
        usable = False
    odd = any(character.isspace() or not character.isprintable() for character in given)
    if not usable or odd or parts.query or parts.fragment or "@" in parts.netloc:
        raise InputError(
            f"“{one_line(_without_secrets(given))}” is not an address of {of}, so nothing was changed. Write it like "
            f"{like}."
        )
    if _tells_secrets(parts.hostname or ""):
        raise InputError(
            f"“{one_line(given)}” is where a rented machine gets its own secrets, and no address of {of}, so "
            f"nothing was changed. Write it like {like}."
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def canonical_name(name: str) -> str:
    """A model's name as this program remembers it: Ollama's implied tag is left out, so that equal models compare."""
    return name.strip().removesuffix(":latest")


def checked_name(name: str) -> str:
    """`name` in canonical form. Raises `InputError` for what cannot be a model's name."""
    canonical = canonical_name(name)
    odd = any(character.isspace() or not character.isprintable() for character in canonical)
    if not canonical or odd or len(canonical) > LONGEST_NAME:
        raise InputError(f"“{one_line(name)}” is not a model's name. Choose one that `ollama list` shows.")
    return canonical


def sendable(text: str) -> str:
    """`text`. Raises `InputError` when it cannot be written as UTF-8, before anything is sent."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"The text holds a broken character at position {error.start + 1} and was not sent. Remove it."
        ) from None
    return text


def as_sent(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Chat messages as every server takes them. Raises `InputError` for text that cannot be written as UTF-8."""
    return [{"role": message.role, "content": sendable(message.content)} for message in messages]


def connection(address: str, timeout: float, *, asynchronous: bool = False, http: Any = httpx) -> dict[str, Any]:
    """Arguments of every HTTP client for `address`, of `httpx` or of a library with the same interface.

    Reads wait `timeout` seconds (the official default is for ever) and end at `MOST_BYTES`.
    """

    def bound(response: Any) -> None:
        # A few bytes can be packed that unpack to any number: what is packed is not unpacked, and is then no JSON.
        response.headers.pop("content-encoding", None)
        response.stream = _bounded(http)(response.stream)

    async def bound_later(response: Any) -> None:
        bound(response)

    # A proxy set for the internet must not be asked for a server on this machine; a redirection would carry the prompt
    # to a host that nobody has agreed to; and reading all certificates takes longer than the rest of a call to an
    # address that shows none.
    return {
        "timeout": http.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT)),
        "trust_env": not is_local(address),
        "follow_redirects": False,
        "verify": address.startswith("https:"),
        "headers": {"accept-encoding": "identity"},
        "event_hooks": {"response": [bound_later if asynchronous else bound]},
    }


@cache
def _bounded(http: Any) -> type[Any]:
    """The bounded stream of bytes that an HTTP library takes for one of its own."""
    return type("BoundedStream", (Bounded, http.SyncByteStream, http.AsyncByteStream), {})


def ollama_client(address: str, timeout: float) -> ollama.Client:
    """The official client for what is answered at once. Raises `InputError` for a bad address."""
    address = checked_address(address)
    return ollama.Client(address, **connection(address, timeout))


def ollama_stream(
    ask: Ask[Part], address: str, timeout: float, cancelled: Cancelled | None = None, first: float | None = None
) -> Stream[Part]:
    """A streamed answer of Ollama: `ask` is given an `ollama.AsyncClient`."""
    given = connection(address, max(timeout, first or timeout), asynchronous=True)
    return Stream(lambda: ollama.AsyncClient(address, **given), ask, FAILURES, timeout, cancelled, first)


def is_local(address: str) -> bool:
    """Whether `address` names this machine itself."""
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def pull_command(name: str, address: str) -> str:
    """What to type to install `name` at `address`; quoted, because names also come from other people's banks."""
    where = "" if address == DEFAULT_ADDRESS else f"OLLAMA_HOST={shlex.quote(address.removeprefix('http://'))} "
    return f"{where}ollama pull {shlex.quote(one_line(canonical_name(name)))}"


def serve_command(address: str) -> str:
    """What to type to start a server that listens at `address`, on the machine of that address."""
    if address == DEFAULT_ADDRESS:
        return "ollama serve"
    port = _port(address)
    host = urlsplit(address).netloc if is_local(address) else "0.0.0.0" + (f":{port}" if port else "")
    return f"OLLAMA_HOST={host} ollama serve"


def failure(error: Exception, address: str, model: str, timeout: float, partial: str = "") -> ModelError:
    """One of `FAILURES` as an error whose sentence a person can act on.

    `model` is empty when the call was about no model. `timeout` is in seconds; `partial` is the text that had arrived
    before, and is carried by `ModelInterrupted`.
    """
    name = one_line(model) or "Ollama"
    kept = what_is_kept(partial)
    if isinstance(error, ollama.ResponseError):
        reason = str(error.error).strip() or f"HTTP {error.status_code}"
        if error.status_code == 404 and model and "model" in reason:
            return ModelMissing(
                f"The model {name} is not installed at {address}. {kept}; run `{pull_command(name, address)}` or "
                "choose another."
            )
        elsewhere = 300 <= error.status_code < 400 or error.status_code == 404
        if not elsewhere and not reason.startswith("<"):
            return ModelInterrupted(
                f"Ollama gave up on {name}: “{one_line(reason)}”. {kept}; try again or take another model.", partial
            )
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)) or type(error) is ConnectionError:
        there = "" if is_local(address) else " on that machine"
        return OllamaDown(
            f"Ollama is not running at {address}. {kept}; start it{there} with `{serve_command(address)}` and try "
            "again. Replay and demo still work."
        )
    return broken(error, address, name, "Ollama", timeout, partial)


def what_is_kept(partial: str) -> str:
    """The beginning of the second sentence of a failure."""
    return "What had arrived is kept" if partial else "Everything before this call is kept"


def broken(error: Exception, address: str, name: str, of: str, timeout: float, partial: str) -> ModelError:
    """The error for a server, of the kind `of`, that was silent, said too much, left, or said what it never would."""
    kept = what_is_kept(partial)
    if isinstance(error, httpx.TimeoutException):
        silence = f"Nothing came from {name} for {timeout:g} s. {kept}; try again, wait longer or take a smaller model."
        return ModelInterrupted(silence, partial) if partial else ModelSlow(silence)
    if isinstance(error, ReplyTooLong):
        most = f"{MOST_BYTES // 1024**2} MB"
        sentence = f"{name} sent more than {most} for one reply, and was left. {kept}; check the address."
    elif isinstance(error, (httpx.HTTPError, ConnectionError)):
        sentence = f"The connection to {of} broke while {name} was at work. {kept}; try again."
    else:
        sentence = f"What answered at {address} is not what {of} would say. {kept}; check the address and the version."
    return ModelInterrupted(sentence, partial)


def _tells_secrets(host: str) -> bool:
    name = host.rstrip(".").lower().partition("%")[0]
    try:
        # Also the forms that an operating system reads as an address: 2852039166, 0xa9fea9fe, 169.254.43518.
        address = ipaddress.ip_address(name if ":" in name else socket.inet_aton(name))
    except (ValueError, OSError):
        return name in METADATA
    return any(one.is_link_local or str(one) in METADATA_ADDRESSES for one in (address, *_within(address)))


def _within(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """The addresses of version 4 to which one of version 6 may lead: mapped, compatible, 6to4, Teredo, and by NAT64
    (RFC 6052) and ISATAP (RFC 5214), which have it in the last four bytes, whatever prefix a network has chosen.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return []
    server_and_client = address.teredo or ()
    return [*server_and_client, *filter(None, [address.sixtofour]), ipaddress.IPv4Address(address.packed[-4:])]


def _port(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError:
        return None
