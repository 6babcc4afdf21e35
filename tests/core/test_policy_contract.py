"""Every policy keeps the same contract, under its usual settings and under those that change what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from memrl_core.policies import POLICIES, make_policy
from memrl_core.policies.contract import CHECKS
from memrl_core.policies.spec import BADGES

CHANGED: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("memrl", {"exploration": "ucb"}),
    ("memrl", {"exploration": "thompson"}),
    ("memrl", {"epsilon": 0.5}),
    ("memrl", {"normaliser": "fixed", "k1_counts": "intent"}),
    ("memrl", {"ties": "seeded"}),
    ("memrl", {"q_min": 0.0, "q_floor": -0.5}),
    ("memp", {"recall_by": "random"}),
    ("memp", {"recall_by": "facts"}),
    ("memp", {"recall_by": "ave_fact"}),
    ("memp", {"build": "round", "update": "vanilla"}),
    ("memp", {"variant": "code", "update": "validation"}),
    ("memp", {"delete_from": 1, "delete_below": 1.0}),
    ("rememberer", {"variant": "paper"}),
    ("rememberer", {"step_size": "constant"}),
    ("rememberer", {"norandom": True, "n": 3, "capacity": 2}),
    ("memento", {"read": "kernel"}),
    ("memento", {"read": "kernel", "kernel": "cosine"}),
    ("memento", {"read": "kernel", "temperature": 0.3}),
    ("memento", {"read": "network", "cold_rows": 2}),
    ("empo2_memory", {"novelty_explores": True, "epsilon": 1.0}),
    ("empo2_memory", {"variant": "paper", "capacity": 2}),
    ("rmm_reranker", {"feedback": "reward"}),
    ("a_mem", {"variant": "code"}),
    ("webcoach", {"variant": "code", "every": 1}),
    ("webcoach", {"speak_above": 1.0, "recency_weight": 0.5}),
    ("awm", {"recall": "everything"}),
)
MADE = (*((name, {}) for name in POLICIES), *CHANGED)


def _named(made: tuple[str, Mapping[str, Any]]) -> str:
    name, settings = made
    return " ".join([name, *(f"{key}={value}" for key, value in settings.items())])


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_says_the_name_by_which_it_is_made(name: str) -> None:
    assert make_policy(name, {}).spec.name == name


@pytest.mark.parametrize("made", MADE, ids=_named)
def test_a_badge_is_one_that_the_card_offers(made: tuple[str, Mapping[str, Any]]) -> None:
    spec = make_policy(*made).spec
    assert spec.variant in spec.variants and set(spec.variants) <= BADGES.keys()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("made", MADE, ids=_named)
def test_a_policy_keeps_the_contract(made: tuple[str, Mapping[str, Any]], check: Callable[..., Any]) -> None:
    name, settings = made
    check(lambda: make_policy(name, settings))
