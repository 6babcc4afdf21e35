from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from memrl_core.retrieval.view import LEAST_PART, Embeddings
from tests.small_banks import a_vector

WHOLE = np.stack([a_vector(n) for n in range(90)])
ROWS = {
    "a number": 5,
    "a slice": slice(3, 71),
    "all": slice(None),
    "backwards": slice(80, 3, -7),
    "an empty slice": slice(40, 40),
    "positions": [0, 89, 12, 13, -1, 12],
    "no positions": [],
    "a mask": WHOLE[:, 0] > 0,
}


def in_parts(*ends: int) -> Embeddings:
    return Embeddings([WHOLE[a:b] for a, b in pairwise([0, *ends, len(WHOLE)])], WHOLE.shape[1])


@pytest.mark.parametrize("ends", [(), (30,), (1, 1, 12, 13, 89)])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_vectors_in_parts_are_those_of_one_array(ends: tuple[int, ...], rows: Any) -> None:
    found, expected = in_parts(*ends), np.array(WHOLE)
    assert found.shape == expected.shape and len(found) == len(expected)
    assert np.array_equal(np.asarray(found[rows]), expected[rows])
    assert np.array_equal(np.stack(list(found)), expected)
    part, other = found[10:85], a_vector(200)
    assert np.allclose(part @ other, expected[10:85] @ other, atol=1e-6)
    assert np.allclose(found @ WHOLE[:4].T, expected @ WHOLE[:4].T, atol=1e-6)
    assert np.allclose(part.products(WHOLE[:4]), WHOLE[:4] @ expected[10:85].T, atol=1e-6)
    assert (found[:0] @ other).shape == (0,) and found[:0].products(WHOLE[:4]).shape == (4, 0)


@pytest.mark.parametrize("row", [90, -91, [3, 90], [-91]])
def test_a_row_that_is_not_there_is_refused(row: Any) -> None:
    for found in (in_parts(), in_parts(30, 60)):
        with pytest.raises(IndexError):
            found[row]


def test_what_is_added_changes_no_slice() -> None:
    found = in_parts(30)
    before = found[20:]
    for n in range(200):
        found.append(a_vector(1000 + n))
    assert np.array_equal(np.asarray(before), WHOLE[20:])
    assert np.array_equal(np.asarray(found), [*WHOLE, *(a_vector(1000 + n) for n in range(200))])


def test_many_vectors_are_not_copied_for_one_more() -> None:
    many = np.zeros((LEAST_PART, 2), np.float32)
    found = Embeddings([many], 2)
    for _ in range(3):
        found.append(np.ones(2, np.float32))
    assert np.shares_memory(found[40], many)
    assert np.asarray(found).sum() == 6
