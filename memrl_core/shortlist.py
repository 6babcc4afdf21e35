"""Which memories phase A measures exactly: a few, found by one product with all embeddings or by the bank's index.

The float32 product only makes the shortlist. The similarities that decide are computed again in float64 and rounded to
`DIGITS`, because a BLAS product may differ in its last bits with the shape of the matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from memrl_core.view import MemoryView

Vector = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]
Shortlist = Callable[[int], Positions]
"""Gives the positions, oldest first, of at least so many of the nearest memories that are open (of all, if fewer)."""

DIGITS = 9
SAMPLE = 512
"""Of the values among which the last of the nearest is looked up before it is known where to look."""
SPARE_PLACES = 8
"""How much lower in the sample the search begins than where the last of the nearest is expected."""
ASKED_FOR_EACH = 4
"""Memories that the index is asked for, for each that is wanted: it ranks by rounded numbers, and others' are among
them."""
MOST_ASKED = 2000
"""Memories that the index is asked for at once at most; from there on the product is as quick."""
_FLOAT32_SLACK = np.float32(1e-5)
_CLOSED = np.float32(-2.0)
_LEAST = np.float32(-1.5)


def shortlist_of(query: Vector, view: MemoryView, coarse: Vector | None, is_open: Mask | None) -> Shortlist:
    """The shortlists for `query` (d,) of the memories that are open (n,), None when all are.

    By `coarse` (n,), the products of the view's embeddings and the query, where it is given: it is changed in place.
    Else by the view's index where it has one, else by the product.
    """
    if coarse is None and view.nearest is not None:
        by_product = cache(partial(_by_product, query, view, None, is_open))
        return partial(_by_index, query, view, is_open, by_product)
    return _by_product(query, view, coarse, is_open)


def exact_similarity(embeddings: Vector, query: Vector) -> npt.NDArray[np.float64]:
    """Cosines of unit vectors (n, d) and (d,) -> (n,), in float64 and rounded to `DIGITS`: the ones that decide."""
    products = embeddings.astype(np.float64) @ query.astype(np.float64)
    rounded: npt.NDArray[np.float64] = np.minimum(np.maximum(products.round(DIGITS), -1.0), 1.0)
    return rounded


def _by_product(query: Vector, view: MemoryView, coarse: Vector | None, is_open: Mask | None) -> Shortlist:
    values = view.embeddings @ query if coarse is None else coarse
    if is_open is not None:
        np.putmask(values, ~is_open, _CLOSED)
    return partial(_largest, values)


def _largest(values: Vector, wanted: int) -> Positions:
    """Positions of at least the `wanted` largest open values, with all that float32 cannot tell from the last."""
    if len(values) <= wanted:
        return np.flatnonzero(values >= _LEAST)
    stride = len(values) // SAMPLE
    place = SPARE_PLACES + 2 * wanted // max(1, stride)
    # Far from the end of the sample, so that few values are left to order: partitioning all takes ten times as long.
    if stride > 1 and place < SAMPLE // 4:
        found = (values >= max(_from_the_top(values[::stride], place) - _FLOAT32_SLACK, _LEAST)).nonzero()[0]
        among = values.take(found)
        if len(found) >= wanted:
            return found[among >= _from_the_top(among, wanted) - _FLOAT32_SLACK]
    return (values >= max(_from_the_top(values, wanted) - _FLOAT32_SLACK, _LEAST)).nonzero()[0]


def _from_the_top(values: Vector, place: int) -> np.float32:
    """The largest of the values at place 1, the next at 2."""
    largest: np.float32 = np.partition(values, len(values) - place)[len(values) - place]
    return largest


def _by_index(
    query: Vector, view: MemoryView, is_open: Mask | None, by_product: Callable[[], Shortlist], wanted: int
) -> Positions:
    """The same by the index: it may miss some, and which of equals at the end are in is its choice.

    Where it finds too few that are open, the product decides.
    """
    assert view.nearest is not None
    count = ASKED_FOR_EACH * wanted
    while count <= MOST_ASKED:
        rows = view.nearest(query, count)
        found = rows - view.first_row
        found = found[(found >= 0) & (found < len(view.ids))]
        if is_open is not None:
            found = found[is_open[found]]
        if len(found) >= wanted:
            found = np.sort(found)
            return found[_largest(view.embeddings.take(found, axis=0) @ query, wanted)]
        if len(rows) < count:
            break
        count *= ASKED_FOR_EACH
    return by_product()(wanted)
