"""The files of the official MemRL code: which they are, and how they are opened without trusting them.

Layout (MemTensor/MemRL, February 2026): a checkpoint is a folder with `cube/textual_memory.json` and `local_cache/`,
in `<run>/snapshot/<n>`, `<run>/epoch<n>/snapshot/<n>` or `<run>/snapshot/final`; a name of one's own
gives no age. Only JSON, JSON lines and CSV are opened: never `qdrant/`, which holds pickles, and never a configuration,
which may hold keys. A file behind a link that leads out of the folder is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.errors import InputError
from memrl_core.exchange.contents import NOTHING, Skipped
from memrl_core.exchange.whole_files import opened

NAMED = 5
LARGEST_FILE = 2**30
"""Decoded vectors take ten times the room of float32."""
AGAIN = f"{NOTHING} Take another copy of the checkpoint."
CACHES = ("dict_memory.json", "mem_cache.json", "q_cache.json")


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

    Raises `InputError`, naming them, when there are several whose names give no age.
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
        listed = few(child.relative_to(folder).as_posix() for child in named)
        raise InputError(
            f"{folder.name} holds {len(named):,} checkpoints, and their names do not say which is the newest: "
            f"{listed}. {NOTHING} Name one of them."
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
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise InputError(f"{path.name} cannot be found. {AGAIN}") from error
    if not real.is_relative_to(root.resolve()):
        raise InputError(f"{path.name} is a link that leads out of the folder. {NOTHING} Put the file itself there.")
    if not real.is_file():
        raise InputError(f"{path.name} is not a plain file. {AGAIN}")
    if real.stat().st_size > LARGEST_FILE:
        raise InputError(
            f"{path.name} is larger than {LARGEST_FILE / 2**30:g} GB. {NOTHING} Take a smaller checkpoint."
        )
    with opened(real) as file:
        return file.read()


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _whole(digits: str) -> int | float:
    """A whole number; one that no 64 bits hold as a float, perhaps infinite."""
    return int(digits) if len(digits) < 19 else float(digits)


def value_of(data: bytes | str, name: str) -> Any:
    """Decoded JSON. Raises `InputError` for NaN, infinities, and what is cut short or not JSON."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        return json.loads(text, parse_constant=_no_constant, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
        raise InputError(f"{name} cannot be read as JSON ({why}). {AGAIN}") from error


def object_of(path: Path, root: Path) -> dict[str, Any]:
    """The JSON object in a file of `root`. Raises `InputError`."""
    value = value_of(data_of(path, root), path.name)
    if not isinstance(value, dict):
        raise InputError(f"{path.name} is not a JSON object. {AGAIN}")
    return value


def lines_of(path: Path, root: Path, skipped: list[Skipped]) -> Iterator[tuple[int, Any]]:
    """The decoded records of a file of JSON lines, or of one JSON list, numbered from 1.

    A line that cannot be read, as a run that was broken off leaves it, is noted in `skipped`. Raises `InputError` for
    a file that cannot be read at all.
    """
    data = data_of(path, root)
    if data.lstrip().startswith(b"["):
        yield from enumerate(value_of(data, path.name), start=1)
        return
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            try:
                value = value_of(line, "It")
            except InputError as error:
                skipped.append(Skipped(f"{path.name}, line {number}", str(error).split(". ")[0]))
            else:
                yield number, value


def is_number(value: Any) -> bool:
    """Whether a decoded value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def vector_of(numbers: Any, where: str) -> npt.NDArray[np.float32]:
    """A list of numbers as float32 (d,). Raises `InputError` for anything else, and for what is not finite."""
    if not isinstance(numbers, list) or not numbers or not set(map(type, numbers)) <= {int, float}:
        raise InputError(f"{where} has a vector that is not a list of numbers. {AGAIN}")
    with np.errstate(over="ignore"):
        vector = np.asarray(numbers, dtype=np.float64).astype(np.float32)
    if not np.isfinite(vector).all():
        raise InputError(f"{where} has a vector with a number that is not finite. {AGAIN}")
    return vector


def text_of(value: Any) -> str:
    """Text that can be stored: halves of a surrogate pair, which JSON may hold, become question marks."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def few(things: Iterable[object]) -> str:
    """The first few of many, for a sentence."""
    listed = [str(thing)[:80] for thing in things]
    more = f" and {len(listed) - NAMED:,} more" if len(listed) > NAMED else ""
    return ", ".join(listed[:NAMED]) + more
