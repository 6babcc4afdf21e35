"""Groups of near-duplicates, held against joining pairs one at a time."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.memory.relations import copies
from memrl_core.retrieval.view import MemoryView

Pools = list[tuple[list[int], list[int]]]


def at_angles(degrees: list[float], q: list[float] | None = None, visits: list[int] | None = None) -> MemoryView:
    turned = np.radians(degrees)
    n = len(degrees)
    ids = [f"m{i}" for i in range(n)]
    return MemoryView(
        ids,
        np.column_stack([np.cos(turned), np.sin(turned)]).astype(np.float32),
        np.array(q if q is not None else [0.0] * n),
        np.array(visits if visits is not None else [0] * n, dtype=np.int64),
        np.arange(n),
        {i: row for row, i in enumerate(ids)},
    )


def in_pools(pools: Pools) -> pd.DataFrame:
    rows = [(n, f"m{i}", i in chosen) for n, (pool, chosen) in enumerate(pools, start=1) for i in pool]
    return pd.DataFrame(rows, columns=["step", "memory_id", "selected"]).astype({"selected": bool, "memory_id": object})


def by_joining(degrees: list[float], farthest: float) -> set[frozenset[str]]:
    groups = [{i} for i in range(len(degrees))]
    for i, one in enumerate(degrees):
        for j, other in enumerate(degrees[:i]):
            if abs(one - other) <= farthest:
                mine, theirs = (next(g for g in groups if k in g) for k in (i, j))
                if mine is not theirs:
                    mine |= theirs
                    groups.remove(theirs)
    return {frozenset(f"m{i}" for i in group) for group in groups if len(group) > 1}


@given(st.lists(st.integers(0, 12).map(lambda step: 10.0 * step), max_size=9), st.sampled_from([5, 15, 25]))
def test_groups_are_chains_of_alike_intents(degrees: list[float], farthest: int) -> None:
    view = at_angles(degrees)
    found = copies(view, in_pools([]), float(np.cos(np.radians(farthest))))
    assert {frozenset(m.memory_id for m in group.members) for group in found} == by_joining(degrees, farthest)
    sizes = [len(group.members) for group in found]
    assert sizes == sorted(sizes, reverse=True)


def test_a_group_says_how_q_visits_and_uses_are_split() -> None:
    view = at_angles([0, 1, 90, 2], q=[0.2, 0.8, 1.0, -0.4], visits=[1, 3, 9, 0])
    table = in_pools([([0, 1, 2], [1, 2]), ([1, 0, 3], [1, 0]), ([2, 1], [1]), ([2], [2])])
    (group,) = copies(view, table, 0.99)
    assert [(m.memory_id, m.q, m.visits, m.pools, m.uses) for m in group.members] == [
        ("m1", 0.8, 3, 3, 3),
        ("m0", 0.2, 1, 2, 1),
        ("m3", -0.4, 0, 1, 0),
    ]
    assert (group.crowded_pools, group.crowded_prompts) == (2, 1)


def test_memories_that_the_run_cannot_see_are_no_copies() -> None:
    view = at_angles([0, 1, 2])
    hidden = MemoryView(
        view.ids, view.embeddings, view.q, view.visits, view.intent_groups, view.rows,
        visible=np.array([True, False, True]),
    )  # fmt: skip
    (group,) = copies(hidden, in_pools([]), 0.99)
    assert {m.memory_id for m in group.members} == {"m0", "m2"}
