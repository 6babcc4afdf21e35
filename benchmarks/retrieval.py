"""Two-phase retrieval against the product and partial sort that nobody can do without, and by the bank's index.

Beside them the way of MemRL's official code (arXiv 2601.03192, `retrieve_query` and `ValueAwareSelector`, by a
description of what it does): a loop in plain Python over every stored intent, each norm computed anew.

Both get the threads that the app has. On a busy machine these wait for each other, which makes the product slow and the
ratio look good, so the same is measured on one thread too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, cycle
from operator import mul
from statistics import fmean, pstdev

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from benchmarks.measuring import MB, Aim, Row, Sizes, in_turns, peak, resident_mb, seconds
from benchmarks.synthetic import RUN, SETTINGS, Vectors, synthetic_bank, vectors
from memrl_core.bank import MemoryBank
from memrl_core.policies.methods.memrl import MemRL
from memrl_core.retrieval.view import MemoryView
from memrl_core.settings import MemRLSettings

NAME = "retrieval"
QUERIES = 200
INDEXED_FROM = 100_000
MILLION = 1_000_000
BARE = "product and argpartition"
TOP = 10
CLIP = 3.0
FLAT_SD = 1e-9
OFFICIAL_MEMORIES = 10_000
OFFICIAL_DIMENSION = 3072
OFFICIAL_REPEAT = 5
OFFICIAL_SETTINGS = MemRLSettings(delta=-1.0, k1=5, normaliser="fixed", k1_counts="intent", ties="older")


def measure(sizes: Sizes) -> list[Row]:
    """Phases A and B of `QUERIES` queries or more, by `INDEXED_FROM` memories by the index too; the official way."""
    queries = vectors(QUERIES, np.random.default_rng(1), sizes.dimension)
    repeat = max(sizes.repeat, QUERIES)
    with synthetic_bank(sizes.memories, dimension=sizes.dimension) as bank:
        view = bank.view(RUN)
        found = [*_exact(view, queries, repeat)]
        if sizes.memories >= INDEXED_FROM:
            found += _indexed(bank, view, queries, repeat)
    return [*found, _official(min(sizes.memories, OFFICIAL_MEMORIES), min(sizes.repeat, OFFICIAL_REPEAT))]


def _exact(view: MemoryView, queries: Vectors, repeat: int) -> Iterator[Row]:
    n, dimension = view.embeddings.shape
    is_large = n >= INDEXED_FROM
    aim = Aim("ratio", 1.10 if n >= MILLION else 1.15) if is_large else Aim("over_s", 0.00015)
    bare = _asking(queries, lambda query: _bare(view, query))
    with peak() as highest:
        before = resident_mb()
        timed = in_turns(_two_phases(view, queries), bare, repeat)
    yield Row(NAME, "phases A+B exact", n, dimension, timed[0], BARE, timed[1], aim=aim, peak_mb=highest.mb)
    if is_large and before is not None and highest.mb is not None:
        further = (highest.mb - before) * MB / view.embeddings.nbytes
        what, unit = "memory taken meanwhile", "copies of the vectors"
        yield Row(NAME, what, n, dimension, value=further, unit=unit, aim=Aim("value", 0.1), peak_mb=highest.mb)
    with threadpool_limits(limits=1, user_api="blas"), peak() as highest:
        timed = in_turns(_two_phases(view, queries), bare, repeat)
    yield Row(NAME, "phases A+B exact, on one thread", n, dimension, timed[0], BARE, timed[1], peak_mb=highest.mb)


def _indexed(bank: MemoryBank, view: MemoryView, queries: Vectors, repeat: int) -> Iterator[Row]:
    n, dimension = view.embeddings.shape
    bank.search = "indexed"
    with peak() as highest:
        built = seconds(bank.index)
    yield Row(NAME, "building the index", n, dimension, (built,), peak_mb=highest.mb)
    by_index = bank.view(RUN)
    with peak() as highest:
        taken, exact = in_turns(_two_phases(by_index, queries), _two_phases(view, queries), repeat)
    aim = Aim("ratio", 1 / 3) if n >= MILLION else None
    what, against = "phases A+B indexed", "phases A+B exact"
    yield Row(NAME, what, n, dimension, taken, against, exact, aim=aim, peak_mb=highest.mb)
    policy = MemRL(SETTINGS.model_copy(update={"k1": TOP}))
    with peak() as highest:
        pools = [[{seen.memory_id for seen in policy.recall(q, v).pool} for v in (view, by_index)] for q in queries]
    share, aim = float(np.mean([len(true & came) / len(true) for true, came in pools])), Aim("value", 0.95, True)
    what = f"recall@{TOP} of the index"
    yield Row(NAME, what, n, dimension, value=share, unit="share", aim=aim, peak_mb=highest.mb)


def _official(memories: int, repeat: int) -> Row:
    """The official way against ours, by its settings, with every memory an intent of its own."""
    with synthetic_bank(memories, dimension=OFFICIAL_DIMENSION) as bank:
        view = replace(bank.view(RUN), intent_groups=np.arange(memories))
        query = vectors(1, np.random.default_rng(1), OFFICIAL_DIMENSION)
        with peak() as highest:
            store = OfficialStore(
                dict(zip(view.ids, view.embeddings.tolist(), strict=True)),
                {memory_id: (memory_id,) for memory_id in view.ids},
                dict(zip(view.ids, view.q.tolist(), strict=True)),
            )
            asked = query[0].tolist()
            taken, ours = in_turns(
                lambda: retrieved(asked, store, OFFICIAL_SETTINGS),
                _two_phases(view, query, OFFICIAL_SETTINGS),
                repeat,
            )
    what, against = "official-style retrieval", "phases A+B exact"
    return Row(NAME, what, memories, OFFICIAL_DIMENSION, taken, against, ours, peak_mb=highest.mb)


def _two_phases(view: MemoryView, queries: Vectors, settings: MemRLSettings = SETTINGS) -> Callable[[], object]:
    policy, seeds = MemRL(settings), count()
    return _asking(queries, lambda query: policy.select(policy.recall(query, view), view, next(seeds)))


def _bare(view: MemoryView, query: Vectors) -> npt.NDArray[np.int64]:
    k1 = min(SETTINGS.k1, len(view.ids))
    return np.argpartition(view.embeddings @ query, -k1)[-k1:]


def _asking(queries: Vectors, action: Callable[[Vectors], object]) -> Callable[[], object]:
    """`action` with the next of the queries each time, round and round."""
    upcoming = cycle(queries)
    return lambda: action(next(upcoming))


@dataclass(frozen=True, slots=True)
class OfficialStore:
    """What that code keeps in memory: the embedding of each intent, the ids of its memories by age, the q of each."""

    embeddings: Mapping[str, Sequence[float]]
    memories: Mapping[str, Sequence[str]]
    q: Mapping[str, float]


def retrieved(query: Sequence[float], store: OfficialStore, settings: MemRLSettings) -> list[str]:
    """The ids of the k2 memories put before the model: of all memories of the k1 nearest intents, the best by score."""
    near = [(_cosine(query, embedding), intent) for intent, embedding in store.embeddings.items()]
    near = [(similarity, intent) for similarity, intent in near if similarity >= settings.delta]
    near.sort(key=lambda pair: pair[0], reverse=True)
    pool = [
        (similarity, memory_id, store.q[memory_id])
        for similarity, intent in near[: settings.k1]
        for memory_id in store.memories[intent]
    ]
    if not pool:
        return []
    utilities = [q for _, _, q in pool]
    mean, sd = fmean(utilities), pstdev(utilities)
    sd = 1.0 if sd <= FLAT_SD else sd

    def score(member: tuple[float, str, float]) -> float:
        similarity, _, q = member
        by_similarity = (similarity - settings.fixed_mean) / settings.fixed_sd
        return (1 - settings.weight) * by_similarity + settings.weight * _clipped((q - mean) / sd)

    return [memory_id for _, memory_id, _ in sorted(pool, key=score, reverse=True)[: settings.k2]]


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = math.sqrt(sum(map(mul, one, one))) * math.sqrt(sum(map(mul, other, other)))
    return sum(map(mul, one, other)) / lengths if lengths else 0.0


def _clipped(z: float) -> float:
    return max(-CLIP, min(CLIP, z))
