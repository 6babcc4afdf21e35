"""Where the app may listen: without a login, on this machine only."""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

LOCALHOST = "127.0.0.1"
MANY_FILES, FEW_FILES = 4096, 1024
"""How many open files the app wants, and with how many it can be used by a few people."""
FOREIGN = (
    "This request came by the name {host}, and the app serves this machine only. Nothing is shown. Open it as "
    "localhost, or set up a login: see “A login” in docs/how-to/rating.md."
)
NEEDS_LOGIN = (
    "This app listens on {address}, where strangers could read and change the banks, and no login is set "
    "up. Nothing is shown there. Leave the address away to use it on this machine, forward the port (ssh -L), or set "
    "up a login first: see “A login” in docs/how-to/rating.md."
)


def raise_open_files() -> int:
    """Let this process have `MANY_FILES` open, or as many as the system allows; returns how many that are.

    Streamlit keeps three for each page that was opened within two minutes, and macOS allows 256 where nobody asks.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return MANY_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MANY_FILES if hard == resource.RLIM_INFINITY else min(MANY_FILES, hard)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return MANY_FILES if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):
        return soft
    return most


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach a server that listens on `address`; an empty one means all addresses."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def own_hosts(address: str) -> tuple[str, ...]:
    """The names under which a browser of this machine finds a server that listens on the loopback `address`.

    A site elsewhere can let its own name lead here, and is then the same site to a browser: a server that serves this
    machine only answers to no other name.
    """
    return tuple(dict.fromkeys(("localhost", LOCALHOST, "::1", address)))


def is_own_host(host: str) -> bool:
    """Whether a request's `Host`, or the host and port of its `Origin`, names this machine: "localhost:8501"."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return is_loopback(name.rstrip("."))


def login_is_set_up(folders: Iterable[Path]) -> bool:
    """Whether one of the folders holds secrets of Streamlit's with a section `auth` (OIDC)."""
    for folder in folders:
        try:
            if "auth" in tomllib.loads((folder / ".streamlit" / "secrets.toml").read_text(encoding="utf-8")):
                return True
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
            continue
    return False
