"""Ancestors and descendants by level, held against shortest ways found without the code under test."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path

from memrl_core.analysis.memory.relations import lineage
from memrl_core.errors import InputError
from memrl_core.records import Memory


def family(**parents: str) -> list[Memory]:
    return [
        Memory(child, "", "", "success", "", tuple(named.split()), "r", 1, "", "") for child, named in parents.items()
    ]


def test_a_circle_is_walked_once() -> None:
    found = lineage(family(a="c", b="a", c="b"), "a")
    assert found.ancestors == (("c",), ("b",))
    assert found.descendants == (("b",), ("c",))
    assert lineage(family(a="a"), "a").ancestors == ()


def test_parents_that_are_not_there_are_named() -> None:
    found = lineage(family(a="gone", b="a lost", c="b other"), "b")
    assert found.ancestors == (("a",),)
    assert found.missing == ("lost", "gone")
    assert all("gone" not in link for link in found.links)


def test_an_unknown_memory_has_no_lineage() -> None:
    with pytest.raises(InputError, match="nobody"):
        lineage(family(a=""), "nobody")


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
