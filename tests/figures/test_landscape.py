"""q over time on the map: its frames are what the bank says, side by side, and light enough to send."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memrl_core.agent import Agent
from memrl_core.analysis.memory.relations import Landscape, landscape
from memrl_core.figures.memory.landscape import landscape_picture
from memrl_core.figures.palette import q_colorscale, q_range
from tests.builders import a_bank, a_step, an_agent_after, numbers
from tests.small_banks import give_reward

SETTINGS = {"reward_failure": -1.0, "reward_success": 1.0}
STEPS = 12


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    return an_agent_after(tmp_path_factory.mktemp("landscape") / "bank", STEPS // 2, epochs=2)


def of_intents(agent: Agent) -> dict[str, tuple[float, float]]:
    intents = dict.fromkeys(memory.intent for memory in agent.bank.memories())
    return {intent: (float(n), float(-n)) for n, intent in enumerate(intents)}


def made_up(memories: int = 4, frames: int = 3, seed: int = 0) -> Landscape:
    """q goes through the whole range; every frame has more memories than the one before."""
    rng = np.random.default_rng(seed)
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


def drawn(data: Any, panel: int = 0) -> dict[int, tuple[str, float]]:
    """Which points a panel shows, with symbol and colour."""
    symbols = ("circle", "triangle-up", "triangle-down")
    return {
        int(point): (symbol, float(trace.marker.color[point]))
        for symbol, trace in zip(symbols, data[5 * panel : 5 * panel + 3], strict=True)
        for point in np.flatnonzero(~np.isnan(trace.y))
    }


# --- the data ---------------------------------------------------------------------------------------------------------


def test_every_frame_is_the_bank_as_of_its_step(lived: Agent) -> None:
    places = of_intents(lived)
    found = landscape(lived.bank, "r", places)
    assert list(found.steps) == list(range(STEPS + 1))
    for step, q, visits in zip(found.steps, found.q, found.visits, strict=True):
        known = lived.bank.utilities("r", step)
        assert {i: (value, n) for i, value, n in zip(found.ids, q, visits, strict=True) if not np.isnan(value)} == {
            memory_id: (utility.q, utility.visits) for memory_id, utility in known.items()
        }
    assert [tuple(at) for at in found.positions] == [places[lived.bank.memory(i).intent] for i in found.ids]


def test_a_reward_that_came_late_counts_only_from_when_it_was_known(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    for step in range(1, 6):
        trace, vectors = a_step(step, credited=("r-0001",) if step > 1 else ())
        bank.write.commit_step(trace, vectors)
        if step == 4:
            give_reward(bank, "r", 2, bank.trace("r", 2).id, ["r-0001"], -1.0, "a rater")
    found = landscape(bank, "r", dict.fromkeys((memory.intent for memory in bank.memories()), (0.0, 0.0)))
    first = found.q[:, found.ids.index("r-0001")]
    expected = [bank.utilities("r", step)["r-0001"].q for step in range(1, 6)]
    assert np.isnan(first[0])
    assert list(first[1:]) == expected
    assert expected[3] < expected[2]


@pytest.mark.parametrize(("frames", "until"), [(1, None), (2, None), (5, None), (7, None), (1, 5), (3, 5)])
def test_frames_are_chosen_evenly_up_to_the_step_that_is_asked(lived: Agent, frames: int, until: int | None) -> None:
    every = landscape(lived.bank, "r", of_intents(lived))
    some = landscape(lived.bank, "r", of_intents(lived), frames, until)
    last = STEPS if until is None else until
    assert len(some.steps) == frames and some.steps[-1] == last
    assert frames == 1 or some.steps[0] == 0
    assert np.ptp(np.diff(some.steps)) <= 1 if frames > 2 else True
    columns = [every.ids.index(memory_id) for memory_id in some.ids]
    assert np.array_equal(some.q, every.q[list(some.steps)][:, columns], equal_nan=True)


def test_a_memory_without_a_place_is_left_out_and_a_run_without_steps_has_an_empty_map(
    lived: Agent, tmp_path: Path
) -> None:
    places = of_intents(lived)
    gone = lived.bank.memory("r-0001").intent
    del places[gone]
    found = landscape(lived.bank, "r", places)
    assert {lived.bank.memory(i).intent for i in found.ids} == set(places)
    empty = landscape_picture([("r", landscape(a_bank(tmp_path / "bank"), "r", {}))], SETTINGS)
    assert empty.table.empty and not empty.figure.frames


# --- the figure -------------------------------------------------------------------------------------------------------


def test_both_sides_show_the_memories_that_are_there_with_q_as_colour_and_its_sign_as_shape() -> None:
    scenes = made_up(30, 6), made_up(20, 6, seed=1)
    figure = landscape_picture([("left", scenes[0]), ("right", scenes[1])], SETTINGS).figure
    assert [frame.name for frame in figure.frames] == [str(step) for step in scenes[0].steps]
    for panel, scene in enumerate(scenes):
        for frame, q, visits in zip(figure.frames, scene.q, scene.visits, strict=True):
            points = drawn(frame.data, panel)
            assert set(points) == set(np.flatnonzero(~np.isnan(q)))
            for point, (symbol, colour) in points.items():
                sign = np.sign(q[point]) * (visits[point] > 0)
                assert symbol == {1: "triangle-up", -1: "triangle-down", 0: "circle"}[sign]
                assert colour == pytest.approx(q[point], abs=5e-4)
        assert drawn(figure.data, panel) == drawn(figure.frames[-1].data, panel)
    left, right = figure.layout.xaxis, figure.layout.xaxis2
    assert left.domain[1] < right.domain[0] and left.range == right.range
    assert figure.layout.sliders[0].active == 5


def test_no_frame_moves_a_point_or_touches_the_scale() -> None:
    scene = made_up()
    figure = landscape_picture([("r", scene)], {"reward_failure": 0.0, "reward_success": 1.0}).figure
    axis = figure.layout.coloraxis
    assert (axis.cmin, axis.cmax) == q_range({"reward_failure": 0.0, "reward_success": 1.0})[::2]
    assert [list(stop) for stop in axis.colorscale] == q_colorscale()
    for frame in figure.frames:
        assert frame.layout.to_plotly_json() == {}
        for trace in frame.data[:3]:
            assert set(trace.to_plotly_json()) == {"type", "y", "marker"}
            there = ~np.isnan(trace.y)
            assert np.allclose(trace.y[there], scene.positions[there, 1])
    assert {trace.type for trace in (*figure.data, *figure.frames[0].data)} == {"scatter"}
    for control in (*figure.layout.updatemenus[0].buttons, *figure.layout.sliders[0].steps):
        assert control.args[1]["transition"] == {"duration": 0}
        assert control.args[1]["frame"]["redraw"] is False


def test_every_frame_tells_its_own_step_counts_its_memories_and_marks_the_shift() -> None:
    scene = made_up(memories=30, frames=6)
    figure = landscape_picture([("memrl", scene)], SETTINGS, shifts=(25,)).figure
    for frame, step, q, visits in zip(figure.frames, scene.steps, scene.q, scene.visits, strict=True):
        used = ~np.isnan(q) & (visits > 0)
        border, words = frame.data[3].y, frame.data[4].text[0]
        shifted = step >= 25
        assert border[0] == (0 if shifted else None)
        signs = [(used & (q > 0)).sum(), 0, (used & (q < 0)).sum()]
        counts = [step, *([25] if shifted else []), (~np.isnan(q)).sum(), *signs]
        assert [int(number) for number in numbers(words)] == counts


def test_one_moment_has_neither_slider_nor_frames() -> None:
    figure = landscape_picture([("memrl", made_up(frames=1))], SETTINGS).figure
    assert not figure.frames and not figure.layout.sliders and drawn(figure.data)


def test_the_table_has_every_frame_of_both_sides() -> None:
    scenes = made_up(), made_up(seed=1)
    table = landscape_picture([("a", scenes[0]), ("b", scenes[1])], SETTINGS).table
    assert list(table["arm"]) == ["a"] * 4 + ["b"] * 4
    for step, *q in zip(scenes[0].steps, scenes[0].q, scenes[1].q, strict=True):
        assert np.array_equal(table[f"q after step {step}"], np.concatenate(q), equal_nan=True)


def test_a_thousand_memories_in_sixty_frames_stay_below_three_megabytes() -> None:
    text = landscape_picture([("memrl", made_up(memories=1000, frames=60))], SETTINGS).figure.to_json()
    assert len(text.encode()) < 3_000_000
    assert len(json.loads(text)["frames"]) == 60
