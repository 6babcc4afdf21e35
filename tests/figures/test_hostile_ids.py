"""Ids of memories come from files, too: no figure takes anything in them for markup."""

from __future__ import annotations

import json
from dataclasses import replace

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.figures.map.map_points import map_points
from memrl_core.figures.map.memory_map import MapScene, map_picture
from memrl_core.figures.map.point_cloud import cloud_marks, point_cloud
from tests.figures.test_point_cloud import a_scene

EVIL = "<a href='https://other.example'>x</a> <b>y</b> %{customdata[0]} <extra>z</extra>"
MARKS = ("<a href", "</a>", "<b>y", "%{customdata[0]} ", "<extra>z")


def hostile(count: int) -> MapScene:
    plain = a_scene(count)
    names = {memory_id: f"{EVIL} {memory_id}" for memory_id in plain.places}
    renamed = {
        field: {names[memory_id]: known for memory_id, known in getattr(plain, field).items()}
        for field in ("places", "memories", "utilities")
    }
    ids = list(names.values())
    return replace(plain, **renamed, pool=ids[:3], selected=ids[1:2], moved={ids[2]: 0.5})


def shown(scene: MapScene) -> list[str]:
    """What is drawn of each trace; its ids, which a click tells, are not."""
    drawn = []
    for trace in map_picture(scene, labels="all").figure.data:
        cards = [list(card)[1:] for card in trace.customdata] if trace.customdata is not None else []
        drawn.append(json.dumps([trace.name, list(trace.text or ()), cards], ensure_ascii=False))
    return drawn


def test_no_id_becomes_markup_on_a_map() -> None:
    drawn = " ".join(shown(hostile(20)))
    assert "other.example" in drawn
    assert not [mark for mark in MARKS if mark in drawn]


def test_the_names_of_a_large_map_are_lines_of_text_and_its_marks_have_no_markup() -> None:
    scene = hostile(1200)
    evil = {i: replace(memory, intent="<b>x</b>\n\u202e" + "y" * 100) for i, memory in scene.memories.items()}
    scene = replace(scene, memories=evil)
    cloud = point_cloud(scene, map_points(scene))
    # As they were written: the hint at the mouse shows them as text.
    assert cloud.packed()["intents"] == ["<b>x</b> " + "y" * 50 + "…"]
    # Read back: the text escapes what it holds.
    marks = json.dumps(json.loads(cloud_marks(scene, cloud).to_json()), ensure_ascii=False)
    assert "other.example" in marks
    assert not [mark for mark in MARKS if mark in marks]


def test_a_foreign_id_is_read_as_it_was_written() -> None:
    assert memory_label(EVIL, "r").replace("\u2060", "") == EVIL
