"""The few memories that phase A measures: by the product against a plain sort, by an index against the product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.synthetic import RUN, SETTINGS, synthetic_bank, vectors
from memrl_core.bank import MemoryBank
from memrl_core.bank.storage import codec
from memrl_core.bank.storage.vectors import LanceVectors
from memrl_core.policies.methods.memrl import MemRL
from memrl_core.records import Memory, RecallRecord
from memrl_core.retrieval import recall, zscore
from memrl_core.retrieval.phases import MOST_ASKED, shortlist_of
from memrl_core.retrieval.view import Asked, MemoryView
from memrl_core.settings import MemRLSettings
from tests.builders import view_of
from tests.oracles import retrieval as oracle
from tests.oracles.official_retrieval import OfficialStore, retrieved

Nearest = Callable[[np.ndarray, int], np.ndarray]


def a_view(embeddings: np.ndarray, **changes: Any) -> MemoryView:
    """Memories m0, m1, … whose rows begin at 5; every third is of the task t0."""
    n = len(embeddings)
    ids = [f"m{i}" for i in range(n)]
    memories = {m: Memory(m, m, "", "success", m, (), "r", 1, f"t{i % 3}", "") for i, m in enumerate(ids)}
    rows = {memory_id: 5 + i for i, memory_id in enumerate(ids)}
    usual = {"intent_groups": np.arange(n) % 7, "rows": rows, "first_row": 5, "memories": memories}
    return view_of(ids, embeddings, **{**usual, **changes})


def by_sorting(view: MemoryView, asked: list[int] | None = None) -> Nearest:
    """An index that misses nothing; notes in `asked` for how many it was asked."""

    def nearest(query: np.ndarray, count: int) -> np.ndarray:
        if asked is not None:
            asked.append(count)
        return np.argsort(-(view.embeddings @ query))[:count] + view.first_row

    return nearest


def recalled(view: MemoryView, counts: Literal["record", "intent"] = "record", exclude: str = "") -> RecallRecord:
    query = vectors(1, np.random.default_rng(9), view.embeddings.shape[1])[0]
    return recall(query, view, k1=3, k1_counts=counts, delta=-1.0, strict=True, exclude_task=exclude)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 9000),
    st.integers(1, 300),
    st.integers(2, 2000),
    st.sampled_from([0.0, 0.01, 0.5, 0.99, 1.0]),
)
@settings(max_examples=60, deadline=None)
def test_the_shortlist_is_that_of_a_plain_sort(seed: int, n: int, wanted: int, levels: int, hidden: float) -> None:
    rng = np.random.default_rng(seed)
    # Many are equal, and some differ by less than float32 can be trusted with.
    values = (rng.integers(levels, size=n) / 1000 - 1 + rng.integers(3, size=n) / 1e6).astype(np.float32)
    is_open = None if hidden == 0 else rng.random(n) >= hidden
    view = a_view(np.zeros((n, 2), np.float32))
    found = shortlist_of(np.zeros(2, np.float32), view, values.copy(), is_open)(wanted)
    seen = [True] * n if is_open is None else is_open.tolist()
    assert found.tolist() == oracle.shortlist(values.tolist(), seen, wanted)


@given(st.integers(0, 2**32 - 1), st.integers(1, 80), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_an_index_that_finds_everything_changes_nothing(
    seed: int, n: int, intents: bool, exclude: bool, hides: bool
) -> None:
    rng = np.random.default_rng(seed)
    embeddings = vectors(n, rng, 6)
    embeddings[n // 2] = embeddings[0]
    view = a_view(embeddings, visible=rng.random(n) < 0.5 if hides else None)
    everything = rng.permutation(n + 30)  # Rows of other runs stand before and after.
    by_index = replace(view, nearest=lambda query, count: everything)
    asking: tuple[Any, ...] = ("intent" if intents else "record", "t0" if exclude else "")
    assert recalled(by_index, *asking) == recalled(view, *asking)


def test_an_index_is_asked_for_more_when_other_runs_memories_are_nearest() -> None:
    view = a_view(vectors(3000, np.random.default_rng(0), 8))
    query = vectors(1, np.random.default_rng(9), 8)[0]
    visible = np.ones(3000, dtype=bool)
    visible[np.argsort(-(view.embeddings @ query))[:100]] = False
    asked: list[int] = []
    hiding = replace(view, visible=visible)
    assert recalled(replace(hiding, nearest=by_sorting(view, asked))) == recalled(hiding)
    assert asked == sorted(set(asked)) and len(asked) == 2 and asked[-1] <= MOST_ASKED


def test_the_product_decides_where_the_index_finds_too_few() -> None:
    view = a_view(vectors(50, np.random.default_rng(0), 8))
    assert recalled(replace(view, nearest=lambda query, count: np.zeros(0, np.int64))) == recalled(view)


def test_intents_can_be_counted_when_the_same_task_leaves_fewer_than_k1() -> None:
    view = a_view(vectors(6, np.random.default_rng(0), 8), intent_groups=np.zeros(6, np.int64))
    assert {member.memory_id for member in recalled(view, "intent", "t0").pool} == {"m1", "m2", "m4", "m5"}


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=300))
def test_mean_and_sd_are_those_of_numpy_to_the_last_bit(values: list[float]) -> None:
    found = zscore(np.array(values))
    assert (found.mean, found.sd) == (np.array(values).mean(), np.array(values).std())


# --- the index of a bank ----------------------------------------------------------------------------------------------


def append(bank: LanceVectors, embeddings: np.ndarray, first: int = 0) -> None:
    memories = [Memory(f"m{first + i}", "", "", "success", "", (), "r", 1, "", "") for i in range(len(embeddings))]
    rows = (codec.table_row(m, vector, codec.Inserted(1)) for m, vector in zip(memories, embeddings, strict=True))
    bank.append(codec.arrow(rows, codec.table_schema(bank.dimension)))


@pytest.fixture
def indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[LanceVectors, np.ndarray]:
    """A store of 4,000 memories in 80 partitions, of which a search reads 16, and their embeddings."""
    monkeypatch.setattr("memrl_core.bank.storage.vectors.ROWS_IN_A_PARTITION", 50)
    made = LanceVectors.create(str(tmp_path / "vectors"), 32)
    embeddings = vectors(4000, np.random.default_rng(0), 32)
    append(made, embeddings)
    made.index()
    return made, embeddings


def test_recall_by_the_index_misses_at_most_one_in_twenty(indexed: tuple[LanceVectors, np.ndarray]) -> None:
    made, embeddings = indexed
    view = a_view(embeddings)

    def nearest(query: np.ndarray, count: int) -> np.ndarray:
        return np.array([view.rows[memory_id] for memory_id in made.nearest(query, count)])

    policy = MemRL(MemRLSettings(k1=10, delta=-1.0))
    shares = []
    for query in vectors(40, np.random.default_rng(1), 32):
        true, found = (
            {member.memory_id for member in policy.recall(query, seen).pool}
            for seen in (view, replace(view, nearest=nearest))
        )
        shares.append(len(true & found) / 10)
    assert np.mean(shares) >= 0.95


def test_memories_appended_after_the_index_was_made_are_found(indexed: tuple[LanceVectors, np.ndarray]) -> None:
    made, _ = indexed
    new = vectors(3, np.random.default_rng(5), 32)
    append(made, new, 4000)
    assert made.indexed() == 4000
    assert [made.nearest(vector, 1) for vector in new] == [["m4000"], ["m4001"], ["m4002"]]
    made.compact()
    assert made.indexed() == 4003
    assert [made.nearest(vector, 1) for vector in new] == [["m4000"], ["m4001"], ["m4002"]]


def test_without_an_index_all_memories_are_searched(tmp_path: Path) -> None:
    made = LanceVectors.create(str(tmp_path / "vectors"), 8)
    embeddings = vectors(20, np.random.default_rng(0), 8)
    append(made, embeddings)
    assert made.indexed() == 0
    expected = np.argsort(-(embeddings @ embeddings[3]))[:5]
    assert made.nearest(embeddings[3], 5) == [f"m{i}" for i in expected]


# --- the official way -------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_the_official_style_selects_what_ours_does_under_its_settings(seed: int, n: int, intents: int) -> None:
    rng = np.random.default_rng(seed)
    groups = np.concatenate([np.arange(min(n, intents)), rng.integers(min(n, intents), size=max(0, n - intents))])
    centres = vectors(intents, rng, 6)
    q = rng.uniform(-1, 1, n)
    view = a_view(centres[groups], q=q, intent_groups=groups, asked=Asked(centres[0]))
    query = vectors(1, rng, 6)[0]
    chosen = MemRLSettings(delta=-1.0, k1=3, k2=3, normaliser="fixed", k1_counts="intent", ties="older")
    official = OfficialStore(
        {f"{group}": centres[group].tolist() for group in set(groups.tolist())},
        {f"{group}": [view.ids[i] for i in np.flatnonzero(groups == group)] for group in set(groups.tolist())},
        dict(zip(view.ids, q.tolist(), strict=True)),
    )
    policy = MemRL(chosen)
    ours = policy.select(policy.recall(query, view), view, 0)
    assert list(ours.selected) == retrieved(query.tolist(), official, chosen)


def test_an_opened_bank_searches_by_its_index_when_asked_to(tmp_path: Path) -> None:
    with synthetic_bank(2000, dimension=32) as made:
        query = vectors(1, np.random.default_rng(5), 32)[0]
        exact = MemRL(SETTINGS).recall(query, made.view(RUN))
        made.index()
        assert not made.by_index, "With so few memories the exact search is as quick."
        with MemoryBank.open(made.uri, search="indexed") as bank:
            assert bank.by_index
            found = MemRL(SETTINGS).recall(query, bank.view(RUN))
            assert [seen.memory_id for seen in found.pool] == [seen.memory_id for seen in exact.pool]
            assert bank.as_of(RUN, 0).nearest is None, "A replay goes by all memories."
        assert not MemoryBank.open(made.uri, search="exact").by_index
