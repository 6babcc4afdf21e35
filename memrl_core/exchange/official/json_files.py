"""The files of the official MemRL code: which they are, and how they are opened without trusting them.

Layout (MemTensor/MemRL, February 2026): a checkpoint is a folder with `cube/textual_memory.json` and `local_cache/`,
and stands in `<run>/snapshot/<n>`, `<run>/epoch<n>/snapshot/<n>` or `<run>/snapshot/final`; a `ckpt_id` of one's own
tells no age. Only JSON, JSON lines and CSV are opened: never `qdrant/`, which holds pickles, and never a configuration,
which may hold keys. A file behind a link that leads out of the folder is refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.errors import InputError
from memrl_core.exchange.contents import NOTHING, Skipped
from memrl_core.exchange.whole_files import opened

NAMED = 5
LARGEST_FILE = 2 * 2**30
LONGEST_LINE = 64 * 2**20
AGAIN = f"{NOTHING} Take another copy of the checkpoint."
CACHES = ("dict_memory.json", "mem_cache.json", "q_cache.json")
_SPACE = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint: its folder, and the parts that are there. `others` names those beside it that were not taken."""

    name: str
    folder: Path
    cube: Path | None
    cache: Path | None
    others: tuple[str, ...] = ()


def checkpoint_in(folder: Path) -> Checkpoint | None:
    """The checkpoint that `folder` is, or the newest that it holds, or the only one; None when there is none.

    Raises `InputError`, naming them, when there are several whose names tell no age.
    """
    if folder.name == "local_cache" and _has_caches(folder):
        return _checkpoint(folder.parent, folder.parent)
    if (folder / "cube" / "textual_memory.json").is_file():
        return _checkpoint(folder, folder)
    places = (folder, folder / "snapshot", *(epoch / "snapshot" for epoch in numbered(folder, "epoch")))
    children = [child for place in places if place.is_dir() for child in sorted(place.iterdir())]
    held = [child for child in children if _is_checkpoint(child)]
    named, aged = [c for c in held if _age(c) is None], [c for c in held if _age(c) is not None]
    aged.sort(key=lambda child: _age(child) or (0, 0))
    if aged:
        return _checkpoint(folder, aged[-1], [*named, *aged[:-1]])
    if _has_caches(folder / "local_cache"):
        return _checkpoint(folder, folder)
    if len(named) > 1:
        listed = ", ".join(child.relative_to(folder).as_posix()[:80] for child in named[:NAMED])
        more = f" and {len(named) - NAMED:,} more" if len(named) > NAMED else ""
        raise InputError(
            f"{folder.name} holds {len(named):,} checkpoints, and their names do not say which is the newest: "
            f"{listed}{more}. {NOTHING} Name one of them."
        )
    return _checkpoint(folder, named[0]) if named else None


def numbered(folder: Path, prefix: str) -> list[Path]:
    """The folders `<prefix><number>` in `folder`, by their number."""
    found = [child for child in folder.glob(f"{prefix}*") if child.name.removeprefix(prefix).isdecimal()]
    return sorted((child for child in found if child.is_dir()), key=lambda child: int(child.name.removeprefix(prefix)))


def _age(folder: Path) -> tuple[int, int] | None:
    # BigCodeBench runs end with a snapshot named `final`; all others are named by their epoch or section.
    if folder.name == "final":
        return 1, 0
    return (0, int(folder.name)) if folder.name.isdecimal() and len(folder.name) < 10 else None


def _is_checkpoint(folder: Path) -> bool:
    return (folder / "cube" / "textual_memory.json").is_file() or _has_caches(folder / "local_cache")


def _has_caches(folder: Path) -> bool:
    return any((folder / name).is_file() for name in CACHES)


def _checkpoint(root: Path, folder: Path, others: list[Path] | None = None) -> Checkpoint:
    cube, cache = folder / "cube" / "textual_memory.json", folder / "local_cache"
    return Checkpoint(
        name=folder.name,
        folder=folder,
        cube=cube if cube.is_file() else None,
        cache=cache if _has_caches(cache) else None,
        others=tuple(other.relative_to(root).as_posix() for other in others or ()),
    )


def data_of(path: Path, root: Path) -> bytes:
    """The bytes of a file in `root`. Raises `InputError` when it leads elsewhere, is too large or cannot be read."""
    must_stay_inside(path, root)
    with opened(path) as file:
        data = file.read() if os.fstat(file.fileno()).st_size <= LARGEST_FILE else None
    if data is None:
        size = f"{LARGEST_FILE / 2**30:g} GB"
        raise InputError(f"{path.name} is larger than {size}. {NOTHING} Take a smaller checkpoint.")
    return data


