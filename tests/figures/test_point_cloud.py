"""The points of a large map: what is sent once, and what a step changes in it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memrl_core.figures.map import memory_map
from memrl_core.figures.map import point_cloud as cloud_module
from memrl_core.figures.map.map_points import map_points
from memrl_core.figures.map.memory_map import ColourBy, MapScene, left_out_when_lifted, map_picture
from memrl_core.figures.map.point_cloud import CHANGED_AT_MOST, NO_SHADE, PointCloud, cloud_marks
from memrl_core.figures.map.point_cloud import point_cloud as coloured
from memrl_core.records import Memory, Utility
from memrl_core.settings import MemRLSettings

COUNT = 1200


def a_scene(count: int = COUNT) -> MapScene:
    ids = [f"m-{number:04d}" for number in range(count)]
    return MapScene(
        run="r",
        layout_id="layout-1",
        places={memory_id: (float(number), -float(number % 7)) for number, memory_id in enumerate(ids)},
        memories={i: Memory(i, "cool the egg", "open the fridge", "success", "t", (), "r", 1, "t", "") for i in ids},
        utilities={memory_id: Utility((number % 21) / 10 - 1, number % 3) for number, memory_id in enumerate(ids)},
        settings=MemRLSettings().model_dump(),
        pool=ids[:3],
        selected=ids[1:2],
    )


def point_cloud(scene: MapScene, colour: ColourBy = "q") -> PointCloud:
    return coloured(scene, map_points(scene), colour)


def patched(sent: PointCloud, changes: dict[str, list[float]]) -> dict[str, np.ndarray]:
    """What the browser has after it applied the changes to what was sent."""
    columns = {
        "x": sent.places[:, 0],
        "y": sent.places[:, 1],
        "q": sent.q,
        "visits": sent.visits,
        "shades": sent.shades,
    }
    size = max([len(sent.ids), *(row + 1 for row in changes["rows"])])
    made = {}
    for name, column in columns.items():
        grown = np.zeros(size, dtype=column.dtype)
        grown[: len(column)] = column
        grown[changes["rows"]] = changes[name]
        made[name] = grown
    return made


def test_what_a_step_changes_and_adds_is_all_that_is_sent() -> None:
    before = a_scene()
    after = replace(
        a_scene(COUNT + 1),
        utilities={**a_scene(COUNT + 1).utilities, "m-0003": Utility(0.9, 4), "m-0007": Utility(-1, 9)},
    )
    sent, now = point_cloud(before), point_cloud(after)
    changes = now.since(sent)
    assert changes is not None
    assert changes["rows"] == [3, 7, COUNT]
    shown = patched(sent, changes)
    assert np.array_equal(shown["x"], now.places[:, 0])
    assert np.array_equal(shown["q"], now.q)
    assert np.array_equal(shown["shades"], now.shades)
    assert changes["added"] == [[f"m-{COUNT}", "cool the egg"]]


@pytest.mark.parametrize("change", ["forgotten", "everything moved", "another middle"])
def test_a_cloud_that_differs_too_much_is_sent_anew(change: str) -> None:
    scene = a_scene()
    sent = point_cloud(scene)
    assert COUNT > CHANGED_AT_MOST
    other = {
        "forgotten": a_scene(COUNT - 1),
        "everything moved": replace(scene, places={i: (x + 1, y) for i, (x, y) in scene.places.items()}),
        "another middle": replace(scene, settings={**scene.settings, "reward_failure": 0.0}),
    }[change]
    assert point_cloud(other).since(sent) is None


def test_each_point_has_its_name_and_an_intent_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = point_cloud(a_scene()).packed()
    assert sent["labels"] == [f"m-{number:04d}" for number in range(COUNT)]
    assert sent["intents"] == ["cool the egg"]
    monkeypatch.setattr(cloud_module, "NAMED_POINTS", COUNT - 1)
    assert point_cloud(a_scene()).packed()["labels"] == []


def test_what_is_packed_has_a_name_that_only_the_same_cloud_has() -> None:
    assert point_cloud(a_scene()).packed() == point_cloud(a_scene()).packed()
    other = replace(a_scene(), utilities={**a_scene().utilities, "m-0003": Utility(0.91, 4)})
    assert point_cloud(other).key != point_cloud(a_scene()).key


@pytest.mark.parametrize("count", [COUNT - 2, COUNT, COUNT + 2])
@pytest.mark.parametrize("layout", ["layout-1", "layout-2"])
def test_points_that_go_on_from_others_are_those_made_from_nothing(count: int, layout: str) -> None:
    scene = replace(a_scene(count), layout_id=layout)
    scene = replace(scene, utilities={**a_scene().utilities, **scene.utilities, "m-0005": Utility(0.8, 3)})
    if layout == "layout-2":
        scene = replace(scene, places={i: (y, x) for i, (x, y) in scene.places.items()})
    alone, going_on = map_points(scene), map_points(scene, map_points(a_scene()))
    assert list(going_on.ids) == list(alone.ids) == list(scene.places)
    for name in ("places", "q", "visits"):
        assert np.array_equal(getattr(going_on, name), getattr(alone, name))


def test_a_guessed_place_is_not_kept() -> None:
    guessed = replace(a_scene(), provisional=frozenset({"m-0003"}))
    sure = replace(a_scene(), places={**a_scene().places, "m-0003": (5.0, 5.0)})
    assert map_points(sure, map_points(guessed)).places[3].tolist() == [5, 5]


def test_a_memory_that_the_colour_has_nothing_for_gets_no_shade() -> None:
    cloud = point_cloud(replace(a_scene(), similarities={"m-0000": 1.0, "m-0001": 0.0}), "similarity")
    assert cloud.shades[:3].tolist() == [63, 0, NO_SHADE]


def test_the_marks_lie_over_axes_that_show_every_point() -> None:
    scene = a_scene()
    figure = cloud_marks(scene, point_cloud(scene)).figure()
    x, y = figure.layout.xaxis.range, figure.layout.yaxis.range
    assert x[0] < 0 and x[1] > COUNT - 1
    assert y[0] < -6 and y[1] > 0
    drawn = {trace.name: len(trace.x) for trace in figure.data}
    assert (drawn["memories"], drawn["in the pool"], drawn["given to the model"]) == (1, 2, 1)
    assert figure.layout.uirevision == "layout-1"


def test_three_dimensions_draw_some_and_say_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_map, "LIFTED_POINTS", 100)
    scene = a_scene()
    drawn = map_picture(scene, lifted=True).figure.data[0]
    shown = {card[0] for card in drawn.customdata}
    assert {"m-0000", "m-0001", "m-0002"} <= shown
    assert f"{len(shown)} of 1,200 memories are drawn" in left_out_when_lifted(scene)
    assert len(shown) < 150
    assert left_out_when_lifted(a_scene(50)) == ""
