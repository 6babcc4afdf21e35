"""Whether the files of a Lance table lead nowhere else, known before Lance opens any of them.

A Lance table may be a shallow clone: its manifest names base paths, a folder or an `s3://` address, and who opens it
reads there, with the keys of the person. Branches, tags, indexes, blobs in other files and functions of embeddings are
further ways out. A bank needs none of them. So the manifests and transactions are walked here field by field
(protobuf; the numbers are those of `table.proto` and `transaction.proto` of the Lance format), and what is not a part
of a table that this program writes is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

LARGEST = 16 * 2**20
"""Bytes of one manifest or transaction (150,000 fragments), and of all of them together where nothing else may lie."""
FOLDERS = ("data", "_versions", "_transactions", "_deletions")
_ENDING = b"LANC"
_FOOTER = 16
"""Bytes at the end of a manifest's file: the position of the manifest (8), a version (4), and LANC."""
_OWN = re.compile(
    r"(data/\w{1,99}\.lance|_versions/\d{1,20}\.manifest|_versions/latest_version_hint\.json"
    r"|_transactions/[\w-]{1,99}\.txn|_deletions/[\w-]{1,99}\.(arrow|bin))",
    re.ASCII,
)
_NAME = re.compile(rb"[\w-]+\.(lance|txn)")
_PLACE = re.compile(rb"[/\\:]|\.\.")


class LeadsElsewhere(Exception):
    """A file of a table names, or may name, what is not in its folder; the text says which and how."""


# --- what a table of this program consists of -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Message:
    """The fields that a bank's own table has in a message of the format, by number; `last` is the highest of all.

    None is a value without a place in it, `_NAME` the name of a file in its folder. A number above `last`, which a
    later version of Lance may write, passes unless a place can stand in it.
    """

    last: int
    parts: Mapping[int, _Part] = field(default_factory=dict)


_Part: TypeAlias = "_Message | re.Pattern[bytes] | None"


def _plain(*numbers: int) -> dict[int, _Part]:
    return dict.fromkeys(numbers)


_FIELD = _Message(12, _plain(1, 2, 3, 4, 5, 6, 7))  # Without its metadata, which may make it a blob elsewhere.
_FILE = _Message(7, {1: _NAME, **_plain(2, 3, 4, 5, 6)})  # 7: the id of a base path.
_DELETIONS = _Message(7, _plain(1, 2, 3, 4))  # 7: the same.
_FRAGMENT = _Message(11, {2: _FILE, 3: _DELETIONS, **_plain(1, 4, 5, 7, 9)})  # 6, 8, 10: rows in other files.
_MANIFEST = (
    _Message(  # 5: metadata of the schema. 6: indexes. 8: a tag. 16, 19: configuration. 18: base paths. 20: branch.
        21, {1: _FIELD, 2: _FRAGMENT, 12: _NAME, **_plain(3, 7, 9, 10, 11, 13, 14, 15, 21)}
    )
)
BASES = 18
"""The field of a manifest with the places outside its folder in which its files lie."""
_OPERATIONS: dict[int, _Part] = {
    100: _Message(1, {1: _FRAGMENT}),  # append
    101: _Message(3, {1: _FRAGMENT, **_plain(2, 3)}),  # delete
    102: _Message(5, {1: _FRAGMENT, 2: _FIELD}),  # create; 5: base paths
    104: _Message(4, {1: _FRAGMENT, 2: _FRAGMENT, 3: _Message(2, {1: _FRAGMENT, 2: _FRAGMENT})}),  # compact
    106: _Message(1, _plain(1)),  # restore
    107: _Message(1, _plain(1)),  # reserve fragments
    108: _Message(10, {2: _FRAGMENT, 3: _FRAGMENT, **_plain(1, 4, 6, 7, 9, 10)}),  # update
}
_TRANSACTION = _Message(202, {**_plain(1, 2), **_OPERATIONS})  # 113: a clone. 114: base paths.


# --- the files --------------------------------------------------------------------------------------------------------


def is_own(name: str, table: str) -> bool:
    """Whether a file of this name, relative to the folder of all tables, is one that this program writes."""
    inside = name.removeprefix(f"{table}.lance/")
    return inside != name and _OWN.fullmatch(inside) is not None