def must_stay_inside(path: Path, root: Path) -> None:
    """Raise `InputError` unless `path` is a plain file that really stands in `root`."""
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise InputError(f"{path.name} cannot be found. {AGAIN}") from error
    if not real.is_relative_to(root.resolve()):
        raise InputError(f"{path.name} is a link that leads out of the folder. {NOTHING} Put the file itself there.")
    if not real.is_file():
        raise InputError(f"{path.name} is not a plain file. {AGAIN}")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def value_of(data: bytes | str, name: str) -> Any:
    """Decoded JSON. Raises `InputError` for NaN, infinities, and what is cut short or not JSON."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} cannot be read as JSON ({_why(error)}). {AGAIN}") from error


def entries_of(data: bytes, name: str) -> Iterator[tuple[str, Any]]:
    """The entries of a large list (named by their number, from 1) or object, decoded one by one.

    One by one, because decoded vectors take ten times the room of float32. Raises `InputError` like `value_of`.
    """
    try:
        text = data.decode("utf-8-sig")
        yield from _entries(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} cannot be read as JSON ({_why(error)}). {AGAIN}") from error


def _entries(text: str) -> Iterator[tuple[str, Any]]:
    at = _skip(text, 0)
    closing = {"[": "]", "{": "}"}.get(text[at : at + 1])
    if closing is None:
        raise ValueError("it is neither a list nor an object")
    at, number = _skip(text, at + 1), 0
    while text[at : at + 1] != closing:
        number += 1
        key = str(number)
        if closing == "}":
            key, at = _DECODER.raw_decode(text, at)
            at = _skip(text, at)
            if not isinstance(key, str) or text[at : at + 1] != ":":
                raise ValueError(f"its entry {number} has no name")
            at = _skip(text, at + 1)
        value, at = _DECODER.raw_decode(text, at)
        yield key, value
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
            if text[at : at + 1] == closing:
                raise ValueError(f"it has a comma and nothing after it, behind entry {number}")
        elif text[at : at + 1] != closing:
            raise ValueError(f"it ends or breaks off behind entry {number}")
    if _skip(text, at + 1) != len(text):
        raise ValueError("something follows its end")


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    assert space is not None
    return space.end()


def _why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return str(error)[:200]


def lines_of(path: Path, root: Path, skipped: list[Skipped]) -> Iterator[tuple[int, Any]]:
    """The decoded records of a file of JSON lines, or of one JSON list, numbered from 1.

    A line that cannot be read, as a run that was broken off leaves it, is noted in `skipped`. Raises `InputError` for
    a file that cannot be read at all.
    """
    must_stay_inside(path, root)
    with opened(path) as file:
        start = file.read(1024).lstrip()
        if not start.startswith(b"["):
            file.seek(0)
            number = spent = 0
            while line := file.readline(LONGEST_LINE + 1):
                number, spent = number + 1, spent + len(line)
                if len(line) > LONGEST_LINE or spent > LARGEST_FILE:
                    raise InputError(f"{path.name} is too large to be read from line {number:,} on. {NOTHING}")
                if not line.strip():
                    continue
                try:
                    yield number, value_of(line, "It")
                except InputError as error:
                    skipped.append(Skipped(f"{path.name}, line {number}", str(error).split(". ")[0]))
            return
    for key, value in entries_of(data_of(path, root), path.name):
        yield int(key), value


def vector_of(numbers: Any, where: str) -> npt.NDArray[np.float32]:
    """A list of numbers as float32 (d,). Raises `InputError` for anything else, and for what is not finite."""
    if not isinstance(numbers, list) or not numbers or not set(map(type, numbers)) <= {int, float}:
        raise InputError(f"{where} has a vector that is not a list of numbers. {AGAIN}")
    try:
        with np.errstate(over="ignore"):
            vector = np.asarray(numbers, dtype=np.float64).astype(np.float32)
    except OverflowError:
        vector = np.array([np.inf], dtype=np.float32)
    if not np.isfinite(vector).all():
        raise InputError(f"{where} has a vector with a number that is not finite. {AGAIN}")
    return vector


def text_of(value: Any) -> str:
    """Text that can be stored: halves of a surrogate pair, which JSON may hold, become question marks."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""
