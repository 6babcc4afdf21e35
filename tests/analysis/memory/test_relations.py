"""Which memories were used together, are alike, and descend from one another: against counting by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path

from memrl_core.analysis.memory.relations import (
    copies,
    known_of,
    lineage,
    matching,
    partners,
    skipped_by,
    with_and_without,
)
from memrl_core.errors import InputError
from memrl_core.records import Memory
from memrl_core.retrieval.view import MemoryView
from tests.builders import view_of

Steps = list[tuple[list[str], list[str], str]]
MEMORIES = ["a", "b", "c", "d", "e"]

ONE = st.tuples(
    st.lists(st.sampled_from(MEMORIES), unique=True, max_size=4),
    st.lists(st.sampled_from(MEMORIES), unique=True, max_size=3),
    st.sampled_from(["success", "failure", "unrated"]),
)


def a_table(steps: Steps) -> pd.DataFrame:
    """A step a (selected, passed over, outcome)."""
    rows = [
        (number, memory_id, memory_id in chosen, outcome)
        for number, (chosen, others, outcome) in enumerate(steps, start=1)
        for memory_id in dict.fromkeys([*chosen, *others])
    ]
    table = pd.DataFrame(rows, columns=["step", "memory_id", "selected", "outcome"])
    return table.astype({"selected": bool})


@given(st.lists(ONE, max_size=12), st.sampled_from(MEMORIES))
def test_success_with_and_without_a_memory_is_counted_as_by_hand(steps: Steps, memory_id: str) -> None:
    given, passed_over = with_and_without(a_table(steps), memory_id)
    used = [o for chosen, _, o in steps if memory_id in chosen and o != "unrated"]
    passed = [o for chosen, others, o in steps if memory_id in others and memory_id not in chosen and o != "unrated"]
    assert (given.successes, given.n) == (used.count("success"), len(used))
    assert (passed_over.successes, passed_over.n) == (passed.count("success"), len(passed))


@given(st.lists(ONE, max_size=12), st.sampled_from(MEMORIES))
def test_a_memory_is_seen_beside_each_partner_and_apart_from_it(steps: Steps, memory_id: str) -> None:
    mine = [(set(chosen), o) for chosen, _, o in steps if memory_id in chosen]
    met = Counter(i for chosen, _ in mine for i in chosen if i != memory_id)
    found = partners(a_table(steps), memory_id)
    assert [met[p.partner] for p in found] == sorted(met.values(), reverse=True)
    for p in found:
        beside = [o for chosen, o in mine if p.partner in chosen and o != "unrated"]
        apart = [o for chosen, o in mine if p.partner not in chosen and o != "unrated"]
        assert (p.beside.successes, p.beside.n) == (beside.count("success"), len(beside))
        assert (p.apart.successes, p.apart.n) == (apart.count("success"), len(apart))


Pools = list[tuple[list[int], list[int]]]


def at_angles(degrees: list[float], q: list[float] | None = None, visits: list[int] | None = None) -> MemoryView:
    turned = np.radians(degrees)
    learned = {name: np.array(given) for name, given in (("q", q), ("visits", visits)) if given is not None}
    return view_of([f"m{i}" for i in range(len(degrees))], np.column_stack([np.cos(turned), np.sin(turned)]), **learned)


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
    groups = found.groupby("group")["memory_id"]
    assert set(groups.agg(frozenset)) == by_joining(degrees, farthest)
    assert groups.size().is_monotonic_decreasing


def test_a_group_says_how_q_visits_and_uses_are_split() -> None:
    view = at_angles([0, 1, 90, 2], q=[0.2, 0.8, 1.0, -0.4], visits=[1, 3, 9, 0])
    table = in_pools([([0, 1, 2], [1, 2]), ([1, 0, 3], [1, 0]), ([2, 1], [1]), ([2], [2])])
    found = copies(view, table, 0.99).set_index("memory_id")
    assert list(found.index) == ["m1", "m0", "m3"]
    assert list(zip(found["q"], found["visits"], found["pools"], found["uses"], strict=True)) == [
        (0.8, 3, 3, 3),
        (0.2, 1, 2, 1),
        (-0.4, 0, 1, 0),
    ]
    assert set(found["crowded_pools"]) == {2} and set(found["crowded_uses"]) == {1}


def test_memories_that_the_run_cannot_see_are_no_copies() -> None:
    hidden = replace(at_angles([0, 1, 2]), visible=np.array([True, False, True]))
    assert set(copies(hidden, in_pools([]), 0.99)["memory_id"]) == {"m0", "m2"}


def test_what_skipping_twins_had_not_written_has_the_words_and_outcome_of_an_older_one() -> None:
    texts = ["go", "go ", "go", "stay", "go", "go"]
    outcomes = ["success", "success", "failure", "success", "success", "success"]
    known = {
        f"m{i}": Memory(f"m{i}", "", text, outcome, "", (), "r", 1, "", "")
        for i, (text, outcome) in enumerate(zip(texts, outcomes, strict=True))
    }
    view = replace(at_angles([0, 1, 1, 1, 90, 91]), memories=known)
    assert skipped_by(view, 0.95) == ("m1", "m5")
    assert skipped_by(view, 1.0) == ()


def family(**parents: str) -> list[Memory]:
    return [
        Memory(child, "", "", "success", "", tuple(named.split()), "r", 1, "", "") for child, named in parents.items()
    ]


def test_a_circle_is_walked_once() -> None:
    found = lineage(family(a="c", b="a", c="b"), "a")
    assert found.ancestors == (("c",), ("b",))
    assert found.descendants == (("b",), ("c",))
    assert lineage(family(a="a"), "a").ancestors == ()
    with pytest.raises(InputError, match="nobody"):
        lineage(family(a=""), "nobody")


def test_parents_that_are_not_there_are_named() -> None:
    found = lineage(family(a="gone", b="a lost", c="b other"), "b")
    assert found.ancestors == (("a",),)
    assert found.missing == ("lost", "gone")
    assert all("gone" not in link for link in found.links)


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.tuples(*[st.integers(0, n - 1)] * 2)))))
def test_levels_are_shortest_ways(graph: tuple[int, set[tuple[int, int]]]) -> None:
    n, links = graph
    memories = family(**{f"m{child}": " ".join(f"m{p}" for p, c in links if c == child) for child in range(n)})
    ways = coo_array(([1] * len(links), ([p for p, _ in links], [c for _, c in links])), shape=(n, n)).toarray()
    distance = shortest_path(ways, unweighted=True)
    found = lineage(memories, "m0")
    for levels, far in ((found.descendants, distance[0]), (found.ancestors, distance[:, 0])):
        expected = {f"m{i}": far[i] for i in range(1, n) if far[i] < n}
        assert {i: number for number, level in enumerate(levels, start=1) for i in level} == expected


def test_memories_are_found_by_what_is_known_of_them_besides_their_text() -> None:
    known = [known_of({"user": 7, "tags": ["a", "b · c"]}), known_of({"user": 8})]
    assert known[0] == ["user: 7", "tags: a", "tags: b c"]
    rows = pd.DataFrame({"intent": "x", "experience": "y", "metadata": [*map(" · ".join, known)]}, index=["m", "n"])
    assert [*matching(rows, about=["user: 7", "tags: a"]).index] == ["m"]
    assert matching(rows, about=["user: 7", "user: 8"]).empty
