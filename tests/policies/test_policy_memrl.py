"""MemRL's card: whose rules its settings make, and what it says of each that is not the paper's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from memrl_core.policies import make_policy, settings_of
from memrl_core.policies.methods.memrl import SPEC
from memrl_core.records import Utility
from memrl_core.settings import PRESETS, MemRLSettings

CODE: Sequence[Mapping[str, Any]] = (
    {"normaliser": "fixed"},
    {"normaliser": "raw"},
    {"k1_counts": "intent"},
    {"epsilon": 0.1},
    {"q_floor": 0.0},
    {"q_min": -0.8},
    {"duplicates": "group"},
    {"q0_success": 1.0},
    {"batch_size": 5},
)
OURS: Sequence[Mapping[str, Any]] = (
    {"exploration": "ucb"},
    {"exploration": "thompson"},
    {"exclude_same_task": True},
    {"duplicates": "skip"},
)


def card(**settings: Any) -> tuple[str, tuple[str, ...]]:
    """The badge, and the sentences beyond those of the defaults."""
    spec = make_policy("memrl", settings).spec
    assert spec.deviations[: len(SPEC.deviations)] == SPEC.deviations
    return spec.variant, spec.deviations[len(SPEC.deviations) :]


def test_a_mean_and_sd_of_none_of_the_configurations_are_reported() -> None:
    foreign = set(card(normaliser="fixed")[1])
    for preset in PRESETS.values():
        variant, reported = card(**preset)
        assert variant == "code"
        assert not any(sentence.startswith("As in the paper") for sentence in reported)
        assert foreign - set(reported)


# Mean, sd, k1, k2, ε, least q, floor, first q of a success and a failure, r−, cosine from which intents are grouped.
OFFICIAL = {
    "alfworld": (0.5187, 0.1203, 5, 3, 0.0, None, None, 0.0, 0.0, -1.0, 0.9),
    "hle": (0.1856827586889267, 0.09407906234264374, 5, 3, 0.0, None, None, 1.0, 0.0, -1.0, 0.9),
    "bigcodebench": (0.31, 0.1, 5, 5, 0.1, -0.8, None, 0.0, 0.0, -1.0, 0.9),
    "lifelong": (0.1856827586889267, 0.09407906234264374, 10, 5, 0.01, -0.8, 0.0, 0.5, 0.5, 0.0, 0.99),
}


def test_the_presets_are_the_four_configurations_of_the_official_code() -> None:
    assert PRESETS.keys() == OFFICIAL.keys()
    for name, preset in PRESETS.items():
        s = settings_of("memrl", {}, name)
        assert isinstance(s, MemRLSettings) and s.model_dump() == s.model_dump() | dict(preset)
        found = (
            s.fixed_mean, s.fixed_sd, s.k1, s.k2, s.epsilon, s.least_q, s.floor, s.q0_success, s.q0_failure,
            s.reward_failure, s.duplicate_threshold,
        )  # fmt: skip
        assert found == OFFICIAL[name]
        shared = (s.delta, s.weight, s.alpha, s.reward_success, s.k1_counts, s.duplicates, s.normaliser, s.ties)
        assert shared == (0.5, 0.5, 0.3, 1.0, "intent", "group", "fixed", "older")


def test_the_mini_batches_of_the_official_runners_are_reported() -> None:
    (reported,) = [sentence for sentence in SPEC.deviations if "mini-batch" in sentence]
    assert [int(number) for number in re.findall(r"\d+", reported)] == [32, 25, 5]
    sizes = [PRESETS[name]["batch_size"] for name in ("alfworld", "hle", "bigcodebench", "lifelong")]
    assert sizes == [32, 32, 25, 5]


def test_the_defaults_are_the_papers() -> None:
    assert card() == ("paper", ())


@pytest.mark.parametrize("chosen", CODE, ids=str)
def test_any_option_of_the_code_alone_makes_it_the_codes_and_is_reported(chosen: Mapping[str, Any]) -> None:
    variant, reported = card(**chosen)
    assert variant == "code"
    assert reported[0].startswith("Official code: ")
    assert card(**chosen, exploration="ucb", **({} if "epsilon" in chosen else {"epsilon": 0.5}))[0] == "adapted"


@pytest.mark.parametrize("chosen", OURS, ids=str)
@pytest.mark.parametrize("beside", [{}, {"normaliser": "fixed"}])
def test_any_option_of_neither_makes_it_adapted_and_is_reported(
    chosen: Mapping[str, Any], beside: Mapping[str, Any]
) -> None:
    variant, reported = card(**{**beside, **chosen})
    assert variant == "adapted"
    assert set(reported) - set(card(**beside)[1])


@pytest.mark.parametrize(
    ("chosen", "kept"),
    [
        ({"normaliser": "fixed"}, 2),
        ({"epsilon": 0.1, "k1_counts": "intent"}, 2),
        ({"normaliser": "fixed", "k1_counts": "intent", "duplicates": "group"}, 0),
    ],
)
def test_where_the_paper_stands_beside_the_code_the_mixture_is_reported(chosen: dict[str, Any], kept: int) -> None:
    assert sum(sentence.startswith("As in the paper") for sentence in card(**chosen)[1]) == kept


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
