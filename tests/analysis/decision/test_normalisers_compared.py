"""Each normaliser's choice, held against the definitions in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.decision.spectrum import NORMALISERS, NormalisersCompared, normalisers_compared
from memrl_core.records import Decision, Recalled, RecallRecord
from memrl_core.retrieval import select
from memrl_core.retrieval.exploration import Exploration
from memrl_core.settings import MemRLSettings
from tests.oracles.retrieval import phase_b, phase_b_fixed

SETTINGS = MemRLSettings.of({"fixed_mean": 0.4, "fixed_sd": 0.1, "k2": 2})


def a_decision(similarity: list[float], q: list[float], **more: Any) -> Decision:
    ordered = sorted(similarity, reverse=True)
    pool = tuple(Recalled(f"m{rank}", value, rank, None) for rank, value in enumerate(ordered, start=1))
    recall = RecallRecord(10, "record", 0.0, True, len(pool), pool, ())
    options = {"k2": 2, "weight": 0.5, "normaliser": "pool", "fixed_mean": 0.4, "fixed_sd": 0.1, "epsilon": 0.0}
    older = Exploration(ties="older")
    return select(
        recall, np.array(q), np.zeros(len(q), dtype=np.int64), seed=1, exploration=older, **{**options, **more}
    )


def by_name(compared: NormalisersCompared) -> dict[str, Any]:
    return {ranked.normaliser: ranked for ranked in compared.ranked}


def places(values: list[float]) -> list[float]:
    """The share of the others that lie below each value, equal ones counting half."""
    others = len(values) - 1
    return [
        (sum(v < x for v in values) + (sum(v == x for v in values) - 1) / 2) / others if others else 0.0 for x in values
    ]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(-5, 5)), min_size=1, max_size=8),
    st.sampled_from([0.0, 0.3, 0.5, 1.0]),
)
def test_every_score_is_what_its_definition_says(values: list[tuple[int, int]], weight: float) -> None:
    similarity, q = sorted((s / 10 for s, _ in values), reverse=True), [u / 5 for _, u in values]
    found = by_name(normalisers_compared(a_decision(similarity, q, weight=weight), SETTINGS))
    expected = {
        "pool": phase_b(similarity, q, weight),
        "fixed": phase_b_fixed(similarity, q, weight, 0.4, 0.1),
        "raw": [(1 - weight) * s + weight * u for s, u in zip(similarity, q, strict=True)],
        "ranks": [(1 - weight) * s + weight * u for s, u in zip(places(similarity), places(q), strict=True)],
    }
    for name, scores in expected.items():
        assert list(found[name].scores.values()) == pytest.approx(scores, abs=1e-9)
        best = sorted(range(len(q)), key=lambda i: (-round(scores[i], 7), -similarity[i], i))[:2]
        assert found[name].selected == tuple(f"m{i + 1}" for i in best)


def test_equal_values_are_said_to_be_flat() -> None:
    found = by_name(normalisers_compared(a_decision([0.9, 0.8, 0.7], [0.2, 0.2, 0.2]), SETTINGS))
    assert {name: found[name].flat for name in NORMALISERS} == dict.fromkeys(NORMALISERS, ("q",))
    both = by_name(normalisers_compared(a_decision([0.8, 0.8], [0.2, 0.2]), SETTINGS))
    assert (both["pool"].flat, both["fixed"].flat) == (("similarity", "q"), ("q",))


def test_cut_terms_are_named_for_the_normaliser_that_cuts() -> None:
    similarity, q = [0.9 - n / 100 for n in range(12)], [float(n == 11) for n in range(12)]
    found = by_name(normalisers_compared(a_decision(similarity, q), SETTINGS))
    cut = {"pool": (), "fixed": ("m12",), "raw": (), "ranks": ()}
    assert {name: found[name].clipped for name in NORMALISERS} == cut


def test_a_pool_of_one_and_an_empty_pool_have_nothing_to_decide() -> None:
    one = normalisers_compared(a_decision([0.9], [0.5]), SETTINGS)
    assert one.pool_of_one and one.deviating == ()
    assert all(ranked.selected == ("m1",) and ranked.flat == () for ranked in one.ranked)
    none = normalisers_compared(a_decision([], []), SETTINGS)
    assert (none.pool, none.pool_of_one, none.deviating) == (0, False, ())
