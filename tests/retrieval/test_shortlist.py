"""The few memories that phase A measures: by the product against a plain sort."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.synthetic import vectors
from memrl_core.policies.methods.memrl import MemRL
from memrl_core.records import Memory, RecallRecord
from memrl_core.retrieval import recall, zscore
from memrl_core.retrieval.phases import nearest
from memrl_core.retrieval.view import Asked, MemoryView
from memrl_core.settings import MemRLSettings
from tests.builders import view_of
from tests.oracles import retrieval as oracle
from tests.oracles.official_retrieval import OfficialStore, retrieved


def a_view(embeddings: np.ndarray, **changes: Any) -> MemoryView:
    """Memories m0, m1, … whose rows begin at 5; every third is of the task t0."""
    n = len(embeddings)
    ids = [f"m{i}" for i in range(n)]
    memories = {m: Memory(m, m, "", "success", m, (), "r", 1, f"t{i % 3}", "") for i, m in enumerate(ids)}
    rows = {memory_id: 5 + i for i, memory_id in enumerate(ids)}
    usual = {"intent_groups": np.arange(n) % 7, "rows": rows, "first_row": 5, "memories": memories}
    return view_of(ids, embeddings, **{**usual, **changes})


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
    closed = np.zeros(n, bool) if is_open is None else ~is_open
    found = nearest(np.where(closed, np.float32(-2), values), wanted)
    seen = [True] * n if is_open is None else is_open.tolist()
    assert found.tolist() == oracle.shortlist(values.tolist(), seen, wanted)


def test_intents_can_be_counted_when_the_same_task_leaves_fewer_than_k1() -> None:
    view = a_view(vectors(6, np.random.default_rng(0), 8), intent_groups=np.zeros(6, np.int64))
    assert {member.memory_id for member in recalled(view, "intent", "t0").pool} == {"m1", "m2", "m4", "m5"}


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=300))
def test_mean_and_sd_are_those_of_numpy_to_the_last_bit(values: list[float]) -> None:
    found = zscore(np.array(values))
    assert (found.mean, found.sd) == (np.array(values).mean(), np.array(values).std())


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
