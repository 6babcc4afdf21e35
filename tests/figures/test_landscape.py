"""The q landscape over time: its frames are what the bank says, and light enough to send."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memrl_core.agent import Agent
from memrl_core.analysis.map.map_layout import MapLayout
from memrl_core.analysis.memory.neighbourhoods import Landscape, landscape
from memrl_core.environments.tasks import sample_tasks
from memrl_core.figures.memory.landscape import landscape_picture
from memrl_core.figures.palette import q_colorscale, q_range, q_symbol
from tests.builders import a_bank, a_step, an_agent

SETTINGS = {"reward_failure": -1.0, "reward_success": 1.0}
STEPS = 12


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    agent = an_agent(tmp_path_factory.mktemp("landscape") / "bank")
    list(agent.run(sample_tasks("household-train")[: STEPS // 2], epochs=2))
    return agent


def flat(agent: Agent) -> Mapping[str, tuple[float, float]]:
    return {memory_id: (float(n), float(-n)) for n, memory_id in enumerate(agent.bank.memory_ids())}


def made_up(memories: int = 4, frames: int = 3) -> Landscape:
    """q goes through the whole range; every frame has more memories than the one before."""
    rng = np.random.default_rng(0)
    q = rng.uniform(-1, 1, (frames, memories)).round(1)
    visits = rng.integers(0, 3, (frames, memories))
    for frame in range(frames):
        q[frame, memories * (frame + 1) // frames :] = np.nan
    return Landscape(
        ids=[f"run-abcd-{n:04d}" for n in range(1, memories + 1)],
        labels=[f"#{n}" for n in range(1, memories + 1)],
        positions=rng.normal(size=(memories, 2)),
        steps=[10 * frame for frame in range(frames)],
        q=q,
        visits=visits,
    )


def drawn(frame: Any) -> dict[int, tuple[str, float]]:
    """Which points a frame shows, with symbol and colour."""
    symbols = ("circle", "triangle-up", "triangle-down")
    return {
        int(point): (symbol, float(trace.marker.color[point]))
        for symbol, trace in zip(symbols, frame.data[:3], strict=True)
        for point in np.flatnonzero(~np.isnan(trace.y))
    }


# --- the data ---------------------------------------------------------------------------------------------------------


def test_every_frame_is_the_bank_as_of_its_step(lived: Agent) -> None:
    found = landscape(lived.bank, "r", flat(lived))
    assert list(found.steps) == list(range(STEPS + 1))
    for step, q, visits in zip(found.steps, found.q, found.visits, strict=True):
        known = lived.bank.utilities("r", step)
        assert {i: (value, n) for i, value, n in zip(found.ids, q, visits, strict=True) if not np.isnan(value)} == {
            memory_id: (utility.q, utility.visits) for memory_id, utility in known.items()
        }
        view = lived.bank.as_of("r", step)
        assert view.size == (~np.isnan(q)).sum()
    assert found.visits[-1].sum() > 0


def test_a_reward_that_came_late_counts_only_from_when_it_was_known(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    for step in range(1, 6):
        trace, vectors = a_step(step, credited=("r-0001",) if step > 1 else ())
        bank.commit_step(trace, vectors)
        if step == 4:
            bank.give_reward("r", 2, bank.trace("r", 2).id, ["r-0001"], -1.0, "a rater")
    found = landscape(bank, "r", dict.fromkeys(bank.memory_ids(), (0.0, 0.0)))
    first = found.q[:, found.ids.index("r-0001")]
    expected = [bank.utilities("r", step)["r-0001"].q for step in range(1, 6)]
    assert np.isnan(first[0])
    assert list(first[1:]) == expected
    assert expected[3] < expected[2]


@pytest.mark.parametrize("frames", [2, 5, 7])
def test_frames_are_chosen_evenly_with_the_first_and_the_last(lived: Agent, frames: int) -> None:
    every, some = (landscape(lived.bank, "r", flat(lived), frames=count) for count in (60, frames))
    assert len(some.steps) == frames
    assert (some.steps[0], some.steps[-1]) == (0, STEPS)
    gaps = np.diff(some.steps)
    assert gaps.max() - gaps.min() <= 1
    assert np.array_equal(some.q, every.q[list(some.steps)], equal_nan=True)
    assert np.array_equal(some.visits, every.visits[list(some.steps)])


def test_positions_are_those_of_the_banks_frozen_map(lived: Agent) -> None:
    layout = MapLayout(lived.bank)
    places = layout.places()
    found = landscape(lived.bank, "r", places)
    assert [tuple(at) for at in found.positions] == [places[memory_id] for memory_id in found.ids]
    layout.close()


def test_a_memory_without_a_place_is_left_out(lived: Agent) -> None:
    places = dict(flat(lived))
    places.pop("r-0001")
    found = landscape(lived.bank, "r", places)
    assert set(found.ids) == set(lived.bank.utilities("r")) - {"r-0001"}


def test_a_run_without_steps_has_an_empty_map(tmp_path: Path) -> None:
    found = landscape(a_bank(tmp_path / "bank"), "r", {})
    picture = landscape_picture(found, SETTINGS)
    assert picture.title.startswith("No memories yet")
    assert [frame.name for frame in picture.figure.frames] == ["0"]
    assert picture.table.empty


# --- the figure -------------------------------------------------------------------------------------------------------


def test_a_frame_shows_the_memories_that_are_there_with_q_as_colour_and_its_sign_as_shape() -> None:
    scene = made_up(memories=30, frames=6)
    figure = landscape_picture(scene, SETTINGS).figure
    assert [frame.name for frame in figure.frames] == [str(step) for step in scene.steps]
    for frame, q, visits in zip(figure.frames, scene.q, scene.visits, strict=True):
        points = drawn(frame)
        assert set(points) == set(np.flatnonzero(~np.isnan(q)))
        for point, (symbol, colour) in points.items():
            assert symbol == q_symbol(q[point], 0.0, int(visits[point]))
            assert colour == pytest.approx(q[point], abs=5e-4)


def test_the_picture_opens_at_the_last_frame_with_the_slider_there() -> None:
    figure = landscape_picture(made_up(), SETTINGS).figure
    assert drawn(figure) == drawn(figure.frames[-1])
    assert figure.layout.sliders[0].active == len(figure.frames) - 1
    assert [trace.marker.symbol for trace in figure.data[:3]] == ["circle", "triangle-up", "triangle-down"]


def test_no_frame_moves_a_point_or_touches_the_scale() -> None:
    scene = made_up()
    figure = landscape_picture(scene, {"reward_failure": 0.0, "reward_success": 1.0}).figure
    axis = figure.layout.coloraxis
    assert (axis.cmin, axis.cmax) == q_range({"reward_failure": 0.0, "reward_success": 1.0})[::2]
    assert [list(stop) for stop in axis.colorscale] == q_colorscale()
    for frame in figure.frames:
        assert frame.layout.to_plotly_json() == {}
        for trace in frame.data[:3]:
            assert set(trace.to_plotly_json()) == {"type", "y", "marker"}
            assert set(trace.marker.to_plotly_json()) == {"color"}
            there = ~np.isnan(trace.y)
            assert np.allclose(trace.y[there], scene.positions[there, 1])
    for trace in figure.data[:3]:
        assert list(trace.x) == list(scene.positions[:, 0])
    for axis, column in ((figure.layout.xaxis, 0), (figure.layout.yaxis, 1)):
        assert axis.range[0] < scene.positions[:, column].min() < scene.positions[:, column].max() < axis.range[1]


@pytest.mark.parametrize("memories", [4, 3001])
def test_buttons_and_slider_play_svg_points_without_transition_or_redraw(memories: int) -> None:
    figure = landscape_picture(made_up(memories), SETTINGS).figure
    assert {trace.type for trace in (*figure.data, *figure.frames[0].data)} == {"scatter"}
    play, pause = figure.layout.updatemenus[0].buttons
    steps = figure.layout.sliders[0].steps
    assert [list(step.args[0]) for step in steps] == [[frame.name] for frame in figure.frames]
    assert (play.args[0], list(pause.args[0])) == (None, [None])
    for control in (play, pause, *steps):
        assert control.method == "animate"
        assert control.args[1]["transition"] == {"duration": 0}
        assert control.args[1]["frame"]["redraw"] is False


def test_a_click_on_a_point_says_which_memory_it_is() -> None:
    scene = made_up()
    for trace in landscape_picture(scene, SETTINGS).figure.data[:3]:
        assert [card[0] for card in trace.customdata] == list(scene.ids)


def test_every_frame_says_which_step_it_shows_and_counts_its_own_memories() -> None:
    scene = made_up(memories=30, frames=6)
    figure = landscape_picture(scene, SETTINGS).figure
    for frame, step, q, visits in zip(figure.frames, scene.steps, scene.q, scene.visits, strict=True):
        used = ~np.isnan(q) & (visits > 0)
        counts = [
            step,
            (used & (q > 0)).sum(),
            (~np.isnan(q)).sum(),
            (used & (q < 0)).sum(),
            (~used & ~np.isnan(q)).sum(),
        ]
        (message,) = frame.data[3].text
        assert [
            int(n) for n in re.findall(r"step (\d+).* for (\d+) of (\d+) .* for (\d+); (\d+) were", message)[0]
        ] == counts
        assert list(frame.traces) == [0, 1, 2, 3]
    assert figure.data[3].text == figure.frames[-1].data[3].text


def test_the_title_counts_the_last_frame(lived: Agent) -> None:
    found = landscape(lived.bank, "r", flat(lived))
    picture = landscape_picture(found, SETTINGS)
    known = lived.bank.utilities("r", STEPS).values()
    up, down = (sum(u.visits > 0 and sign * u.q > 0 for u in known) for sign in (1, -1))
    never = sum(u.visits == 0 for u in known)
    assert picture.title == (
        f"In the end, after step {STEPS}, q is above 0 for {up} of {len(known)} memories and below for {down}; "
        f"{never} were never updated"
    )
    assert picture.title in picture.alt


def test_the_table_has_every_frame() -> None:
    scene = made_up()
    table = landscape_picture(scene, SETTINGS).table
    assert list(table["memory"]) == list(scene.labels)
    for step, q in zip(scene.steps, scene.q, strict=True):
        assert np.array_equal(table[f"q after step {step}"], q, equal_nan=True)


def test_a_thousand_memories_in_sixty_frames_stay_below_three_megabytes() -> None:
    text = landscape_picture(made_up(memories=1000, frames=60), SETTINGS).figure.to_json()
    assert len(text.encode()) < 3_000_000
    assert len(json.loads(text)["frames"]) == 60
