"""Every policy keeps the same contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memrl_core.policies import POLICIES, make_policy
from memrl_core.policies.contract import CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_keeps_the_contract(name: str, check: Callable[..., Any]) -> None:
    check(lambda: make_policy(name, {}))
