"""Where an Ollama server is, how it is reached, and what its failures mean to a person."""

from __future__ import annotations

import importlib
import ipaddress
import os
import shlex
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from memrl_core.errors import InputError, ModelError, ModelInterrupted, ModelMissing, ModelSlow, OllamaDown, one_line
from memrl_core.models.base import Cancelled
from memrl_core.models.proxies import (
    CERTIFICATES,
    OddValue,
    must_be_sendable,
    odd_values,
    proxy_for,
    silent_proxy,
    without_secrets,
)
from memrl_core.models.stream import MOST_BYTES, Ask, Bounded, Part, ReplyTooLong, Stream
from memrl_core.records import Message

if TYPE_CHECKING:
    import ollama

DEFAULT_ADDRESS = "http://127.0.0.1:11434"
OPENAI = "https://api.openai.com/v1"
OPENAI_COMPATIBLE = ("an OpenAI-compatible server", "http://127.0.0.1:8080/v1")
"""What its address is one of, and how one is written."""

CONNECT_TIMEOUT = 2.0
"""Seconds until an address without a server is given up."""

METADATA = frozenset(
    {"metadata", "metadata.goog", "metadata.google.internal", "metadata.azure.internal", "instance-data"}
)
METADATA_ADDRESSES = frozenset({"100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"})
"""Where a rented machine gets its own secrets, beside the link-local addresses: no server of models is there."""

_SECRETS = "“{address}” is where a rented machine gets its own secrets, and no address of {of}, so nothing was changed."

LONGEST_NAME = 200

FAILURES = (
    ConnectionError,
    httpx.HTTPError,
    ReplyTooLong,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
)
"""What a client raises beside its own error: httpx's, the builtin one when a server is down outside a stream, and
for replies that are not the server's whatever its unguarded parsing trips over (pydantic's and json's errors are
`ValueError`s; JSON that is nested too deep is a `RecursionError`)."""


@cache
def official() -> Any:
    """Ollama's official package: `Client`, `AsyncClient`, `ResponseError`, `ChatResponse`. Nothing but a question to
    Ollama needs it."""
    try:
        return importlib.import_module("ollama")
    except Exception:
        # It ends with a client of its own, made of whatever the environment says; where that cannot be made, all that
        # is used of it has been loaded already.
        return importlib.import_module("ollama._client")


def failures() -> tuple[type[Exception], ...]:
    """What the official client raises."""
    return (official().ResponseError, *FAILURES)


def default_address() -> str:
    """`OLLAMA_HOST` as a URL, or the address of a local server. A value that is no address is returned as it is."""
    given = _of_environment("OLLAMA_HOST")
    if not given:
        return DEFAULT_ADDRESS
    try:
        return ollama_address(given)
    except InputError:
        return given


def ollama_address(given: str) -> str:
    """A host as Ollama's own programs take it, which may lack scheme, port and brackets, as a URL.

    Raises `InputError`.
    """
    scheme, separator, rest = given.strip().rpartition("://")
    host, slash, path = rest.partition("/")
    name, port = host, ""
    if _ip(host) is None and ":" in host and not host.endswith("]"):
        name, _, port = host.rpartition(":")
    if not separator:
        name, port = name or "127.0.0.1", port or "11434"
    if (ip := _ip(name.strip("[]"))) is not None:
        # Servers are told to listen on every interface with 0.0.0.0 or ::, to which not every system connects.
        own = "127.0.0.1" if ip.version == 4 else "::1"
        name = own if ip.is_unspecified else str(ip)
        name = name if ip.version == 4 else f"[{name}]"
    return checked_address(f"{scheme or 'http'}://{name}{port and ':'}{port}{slash}{path}")


def openai_address() -> str:
    """`OPENAI_BASE_URL` without a slash at its end, or OpenAI's own; a password or parameters in it are left out, for
    an address is shown and stored."""
    return without_secrets(_of_environment("OPENAI_BASE_URL") or OPENAI).rstrip("/")


