"""What a q would have to be, checked by deciding again on both sides of the answer."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.decision.spectrum import Requirement, required_q
from memrl_core.analysis.decision.whatif import Situation, decided
from memrl_core.errors import InputError
from memrl_core.retrieval import exact_similarity
from memrl_core.retrieval.view import Asked
from memrl_core.settings import MemRLSettings
from tests.builders import view_of
from tests.oracles.selection import given_to_the_model

QUERY = np.array([1.0, 0.0], dtype=np.float32)


def situation(similarity: list[float], q: list[float], **chosen: Any) -> Situation:
    """Memories m0, m1, … (oldest first) at these similarities to the intent, with these q."""
    s = np.array(similarity, dtype=np.float64)
    view = view_of(
        [f"m{i}" for i in range(len(s))],
        np.column_stack([s, np.sqrt(1 - s**2)]),
        q=np.array(q, dtype=float),
        asked=Asked(QUERY),
    )
    return Situation("memrl", MemRLSettings.of(chosen).model_dump(), view, 0)


def taken(where: Situation, number: int, q: float | None = None) -> bool:
    """Whether the oracle gives a memory to the model, with another q of it."""
    similarities = exact_similarity(where.view.embeddings, where.query).tolist()
    values = where.view.q.tolist()
    if q is not None:
        values[number] = q
    s = where.settings
    return number in given_to_the_model(
        similarities, values, k1=s["k1"], k2=s["k2"], delta=s["delta"], weight=s["weight"],
        normaliser=s["normaliser"], mean=s["fixed_mean"], sd=s["fixed_sd"], seed=where.seed,
    )  # fmt: skip


def assert_holds(where: Situation, number: int, found: Requirement, grid: list[float]) -> None:
    """The stretches say what the oracle says, and the nearest other choice begins where `needed` says."""
    assert found.selected == taken(where, number)
    edges = np.array([e for s in found.stretches for e in (s.low, s.high)])
    for x in grid:
        if np.abs(edges - x).min() > 1e-6:
            (stretch,) = (s for s in found.stretches if s.low < x < s.high)
            assert stretch.selected == taken(where, number, x), (x, found)
            if found.needed is None:
                assert stretch.selected == found.selected
    for before, after in pairwise(found.stretches):
        assert before.high == after.low and before.selected != after.selected
    if found.needed is None:
        assert found.note and found.change is None
        return
    assert found.change == found.needed - found.now
    step = 1e-6 * max(1.0, abs(found.needed))
    around = {taken(where, number, found.needed + sign * step) for sign in (-1, 1)}
    narrow = min((s.high - s.low for s in found.stretches if s.low <= found.needed <= s.high), default=0.0)
    assert (not found.selected) in around or narrow < 2 * step
    if abs(found.change) > 3 * step:
        nearer = found.now + found.change * (1 - 1e-6)
        assert taken(where, number, nearer) == found.selected or narrow < 2 * step


q_values = st.one_of(st.sampled_from([0.0, 0.0, 1.0, -1.0, 0.3]), st.integers(-300, 300).map(lambda n: n / 100))
similarities = st.one_of(st.sampled_from([0.5, 0.8, 1.0, -0.3]), st.integers(-99, 100).map(lambda n: n / 100))


@st.composite
def situations(draw: st.DrawFn) -> tuple[Situation, int]:
    n = draw(st.integers(1, 9))
    k1 = draw(st.integers(1, 10))
    where = situation(
        draw(st.lists(similarities, min_size=n, max_size=n)),
        draw(st.one_of(st.lists(q_values, min_size=n, max_size=n), q_values.map(lambda q: [q] * n))),
        k1=k1,
        k2=draw(st.integers(0, min(k1, 4))),
        delta=draw(st.sampled_from([-1.0, 0.0, 0.2, 0.5, 1.0])),
        weight=draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])),
        normaliser=draw(st.sampled_from(["pool", "fixed", "raw"])),
    )
    return where, draw(st.integers(0, n - 1))


@given(situations())
def test_the_required_q_is_where_the_choice_changes(case: tuple[Situation, int]) -> None:
    where, number = case
    grid = [*np.linspace(-4, 4, 81), -99.0, -20.0, 20.0, 99.0]
    assert_holds(where, number, required_q(where, f"m{number}"), grid)


def test_a_wide_pool_cut_at_three_deviations_is_solved_too() -> None:
    rng = np.random.default_rng(1)
    similarity, q = rng.uniform(0.3, 1, 40).round(3).tolist(), [*rng.normal(size=38).tolist(), 30.0, -25.0]
    for normaliser in ("pool", "fixed", "raw"):
        where = situation(similarity, q, k1=40, k2=3, weight=0.6, normaliser=normaliser)
        for number in (0, 7, 38, 39):
            grid = [*np.linspace(-40, 40, 161), -2500.0, 2500.0]
            assert_holds(where, number, required_q(where, f"m{number}"), grid)


def test_the_figure_changes_the_choice_of_the_program_itself() -> None:
    where = situation([0.9, 0.8, 0.7, 0.6, 0.5], [0.1, 0.4, -0.2, 0.0, 0.3], k2=2)
    for number in range(5):
        found = required_q(where, f"m{number}")
        assert found.needed is not None
        assert found.beyond == ("above" if found.change > 0 else "below")
        for share, expected in ((1 - 1e-6, found.selected), (1 + 1e-6, not found.selected)):
            q = where.view.q.copy()
            q[number] = found.now + found.change * share
            _, decision = decided(replace(where, view=replace(where.view, q=q)))
            assert (f"m{number}" in decision.selected) == expected


def test_other_settings_are_asked_instead_of_the_recorded_ones() -> None:
    where = situation([0.9, 0.5], [0.0, 1.0], k2=1, weight=1.0)
    alone = MemRLSettings.of({**where.settings, "weight": 0.0})
    assert required_q(where, "m0").needed is not None
    found = required_q(where, "m0", alone)
    assert (found.selected, found.needed) == (True, None)


def test_a_memory_that_the_run_did_not_know_is_refused() -> None:
    with pytest.raises(InputError):
        required_q(situation([0.9], [0.0]), "stranger")
