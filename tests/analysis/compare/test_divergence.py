"""Where two runs part, against counting by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.compare.alignment import Alignment, align, line_of
from memrl_core.analysis.compare.comparison import Difference, compare, divergences, neighbours, pairs_of
from tests.analysis.lockstep import a_compared, a_line, begun, commit
from tests.builders import a_bank

MEMORIES, ORDER, ANSWER, REWARD = Difference

SELECTIONS = st.none() | st.permutations("klm").flatmap(
    lambda ids: st.integers(0, 3).map(lambda n: tuple(f"a-{i}" for i in ids[:n]))
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from("xyz"), SELECTIONS, st.sampled_from([None, "p", "q"]), st.sampled_from([None, 1.0, -1.0])
    ),
    min_size=1,
    max_size=12,
)


def a_pairing(one: list[Any], other: list[Any]) -> Alignment:
    """Two runs on the tasks of the first, that selected, answered and earned what is told."""
    tasks = [reported[0] for reported in one]
    lines = [
        a_line(
            name,
            [
                a_compared(name, n, task, selected=selected, answer=answer, reward=reward)
                for n, (task, (_, selected, answer, reward)) in enumerate(zip(tasks, reported, strict=False), start=1)
            ],
        )
        for name, reported in (("a", one), ("b", other))
    ]
    return align(lines)


def by_hand(mine: Any, theirs: Any) -> set[Difference]:
    """In what two told steps differ."""
    found = set()
    if mine[1] is not None and theirs[1] is not None and list(mine[1]) != list(theirs[1]):
        found.add(ORDER if sorted(mine[1]) == sorted(theirs[1]) else MEMORIES)
    for place, difference in ((2, ANSWER), (3, REWARD)):
        if None not in (mine[place], theirs[place]) and mine[place] != theirs[place]:
            found.add(difference)
    return found


@given(STEPS, STEPS)
def test_the_ways_to_differ_are_those_found_by_hand(one: list[Any], other: list[Any]) -> None:
    pairs = pairs_of(a_pairing(one, other), 1, {})
    reported = list(zip(one, other, strict=False))
    assert [pair.differences for pair in pairs] == [by_hand(*both) for both in reported]
    for pair, (mine, theirs) in zip(pairs, reported, strict=True):
        known = mine[1] is not None and theirs[1] is not None
        first, second = (set(mine[1]), set(theirs[1])) if known else (set(), set())
        assert (set(pair.shared), set(pair.added), set(pair.removed)) == (
            first & second,
            second - first,
            first - second,
        )
    found = {entry.difference: entry for entry in divergences(pairs)}
    for difference, place in ((MEMORIES, 1), (ORDER, 1), (ANSWER, 2), (REWARD, 3)):
        known = [at for at, both in enumerate(reported) if None not in (both[0][place], both[1][place])]
        differing = [at for at in known if difference in by_hand(*reported[at])]
        if not known:
            assert difference not in found
            continue
        entry = found[difference]
        assert (entry.known, entry.differing) == (len(known), len(differing))
        assert entry.first == (pairs[differing[0]] if differing else None)


@given(STEPS, STEPS, st.sets(st.sampled_from(list(Difference)), min_size=1), st.integers(0, 11))
def test_the_nearest_pairs_that_differ_are_before_and_after(
    one: list[Any], other: list[Any], of: set[Difference], at: int
) -> None:
    pairs = pairs_of(a_pairing(one, other), 1, {})
    at = min(at, len(pairs) - 1)
    differing = [place for place, pair in enumerate(pairs) if pair.differences & of]
    before, after = neighbours(pairs, of, at)
    assert before == next((pairs[place] for place in reversed(differing) if place < at), None)
    assert after == next((pairs[place] for place in differing if place > at), None)


def test_a_counterpart_is_no_difference() -> None:
    alignment = a_pairing(
        [("x", ("a-1", "a-2"), None, None), ("x", ("a-1",), None, None)],
        [("x", ("b-1", "a-2"), None, None), ("x", ("b-9", "b-1"), None, None)],
    )
    like = {"b-1": "a-1"}
    same, other = pairs_of(alignment, 1, like)
    assert same.differences == set()
    assert (same.shared, same.added, same.removed) == (("a-1", "a-2"), (), ())
    assert other.differences == {MEMORIES}
    assert (other.shared, other.added, other.removed) == (("a-1",), ("b-9",), ())


def test_of_runs_that_share_a_past_only_what_came_after_is_paired(tmp_path: Path) -> None:
    with a_bank(tmp_path / "bank", "a") as bank:
        for task in "uvwxyz":
            commit(bank, "a", task)
        for run, step in (("late", 5), ("early", 3)):
            begun(bank, run, base="a", base_step=step - 1, first_step=step)
            for task in "uvwxyz"[step - 1 :]:
                commit(bank, run, task)
        comparison = compare(bank, [line_of(bank, run) for run in ("a", "late", "early")])
    assert [[pair.one.step for pair in pairs] for pairs in comparison.pairs] == [[5, 6], [3, 4, 5, 6]]
