"""The benchmark of the methods measures every one that selects without a model."""

from __future__ import annotations

from memrl_core.benchmarks import policies
from memrl_core.policies import POLICIES, policy_class


def test_the_table_has_a_row_for_every_policy_that_needs_no_model_to_select() -> None:
    numeric = {name for name in POLICIES if "model on read" not in policy_class(name).spec.needs}
    found = policies.measure(memories=6, steps=3, repeat=2)
    rows = [m.what for m in found]
    selecting = [what.removeprefix("select: ") for what in rows if what.startswith("select: ")]
    assert {label.partition(" ")[0] for label in selecting} == numeric
    reads = {f"memento {read}" for read in ("similar", "kernel", "network")}
    assert reads <= set(selecting)
    assert {"update: memento kernel", "update: memento network", "update: rmm_reranker"} <= set(rows)
    assert len(rows) == len(set(rows))
    assert {m.budget for m in found if m.what.startswith("select")} == {"under 2 ms"}
    assert {m.budget for m in found if m.what.startswith("update")} == {"under 5 ms"}
    assert all(len(m.values) == 2 and min(m.values) > 0 for m in found)
