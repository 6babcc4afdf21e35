"""Which memories were used together, held against counting step by step in plain Python."""

from __future__ import annotations

from collections import Counter

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.memory.relations import partners, with_and_without

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
    found = with_and_without(a_table(steps), memory_id)
    used = [o for chosen, _, o in steps if memory_id in chosen and o != "unrated"]
    passed = [o for chosen, others, o in steps if memory_id in others and memory_id not in chosen and o != "unrated"]
    assert (found.used.successes, found.used.n) == (used.count("success"), len(used))
    assert (found.passed_over.successes, found.passed_over.n) == (passed.count("success"), len(passed))


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
