"""A short slice of `python -m tests.fuzz`: spoiled input is refused in a sentence or leaves a bank that is whole."""

from __future__ import annotations

import pytest

from tests.fuzz.running import TARGETS, Target, try_cases

SLOW = ("reward-files",)
PARAMS = [
    pytest.param(target, id=target.name, marks=[pytest.mark.slow] if target.name in SLOW else []) for target in TARGETS
]


@pytest.mark.parametrize("target", PARAMS)
def test_spoiled_input_is_refused_in_a_sentence_or_taken_whole(target: Target) -> None:
    try_cases(target, target.in_a_test, 0)
