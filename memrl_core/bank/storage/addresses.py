"""Where a bank lies: a folder of this machine, or a database and vectors elsewhere that a TOML file names.

Access keys come from the environment alone. Lance's own texts name addresses, headers and answers of servers, so none
of them is shown, logged or chained for a bank that is not on this machine.
"""

from __future__ import annotations

import os
import re
from functools import cache
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from memrl_core.errors import BankError, BankUnreachable

ENDING = ".toml"
"""How the name of a file ends that names a database and vectors."""
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
S3_SCHEMES = ("s3", "s3+ddb")
SCHEMES = (*S3_SCHEMES, "gs", "az", "oss", "cos", "memory", "db")
LOOKING = {"connect_timeout": "5s", "timeout": "5s", "client_max_retries": "2", "client_retry_timeout": "4"}
"""Lance asks a silent server six times, whatever these say, so a timeout of 5 seconds is half a minute."""
WORKING = {"connect_timeout": "5s", "timeout": "20s", "client_max_retries": "3", "client_retry_timeout": "20"}
CUT = 80
MANIFESTS_KEPT = 16 * 2**20
INDEX_KEPT = 2**30
"""Bytes that Lance may remember of a bank's versions, and of its index. By itself it keeps a GiB of old versions."""

_REFUSED = re.compile(r"status:? 40[13]\b|accessdenied|invalidaccesskeyid|signaturedoesnotmatch|necessary privileges")
_NO_ANSWER = re.compile(r"httperror|timed out|error sending request|badscheme|nosuchbucket|status:? (429|5\d\d)\b")


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


def connect(uri: str) -> Any:
    """The LanceDB database at `uri`.

    Raises `BankUnreachable`, for an address that is not on this machine, when it carries keys or is of no known kind,
    when the environment has no keys for it, and whatever Lance raises when nobody answers or lets it in.
    """
    lancedb = _import_lancedb()
    if is_local(uri):
        return lancedb.connect(uri, session=_session())
    _must_be_usable(uri)
    if urlsplit(uri).scheme.lower() == "db":
        return lancedb.connect(uri, session=_session())
    lancedb.connect(uri, storage_options=dict(LOOKING))
    return lancedb.connect(uri, storage_options=dict(WORKING), session=_session())


@cache
def _import_lancedb() -> ModuleType:
    """LanceDB, imported when a bank is first opened: half of the time in which a command starts that opens none."""
    import lancedb

    return lancedb


def _session() -> Any:
    # Not shared by connections: a bank that is made anew where one was would be read by what is remembered of that one.
    return _import_lancedb().Session(index_cache_size_bytes=INDEX_KEPT, metadata_cache_size_bytes=MANIFESTS_KEPT)


def remote_failure(error: BaseException, uri: str) -> BankError | None:
    """What a failure at an address that is not on this machine comes to; None when it is no matter of reaching it."""
    text, at = f"{error}".lower(), shown(uri)[:CUT]
    if _REFUSED.search(text):
        return BankUnreachable(
            f"The store does not let the access keys of the environment do this at {at}. What was saved before is "
            f"safe; check {KEYS[0]}, {KEYS[1]} and AWS_SESSION_TOKEN, and that they may list, read and write there."
        )
    if _NO_ANSWER.search(text):
        return BankUnreachable(
            f"The store that holds {at} does not answer, or has no such bucket. What was saved before is safe; "
            "check the address, the network and AWS_ENDPOINT_URL (one that begins with http:// needs "
            "AWS_ALLOW_HTTP=true), and try again."
        )
    return None


def _must_be_usable(uri: str) -> None:
    address, *more = re.split(r"[?#]", uri, maxsplit=1)
    scheme, _, rest = address.partition("://")
    host, is_s3 = rest.partition("/")[0], scheme.lower() in S3_SCHEMES
    if more or "@" in host or scheme.lower() not in SCHEMES or (is_s3 and not host):
        raise BankUnreachable(
            "An address of vectors looks like s3://bucket/bank, without user, password or ?parameters. It was not "
            f"opened and not kept; set {KEYS[0]}, {KEYS[1]} and AWS_ENDPOINT_URL in the environment."
        )
    missing = [name for name in KEYS if not os.environ.get(name)] if is_s3 else []
    if missing:
        raise BankUnreachable(
            f"There is no access key for {shown(uri)[:CUT]}: {missing[0]} is not set. Nothing was opened; set it in "
            "the environment in which the program starts."
        )
