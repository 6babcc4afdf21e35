"""Figures of stability and plasticity: their data are the metrics, and their titles count what they show."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm

from memrl_core.analysis.run.metrics import (
    TaskState,
    cumulative_success,
    epoch_accuracy,
    epoch_changes,
    outcome_grid,
    retention_and_gain,
    solved_before_failing_now,
    task_states,
)
from memrl_core.environments.tasks import sample_tasks
from memrl_core.figures.palette import ARMS, FORGOTTEN, KEPT, NEVER_SOLVED, NEWLY_SOLVED, RECOVERED, STATE_PATTERNS
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.stability import (
    STATES,
    Arm,
    Stream,
    changes_picture,
    curves_picture,
    grid_picture,
    moving_accuracy_picture,
    retention_gain_picture,
)
from tests.builders import an_agent, numbers

NAN = float("nan")
HOSTILE = "<b onclick=hacked()>x</b>%{y}</script>"

# Four tasks in three epochs: 0 is kept, 1 is lost and won back, 2 is lost, 3 is never solved.
GRID = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0]], dtype=np.float64)
UNFINISHED = np.vstack([GRID, [1, 0, NAN, NAN]])
OTHER = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]], dtype=np.float64)

grids = arrays(
    np.float64,
    st.tuples(st.integers(1, 5), st.integers(1, 6)),
    elements=st.sampled_from([0.0, 1.0, NAN]),
)


def wilson(solved: int, n: int) -> tuple[float, float]:
    """The interval written out (Wilson 1927), on its own."""
    z = norm.ppf(0.975)
    middle = (solved + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * np.sqrt(solved * (n - solved) / n + z * z / 4)
    return middle - half, middle + half


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
        assert (accuracy - down, accuracy + up) == pytest.approx(wilson(round(accuracy * 4), 4))


def test_an_unfinished_epoch_is_hollow_counts_its_tasks_and_stays_out_of_gap_and_title() -> None:
    picture = curves_picture([Arm("memrl", UNFINISHED)])
    (line,) = named(picture, "accuracy")
    assert list(line.marker.symbol) == ["circle", "circle", "circle", "circle-open"]
    assert line.y[-1] == 0.5
    assert list(picture.table["tasks"]) == ["4 of 4 tasks"] * 3 + ["2 of 4 tasks"]
    assert max(named(picture, "solved before")[0].x) == 3
    assert numbers(picture.title) == ["3", "1", "4", "75", "50"]


def test_a_first_epoch_that_still_runs_is_told_with_its_count() -> None:
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
    assert numbers(picture.title)[:3] == ["3", "1", "4"] and numbers(picture.title.split("; rag")[1])[:3] == [
        "3",
        "0",
        "4",
    ]


def test_a_baseline_is_a_line_in_every_panel_and_a_column() -> None:
    baseline = ("no memory", np.array([0.2, 0.3]))
    picture = curves_picture([Arm("memrl", GRID), Arm("rag", OTHER)], baseline)
    lines = named(picture, "no memory")
    assert [line.xaxis for line in lines] == ["x", "x2"]
    for line in lines:
        assert (list(line.x), list(line.y)) == ([1, 2], [0.2, 0.3])
    assert same(picture.table["baseline: no memory"], [0.2, 0.3, NAN] * 2)


@pytest.mark.parametrize("make", [curves_picture, changes_picture])
def test_shifts_are_marked_in_the_panel_of_their_arm(make: Callable[[list[Arm]], Picture]) -> None:
    shapes = make([Arm("memrl", GRID, (1.5,)), Arm("rag", OTHER, (2, 2.25))]).figure.layout.shapes
    assert [(shape.xref, shape.x0, shape.x1) for shape in shapes] == [("x", 1.5, 1.5), ("x2", 2, 2), ("x2", 2.25, 2.25)]


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
    assert same(band.y[:3], [wilson(1, 1)[1], wilson(1, 2)[1], wilson(1, 2)[1]])
    assert same(band.y[3:], [wilson(1, 2)[0], wilson(1, 2)[0], wilson(1, 1)[0]])
    assert same(line.y, [NAN, 1, 0.5, 0.5])


def test_the_moving_title_tells_each_arms_last_window() -> None:
    arms = [Stream("memrl", np.array([0.0, 1, 1]), (2,)), Stream("rag", np.array([1.0, 0]), (2,))]
    picture = moving_accuracy_picture(arms, 2)
    assert numbers(picture.title) == ["2", "2", "95", "34", "100", "1", "2", "95", "9", "91"]
    assert [shape.x0 for shape in picture.figure.layout.shapes] == [2]
    assert [line.line.dash for line in picture.figure.data[1::2]] == ["solid", "dash"]


# --- what became of the tasks -----------------------------------------------------------------------------------------


@given(grids)
def test_the_bars_of_an_epoch_stack_up_to_its_rated_tasks(success: np.ndarray) -> None:
    picture = changes_picture([Arm("memrl", success)])
    heights = sum(values(bar.y) for bar in picture.figure.data)
    assert same(heights, (~np.isnan(success)).sum(axis=1))
    assert picture.figure.layout.barmode == "stack"
    solved = sum(values(named(picture, name)[0].y) for name in ("kept", "recovered", "newly solved"))
    assert same(solved, (success == 1).sum(axis=1))


def test_bars_and_table_are_the_counted_changes() -> None:
    picture = changes_picture([Arm("memrl", UNFINISHED), Arm("rag", OTHER)])
    for name, field in (
        ("newly solved", "newly_solved"), ("kept", "kept"), ("forgotten", "forgotten"), ("recovered", "recovered"),
        ("never solved", "never"),
    ):  # fmt: skip
        bars = named(picture, name)
        for bar, success in zip(bars, (UNFINISHED, OTHER), strict=True):
            assert list(bar.y) == list(getattr(epoch_changes(success), field))
        assert list(picture.table[name]) == [*bars[0].y, *bars[1].y]
        assert list(bars[0].marker.opacity) == [1, 1, 1, 0.5]
    assert numbers(picture.title) == ["3", "1", "1", "0", "1", "1", "3", "1", "0", "1", "0", "2"]


def test_five_states_have_five_colours_five_hatchings_and_five_marks() -> None:
    colours = {NEWLY_SOLVED, KEPT, FORGOTTEN, RECOVERED, NEVER_SOLVED}
    assert {colour for _, colour, _ in STATES.values()} == colours
    assert len({STATE_PATTERNS[colour] for colour in colours}) == 5
    assert len({mark for _, _, mark in STATES.values()}) == 5
    bars = changes_picture([Arm("memrl", GRID)]).figure.data
    assert {(bar.marker.color, bar.marker.pattern.shape) for bar in bars} == set(STATE_PATTERNS.items())


def test_the_grid_has_the_state_of_every_task_with_the_first_solved_on_top() -> None:
    picture = grid_picture(Arm("memrl", UNFINISHED, tasks=("late", "b", "c", "never")))
    (heatmap,) = picture.figure.data
    assert [row[0] for row in heatmap.hovertext] == ["late", "b", "c", "never"]
    order = list(STATES)
    states = task_states(UNFINISHED).T
    for codes, row in zip(heatmap.z, states, strict=True):
        for code, state in zip(codes, row, strict=True):
            assert (np.isnan(code) and state == TaskState.NOT_ATTEMPTED) or order[int(code)] == state
    assert list(picture.table["epoch 3"]) == ["kept", "recovered", "forgotten", "never solved"]
    assert list(picture.table["epoch 4"]) == ["kept", "forgotten", "not attempted", "not attempted"]
    assert numbers(picture.title) == ["3", "4", "2", "1"]


def test_tasks_are_sorted_by_their_first_success_and_else_stay_in_order() -> None:
    success = np.array([[0, 0, 1, 0, 1], [0, 1, 0, 0, 1], [1, 1, 1, 0, 0]], dtype=np.float64)
    table = grid_picture(Arm("memrl", success)).table
    assert list(table["task"]) == ["task 3", "task 5", "task 2", "task 1", "task 4"]


def test_the_grids_colours_are_discrete_and_its_legend_names_them() -> None:
    (heatmap,) = grid_picture(Arm("memrl", GRID)).figure.data
    for code, (name, colour, mark) in enumerate(STATES.values()):
        at = (code + 0.5) / len(STATES)
        assert {stop[1] for stop in heatmap.colorscale if abs(stop[0] - at) <= 0.1 + 1e-9} >= {colour}
        inside = [(low, high) for low, high in zip(heatmap.colorscale[::2], heatmap.colorscale[1::2], strict=True)]
        assert inside[code][0][1] == inside[code][1][1] == colour
        assert heatmap.colorbar.ticktext[code] == f"{mark} {name}".strip()
    assert (heatmap.zmin, heatmap.zmax) == (-0.5, 4.5)


# --- retention and gain -----------------------------------------------------------------------------------------------


@given(grids)
def test_the_trail_is_the_metric_where_both_shares_are_defined(success: np.ndarray) -> None:
    picture = retention_gain_picture([Arm("memrl", success)])
    shares = retention_and_gain(success)
    (trail,) = picture.figure.data
    assert same(np.stack([trail.x, trail.y], axis=1), shares[~np.isnan(shares).any(axis=1)].reshape(-1, 2))
    assert same(picture.table[["retention", "gain"]], shares)


def test_the_last_point_is_a_star_and_alone_has_intervals() -> None:
    picture = retention_gain_picture([Arm("memrl", GRID), Arm("rag", OTHER)])
    trail, other = picture.figure.data
    assert list(trail.marker.symbol) == ["circle", "star"]
    assert (list(trail.x), list(trail.y)) == ([0.5, 0.5], [0.5, 0.5])
    for bars in (trail.error_x, trail.error_y):
        assert np.isnan(bars.array[0]) and np.isnan(bars.arrayminus[0])
        assert (0.5 - bars.arrayminus[1], 0.5 + bars.array[1]) == pytest.approx(wilson(1, 2))
    assert (list(other.x), other.y) == ([1.0], pytest.approx([1 / 3]))
    assert 1 - other.error_x.arrayminus[0] == pytest.approx(wilson(1, 1)[0])
    assert 1 / 3 + other.error_y.array[0] == pytest.approx(wilson(1, 3)[1])
    assert trail.line.dash != other.line.dash
    for axis in (picture.figure.layout.xaxis, picture.figure.layout.yaxis):
        assert axis.range[0] <= 0 and axis.range[1] >= 1
    assert numbers(picture.title) == ["3", "50", "50", "3", "100", "33"]


def test_the_trail_of_an_unfinished_epoch_ends_hollow_and_says_its_count() -> None:
    success = np.vstack([GRID, [1, NAN, 1, NAN]])
    picture = retention_gain_picture([Arm("memrl", success)])
    assert picture.figure.data[0].marker.symbol[-1] == "star-open"
    assert numbers(picture.title)[:4] == ["4", "2", "4", "100"]


# --- all of them ------------------------------------------------------------------------------------------------------


def all_pictures(arm: Arm) -> list[Picture]:
    stream = Stream(arm.name, arm.success.ravel())
    return [
        curves_picture([arm], (arm.name, np.array([0.5]))),
        moving_accuracy_picture([stream], 3),
        changes_picture([arm]),
        grid_picture(arm),
        retention_gain_picture([arm]),
    ]


@pytest.mark.parametrize("success", [np.zeros((0, 3)), np.full((1, 3), NAN)], ids=["nothing begun", "nothing rated"])
def test_before_the_first_rated_task_every_picture_says_so(success: np.ndarray) -> None:
    curves, moving, changes, grid, trail = (picture.title for picture in all_pictures(Arm("memrl", success)))
    assert curves.startswith("memrl: no rated")
    assert changes.startswith("memrl: no rated")
    assert moving.startswith("No rated step")
    assert numbers(grid)[:2] == ["0", "3"]
    assert trail.endswith("and gain yet")


def test_every_picture_can_be_sent_has_words_and_stands_on_any_background() -> None:
    for picture in all_pictures(Arm("memrl", UNFINISHED, (2.5,))):
        drawn = json.loads(picture.figure.to_json())
        assert drawn["layout"]["paper_bgcolor"] == drawn["layout"]["plot_bgcolor"] == "rgba(0,0,0,0)"
        assert picture.title in picture.alt
        assert len(picture.table) > 0


def test_names_from_outside_cannot_become_markup() -> None:
    for picture in all_pictures(Arm(HOSTILE, GRID, tasks=(HOSTILE, "b", "c", "d"))):
        drawn = json.loads(picture.figure.to_json())
        text = json.dumps([drawn["data"], drawn["layout"].get("annotations", [])], ensure_ascii=False)
        assert "<b onclick" not in text and "</script" not in text
        assert not any(HOSTILE[-10:] in (trace.hovertemplate or "") for trace in picture.figure.data)


def test_a_real_run_is_drawn_as_it_ended(tmp_path: Any) -> None:
    agent = an_agent(tmp_path / "bank")
    list(agent.run(sample_tasks("household-train")[:8], epochs=3))
    rows = agent.bank.step_rows("r")
    grid = outcome_grid((row.task, row.epoch, row.outcome) for row in rows)
    arm = Arm("memrl", grid.success, tasks=grid.tasks)
    last = [row.outcome == "success" for row in rows if row.epoch == 3]
    assert curves_picture([arm]).table["accuracy"].iloc[-1] == pytest.approx(np.mean(last))
    stream = Stream("memrl", np.array([row.outcome == "success" for row in rows], dtype=np.float64))
    assert moving_accuracy_picture([stream], 8).table["solved"].iloc[-1] == sum(last)
    assert set(grid_picture(arm).table["task"]) == set(grid.tasks)
