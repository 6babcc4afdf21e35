"""What is never used, near-duplicates, loners, unevenness, and a gate that fits: against matrices and definitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.decision import gate
from memrl_core.analysis.decision.gate import suggest_delta
from memrl_core.analysis.memory import exposure
from memrl_core.analysis.memory.exposure import gini, starvation
from memrl_core.analysis.memory.uses import uses
from memrl_core.errors import InputError
from memrl_core.retrieval.view import MemoryView
from tests.builders import a_bank, a_run, a_step, alike_tasks, an_agent

NO_USES = pd.DataFrame({"memory_id": [], "selected": []}).astype({"selected": bool})


def a_view(vectors: np.ndarray, groups: list[int] | None = None, visible: list[bool] | None = None) -> MemoryView:
    """Memories m0, m1, … with these embeddings (n, d), which are made unit vectors."""
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    n = len(vectors)
    ids = [f"m{i}" for i in range(n)]
    return MemoryView(
        ids, unit, np.zeros(n), np.zeros(n, np.int64), np.array(groups if groups else range(n), np.int64),
        {i: row for row, i in enumerate(ids)}, 0, None if visible is None else np.array(visible),
    )  # fmt: skip


def _cosines(view: MemoryView) -> np.ndarray:
    exact = view.embeddings.astype(np.float64)
    return exact @ exact.T


def test_a_real_run_is_told_what_its_traces_never_used(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank", delta=0.2, k1=4, k2=2)
    traces = list(agent.run(alike_tasks()))
    found = starvation(agent.bank.view("r"), uses(agent.bank, "r"), threshold=0.95, delta=0.2)
    pooled = {c.memory_id for t in traces for c in t.decision.candidates if c.rank_select is not None}
    given_ = {i for t in traces for i in t.decision.selected}
    ids = agent.bank.memory_ids()
    assert found.never_recalled == tuple(i for i in ids if i not in pooled)
    assert found.never_selected == tuple(i for i in ids if i in pooled - given_)
    counts = [sum(i in t.decision.selected for t in traces) for i in ids]
    assert found.gini == pytest.approx(_gini_by_definition(counts))
    assert found.never_recalled and found.never_selected


@pytest.mark.parametrize("rows", [3, 1024])
def test_duplicates_are_the_groups_joined_by_the_threshold(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(exposure, "ROWS_AT_ONCE", rows)
    rng = np.random.default_rng(4)
    centres = rng.normal(size=(6, 12))
    vectors = centres[rng.integers(0, 6, 40)] + 0.12 * rng.normal(size=(40, 12))
    view = a_view(np.vstack([vectors, rng.normal(size=(5, 12))]))
    progress: list[float] = []
    found = starvation(view, NO_USES, threshold=0.95, delta=0.6, on_progress=progress.append)
    cosines = _cosines(view)
    np.fill_diagonal(cosines, -1)
    left, groups = set(range(45)), []
    while left:
        group, edge = set(), {min(left)}
        while edge:
            group |= edge
            edge = {j for i in edge for j in np.flatnonzero(cosines[i] >= 0.95)} - group
        left -= group
        if len(group) > 1:
            groups.append(tuple(f"m{i}" for i in sorted(group)))
    assert set(found.duplicates) == set(groups)
    assert [len(g) for g in found.duplicates] == sorted(map(len, groups), reverse=True)
    assert len(groups) > 2
    assert found.loners == tuple(f"m{i}" for i in range(45) if cosines[i].max() <= 0.6)
    assert found.loners
    assert progress == sorted(progress) and progress[-1] == 1.0


def test_memories_of_other_runs_between_are_not_counted() -> None:
    view = a_view(np.array([[1.0, 0], [1, 0], [1, 0.01], [0, 1]]), visible=[True, False, True, True])
    frame = pd.DataFrame({"memory_id": ["m1", "m2"], "selected": [True, False]})
    found = starvation(view, frame, threshold=0.9, delta=0.2)
    assert found.duplicates == (("m0", "m2"),)
    assert (found.never_recalled, found.never_selected, found.loners) == (("m0", "m3"), ("m2",), ("m3",))
    assert found.gini is None


def test_an_empty_memory_and_a_single_one(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    found = starvation(bank.view("r"), uses(bank, "r"), threshold=0.9, delta=0.2)
    assert (found.never_recalled, found.duplicates, found.loners, found.gini) == ((), (), (), None)
    assert found.lorenz.shape == (0, 2)
    bank.commit_step(*a_step(1))
    found = starvation(bank.view("r"), uses(bank, "r"), threshold=0.9, delta=0.2)
    assert (found.never_recalled, found.loners, found.gini) == (("r-0001",), ("r-0001",), None)


def _gini_by_definition(counts: list[int]) -> float:
    """Half the mean absolute difference of all pairs, relative to the mean."""
    x = np.array(counts, dtype=float)
    return float(np.abs(x[:, None] - x[None, :]).mean() / (2 * x.mean()))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30))
def test_gini_is_half_the_relative_mean_difference(counts: list[int]) -> None:
    found = gini(np.array(counts))
    if sum(counts) == 0:
        assert found is None
    else:
        assert found == pytest.approx(_gini_by_definition(counts))


# --- gate -------------------------------------------------------------------------------------------------------------


def test_the_gate_is_the_quantile_of_all_pairs_of_different_intents() -> None:
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(90, 16)) + 0.5
    groups = [*range(60), *rng.integers(0, 60, 30).tolist()]
    view = a_view(vectors, groups)
    found = suggest_delta(view)
    first = np.array([groups.index(g) for g in range(60)])
    pairs = _cosines(view)[np.ix_(first, first)][np.triu_indices(60, 1)]
    assert found.delta == pytest.approx(np.quantile(pairs, 0.8), abs=1e-6)
    assert np.mean(pairs > found.delta) == pytest.approx(0.2, abs=1e-3)
    assert (found.mean, found.sd) == pytest.approx((pairs.mean(), pairs.std()), abs=1e-6)
    assert (found.intents, found.pairs, found.sampled) == (60, 60 * 59 // 2, False)
    assert found.passing(found.delta) == pytest.approx(0.2, abs=0.02)
    assert (found.passing(-1.0), found.passing(1.0)) == (1, 0)
    assert found.counts.sum() == found.pairs
    assert (len(found.counts), len(found.edges)) == (50, 51)


def test_only_the_intents_of_the_run_are_compared(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    bank.start_run(a_run("other"))
    for step in (1, 2, 3):
        bank.commit_step(*a_step(step))
        trace, vectors = a_step(step, run="other")
        bank.commit_step(trace, vectors)
    bank.commit_step(*a_step(4))
    found = suggest_delta(bank.view("other"))
    vectors = np.array([bank.embedding(f"other-{step:04d}") for step in (1, 2, 3)], dtype=np.float64)
    pairs = (vectors @ vectors.T)[np.triu_indices(3, 1)]
    assert (found.intents, found.pairs) == (3, 3)
    assert found.delta == pytest.approx(np.quantile(pairs, 0.8), abs=1e-6)


def test_a_large_memory_is_sampled_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MOST_INTENTS", 50)
    view = a_view(np.random.default_rng(3).normal(size=(300, 8)))
    found, again, other = suggest_delta(view), suggest_delta(view), suggest_delta(view, seed=1)
    assert (found.intents, found.pairs, found.sampled) == (50, 50 * 49 // 2, True)
    assert found.delta == again.delta != other.delta
    whole = _cosines(view)[np.triu_indices(300, 1)]
    assert found.delta == pytest.approx(np.quantile(whole, 0.8), abs=0.1)


def test_one_intent_is_too_few() -> None:
    for view in (a_view(np.eye(3), groups=[5, 5, 5]), a_view(np.eye(2), visible=[True, False])):
        with pytest.raises(InputError):
            suggest_delta(view)
