"""Files that are safe for people: whole or not at all, tables without formulas, and HTML that needs nothing else."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import math
import os
import re
import secrets
import shutil
import unicodedata
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from html import escape
from numbers import Number
from pathlib import Path
from typing import Any, BinaryIO

from memrl_core.bank.storage.addresses import is_local, shown
from memrl_core.bank.storage.failures import CLOSED, FULL
from memrl_core.bank.storage.folders import must_be_path
from memrl_core.errors import BankFull, BankReadOnly, InputError


@contextmanager
def drafted(target: Path, overwrite: bool = False) -> Iterator[BinaryIO]:
    """A new file beside `target` that takes its name at the end, or vanishes when anything fails.

    Raises `InputError` when `target` exists and is not to be overwritten, `BankFull`, `BankReadOnly`.
    """
    must_be_path(str(target))
    if target.is_dir():
        raise InputError(f"{target} is a folder. Nothing was written; name a file in it.")
    if target.exists() and not overwrite:
        raise InputError(f"{target} exists already. Nothing was written; choose another name.")
    if not target.parent.is_dir():
        raise InputError(f"There is no folder {target.parent}. Nothing was written; make it first.")
    draft = target.parent / f".{secrets.token_hex(6)}.draft"
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except OSError as error:
        raise _sentence(error, target) from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _sentence(error: OSError, target: Path) -> Exception:
    text = str(error).lower()
    if error.errno in FULL or any(f"errno {number}]" in text for number in FULL):
        return BankFull(f"The disk is full: {target} could not be written. Free some space and try again.")
    if error.errno in CLOSED:
        return BankReadOnly(f"{target.parent} cannot be written to. Nothing was written; choose another folder.")
    return InputError(f"{target} could not be written ({str(error)[:200]}). Nothing was kept of it; try another place.")


def free_folder(uri: str, kept: str) -> Path:
    """The path of a folder of this machine that is empty or not there yet. Raises `InputError` for another place."""
    if not is_local(uri):
        raise InputError(f"A new bank is made on this machine; {shown(uri)} is not. {kept} Name a folder.")
    must_be_path(uri)
    target = Path(uri).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"Something is already stored at {uri}. {kept} Choose another place.")
    return target


@contextmanager
def drafted_folder(uri: str, kept: str) -> Iterator[Path]:
    """A name for a new folder of this machine that takes the place `uri` at the end, or vanishes when anything fails.

    `uri` may be an empty folder. Raises `InputError` for a place elsewhere or one that is taken, at the start or at the
    end; `kept` says what of that.
    """
    target = free_folder(uri, kept)
    draft = target.with_name(f".{target.name}-{secrets.token_hex(4)}")
    try:
        yield draft
        if draft.exists():
            if target.is_dir():
                target.rmdir()
            draft.rename(target)
    except OSError as error:
        raise InputError(
            f"The bank could not be put at {target} ({error.strerror}). {kept} Choose another place."
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """An existing file to read. Raises `InputError` when it cannot be opened or read."""
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise InputError(f"There is no file {path}. Nothing was imported; check the name.") from None
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise InputError(f"{path.name} cannot be read ({why}). Nothing was imported; check the file.") from error


# --- tables -----------------------------------------------------------------------------------------------------------

# Spreadsheets pass over blanks before they look for a formula, and some take a sign of full width (＝ ＋ － ＠) for its
# plain one.
_FORMULA = re.compile(r"[\t\r]|\s*[=+\-@＝＋－＠]")
_NOT_IN_NAMES = re.compile(r"[^\w.-]+")

DIGITS = 6
LONGEST_PART, LONGEST_NAME = 60, 180


def csv_of(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], exact: bool = False) -> str:
    """A table with a heading, comma-separated with CRLF (RFC 4180), all text in quotes.

    A text that a spreadsheet would take for a formula (=, +, - or @, also of full width, after any blanks, or a tab or
    CR at its start) gets an apostrophe before it, as OWASP advises ("CSV injection"). Numbers stay numbers,
    with `DIGITS` significant digits unless `exact`; None, nan and what a row lacks is empty.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n")
    writer.writerow([_cell(name, exact) for name in columns])
    writer.writerows([_cell(row.get(name), exact) for name in columns] for row in rows)
    return text.getvalue()


def csv_bytes(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], exact: bool = False) -> bytes:
    """`csv_of` as a file: UTF-8."""
    return csv_of(rows, columns, exact).encode()


def for_excel(data: bytes) -> bytes:
    """A file of `csv_bytes` with the mark (BOM) before it without which Excel misreads letters beyond ASCII.

    Most other readers take the mark for a part of the first column's name.
    """
    return BOM_UTF8 + data


def file_name(*parts: object, kind: str) -> str:
    """A name for a download made of what it holds, such as bank, run and step; None and "" are left out."""
    plain = (_NOT_IN_NAMES.sub("-", unicodedata.normalize("NFC", str(p))).strip("-.") for p in parts if p is not None)
    return f"{'-'.join(p[:LONGEST_PART] for p in plain if p)[:LONGEST_NAME].strip('-.') or 'memrl'}.{kind}"


def _cell(value: Any, exact: bool) -> Any:
    if isinstance(value, Number):
        return value if exact or not isinstance(value, float) else _rounded(float(value))
    text = "" if value is None else str(value)
    return f"'{text}" if _FORMULA.match(text) else text


def _rounded(value: float) -> float | str:
    if math.isnan(value):
        return ""
    return float(f"{value:.{DIGITS}g}") if abs(value) < 10**DIGITS else float(f"{value:.0f}")


# --- HTML -------------------------------------------------------------------------------------------------------------


def html_document(
    title: str, style: str, style_source: str, body: Iterable[str], scripts: Iterable[str], images: str = ""
) -> str:
    """A whole document whose policy runs `scripts` alone, known by their hashes, and loads nothing from anywhere.

    `style_source` and `images` are the policy's words for styles and images; `body` is HTML already.
    """
    allowed = " ".join(hash_source(script) for script in scripts) or "'none'"
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src {style_source}; "
        f"{f'img-src {images}; ' if images else ''}base-uri 'none'; form-action 'none'"
    )
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            *body,
            "</body>",
            "</html>\n",
        )
    )


def hash_source(text: str) -> str:
    """A script or style as a policy names it: by its hash."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"