def _of_environment(variable: str) -> str:
    """The value of a variable without the blanks and quotes that stand around it in many files of settings."""
    return os.environ.get(variable, "").strip().strip("\"'").strip()


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
        # No name has an empty part, one of more than 63 letters, or one that only looks encoded.
        httpx.URL(given).host.encode("idna")
    except (ValueError, httpx.InvalidURL):
        usable = False
    odd = any(character.isspace() or not character.isprintable() for character in given)
    if not usable or odd or parts.query or parts.fragment or "@" in parts.netloc:
        from_environment = {_of_environment("OLLAMA_HOST"): "OLLAMA_HOST", openai_address(): "OPENAI_BASE_URL"}
        variable = from_environment.get(given, "") if given else ""
        where, unset = (f" in {variable}", f", or unset {variable}") if variable else ("", "")
        raise InputError(
            f"“{one_line(without_secrets(given))}”{where} is not an address of {of}, so nothing was changed. Write it "
            f"like {like}{unset}."
        )
    if _tells_secrets(parts.hostname or ""):
        raise InputError(_SECRETS.format(address=one_line(given), of=of) + f" Write it like {like}.")
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

    Reads wait `timeout` seconds (the official default is for ever) and end at `MOST_BYTES`. Raises `InputError` where
    the name leads to what `checked_address` refuses, and `ModelError` where the environment has the address asked in a
    way that cannot be used.
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
    local = is_local(address)
    proxy = None if local else proxy_for(address)
    if not local and proxy is None and any(map(_tells_secrets, _resolved(urlsplit(address).hostname or ""))):
        raise InputError(_SECRETS.format(address=one_line(address), of="a server of models") + " Name another host.")
    transport = http.AsyncHTTPTransport if asynchronous else http.HTTPTransport
    try:
        carries = transport(verify=address.startswith("https:"), trust_env=not local, proxy=proxy)
    except Exception as error:
        file = os.environ.get(CERTIFICATES, "")
        what = f"the certificates of {CERTIFICATES}, “{one_line(file)}”," if file else "the connection"
        raise ModelError(
            f"{what[0].upper()}{what[1:]} cannot be used ({one_line(str(error))}), so {address} was not asked. Nothing "
            "was sent; run memrl doctor, which checks the environment."
        ) from error
    return {
        "timeout": http.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT)),
        "transport": carries,
        "trust_env": False,  # What is used of the environment is in the transport.
        "follow_redirects": False,
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
    must_be_sendable("OLLAMA_API_KEY")
    client: ollama.Client = official().Client(address, **connection(address, timeout))
    return client


def ollama_stream(
    ask: Ask[Part], address: str, timeout: float, cancelled: Cancelled | None = None, first: float | None = None
) -> Stream[Part]:
    """A streamed answer of Ollama: `ask` is given an `ollama.AsyncClient`."""
    must_be_sendable("OLLAMA_API_KEY")
    given = connection(address, max(timeout, first or timeout), asynchronous=True)
    return Stream(lambda: official().AsyncClient(address, **given), ask, failures(), timeout, cancelled, first)


def odd_environment() -> list[OddValue]:
    """The variables of the environment about servers whose values cannot be used."""
    found = list(odd_values())
    named = {"OLLAMA_HOST": (default_address(),), "OPENAI_BASE_URL": (openai_address(), *OPENAI_COMPATIBLE)}
    for variable, of in named.items():
        try:
            checked_address(*of)
        except InputError as error:
            found.append(OddValue(variable, str(error), f"unset {variable}"))
    return found


def is_local(address: str) -> bool:
    """Whether `address` names this machine itself."""
    host = urlsplit(address).hostname or ""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback


def pull_command(name: str, address: str) -> str:
    """What to type to install `name` at `address`; quoted, because names also come from other people's banks."""
    where = "" if address == DEFAULT_ADDRESS else f"OLLAMA_HOST={shlex.quote(address.removeprefix('http://'))} "
    return f"{where}ollama pull {shlex.quote(one_line(canonical_name(name)))}"


def serve_command(address: str) -> str:
    """What to type to start a server that listens at `address`, on the machine of that address."""
    if address == DEFAULT_ADDRESS:
        return "ollama serve"
    parts = urlsplit(address)
    host = parts.netloc if is_local(address) else "0.0.0.0" + (f":{parts.port}" if parts.port else "")
    return f"OLLAMA_HOST={host} ollama serve"


def failure(error: Exception, address: str, model: str, timeout: float, partial: str = "") -> ModelError:
    """One of `failures()` as an error whose sentence a person can act on.

    `model` is empty when the call was about no model. `timeout` is in seconds; `partial` is the text that had arrived
    before, and is carried by `ModelInterrupted`.
    """
    name = one_line(model) or "Ollama"
    kept = what_is_kept(partial)
    if isinstance(error, official().ResponseError):
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
    if (
        isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError))
        or type(error) is ConnectionError
    ):
        if unreached := silent_proxy(address, kept):
            return unreached
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


def _resolved(host: str) -> list[str]:
    """The addresses that a host's name stands for; none where nobody knows it, which connecting then says."""
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        return []


def _tells_secrets(host: str) -> bool:
    with suppress(UnicodeError):
        host = host.encode("idna").decode()  # As it is looked up: other scripts have a full stop of their own.
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


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
