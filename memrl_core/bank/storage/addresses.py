"""Where a bank lies: a folder of this machine, or a database and vectors elsewhere that a TOML file names.

Access keys come from the environment alone. Lance's own texts name addresses, headers and answers of servers, so none
of them is shown, logged or chained for a bank that is not on this machine.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from memrl_core.errors import BankError, BankUnreachable

ENDING = ".toml"
"""How the name of a file ends that names a database and vectors."""
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
S3_SCHEMES = ("s3", "s3+ddb")
SCHEMES = (*S3_SCHEMES, "gs", "az", "oss", "cos", "file", "memory", "db")
LOOKING = {"connect_timeout": "5s", "timeout": "5s", "client_max_retries": "2", "client_retry_timeout": "4"}
"""Lance asks a silent server six times, whatever these say, so a timeout of 5 seconds is half a minute."""
WORKING = {"connect_timeout": "5s", "timeout": "20s", "client_max_retries": "3", "client_retry_timeout": "20"}
CUT = 80
MANIFESTS_KEPT = 16 * 2**20
INDEX_KEPT = 2**30
"""Bytes that Lance may remember of a bank's versions, and of its index. By itself it keeps a GiB of old versions."""

_REFUSED = re.compile(r"status:? 40[13]\b|accessdenied|invalidaccesskeyid|signaturedoesnotmatch|necessary privileges")
_NO_ANSWER = re.compile(r"httperror|timed out|error sending request|status:? (429|5\d\d)\b")


def is_local(uri: str) -> bool:
    """Whether `uri` names a folder of this machine."""
    return "://" not in uri and not uri.endswith(ENDING)


def shown(uri: str) -> str:
    """An address without anything in it that could be a key: what stands before an @, and after ? or #."""
    if is_local(uri):
        return uri
    scheme, _, rest = re.split(r"[?#]", uri, maxsplit=1)[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def plain(uri: str) -> str:
    """The path that a file:// address of this machine stands for; any other address or path as it is."""
    if not uri.lower().startswith("file://"):
        return uri
    parts = urlsplit(uri)
    return url2pathname(parts.path) if parts.netloc in ("", "localhost") else uri


def connect(uri: str) -> Any:
    """The LanceDB database at `uri`.

    Raises `BankUnreachable`, for an address that is not on this machine, when it carries keys or is of no known kind,
    when the environment has no keys for it, and whatever Lance raises when nobody answers or lets it in.
    """
    lancedb = _import_lancedb()
    if is_local(uri):
        return lancedb.connect(uri, session=_session())
    _must_be_usable(uri)
    if urlsplit(uri).scheme.lower() in ("db", "file"):
        return lancedb.connect(uri, session=_session())
    lancedb.connect(uri, storage_options=dict(LOOKING))
    return lancedb.connect(uri, storage_options=dict(WORKING), session=_session())


@cache
def _import_lancedb() -> ModuleType:
    """LanceDB, imported when a bank is first opened: half of the time in which a command starts that opens none."""
    return importlib.import_module("lancedb")


def _session() -> Any:
    # Not shared by connections: a bank that is made anew where one was would be read by what is remembered of that one.
    return _import_lancedb().Session(index_cache_size_bytes=INDEX_KEPT, metadata_cache_size_bytes=MANIFESTS_KEPT)


def remote_failure(error: BaseException, uri: str) -> BankError | None:
    """What a failure at an address that is not on this machine comes to; None when it is no matter of reaching it."""
    text = f"{error}".lower()
    place = shown(uri)[:CUT]
    if "nosuchbucket" in text:
        return BankUnreachable(
            f"The store has no bucket for {place}. Nothing was changed; check the address, or make the bucket."
        )
    if _REFUSED.search(text):
        return BankUnreachable(
            f"The store does not let the access keys of the environment do this at {place}. What was saved before is "
            f"safe; check {KEYS[0]}, {KEYS[1]} and AWS_SESSION_TOKEN, and that they may list, read and write there."
        )
    if "badscheme" in text:
        return BankUnreachable(
            "The store's address begins with http://, which sends everything unencrypted. Nothing was changed; use "
            "https://, or set AWS_ALLOW_HTTP=true for a store on your own machine."
        )
    if _NO_ANSWER.search(text):
        return BankUnreachable(
            f"The store that holds {place} does not answer. What was saved before is safe; check the network and "
            "AWS_ENDPOINT_URL, and try again."
        )
    return None


def _must_be_usable(uri: str, environment: Mapping[str, str] = os.environ) -> None:
    parts = re.split(r"[?#]", uri, maxsplit=1)
    scheme, _, rest = parts[0].partition("://")
    host = rest.partition("/")[0]
    if len(parts) > 1 or "@" in host:
        raise BankUnreachable(
            "A bank's address has no user, password or ?parameters in it. It was not opened and not kept; set "
            f"{KEYS[0]} and {KEYS[1]} in the environment and give the address alone, such as s3://bucket/bank."
        )
    if scheme.lower() not in SCHEMES:
        raise BankUnreachable(
            f"There are no banks at addresses that begin with {scheme[:20]}://. Nothing was opened; give a folder, or "
            "an address such as s3://bucket/bank, with the server in AWS_ENDPOINT_URL."
        )
    if scheme.lower() in S3_SCHEMES:
        if not host:
            raise BankUnreachable("The address names no bucket. Nothing was opened; write it as s3://bucket/bank.")
        if missing := [name for name in KEYS if not environment.get(name)]:
            raise BankUnreachable(
                f"There is no access key for {shown(uri)[:CUT]}: {' and '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} not set. Nothing was opened; set them in the environment in "
                "which the program starts."
            )
