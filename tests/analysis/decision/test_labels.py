"""Short names for memories."""

from __future__ import annotations

import pytest

from memrl_core.analysis.decision.labels import memory_label


@pytest.mark.parametrize(
    ("memory_id", "label"),
    [
        ("run-0004", "#4"),
        ("run-0004.2", "#4.2"),
        ("run-0120.13", "#120.13"),
        ("other-0004.2", "other-0004.2"),
        ("run-0004.2.1", "run-0004.2.1"),
        ("run-0004.", "run-0004."),
        ("run-poison-001", "poison-001"),
        ("run-given-012", "given-012"),
        ("other-given-012", "other-given-012"),
        ("0004.2", "0004.2"),
        ("run", "run"),
    ],
)
def test_a_memory_of_the_run_is_called_by_its_number_and_wording(memory_id: str, label: str) -> None:
    assert memory_label(memory_id, "run") == label
