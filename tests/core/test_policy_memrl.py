"""MemRL's card: whose rules its settings make, and what it says of each that is not the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from memrl_core.policies import make_policy
from memrl_core.policies.memrl import SPEC
from memrl_core.records import Utility

CODE: Mapping[str, Mapping[str, Any]] = {
    "set mean and sd": {"normaliser": "fixed"},
    "k1 counts intents, and": {"k1_counts": "intent"},
    "with the chance ε": {"epsilon": 0.1},
    "no q below the floor": {"q_floor": 0.0},
    "below the least q are not": {"q_min": -0.8},
    "under that one's embedding": {"duplicates": "group"},
    "HLE runner gives 1": {"q0_success": 1.0},
}
OURS: Mapping[str, Mapping[str, Any]] = {
    "bonus of UCB": {"exploration": "ucb"},
    "Thompson": {"exploration": "thompson"},
    "seed are ours": {"ties": "seeded"},
    "the task that is asked": {"exclude_same_task": True},
    "keep both": {"duplicates": "skip"},
}


def card(**settings: Any) -> tuple[str, tuple[str, ...]]:
    """The badge, and the sentences beyond those of the defaults."""
    spec = make_policy("memrl", settings).spec
    assert spec.deviations[: len(SPEC.deviations)] == SPEC.deviations
    return spec.variant, spec.deviations[len(SPEC.deviations) :]


def test_the_defaults_are_the_papers() -> None:
    assert card() == ("paper", ())


@pytest.mark.parametrize("says", CODE)
def test_any_option_of_the_code_alone_makes_it_the_codes_and_is_told(says: str) -> None:
    variant, told = card(**CODE[says])
    assert variant == "code"
    assert [says in sentence for sentence in told].count(True) == 1
    assert told[0].startswith("Official code: ")


@pytest.mark.parametrize("says", OURS)
@pytest.mark.parametrize("beside", [{}, {"normaliser": "fixed"}])
def test_any_option_of_neither_makes_it_adapted_and_is_told(says: str, beside: Mapping[str, Any]) -> None:
    variant, told = card(**{**beside, **OURS[says]})
    assert variant == "adapted"
    assert says in told[-1]


@pytest.mark.parametrize(
    ("chosen", "kept"),
    [
        ({"normaliser": "fixed"}, ["k1 counts memories", "its own embedding"]),
        ({"epsilon": 0.1, "k1_counts": "intent"}, ["within the pool", "its own embedding"]),
        ({"normaliser": "fixed", "k1_counts": "intent", "duplicates": "group"}, []),
    ],
)
def test_where_the_paper_stands_beside_the_code_the_mixture_is_told(chosen: dict[str, Any], kept: list[str]) -> None:
    mixed = [sentence for sentence in card(**chosen)[1] if sentence.startswith("As in the paper")]
    assert len(mixed) == len(kept)
    assert all(says in sentence for says, sentence in zip(kept, mixed, strict=True))


@pytest.mark.parametrize(("floor", "path"), [(0.0, [0, 0, 0, 0.3]), (-10, [-0.3, -0.51, -0.657, -0.1599])])
def test_the_update_stores_no_q_below_the_floor(floor: float, path: list[float]) -> None:
    """The first path is what `QValueUpdater.update` of the official code stores."""
    policy = make_policy("memrl", {"q_floor": floor, "alpha": 0.3})
    believed, stored = Utility(0.0, 0), []
    for reward in (-1, -1, -1, 1):
        (change,) = policy.update(("m",), reward, {"m": believed})
        believed = Utility(change.after, change.visits)
        stored.append(change.after)
    assert stored == pytest.approx(path)


def test_an_epsilon_that_is_left_aside_is_no_option_in_force() -> None:
    assert not any("chance ε" in sentence for sentence in card(epsilon=0.5, exploration="ucb")[1])
