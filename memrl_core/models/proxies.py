"""The proxy that the environment names for an address, and what of the environment cannot be understood.

The HTTP libraries read the same variables themselves, and raise for any value that they cannot parse, also where it
says nothing about the address that is asked. Here such a value stands in the way of those addresses alone that need it.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from memrl_core.errors import ModelError, ServerDown, one_line

PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")
CERTIFICATES = "SSL_CERT_FILE"
SOCKS = ("socks5", "socks5h")
NEEDS_SOCKSIO = "needs the package socksio, which is not installed"
NOT_SENDABLE = "It holds a character that no header of a request can hold"
KEYS = ("OLLAMA_API_KEY", "OPENAI_API_KEY")


@dataclass(frozen=True, slots=True)
class OddValue:
    """A variable of the environment whose value cannot be used: what is wrong, and what to type."""

    variable: str
    sentence: str
    remedy: str


def proxy_for(address: str) -> str | None:
    """The proxy through which the environment has `address` asked; None for an address that is asked directly.

    Raises `ModelError` where it names one that cannot be used.
    """
    variable, proxy = _named_for(address)
    if proxy and (wrong := _wrong_with(proxy)):
        raise ModelError(
            f"{variable}, the proxy for {address}, cannot be used: {wrong}. Nothing was sent; set it right, or name "
            "the host in NO_PROXY."
        )
    return proxy or None


def silent_proxy(address: str, kept: str) -> ServerDown | None:
    """The error for an `address` to which no connection came about, where it is asked through a proxy; else None.

    `kept` begins the second sentence: what a person still has.
    """
    variable, proxy = _named_for(address)
    if not proxy:
        return None
    return ServerDown(
        f"The proxy “{one_line(without_secrets(proxy))}” of {variable}, through which {address} is asked, gives no "
        f"connection. {kept}; set it right, or name the host in NO_PROXY, and try again. Replay and demo still work."
    )


def _named_for(address: str) -> tuple[str, str]:
    """The variable that names a proxy for `address`, and the proxy; two empty texts where it is asked directly."""
    parts = urlsplit(address)
    named = getproxies()
    scheme = next((one for one in (parts.scheme, "all") if named.get(one)), None)
    host = parts.hostname or ""
    if scheme is None or _is_this_machine(host) or _goes_straight(parts.netloc, host):
        return "", ""
    variable = next((name for name in os.environ if name.lower() == f"{scheme}_proxy"), "The system's proxy")
    return variable, _as_url(named[scheme])


def odd_values() -> Iterator[OddValue]:
    """The variables about proxies and certificates whose values cannot be used."""
    for variable, value in sorted(os.environ.items()):
        name = variable.lower()
        if name in PROXY_VARIABLES and value.strip() and (wrong := _wrong_with(_as_url(value))):
            install = "\npip install socksio" if NEEDS_SOCKSIO in wrong else ""
            yield OddValue(
                variable,
                f"{wrong}. Servers on this machine are asked directly all the same, others cannot be asked through it.",
                f"unset {variable}{install}",
            )
        elif name == "no_proxy":
            odd = [entry for entry in _entries(value) if not _is_entry(entry)]
            if odd:
                named = ", ".join(f"“{one_line(entry, 80)}”" for entry in odd)
                yield OddValue(
                    variable,
                    f"{named}: neither a host nor an address or network, and passed over.",
                    "# hosts, addresses and networks, such as:\nNO_PROXY=localhost,.example.org,192.168.0.0/16",
                )
        elif variable in KEYS and not _is_sendable(value):
            yield OddValue(variable, f"{NOT_SENDABLE}.", f"unset {variable}")
        elif variable == CERTIFICATES and value:
            try:
                ssl.create_default_context(cafile=value)
            except OSError as error:
                sentence = f"“{one_line(value)}” cannot be used ({error.strerror}): no server can be asked by https."
                yield OddValue(variable, sentence, f"unset {variable}")


def must_be_sendable(key: str) -> None:
    """Raise `ModelError` where the value of the variable `key` cannot stand in a request."""
    if not _is_sendable(os.environ.get(key, "")):
        raise ModelError(
            f"{key} cannot be used: {NOT_SENDABLE[0].lower()}{NOT_SENDABLE[1:]}. Nothing was sent; set it "
            "right, or unset it."
        )


def _is_sendable(value: str) -> bool:
    return value.isascii() and value.strip().isprintable()


def without_secrets(address: str) -> str:
    """`address` without a password or parameters."""
    return re.sub(r"//[^/]*@", "//", re.split(r"[?#]", address, maxsplit=1)[0])


def _as_url(value: str) -> str:
    value = value.strip().strip("\"'").strip()
    return value if "://" in value else f"http://{value}"


def _wrong_with(proxy: str) -> str:
    """What keeps the HTTP libraries from using `proxy`; "" when nothing."""
    shown = f"“{one_line(without_secrets(proxy))}”"
    try:
        parts = urlsplit(proxy)
        odd = any(sign.isspace() or not sign.isprintable() for sign in proxy)
        if odd or not parts.hostname or parts.port == 0:
            return f"{shown} is not the address of a proxy"
        httpx.Proxy(proxy)
    except (ValueError, httpx.InvalidURL):
        if proxy.lower().startswith("socks"):
            return f"{shown} is a kind of proxy that is not supported (http, https, socks5 and socks5h are)"
        return f"{shown} is not the address of a proxy"
    return f"{shown} {NEEDS_SOCKSIO}" if parts.scheme in SOCKS and find_spec("socksio") is None else ""


def _is_this_machine(host: str) -> bool:
    """Whether a host is a loopback address in any spelling that a system reads: 127.1, 2130706433, a.localhost."""
    name = host.rstrip(".").lower()
    with suppress(OSError, ValueError):
        ip = ipaddress.ip_address(name if ":" in name else socket.inet_aton(name))
        return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback
    return f".{name}".endswith(".localhost")  # RFC 6761: no other machine has such a name.


def _goes_straight(netloc: str, host: str) -> bool:
    """Whether NO_PROXY, or the system, names a host; networks and addresses in brackets count, too."""
    if proxy_bypass(netloc) or proxy_bypass(host):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address in network for network in map(_network, _entries(getproxies().get("no", ""))) if network)


def _entries(no_proxy: str) -> list[str]:
    return [entry for one in no_proxy.split(",") if (entry := one.strip().strip("\"'"))]


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(entry.replace("[", "").replace("]", ""), strict=False)
    except ValueError:
        return None


def _is_entry(entry: str) -> bool:
    return entry == "*" or _network(entry) is not None or re.fullmatch(r"\.?[\w.-]+(:\d+)?", entry) is not None