def must_stay_inside(folder: Path, table: str, exactly: bool = False) -> None:
    """Raise `LeadsElsewhere` unless Lance, which opens `table` in `folder`, stays in that folder.

    `exactly`: nothing else may lie there either, as in a bank that was exported.
    """
    root = folder / f"{table}.lance"
    for path in (folder, root):
        if path.is_symlink():
            raise LeadsElsewhere(f"{path.name} is a link")
    for beside in folder.iterdir() if folder.is_dir() else ():
        # Lance reads where tables lie from the table __manifest, if there is one.
        if beside.name.startswith("__manifest") or (exactly and beside.name != root.name):
            raise LeadsElsewhere(f"{beside.name} is not a part of a bank")
    together = 0
    for entry in _entries(root):
        name = os.path.relpath(entry.path, root).replace(os.sep, "/")
        if entry.is_symlink():
            raise LeadsElsewhere(f"{name} is a link")
        is_folder = entry.is_dir(follow_symlinks=False)
        if (is_folder and name not in FOLDERS) or (
            exactly and not is_folder and not is_own(f"{root.name}/{name}", table)
        ):
            raise LeadsElsewhere(f"{name} is not a part of a bank")
        kind = ".manifest" if ".manifest" in entry.name else ".txn" if entry.name.endswith(".txn") else ""
        if kind and not is_folder:
            stat = entry.stat(follow_symlinks=False)
            together += stat.st_size
            if exactly and together > LARGEST:
                raise LeadsElsewhere(f"{name} and those before it are larger than a bank's are")
            if fault := _fault(entry.path, kind, stat.st_size, stat.st_mtime_ns):
                raise LeadsElsewhere(f"{name}: {fault}")


def must_not_be_a_clone(folder: Path, table: str) -> None:
    """Raise `LeadsElsewhere` where another program's `table` in `folder` has parts that lie elsewhere.

    Unlike a bank's it may have indexes, tags and metadata.
    """
    root = folder / f"{table}.lance"
    if (folder / "__manifest.lance").exists():
        raise LeadsElsewhere("__manifest says where tables lie")
    for entry in _entries(root):
        if entry.is_symlink():
            raise LeadsElsewhere(f"{entry.name} is a link")
        if not entry.name.endswith(".manifest"):
            continue
        data = Path(entry.path).read_bytes()
        try:
            fields = list(_fields(_section(data, int.from_bytes(data[-_FOOTER : 8 - _FOOTER], "little"))))
        except ValueError as error:
            raise LeadsElsewhere(f"{entry.name}: {error}") from None
        if any(number == BASES for number, _ in fields):
            raise LeadsElsewhere(f"{entry.name} has base paths")


def _entries(root: Path) -> Iterator[os.DirEntry[str]]:
    """All entries below a folder; none where it is not there. What stands in a folder comes after it."""
    if not root.is_dir():
        return
    with os.scandir(root) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        yield entry
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(Path(entry.path))


@lru_cache(maxsize=2**14)  # Lance never changes a file: who opens a bank once more has it read only once.
def _fault(path: str, kind: str, size: int, changed: int) -> str:
    """What is wrong with a manifest or a transaction; "" when it is one of a bank's own."""
    if size > LARGEST:
        return f"{size / 2**20:,.0f} MB are more than a bank's has"
    data = Path(path).read_bytes()
    try:
        if kind == ".txn":
            _walk(data, _TRANSACTION)
            return ""
        start = int.from_bytes(data[-_FOOTER : 8 - _FOOTER], "little")
        manifest = _section(data, start)
        if data[-4:] != _ENDING or start + 4 + len(manifest) != len(data) - _FOOTER:
            return "it is no manifest"
        _walk(manifest, _MANIFEST)
        for number, value in _fields(manifest):
            if number == 21 and isinstance(value, int):
                _walk(_section(data, value), _TRANSACTION)
    except (LeadsElsewhere, ValueError) as error:
        return str(error)
    return ""


def _section(data: bytes, start: int) -> bytes:
    """The message at a position in a file, which begins with its length (4 bytes)."""
    length = int.from_bytes(data[start : start + 4], "little")
    if start + 4 + length > len(data) - _FOOTER:
        raise ValueError("it is cut short")
    return data[start + 4 : start + 4 + length]


# --- protobuf ---------------------------------------------------------------------------------------------------------


def _walk(data: bytes, message: _Message) -> None:
    for number, value in _fields(data):
        part = message.parts.get(number)
        if number not in message.parts and (
            number <= message.last or (isinstance(value, bytes) and _PLACE.search(value))
        ):
            raise LeadsElsewhere(f"it may name a folder or a server elsewhere (field {number}), as no bank does")
        if part is None:
            continue
        if not isinstance(value, bytes):
            raise ValueError(f"field {number} is of the wrong kind")
        if isinstance(part, re.Pattern):
            if not part.fullmatch(value):
                raise LeadsElsewhere(f"{value[:80].decode(errors='replace')!r} is not the name of a file in its folder")
        elif part in _REPEATED:
            _walk_once(value, part)
        else:
            _walk(value, part)


_REPEATED = (_FIELD, _FRAGMENT)
_walk_once = lru_cache(maxsize=2**12)(_walk)
"""Most fields and fragments of a version are those of the version before."""


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of every field of a message. Raises `ValueError` where it is none."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        length = {1: 8, 5: 4}.get(wire)
        if wire == 2:
            length, at = _varint(data, at)
        if length is None or not number or at + length > end:
            raise ValueError("it cannot be read")
        yield number, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A whole number of 1 to 10 bytes, and the position behind it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("it cannot be read")
