"""The benchmark of the methods measures every one that selects without a model."""

from __future__ import annotations

import pytest

from benchmarks import policies
from benchmarks.measuring import Aim, Sizes
from memrl_core.policies import POLICIES, policy_class


@pytest.mark.slow
def test_the_table_has_a_row_for_every_policy_that_needs_no_model_to_select() -> None:
    numeric = {name for name in POLICIES if "model on read" not in policy_class(name).spec.needs}
    found = policies.measure(Sizes(memories=6, steps=3, repeat=2))
    rows = [row.what for row in found]
    selecting = [what.removeprefix("select: ") for what in rows if what.startswith("select: ")]
    assert {label.partition(" ")[0] for label in selecting} == numeric
    reads = {f"memento {read}" for read in ("similar", "kernel", "network")}
    assert reads <= set(selecting)
    assert {"update: memento kernel", "update: memento network", "update: rmm_reranker"} <= set(rows)
    assert len(rows) == len(set(rows))
    assert {row.aim for row in found if row.what.startswith("select")} == {Aim("median_s", 0.002)}
    assert {row.aim for row in found if row.what.startswith("update")} == {Aim("median_s", 0.005)}
    assert all(len(row.seconds) == len(row.reference_seconds) == 2 and min(row.seconds) > 0 for row in found)
