"""Figures say what the records say: tested on their data, not on pixels."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memrl_core.analysis.decision.moment import Moment, current, memories_of
from memrl_core.environments.tasks import sample_tasks
from memrl_core.figures.decision.recall import recall_picture
from memrl_core.figures.decision.rerank import score_picture, slope_picture
from memrl_core.figures.map.map_points import map_points, pool_far_on_screen
from memrl_core.figures.map.memory_map import MapScene, map_picture
from memrl_core.figures.memory.utility import history_picture, moves_picture
from memrl_core.figures.palette import q_range, q_symbol
from memrl_core.figures.text import plain
from memrl_core.numerals import signed
from memrl_core.records import Decision, Memory, RecallRecord, Utility
from memrl_core.settings import MemRLSettings
from tests.builders import an_agent, numbers

EVIL = "<b>x</b><a href='javascript:alert(1)'>y</a> %{customdata} &lt;i&gt;\n\u202e"


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Moment, dict[str, Memory], Any]:
    """A household run of two epochs, at its end."""
    agent = an_agent(tmp_path_factory.mktemp("figures") / "bank", k1=8, delta=0.0)
    list(agent.run(sample_tasks("household-train")[:16], epochs=2))
    moment = current(agent.bank, "r", None)
    return moment, memories_of(agent.bank, moment), agent.bank


def parts(lived: Any) -> tuple[RecallRecord, Decision, dict[str, Memory]]:
    moment, memories, _ = lived
    return moment.trace.recall, moment.trace.decision, memories


def test_recall_bars_are_the_similarities_with_the_reasons_of_those_left_out(lived: Any) -> None:
    recall, decision, memories = parts(lived)
    picture = recall_picture(recall, decision, memories, "r")
    inside, outside = picture.figure.data
    assert list(inside.x) == [member.similarity for member in recall.pool]
    assert list(outside.x) == [member.similarity for member in recall.left_out]
    assert all(text.endswith("beyond k1") or text.endswith("below δ") for text in outside.text)
    assert list(picture.table["similarity"]) == sorted([*inside.x, *outside.x], reverse=True)
    assert list(picture.table["above δ by"]) == pytest.approx(list(picture.table["similarity"] - recall.delta))
    assert recall.delta in [shape.x0 for shape in picture.figure.layout.shapes]
    assert any("δ = " in note.text for note in picture.figure.layout.annotations)
    assert any("k1 = 8" in note.text for note in picture.figure.layout.annotations)


def test_an_empty_pool_and_an_empty_memory_are_said(lived: Any) -> None:
    recall, decision, memories = parts(lived)
    closed = replace(recall, pool=(), delta=0.999)
    assert numbers(recall_picture(closed, None, memories, "r").title)[:1] == ["0.999"]
    assert recall_picture(replace(closed, left_out=(), memories=0), None, {}, "r").title == "No memories yet"
    nothing = replace(decision, candidates=(), selected=(), greedy=(), mode="fallback")
    assert "empty" in slope_picture(nothing, "r").title
    assert "empty" in score_picture(nothing, memories, "r").title


def test_the_parts_of_each_score_add_up_to_its_dot(lived: Any) -> None:
    _, decision, memories = parts(lived)
    picture = score_picture(decision, memories, "r")
    bars = [trace for trace in picture.figure.data if trace.type == "bar"]
    dots = next(trace for trace in picture.figure.data if trace.name == "score")
    assert len(bars) == 2
    for row, score in enumerate(dots.x):
        assert sum(bar.x[row] for bar in bars) == pytest.approx(score)
    assert list(dots.x) == sorted(dots.x, reverse=True)
    assert [label.startswith("✓") for label in dots.y] == [True] * 3 + [False] * (len(dots.y) - 3)
    assert picture.figure.layout.barmode == "relative"
    assert 2.5 in [shape.y0 for shape in picture.figure.layout.shapes]


def test_a_clipped_part_is_hatched(lived: Any) -> None:
    _, decision, memories = parts(lived)
    first = decision.candidates[0]
    clipped = replace(first, terms=(replace(first.terms[0], clipped=True), *first.terms[1:]))
    figure = score_picture(replace(decision, candidates=(clipped, *decision.candidates[1:])), memories, "r").figure
    assert figure.data[0].marker.pattern.shape[0] == "/"
    assert set(figure.data[0].marker.pattern.shape[1:]) == {""}


def test_slopes_join_both_ranks_and_colour_only_what_crossed_the_cut(lived: Any) -> None:
    _, decision, _ = parts(lived)
    picture = slope_picture(decision, "r")
    ranked = sorted((c for c in decision.candidates if c.rank_select), key=lambda c: c.rank_select or 0)
    assert [tuple(line.y) for line in picture.figure.data] == [(c.rank_recall, c.rank_select) for c in ranked]
    crossed = [c.selected != (c.rank_recall <= decision.k2) for c in ranked]
    grey = picture.figure.data[-1].line.color if not crossed[-1] else "rgba(140,140,150,0.9)"
    assert [line.line.color != grey for line in picture.figure.data] == crossed
    moved = sum(c.rank_select != c.rank_recall for c in ranked)
    assert picture.title.startswith(f"{moved} of {len(ranked)} candidates changed rank")


def test_moves_go_from_before_to_after_on_the_fixed_scale(lived: Any) -> None:
    moment, _, _ = lived
    changes, settings = moment.trace.update.changes, moment.trace.settings
    picture = moves_picture(changes, settings, "r")
    assert [tuple(line.x) for line in picture.figure.data] == [(c.before, c.after) for c in changes]
    assert tuple(picture.figure.layout.xaxis.range) == pytest.approx((-1.1, 1.1))
    assert list(picture.table["Δ"]) == [c.after - c.before for c in changes]


def test_a_history_has_a_mark_for_every_reward(lived: Any) -> None:
    moment, _, bank = lived
    memory_id = max(moment.utilities, key=lambda i: moment.utilities[i].visits)
    points = bank.history("r", memory_id)
    picture = history_picture(points, moment.trace.settings, memory_id, "r")
    marks = [trace for trace in picture.figure.data if trace.mode == "markers"]
    assert sum(len(trace.x) for trace in marks) == len(points)
    assert {trace.marker.symbol for trace in marks} == {"diamond", "circle"}
    assert f"{len(points) - 1} rewards" in picture.title
    alone = history_picture(points[:1], moment.trace.settings, memory_id, "r")
    assert "no reward yet" in alone.title


def a_scene(lived: Any, **changes: Any) -> MapScene:
    moment, memories, _ = lived
    places = {memory_id: (float(n), float(-n)) for n, memory_id in enumerate(moment.utilities)}
    scene = MapScene(
        "r", "layout-1", places, memories, moment.utilities, moment.trace.settings, moment.similarities, (0.5, 0.5),
        moment.pool, moment.selected, moment.moved,
    )  # fmt: skip
    return replace(scene, **changes)


def traces_of(scene: MapScene, **look: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in map_picture(scene, **look).figure.data}


def test_the_map_marks_pool_selection_query_and_what_moved(lived: Any) -> None:
    scene = a_scene(lived)
    drawn = traces_of(scene)
    assert len(drawn["memories"].x) == len(scene.utilities)
    assert len(drawn["in the pool"].x) == len(set(scene.pool) - set(scene.selected))
    assert len(drawn["given to the model"].x) == len(scene.selected)
    assert drawn["given to the model"].marker.line.width > drawn["in the pool"].marker.line.width
    assert (tuple(drawn["this task"].x), drawn["this task"].marker.symbol) == ((0.5,), "star")
    assert list(drawn["q just moved"].text) == [f"#{int(i[2:])} Δq {signed(d)}" for i, d in scene.moved.items()]
    cards = {card[0]: card for card in drawn["memories"].customdata}
    for memory_id, change in scene.moved.items():
        q = scene.utilities[memory_id].q
        assert cards[memory_id][2] == f"{signed(q - change)} → {signed(q)}"


def test_what_was_never_used_covers_nothing_and_a_weak_q_no_strong_one(lived: Any) -> None:
    scene = a_scene(lived)
    believed = (Utility(0.0, 0), Utility(-0.2, 1), Utility(0.9, 0), Utility(-0.8, 1), Utility(0.8, 3), Utility(0.1, 7))
    known = dict(zip(scene.utilities, believed, strict=False))
    drawn = traces_of(replace(scene, utilities=known))["memories"].customdata
    assert [known[card[0]] for card in drawn] == [believed[row] for row in (0, 2, 5, 1, 3, 4)]


def test_what_a_step_marks_changes_neither_the_axes_nor_the_legend(lived: Any) -> None:
    scene = a_scene(lived)
    bare = replace(scene, pool=(), selected=(), moved={}, query=None, focus=None)
    known = list(scene.utilities)
    early = replace(bare, utilities={i: scene.utilities[i] for i in known[:3]})
    frames = [map_picture(one, colour=colour).figure for one in (scene, bare, early) for colour in ("q", "outcome")]
    assert len({(f.layout.xaxis.range, f.layout.yaxis.range, f.layout.margin.r) for f in frames}) == 1
    # Plotly names in the legend what has at least one point, be it nowhere.
    assert {tuple(trace.name for trace in f.data if len(trace.x)) for f in frames} == {tuple(traces_of(scene))}
    low, high = frames[0].layout.xaxis.range
    assert all(low < x < high for x, _ in scene.places.values())
    far = map_picture(replace(scene, query=(500.0, 0.5))).figure.layout
    assert far.xaxis.range[1] > 500 and far.yaxis.range == frames[0].layout.yaxis.range


def test_names_of_memories_in_one_place_lie_on_different_sides(lived: Any) -> None:
    scene = a_scene(lived, moved={})
    together = dict.fromkeys(scene.places, (3.0, -3.0))
    sides = traces_of(replace(scene, places=together | {"elsewhere": (90.0, 90.0)}))["given to the model"].textposition
    assert len(set(sides)) == len(scene.selected) > 1


def test_colour_has_a_fixed_scale_whatever_the_values(lived: Any) -> None:
    for q in (0.001, 5.0):
        scene = a_scene(lived)
        marker = traces_of(replace(scene, utilities=dict.fromkeys(scene.utilities, Utility(q, 1))))["memories"].marker
        assert (marker.cmin, marker.cmax) == (-1, 1)
    halves = MemRLSettings.of({"reward_failure": 0, "reward_success": 1}).model_dump()
    marker = traces_of(a_scene(lived, settings=halves))["memories"].marker
    assert (marker.cmin, marker.cmax) == (0, 1)
    assert q_range(halves) == (0, 0.5, 1)


def test_the_sign_of_q_is_told_by_shape_too() -> None:
    assert [q_symbol(0.4, 0.5, 1), q_symbol(0.6, 0.5, 1), q_symbol(0.5, 0.5, 1), q_symbol(0.9, 0.5, 0)] == [
        "triangle-down",
        "triangle-up",
        "circle",
        "circle",
    ]


def test_places_do_not_depend_on_what_happened_in_the_step(lived: Any) -> None:
    before, after = traces_of(a_scene(lived, moved={}, pool=(), selected=())), traces_of(a_scene(lived))
    assert list(before["memories"].x) == list(after["memories"].x)
    assert map_picture(a_scene(lived)).figure.layout.uirevision == "layout-1"


def test_pool_members_far_on_the_screen_are_counted(lived: Any) -> None:
    scene = a_scene(lived)
    far = dict.fromkeys(scene.pool[:3], (1000.0, 1000.0))
    near = dict.fromkeys(scene.pool[3:], (0.5, 0.5))
    spread = replace(scene, places={**scene.places, **far, **near})
    assert pool_far_on_screen(spread, map_points(spread)) == 3
    assert pool_far_on_screen(replace(spread, query=None), map_points(spread)) == 0


def test_the_lifted_map_shows_q_as_height(lived: Any) -> None:
    scene = a_scene(lived)
    picture = map_picture(scene, lifted=True)
    drawn = picture.figure.data[0]
    assert {card[0]: q for card, q in zip(drawn.customdata, drawn.z, strict=True)} == {
        memory_id: known.q for memory_id, known in scene.utilities.items()
    }
    assert tuple(picture.figure.layout.scene.zaxis.range) == (-1, 1)


@pytest.mark.parametrize("colour", ["q", "Δq", "similarity", "visits", "age", "outcome"])
@pytest.mark.parametrize("labels", ["off", "chosen", "all"])
def test_every_way_to_colour_and_label_draws_the_same_points(lived: Any, colour: Any, labels: Any) -> None:
    scene = a_scene(lived)
    drawn = traces_of(scene, colour=colour, labels=labels)
    assert len(drawn["memories"].marker.color) == len(scene.utilities)
    named = drawn["given to the model"].text or ()
    assert bool(named) == (labels != "off")


def test_an_empty_memory_has_an_empty_map(lived: Any) -> None:
    scene = a_scene(lived, places={}, utilities={}, memories={}, pool=(), selected=(), moved={}, query=None)
    picture = map_picture(scene)
    assert picture.title == "0 memories"
    assert picture.table.empty


def test_foreign_text_cannot_become_markup_in_any_figure(lived: Any) -> None:
    recall, decision, memories = parts(lived)
    evil = {i: replace(memory, intent=EVIL) for i, memory in memories.items()}
    for picture in (
        recall_picture(recall, decision, evil, "r"),
        score_picture(decision, evil, "r"),
        map_picture(a_scene(lived, memories=evil)),
    ):
        drawn = json.dumps(json.loads(picture.figure.to_json())["data"], ensure_ascii=False)
        assert "<b>x" not in drawn and "<a href" not in drawn
        templates = [trace.hovertemplate or "" for trace in picture.figure.data]
        assert not any("javascript" in template for template in templates)


def test_plain_text_is_one_short_escaped_line() -> None:
    assert plain(EVIL, 200) == (
        "&lt;b&gt;x&lt;/b&gt;&lt;a href='javascript:alert(1)'&gt;y&lt;/a&gt; %{customdata} &amp;lt;i&amp;gt;"
    )
    assert plain("a" * 100, 10) == "a" * 9 + "…"


def test_every_picture_has_words_for_those_who_cannot_see_it(lived: Any, tmp_path: Path) -> None:
    recall, decision, memories = parts(lived)
    for picture in (
        recall_picture(recall, decision, memories, "r"),
        slope_picture(decision, "r"),
        score_picture(decision, memories, "r"),
        map_picture(a_scene(lived)),
    ):
        assert picture.title in picture.alt
        assert len(picture.table) > 0
