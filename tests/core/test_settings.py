"""Settings are checked once, at the door."""

from __future__ import annotations

from typing import Any

import pytest

from memrl_core.errors import SettingsError
from memrl_core.settings import MemRLSettings


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"weight": 1.01}, "weight"),
        ({"weight": -0.01}, "weight"),
        ({"weight": float("nan")}, "weight"),
        ({"weight": "much"}, "weight"),
        ({"k1": 3, "k2": 4}, "k2 = 4 cannot be larger than k1 = 3"),
        ({"k1": 0}, "k1"),
        ({"alpha": 0}, "alpha"),
        ({"alpha": float("inf")}, "alpha"),
        ({"delta": 1.5}, "delta"),
        ({"epsilon": 2}, "epsilon"),
        ({"fixed_sd": 0}, "fixed_sd"),
        ({"reward_success": -1, "reward_failure": 1}, "reward"),
        ({"normaliser": "other"}, "normaliser"),
        ({"lambda": 0.5}, "lambda"),
    ],
)
def test_a_wrong_value_is_named_in_one_sentence(values: dict[str, Any], names: str) -> None:
    with pytest.raises(SettingsError, match="not changed") as refused:
        MemRLSettings.of(values)
    assert names in str(refused.value)
    assert "\n" not in str(refused.value)


def test_many_mistakes_and_large_values_stay_one_sentence() -> None:
    wrong = {f"not there {number}": 1 for number in range(20)}
    with pytest.raises(SettingsError, match=r"and \d+ more\.") as refused:
        MemRLSettings.of({"alpha": {"k1": "x" * 5000}, **wrong})
    assert "alpha" in str(refused.value) and len(str(refused.value)) < 2000


def test_the_middle_of_q_lies_between_the_rewards() -> None:
    assert MemRLSettings.of({"reward_failure": 0, "reward_success": 1}).q_midpoint == 0.5
    assert MemRLSettings().q_midpoint == 0


def test_every_setting_has_a_title_and_says_what_it_does() -> None:
    for name, field in MemRLSettings.model_fields.items():
        assert field.title, name
        assert field.description, name
