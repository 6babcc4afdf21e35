"""Two-phase retrieval against the product and partial sort that nobody can do without.

Both get the threads that the app has. On a busy machine these wait for each other, which makes the product slow and the
ratio look good, so the same is measured on one thread too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, cycle

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from benchmarks.measuring import MB, Aim, Row, Sizes, in_turns, peak, resident_mb
from benchmarks.synthetic import RUN, SETTINGS, Vectors, synthetic_bank, vectors
from memrl_core.policies.methods.memrl import MemRL
from memrl_core.retrieval.view import MemoryView

NAME = "retrieval"
QUERIES = 200
LARGE = 100_000
MILLION = 1_000_000
BARE = "product and argpartition"


def measure(sizes: Sizes) -> list[Row]:
    """Phases A and B of `QUERIES` queries or more."""
    queries = vectors(QUERIES, np.random.default_rng(1), sizes.dimension)
    repeat = max(sizes.repeat, QUERIES)
    with synthetic_bank(sizes.memories, dimension=sizes.dimension) as bank:
        view = bank.view(RUN)
        return [*_exact(view, queries, repeat)]


def _exact(view: MemoryView, queries: Vectors, repeat: int) -> Iterator[Row]:
    n, dimension = view.embeddings.shape
    is_large = n >= LARGE
    aim = Aim("ratio", 1.10 if n >= MILLION else 1.15) if is_large else Aim("over_s", 0.00015)
    bare = _asking(queries, lambda query: _bare(view, query))
    with peak() as highest:
        before = resident_mb()
        timed = in_turns(_two_phases(view, queries), bare, repeat)
    yield Row(NAME, "phases A+B exact", n, dimension, timed[0], BARE, timed[1], aim=aim, peak_mb=highest.mb)
    if is_large and before is not None and highest.mb is not None:
        further = (highest.mb - before) * MB / (4 * n * dimension)
        what, unit = "memory taken meanwhile", "copies of the vectors"
        yield Row(NAME, what, n, dimension, value=further, unit=unit, aim=Aim("value", 0.1), peak_mb=highest.mb)
    with threadpool_limits(limits=1, user_api="blas"), peak() as highest:
        timed = in_turns(_two_phases(view, queries), bare, repeat)
    yield Row(NAME, "phases A+B exact, on one thread", n, dimension, timed[0], BARE, timed[1], peak_mb=highest.mb)


def _two_phases(view: MemoryView, queries: Vectors) -> Callable[[], object]:
    policy, seeds = MemRL(SETTINGS), count()
    return _asking(queries, lambda query: policy.select(policy.recall(query, view), view, next(seeds)))


def _bare(view: MemoryView, query: Vectors) -> npt.NDArray[np.int64]:
    k1 = min(SETTINGS.k1, len(view.ids))
    return np.argpartition(view.embeddings @ query, -k1)[-k1:]


def _asking(queries: Vectors, action: Callable[[Vectors], object]) -> Callable[[], object]:
    """`action` with the next of the queries each time, round and round."""
    upcoming = cycle(queries)
    return lambda: action(next(upcoming))
