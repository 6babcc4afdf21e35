"""Figures of several runs and of conditions: their data is that of the analysis, and their titles say what it shows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

from memrl_core.analysis.compare.comparison import CumulativeReward, cumulative_reward
from memrl_core.errors import InputError
from memrl_core.figures.compare.comparison import phase_diagram, reward_picture, trajectories_picture
from memrl_core.figures.picture import Picture
from memrl_core.numerals import signed
from memrl_core.records import UtilityPoint
from tests.analysis.lockstep import rewarded
from tests.builders import numbers
from tests.figures.conftest import HOSTILE


def rewards_of(*runs: Sequence[float], tasks: str = "vwxyz") -> CumulativeReward:
    return cumulative_reward(rewarded(tasks, *runs))


def a_point(step: int, after: float, reward: float | None = None) -> UtilityPoint:
    return UtilityPoint("m", step, None if reward is None else 0.0, after, step, reward, None, ())


@pytest.mark.parametrize("count", [2, 3, 7])
def test_every_run_has_its_line_and_every_other_its_difference_with_a_band(count: int) -> None:
    rng = np.random.default_rng(count)
    rewards = rewards_of(*rng.choice([-1.0, 1.0], size=(count, 5)))
    names = [f"r{place}" for place in range(count)]
    picture = reward_picture(rewards, names)
    above, below = picture.figure.data[:count], picture.figure.data[count:]
    assert [trace.name for trace in above] == names
    for trace, total in zip(above, rewards.totals, strict=True):
        assert (list(trace.x), list(trace.y)) == (list(rewards.positions), list(total))
    bands, lines = below[::2], below[1::2]
    for place, (band, line) in enumerate(zip(bands, lines, strict=True)):
        assert list(line.y) == list(rewards.differences[place])
        assert list(band.y) == [*rewards.high[place], *rewards.low[place][::-1]]
        assert list(band.x) == [*rewards.positions, *rewards.positions[::-1]]
        assert (line.line.color, line.line.dash) == (above[place + 1].line.color, above[place + 1].line.dash)


def test_up_to_five_runs_are_distinct_by_colour_and_by_dash() -> None:
    lines = reward_picture(rewards_of(*[[1.0] * 5] * 5), list("abcde")).figure.data[:5]
    assert len({line.line.color for line in lines}) == len({line.line.dash for line in lines}) == 5


def test_the_table_has_the_numbers_of_the_figure_whatever_the_runs_are_called() -> None:
    rewards = rewards_of([1, -1, 1, 1, 1], [1, 1, 1, 1, -1])
    table = reward_picture(rewards, ["tasks", "b"]).table
    assert list(table.iloc[:, 0]) == list(rewards.positions)
    assert list(table["tasks"]) == list(rewards.totals[0]) and list(table["b"]) == list(rewards.totals[1])
    assert list(table["Δ b"]) == list(rewards.differences[0])
    assert list(table["Δ b, from"]) == list(rewards.low[0]) and list(table["Δ b, to"]) == list(rewards.high[0])


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ([1.0] * 10, "b has +20.000 reward against a (95 %: +20.000 to +20.000)"),
        ([1.0] * 5, "so it may be chance)"),
        ([1.0, *[-1.0] * 9], "so it may be chance)"),
    ],
)
def test_the_title_says_who_earned_more_and_whether_it_may_be_chance(other: list[float], says: str) -> None:
    rewards = rewards_of([-1.0] * len(other), other, tasks="vwxyzabcde"[: len(other)])
    picture = reward_picture(rewards, ["a", "b"])
    assert picture.title.endswith(says)
    assert f"{signed(rewards.differences[0][-1])} reward" in picture.title
    assert picture.title in picture.alt


def test_one_task_has_no_band() -> None:
    rewards = rewards_of([1, -1], [1, 1], tasks="xx")
    picture = reward_picture(rewards, ["a", "b"])
    assert "on one task" in picture.title
    assert [trace.fill for trace in picture.figure.data] == [None] * 3


def test_a_memory_has_a_line_of_its_q_in_every_run() -> None:
    histories = [
        ("a", [a_point(1, 0.0), a_point(3, 0.3, 1.0)]),
        ("b", [a_point(1, 0.0), a_point(2, -0.3, -1.0), a_point(5, -0.5, -1.0)]),
    ]
    picture = trajectories_picture(histories, "#1")
    for trace, (name, points) in zip(picture.figure.data, histories, strict=True):
        assert (trace.name, list(trace.x), list(trace.y)) == (name, [p.step for p in points], [p.after for p in points])
        assert list(trace.marker.symbol) == ["diamond"] + ["circle"] * (len(points) - 1)
    assert numbers(picture.title) == ["1", "+0.300", "1", "−0.500", "2"]
    assert picture.title in picture.alt
    assert list(picture.table["q after"]) == [0.0, 0.3, 0.0, -0.3, -0.5]
    assert list(picture.table["run"]) == ["a", "a", "b", "b", "b"]
    assert not picture.figure.layout.shapes


def test_where_runs_part_is_marked_between_the_steps() -> None:
    histories = [("a", [a_point(1, 0.0)]), ("b", [a_point(1, 0.0)])]
    figure = trajectories_picture(histories, "#1", parted_after=4).figure
    assert [shape.x0 for shape in figure.layout.shapes] == [4.5]
    assert [note.text for note in figure.layout.annotations] == ["fork"]


def test_foreign_names_stay_text() -> None:
    for picture in (
        reward_picture(rewards_of([1, -1, 1, 1, 1], [1, 1, 1, 1, -1]), [HOSTILE, f"{HOSTILE}!"]),
        trajectories_picture([(HOSTILE, [a_point(1, 0.0)]), (f"{HOSTILE}!", [a_point(1, 0.2)])], HOSTILE),
    ):
        assert "&lt;b" in picture.to_json() and HOSTILE in picture.title


# --- the phase diagram ------------------------------------------------------------------------------------------------


def conditions(**more: Any) -> pd.DataFrame:
    rows = []
    for spread, noise, repeat in product((0.0, 0.4), (0.0, 0.2), (0.0, 1.0)):
        gain = spread * (1 - 2 * noise) / 4
        condition = {"spread": spread, "noise": noise, "repeat": repeat, "stream": f"<b>{spread} {noise} {repeat}"}
        found = {"reference": 0.5, "success": 0.5 + gain, "difference": gain, "low": gain - 0.01, "high": gain + 0.01}
        rows.append({**condition, **found, "seeds": 20, **more})
    return pd.DataFrame(rows)


def a_diagram(rows: pd.DataFrame, across: str = "spread") -> Picture:
    return phase_diagram(rows, across, "noise", "repeat", "MemRL", "similarity")


def test_each_cell_has_its_difference_and_bold_where_the_interval_leaves_out_zero() -> None:
    picture = a_diagram(conditions())
    first, second, *handles = picture.figure.data
    assert [list(row) for row in first.z] == [list(row) for row in second.z]
    assert [[round(value, 6) for value in row] for row in first.z] == [[0, 10], [0, 6]]
    assert [list(row) for row in first.text] == [["+0.0", "<b>+10.0</b>"], ["+0.0", "<b>+6.0</b>"]]
    assert "4 of 8" in picture.title and len(picture.table) == 8
    assert "<b>0" not in str(first.customdata)
    # What is clicked names its stream.
    assert [(one.x[1], one.y[1], one.customdata[1][6]) for one in handles] == [("0.4", "0", 10), ("0.4", "0", 10)]


def test_a_scale_is_never_narrower_than_ten_points() -> None:
    picture = a_diagram(conditions(difference=0.001))
    assert (picture.figure.layout.coloraxis.cmin, picture.figure.layout.coloraxis.cmax) == (-5, 5)


def test_what_does_not_vary_or_varies_besides_is_reported() -> None:
    with pytest.raises(InputError, match="colour"):
        a_diagram(conditions(), "colour")
    with pytest.raises(InputError, match="vary too"):
        a_diagram(pd.concat([conditions(), conditions()]))
