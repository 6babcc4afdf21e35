"""Small changes to sound input: edits of a JSON value, odd values, and edits of bytes.

A case is a short list of edits and not what they make, so that a falsifying example can be read.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

AGAIN = "<again>"
RAW = {
    "<deep list>": "[" * 3000 + "]" * 3000,
    "<deep object>": '{"a":' * 150 + "1" + "}" * 150,
    "<too large>": "1e999",
    "<digits>": "9" * 5000,
}
"""Texts that stand for JSON which `json.dumps` cannot write."""
LONG_VECTOR = 6
"""Of a longer list of numbers only the first ones are changed: they all mean the same."""

ODD_TEXTS = (
    "", " ", "r", "s", "r-0001", "r-0002.3", "nobody", "ann", "success", "\x00", "\ud800", "\u202e", "1", "é" * 300,
)  # fmt: skip
ODD_WHOLES = (0, 1, 2, 3, -1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**30)
ODD_REALS = (0.5, -0.0, 1e-320, 1e308, -1e308, float("nan"), float("inf"), float("-inf"))
ODD_OTHERS = (None, True, False, [], {}, [None], [[]], [{}], ["r-0001", "r-0002"], {"": None}, {"a": {"a": [1]}})


def texts() -> st.SearchStrategy[str]:
    """Texts as they are rarely meant."""
    return st.sampled_from(ODD_TEXTS) | st.text(max_size=12)


def wholes() -> st.SearchStrategy[int]:
    """Whole numbers at the edges."""
    return st.sampled_from(ODD_WHOLES) | st.integers(-5, 60)


def reals() -> st.SearchStrategy[float]:
    """Numbers at the edges, and those that are none."""
    return st.sampled_from(ODD_REALS) | st.floats()


def values() -> st.SearchStrategy[Any]:
    """Anything that a JSON value may hold, and what only a text can spell."""
    return st.sampled_from((*ODD_OTHERS, *RAW)) | texts() | wholes() | reals()


@dataclass(frozen=True, slots=True)
class Edit:
    """One change to a JSON value. `at` counts its places from the front, and goes on there after the last."""

    how: str
    at: int
    value: Any = None


def edits(most: int = 4) -> st.SearchStrategy[list[Edit]]:
    """A few edits of any kind."""
    one = st.builds(Edit, st.sampled_from(HOWS), st.integers(0, 5000), values())
    return st.lists(one, min_size=1, max_size=most)


def edited(tree: Any, changes: Sequence[Edit]) -> Any:
    """A copy of a JSON value with all changes made, one after the other."""
    holder = {"": copy.deepcopy(tree)}
    for change in changes:
        places = list(_places(holder))
        if not places:
            break
        container, key = places[change.at % len(places)]
        _edit(change.how, container, key, change.value, places)
    return holder.get("")


def _places(container: Any) -> Iterator[tuple[Any, Any]]:
    keys: Sequence[Any] = list(container) if isinstance(container, dict) else range(len(container))
    if isinstance(container, list) and all(isinstance(item, float) for item in container):
        keys = keys[:LONG_VECTOR]
    for key in keys:
        yield container, key
        if isinstance(container[key], dict | list):
            yield from _places(container[key])


HOWS = ("as text", "double", "drop", "rename", "replace", "swap", "wrap")


def _edit(how: str, box: Any, key: Any, value: Any, places: Sequence[tuple[Any, Any]]) -> None:
    match how:
        case "replace":
            box[key] = copy.deepcopy(value)
        case "drop":
            del box[key]
        case "double" if isinstance(box, list):
            box.insert(key, copy.deepcopy(box[key]))
        case "double":
            box[f"{AGAIN}{key}"] = copy.deepcopy(value)
        case "swap":
            other, place = places[(value if isinstance(value, int) else len(repr(value))) % len(places)]
            box[key] = copy.deepcopy(other[place])
        case "rename" if isinstance(box, dict) and isinstance(value, str):
            box[value] = box.pop(key)
        case "wrap":
            box[key] = [box[key]] if isinstance(value, int | float | None) else {str(value): box[key]}
        case "as text":
            box[key] = str(box[key])


def as_json(tree: Any) -> str:
    """A JSON value as text, with keys that stand twice, NaN, and what `RAW` spells."""
    written = json.dumps(tree).replace(f'"{AGAIN}', '"')
    for name, text in RAW.items():
        written = written.replace(json.dumps(name), text)
    return written


@dataclass(frozen=True, slots=True)
class Cut:
    """One change to bytes: `what` takes the place of `length` bytes from `at` on, which counts around the end."""

    at: int
    length: int
    what: bytes = b""


def cuts(most: int = 3, least: int = 0) -> st.SearchStrategy[list[Cut]]:
    """A few changes to bytes."""
    pieces = [b"", b"\x00", b"\xff", b"\n", b"\r", b'"', b"'", b",", b"{", b"]", b"\xed\xa0\x80", b"PK"]
    what, lengths = st.sampled_from(pieces) | st.binary(max_size=4), st.sampled_from([0, 0, 1, 1, 2, 40, 10**9])
    one = st.builds(Cut, st.integers(0, 10**7), lengths, what)
    return st.lists(one, min_size=least, max_size=most)


def cut(data: bytes, changes: Sequence[Cut]) -> bytes:
    """The bytes with all changes made."""
    for change in changes:
        at = change.at % (len(data) + 1)
        data = data[:at] + change.what + data[at + change.length :]
    return data
