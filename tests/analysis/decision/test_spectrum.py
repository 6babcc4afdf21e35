"""All weights at once against scoring and sorting the pool anew at each of many weights."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.decision.spectrum import Spectrum, spectrum
from memrl_core.records import Decision, Reason, Recalled, RecallRecord
from memrl_core.retrieval import select
from memrl_core.retrieval.exploration import Exploration
from tests.oracles.selection import crossings, taken, z_sides

FIXED = {"fixed_mean": 0.5, "fixed_sd": 0.15}


def decided(similarity: list[float], q: list[float], k2: int, weight: float, normaliser: str) -> Decision:
    """The decision on a pool, most similar first, by the program."""
    pool = tuple(Recalled(f"m{i:03d}", s, i + 1, None) for i, s in enumerate(similarity))
    left_out = (Recalled("missed", -0.5, len(pool) + 1, Reason.BELOW_DELTA),)
    record = RecallRecord(1000, "record", 0.0, True, len(pool) + 1, pool, left_out)
    visits = np.zeros(len(q) + 1, dtype=np.int64)
    return select(
        record, np.array([*q, 3.0]), visits, k2=k2, weight=weight, normaliser=normaliser, epsilon=0.0, seed=0,
        exploration=Exploration(ties="older"), **FIXED,
    )  # fmt: skip


def assert_equals_brute_force(lines: Spectrum, similarity: list[float], q: list[float], normaliser: str) -> None:
    """Intervals cover [0, 1], differ from their neighbours, and hold what each weight of a fine grid selects."""
    by_similarity, by_q = z_sides(similarity, q, normaliser, **_named(FIXED))
    intervals = lines.intervals
    assert (intervals[0].low, intervals[-1].high) == (0.0, 1.0)
    for before, after in pairwise(intervals):
        assert before.high == after.low
        assert before.selected != after.selected
    edges = np.array([f.weight for f in lines.flips])
    assert list(edges) == [i.high for i in intervals[:-1]]
    place = 0
    for weight in np.linspace(0, 1, 2001)[1:-1]:
        if len(edges) and np.abs(edges - weight).min() < 1e-7:
            continue
        while weight > intervals[place].high:
            place += 1
        expected = taken(by_similarity, by_q, similarity, float(weight), lines.k2)
        assert intervals[place].selected == {lines.ids[i] for i in expected}, weight


def _named(fixed: dict[str, float]) -> dict[str, float]:
    return {"mean": fixed["fixed_mean"], "sd": fixed["fixed_sd"]}


coarse = st.sampled_from([-1.0, -0.5, 0.0, 0.25, 0.5, 1.0])
fine = st.integers(-1000, 1000).map(lambda n: n / 1000)
values = st.one_of(coarse, fine)


@st.composite
def pools(draw: st.DrawFn) -> tuple[list[float], list[float], int, str]:
    n = draw(st.integers(0, 9))
    flat_similarity, flat_q = draw(st.booleans()), draw(st.integers(0, 3)) == 0
    similarity = [draw(values)] * n if flat_similarity and n else draw(st.lists(values, min_size=n, max_size=n))
    q = [draw(values)] * n if flat_q and n else draw(st.lists(values, min_size=n, max_size=n))
    return (
        sorted(similarity, reverse=True),
        q,
        draw(st.integers(0, n + 1)),
        draw(st.sampled_from(["pool", "fixed", "raw"])),
    )


@given(pools())
def test_intervals_and_flips_equal_brute_force(pool: tuple[list[float], list[float], int, str]) -> None:
    similarity, q, k2, normaliser = pool
    lines = spectrum(decided(similarity, q, k2, 0.3, normaliser))
    assert_equals_brute_force(lines, similarity, q, normaliser)


@pytest.mark.parametrize("normaliser", ["pool", "fixed"])
@pytest.mark.parametrize("k2", [1, 3, 30])
def test_a_large_pool_with_clipped_values_equals_brute_force(normaliser: str, k2: int) -> None:
    rng = np.random.default_rng(k2)
    similarity = sorted(np.round(rng.uniform(-1, 1, 60), 2).tolist(), reverse=True)
    q = rng.normal(size=60)
    q[30:32] = (40.0, -30.0)
    lines = spectrum(decided(similarity, q.tolist(), k2, 0.5, normaliser))
    assert lines.flips
    assert_equals_brute_force(lines, similarity, q.tolist(), normaliser)


@given(pools())
def test_every_flip_is_an_exact_crossing_of_two_lines(pool: tuple[list[float], list[float], int, str]) -> None:
    similarity, q, k2, normaliser = pool
    lines = spectrum(decided(similarity, q, k2, 0.7, normaliser))
    exact = [weight for weight, *_ in crossings(lines.similarity_z.tolist(), lines.q_z.tolist())]
    assert all(any(abs(flip.weight - weight) < 1e-12 for weight in exact) for flip in lines.flips)
    by_similarity, by_q = z_sides(similarity, q, normaliser, **_named(FIXED))
    assert lines.similarity_z.tolist() == pytest.approx(by_similarity, abs=1e-9)
    assert lines.q_z.tolist() == pytest.approx(by_q, abs=1e-9)


@pytest.mark.slow
def test_a_thousand_candidates_on_a_falling_line_are_decided_within_little_memory() -> None:
    n = 1000
    similarity = np.linspace(0.99, 0.01, n)
    q = 1 - similarity**2
    lines = spectrum(decided(similarity.tolist(), q.tolist(), 1, 0.5, "pool"))
    similarity_z, q_z = lines.similarity_z, lines.q_z
    weights = np.linspace(0.001, 0.999, 101)
    for weight in weights:
        best = int(((1 - weight) * similarity_z + weight * q_z).argmax())
        interval = next(i for i in lines.intervals if i.low <= weight <= i.high)
        assert (
            interval.selected == {lines.ids[best]}
            or min(abs(weight - interval.low), abs(weight - interval.high)) < 1e-9
        )


def test_a_decision_without_terms_has_an_empty_spectrum() -> None:
    decision = decided([0.9, 0.1], [0.0, 1.0], 1, 0.5, "pool")
    bare = replace(decision, candidates=tuple(replace(c, terms=(), score=None) for c in decision.candidates))
    lines = spectrum(bare)
    assert lines.ids == () and lines.flips == ()
    assert [i.selected for i in lines.intervals] == [frozenset()]
