"""What another agent says, checked: each function returns it as it is stored or raises `InputError`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.errors import InputError
from memrl_core.records import Message, Role

Vector = npt.NDArray[np.float32]
Embedding = Sequence[float] | npt.NDArray[Any]
Hits = Mapping[str, float | None] | Iterable[str | tuple[str, float | None]]

UNCHANGED = "This call changed nothing."
LONGEST_ID = 200
ROUNDING = 1e-3
"""How far beyond ±1 a cosine may lie that another program computed."""

_ROLES: Mapping[str, Role] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "user"}


def text(value: object, what: str) -> str:
    """Text that can be saved as UTF-8."""
    if not isinstance(value, str):
        raise InputError(f"{what} has to be text, not {type(value).__name__}. {UNCHANGED}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{what} holds half a character and cannot be saved as UTF-8. {UNCHANGED}") from None
    return value


def number(value: object, what: str) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not math.isfinite(value):
        raise InputError(f"{str(value)[:80]} is not {what}: give a finite number. {UNCHANGED}")
    return float(value)


def count(value: object, what: str, least: int = 0) -> int:
    """A whole number from `least` on."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{str(value)[:80]} is not {what}: give a whole number from {least} on. {UNCHANGED}")
    return int(value)


def memory_id(value: object) -> str:
    """A name that a memory can have."""
    found = text(value, "A memory's id")
    if not found.strip() or len(found) > LONGEST_ID or not found.isprintable():
        raise InputError(f"A memory's id has 1 to {LONGEST_ID} printable characters. {UNCHANGED}")
    return found


def ids(given: Iterable[str]) -> tuple[str, ...]:
    """Memories, each named once."""
    if isinstance(given, str):
        raise InputError(f"Give the memories as a list of ids. {UNCHANGED}")
    found = tuple(memory_id(one) for one in given)
    if len(set(found)) != len(found):
        raise InputError(f"A memory is named twice. {UNCHANGED}")
    return found


def hits(given: Hits) -> dict[str, float | None]:
    """Memories with their cosines as they were given, None where they were not."""
    listed = given.items() if isinstance(given, Mapping) else given
    pairs = [hit if isinstance(hit, tuple | list) else (hit, None) for hit in listed]
    if any(len(pair) != 2 for pair in pairs):
        raise InputError(f"Give each memory as its id, or as (id, similarity). {UNCHANGED}")
    named = ids(pair[0] for pair in pairs)
    cosines = [None if given is None else number(given, "a similarity") for _, given in pairs]
    if wild := [value for value in cosines if value is not None and abs(value) > 1 + ROUNDING]:
        raise InputError(f"{wild[0]:g} is not a cosine, which lies in [-1, 1]: leave it out. {UNCHANGED}")
    return dict(zip(named, cosines, strict=True))


def numbers(given: Mapping[str, float] | None, known: Iterable[str], what: str) -> dict[str, float]:
    """A number for some of the `known` memories."""
    found = {one: number(value, what) for one, value in (given or {}).items()}
    if strange := set(found) - set(known):
        raise InputError(f"The memory “{min(strange)[:80]}” was given {what} but not recalled. {UNCHANGED}")
    return found


def message(given: Mapping[str, Any], place: int) -> Message:
    """A chat message; what a tool says is kept as said by the user."""
    role = str(given.get("role"))
    if role not in _ROLES:
        raise InputError(f"Message {place} has the role {role[:40]!r}; known are {', '.join(_ROLES)}. {UNCHANGED}")
    return Message(_ROLES[role], text(given.get("content") or "", f"Message {place}"))


def options(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options of a generation, which have to be JSON."""
    found = dict(given or {})
    try:
        json.dumps(found, allow_nan=False)
    except (TypeError, ValueError):
        raise InputError(f"The options are not JSON. {UNCHANGED}") from None
    return found


def unit(given: Embedding, dimension: int) -> Vector:
    """An embedding as a vector (d,) of length 1."""
    try:
        vector = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"An embedding is not a list of numbers. {UNCHANGED}") from None
    if vector.shape != (dimension,):
        raise InputError(
            f"An embedding of shape {vector.shape} does not fit this bank: give one list of {dimension} numbers. "
            + UNCHANGED
        )
    largest = float(np.abs(vector).max())
    if not 0 < largest < math.inf:
        raise InputError(f"An embedding is not finite, or all of it is 0. {UNCHANGED}")
    # Scaled first: the squares of huge or tiny numbers leave the range of floats.
    scaled = vector / largest
    found: Vector = (scaled / np.linalg.norm(scaled)).astype(np.float32)
    return found
