"""Measures of recall over labelled steps, and the curves over δ and λ by which a setting is chosen."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.measuring import Aim, Row, Sizes, in_turns, peak
from benchmarks.synthetic import RUN, SETTINGS, portions, synthetic_bank
from memrl_core.analysis.decision.whatif import AT_ONCE
from memrl_core.analysis.recall.found import measured, rankings, usual
from memrl_core.analysis.recall.grades import Judged
from memrl_core.analysis.recall.queries import DEPTH, labelled
from memrl_core.analysis.recall.tune import Point, Pools, over_delta, over_weight
from memrl_core.bank import MemoryBank

NAME = "recall"
QUERIES = 2000
EVERY = 5
"""For every fifth labelled step nothing should come."""


def measure(sizes: Sizes) -> list[Row]:
    """All measures of at most `QUERIES` labelled steps, and both curves on as many pools of `DEPTH`."""
    return [*_measures(sizes), *_curves(sizes)]


def _measures(sizes: Sizes) -> Iterator[Row]:
    steps = min(sizes.steps, QUERIES)
    with synthetic_bank(sizes.memories, steps, dimension=sizes.dimension) as bank:
        labels = _labels(bank)
        queries = np.array([trace.embed.embedding for trace in bank.each_trace(RUN) if trace.embed], dtype=np.float32)
        view = bank.view(RUN)
        names = usual(SETTINGS.k1, SETTINGS.k2)

        def product() -> None:
            for first, count in portions(steps, AT_ONCE):
                view.products(queries[first - 1 : first - 1 + count])

        with peak() as highest:
            timed = in_turns(
                lambda: measured(rankings(labelled(bank, RUN, labels) or []), names), product, sizes.repeat
            )
        yield Row(
            NAME, "all measures of recall, its steps read and looked at again", sizes.memories, sizes.dimension,
            timed[0], "the product alone", timed[1], aim=Aim("over_s", 2.0), peak_mb=highest.mb,
            size=f"{steps:,} labelled steps",
        )  # fmt: skip
        found = rankings(labelled(bank, RUN, labels) or [])
        with peak() as highest:
            timed = in_turns(lambda: measured(found, names), lambda: list(bank.each_trace(RUN)), sizes.repeat)
        yield Row(
            NAME, "the measures alone", sizes.memories, sizes.dimension, timed[0], "reading its steps", timed[1],
            aim=Aim("median_s", 2.0), peak_mb=highest.mb, size=f"{steps:,} labelled steps",
        )  # fmt: skip


def _labels(bank: MemoryBank) -> dict[int, Judged]:
    """Of every step's pool the second is relevant, and one memory that lies anywhere; or nothing should come."""
    rng, ids = np.random.default_rng(2), bank.memory_ids()
    found = {}
    for trace in bank.each_trace(RUN):
        pool = [member.memory_id for member in trace.recall.pool] if trace.recall is not None else []
        anywhere = ids[int(rng.integers(len(ids)))]
        grades = {**dict.fromkeys(pool, 0), **dict.fromkeys([*pool[1:2], anywhere], 2)}
        found[trace.step] = Judged(dict.fromkeys(pool, 0), True) if trace.step % EVERY == 0 else Judged(grades, False)
    return found


def _curves(sizes: Sizes) -> Iterator[Row]:
    rng, count = np.random.default_rng(3), min(sizes.steps, QUERIES)
    shape = count, DEPTH
    nothing = rng.random(count) < 1 / EVERY
    grade = (rng.random(shape) < 0.1) * rng.integers(1, 4, shape) * ~nothing[:, None]
    similarity = -np.sort(-rng.uniform(0, 1, shape), axis=1)
    equals = np.tile(np.arange(1, DEPTH + 1), (count, 1))
    pools = Pools(
        similarity, rng.normal(size=shape), equals, grade.astype(np.int64), (grade > 0).sum(axis=1), ~nothing, nothing,
        True,
    )  # fmt: skip
    point = Point(0.3, 0.5, DEPTH, SETTINGS.k2)
    for sign, curve in (("δ", over_delta), ("λ", over_weight)):
        with peak() as highest:
            timed = in_turns(lambda curve=curve: curve(pools, point), lambda: np.sort(similarity, axis=1), sizes.repeat)  # type: ignore[misc]
        yield Row(
            NAME, f"recall, precision and false recall over all {sign}", DEPTH, None, timed[0], "sorting the pools",
            timed[1], aim=Aim("median_s", 0.2), peak_mb=highest.mb, size=f"{count:,} pools of {DEPTH}",
        )  # fmt: skip
