"""How alike two states are, and which stay when there are too many (arXiv 2306.07929, released `history.py`).

The measure of observations is ours. The limit is the released rule as it was meant: there the matrix of similarities
stays empty, and a full table refuses every newcomer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

_WORD = re.compile(r"\w+")


@lru_cache(maxsize=8192)
def words(observation: str) -> frozenset[str]:
    """The different words of an observation."""
    return frozenset(_WORD.findall(observation.lower()))


def shared_words(one: str, other: str) -> float:
    """The share, in [0, 1], of the different words of two observations that stand in both."""
    a, b = words(one), words(other)
    both = len(a & b)
    return both / either if (either := len(a) + len(b) - both) else 0.0


def all_shared_words(observations: Sequence[str]) -> npt.NDArray[np.float64]:
    """`shared_words` of every pair: (n texts) -> (n, n)."""
    columns = {word: place for place, word in enumerate(sorted(frozenset[str]().union(*map(words, observations))))}
    has = np.zeros((len(observations), max(1, len(columns))), dtype=np.float32)
    for row, observation in enumerate(observations):
        has[row, [columns[word] for word in words(observation)]] = 1
    both = (has @ has.T).astype(np.float64)
    counts = has.sum(axis=1, dtype=np.float64)
    either = counts[:, None] + counts[None, :] - both
    return both / np.where(either > 0, either, 1.0)


@dataclass(frozen=True, slots=True)
class Room:
    """What becomes of a new state: kept, in the place of `other` if that is not empty, or left out as like `other`."""

    kept: bool
    other: str = ""


def make_room(
    ids: Sequence[str],
    samples: Sequence[int],
    similarity: npt.NDArray[np.float64],
    stored: int,
    most: int,
) -> list[Room]:
    """What becomes of each new state, where at most `most` are kept.

    The first `stored` of `ids` are kept already, the others are new, in order; `similarity` (n, n). A newcomer is left
    out when it is at least as like one of those kept as the two most alike of them are; otherwise the one of these two
    with more samples goes.
    """
    inside, rooms = list(range(stored)), []
    for new in range(stored, len(ids)):
        if len(inside) < most:
            inside.append(new)
            rooms.append(Room(True))
            continue
        nearest = max(inside, key=lambda one: similarity[new, one])
        among = similarity[np.ix_(inside, inside)].copy()
        np.fill_diagonal(among, -np.inf)
        first, second = (inside[place] for place in np.unravel_index(int(among.argmax()), among.shape))
        if similarity[new, nearest] >= similarity[first, second]:
            rooms.append(Room(False, ids[nearest]))
            continue
        gone = first if samples[first] >= samples[second] else second
        inside.remove(gone)
        inside.append(new)
        rooms.append(Room(True, ids[gone]))
    return rooms
