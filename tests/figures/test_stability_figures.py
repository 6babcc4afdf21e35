"""Figures of stability and plasticity: their data are the metrics, and their titles count what they show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from memrl_core.analysis.run.metrics import (
    TaskState,
    cumulative_success,
    epoch_accuracy,
    solved_before_failing_now,
    task_states,
)
from memrl_core.figures.palette import (
    ARMS,
    FORGOTTEN,
    KEPT,
    NEVER_SOLVED,
    NEWLY_SOLVED,
    RECOVERED,
    STATE_PATTERNS,
    Mark,
)
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.stability import STATES, Arm, Stream, curves_picture, grid_picture, moving_accuracy_picture
from tests.builders import numbers
from tests.figures.conftest import HOSTILE
from tests.oracles.metrics import wilson

NAN = float("nan")

# Four tasks in three epochs: 0 is kept, 1 is lost and won back, 2 is lost, 3 is never solved.
GRID = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0]], dtype=np.float64)
UNFINISHED = np.vstack([GRID, [1, 0, NAN, NAN]])
OTHER = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]], dtype=np.float64)

grids = arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 6)), elements=st.sampled_from([0.0, 1.0, NAN]))


def named(picture: Picture, name: str) -> list[Any]:
    return [trace for trace in picture.figure.data if (trace.name or "").startswith(name)]


def values(numbers: Any) -> np.ndarray:
    return np.asarray(numbers, dtype=np.float64)


def same(one: Any, other: Any) -> bool:
    return np.allclose(values(one), values(other), equal_nan=True)


# --- accuracy and CSR -------------------------------------------------------------------------------------------------


@given(grids)
def test_lines_and_table_are_the_metrics(success: np.ndarray) -> None:
    picture = curves_picture([Arm("memrl", success)])
    assert same(named(picture, "accuracy")[0].y, epoch_accuracy(success))
    assert same(named(picture, "CSR")[0].y, cumulative_success(success))
    assert same(picture.table["accuracy"], epoch_accuracy(success))
    assert same(picture.table["CSR"], cumulative_success(success))
    assert same(picture.table["solved before, failing now"], solved_before_failing_now(success))


def test_the_hatched_gap_is_what_was_solved_before_and_fails_now() -> None:
    (gap,) = named(curves_picture([Arm("memrl", GRID)]), "solved before, failing now")
    upper, lower = values(gap.y)[:3], values(gap.y)[3:][::-1]
    assert same(upper - lower, solved_before_failing_now(GRID))
    assert same(upper - lower, [0, 0.25, 0.25])
    assert list(gap.x) == [1, 2, 3, 3, 2, 1]
    assert (gap.fill, gap.fillpattern.shape) == ("toself", STATE_PATTERNS[FORGOTTEN])


def test_accuracy_has_wilson_bars() -> None:
    (line,) = named(curves_picture([Arm("memrl", GRID)]), "accuracy")
    for accuracy, up, down in zip(line.y, line.error_y.array, line.error_y.arrayminus, strict=True):
        assert (accuracy - down, accuracy + up) == pytest.approx(wilson(accuracy, 4))


def test_an_unfinished_epoch_is_hollow_counts_its_tasks_and_stays_out_of_gap_and_title() -> None:
    picture = curves_picture([Arm("memrl", UNFINISHED)])
    (line,) = named(picture, "accuracy")
    assert list(line.marker.symbol) == ["circle", "circle", "circle", "circle-open"]
    assert line.y[-1] == 0.5
    assert list(picture.table["tasks"]) == ["4 of 4 tasks"] * 3 + ["2 of 4 tasks"]
    assert max(named(picture, "solved before")[0].x) == 3
    assert numbers(picture.title) == ["3", "1", "4", "75", "50"]


def test_a_first_epoch_that_still_runs_is_reported_with_its_count() -> None:
    picture = curves_picture([Arm("memrl", np.array([[1, 0, NAN]]))])
    assert numbers(picture.title)[:5] == ["1", "2", "3", "0", "3"]


def test_two_arms_have_a_panel_each_on_one_axis_and_a_legend_once() -> None:
    picture = curves_picture([Arm("memrl", GRID), Arm("rag", OTHER)])
    for name in ("accuracy", "CSR", "solved before"):
        left, right = named(picture, name)
        assert (left.xaxis, right.xaxis) == ("x", "x2")
        assert left.yaxis == right.yaxis == "y"
        assert (left.showlegend, right.showlegend) == (True, False)
    assert [line.line.color for line in named(picture, "accuracy")] == list(ARMS)
    layout = picture.figure.layout
    assert layout.xaxis.domain[1] < layout.xaxis2.domain[0]
    assert [note.text for note in layout.annotations] == ["<b>memrl</b>", "<b>rag</b>"]
    assert numbers(picture.title)[:3] == list("314") and numbers(picture.title.split("; rag")[1])[:3] == list("304")


@pytest.mark.parametrize("make", [curves_picture, grid_picture])
def test_changes_are_marked_and_reported_in_the_panel_of_their_arm(make: Callable[[list[Arm]], Picture]) -> None:
    arms = [
        Arm("memrl", GRID, (Mark(1.5, "world shifted"),)),
        Arm("rag", OTHER, (Mark(2, "α 0.3 → 0.9"), Mark(2.25, "b"))),
    ]
    layout = make(arms).figure.layout
    assert [(shape.xref, shape.x0, shape.x1) for shape in layout.shapes] == [
        ("x", 1.5, 1.5), ("x2", 2, 2), ("x2", 2.25, 2.25),
    ]  # fmt: skip
    notes = [(note.xref, note.x, note.text) for note in layout.annotations if note.xref != "paper"]
    assert notes == [("x", 1.5, "world shifted"), ("x2", 2, "α 0.3 → 0.9"), ("x2", 2.25, "b")]


# --- while it plays ---------------------------------------------------------------------------------------------------


@given(arrays(np.float64, st.integers(1, 12), elements=st.sampled_from([0.0, 1.0, NAN])), st.integers(1, 15))
def test_the_moving_share_is_that_of_the_rated_steps_in_the_window(outcomes: np.ndarray, window: int) -> None:
    table = moving_accuracy_picture([Stream("memrl", outcomes)], window).table
    for step, row in enumerate(table.itertuples(index=False), 1):
        inside = outcomes[max(0, step - window) : step]
        rated = inside[~np.isnan(inside)]
        assert (row.solved, row.of) == (rated.sum(), len(rated))
        assert same([row.share], [rated.mean() if len(rated) else NAN])


def test_the_moving_share_has_its_wilson_band_where_something_was_rated() -> None:
    picture = moving_accuracy_picture([Stream("memrl", np.array([NAN, 1, 0, 1]))], 2)
    band, line = picture.figure.data
    assert list(band.x) == [2, 3, 4, 4, 3, 2]
    assert same(band.y[:3], [wilson(1, 1)[1], wilson(0.5, 2)[1], wilson(0.5, 2)[1]])
    assert same(band.y[3:], [wilson(0.5, 2)[0], wilson(0.5, 2)[0], wilson(1, 1)[0]])
    assert same(line.y, [NAN, 1, 0.5, 0.5])


def test_the_moving_title_tells_each_arms_last_window() -> None:
    arms = [
        Stream("memrl", np.array([0.0, 1, 1]), (Mark(2, "world shifted"),)),
        Stream("rag", np.array([1.0, 0]), (Mark(1, "λ 0 → 1"),)),
    ]
    picture = moving_accuracy_picture(arms, 2)
    assert numbers(picture.title) == ["2", "2", "95", "34", "100", "1", "2", "95", "9", "91"]
    assert [(shape.x0, shape.line.color) for shape in picture.figure.layout.shapes] == [(2, ARMS[0]), (1, ARMS[1])]
    assert [line.line.dash for line in picture.figure.data[1::2]] == ["solid", "dash"]


# --- what became of the tasks -----------------------------------------------------------------------------------------


def test_five_states_have_five_colours_and_five_marks() -> None:
    assert {colour for _, colour, _ in STATES.values()} == {NEWLY_SOLVED, KEPT, FORGOTTEN, RECOVERED, NEVER_SOLVED}
    assert len({mark for _, _, mark in STATES.values()}) == 5


def test_a_row_is_one_task_in_both_panels_and_the_first_solved_by_either_is_on_top() -> None:
    tasks = ("a", "b", "c", "d")
    picture = grid_picture([Arm("memrl", OTHER, tasks=tasks), Arm("rag", GRID[:, [3, 2, 1, 0]], tasks=tasks)])
    left, right = picture.figure.data
    # Of the left a is solved in epoch 2 and b in 3, of the right c and d in 1 and b in 2.
    assert list(left.hovertext[:, 0]) == list(right.hovertext[:, 0]) == ["c", "d", "a", "b"]
    assert (left.xaxis, right.xaxis) == ("x", "x2") and (left.showscale, right.showscale) == (False, True)
    assert list(picture.figure.layout.yaxis.ticktext) == ["c", "d", "a", "b"]
    assert list(picture.table["arm"]) == ["memrl"] * 4 + ["rag"] * 4
    assert numbers(picture.title)[:2] + numbers(picture.title)[4:6] == ["2", "4", "3", "4"]


def test_the_grid_has_the_state_of_every_task_with_the_first_solved_on_top() -> None:
    picture = grid_picture([Arm("memrl", UNFINISHED, tasks=("late", "b", "c", "never"))])
    (heatmap,) = picture.figure.data
    assert [row[0] for row in heatmap.hovertext] == ["late", "b", "c", "never"]
    order = list(STATES)
    states = task_states(UNFINISHED).T
    for codes, row in zip(heatmap.z, states, strict=True):
        for code, state in zip(codes, row, strict=True):
            assert (np.isnan(code) and state == TaskState.NOT_ATTEMPTED) or order[int(code)] == state
    assert list(picture.table["epoch 3"]) == ["kept", "recovered", "failed after success", "never solved"]
    assert list(picture.table["epoch 4"]) == ["kept", "failed after success", "not attempted", "not attempted"]
    assert numbers(picture.title)[:2] == ["3", "4"]


def test_a_failure_after_a_success_is_forgetting_where_the_true_chance_fell_and_else_luck() -> None:
    success = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    chance = np.array([[0.9, 0.9, 0.1], [0.9, 0.4, 0.9], [0.4, 0.4, 0.4]])
    picture = grid_picture([Arm("memrl", success, tasks=("a", "b", "c"), chance=chance)])
    cells = picture.table.set_index("task")
    assert list(cells.loc["a"][1:]) == ["newly solved", "failed by luck", "forgotten: its chance fell"]
    assert list(cells.loc["b"][1:]) == ["newly solved", "forgotten: its chance fell", "recovered"]
    assert numbers(picture.title) == ["3", "3", "3", "2"]
    (heatmap,) = picture.figure.data
    assert len(heatmap.colorbar.ticktext) == 6 and heatmap.zmax == 5.5


def test_where_chances_are_not_known_the_title_says_what_luck_alone_would_give() -> None:
    # Two tasks solved once in three: of the two failures of each, one comes after the success by luck.
    picture = grid_picture([Arm("memrl", np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))])
    assert numbers(picture.title) == ["2", "2", "3", "2"]


def test_the_grids_colours_are_discrete_and_its_legend_names_them() -> None:
    (heatmap,) = grid_picture([Arm("memrl", GRID)]).figure.data
    for code, (name, colour, mark) in enumerate(STATES.values()):
        at = (code + 0.5) / len(STATES)
        assert {stop[1] for stop in heatmap.colorscale if abs(stop[0] - at) <= 0.1 + 1e-9} >= {colour}
        inside = [(low, high) for low, high in zip(heatmap.colorscale[::2], heatmap.colorscale[1::2], strict=True)]
        assert inside[code][0][1] == inside[code][1][1] == colour
        assert heatmap.colorbar.ticktext[code] == f"{mark} {name}".strip()
    assert (heatmap.zmin, heatmap.zmax) == (-0.5, 4.5)


# --- all of them ------------------------------------------------------------------------------------------------------


def all_pictures(arm: Arm) -> list[Picture]:
    stream = Stream(arm.name, arm.success.ravel())
    return [curves_picture([arm]), moving_accuracy_picture([stream], 3), grid_picture([arm])]


@pytest.mark.parametrize("success", [np.zeros((0, 3)), np.full((1, 3), NAN)], ids=["nothing begun", "nothing rated"])
def test_before_the_first_rated_task_every_picture_says_so(success: np.ndarray) -> None:
    curves, moving, grid = (picture.title for picture in all_pictures(Arm("memrl", success)))
    assert curves.startswith("memrl: no rated")
    assert moving.startswith("No rated step")
    assert numbers(grid)[:2] == ["0", "3"]


def test_names_from_outside_cannot_become_markup() -> None:
    pictures = all_pictures(Arm(HOSTILE, GRID, tasks=(HOSTILE, "b", "c", "d")))
    assert all("&lt;" in picture.to_json() for picture in pictures)
