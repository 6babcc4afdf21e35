"""Figures say what the records say, and reach the browser as checked: tested on their data, not on pixels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.decision.moment import Moment, Texts, current
from memrl_core.analysis.decision.spectrum import spectrum
from memrl_core.figures.decision.decision_diagram import decision_diagram
from memrl_core.figures.decision.recall import recall_picture
from memrl_core.figures.decision.rerank import score_picture, slope_picture
from memrl_core.figures.memory.utility import history_picture, moves_picture
from memrl_core.figures.palette import drawn, plain
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.reliability import funnel_picture
from memrl_core.records import Decision, Memory, RecallRecord
from tests.analysis.decision.test_spectrum import decided
from tests.builders import an_agent_after, numbers
from tests.figures.conftest import HOSTILE


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Moment, dict[str, Memory], Any]:
    """A household run of two epochs, at its end."""
    bank = an_agent_after(tmp_path_factory.mktemp("figures") / "bank", 16, epochs=2, k1=8, delta=0.0).bank
    moment = current(bank, "r", None)
    return moment, Texts(bank, moment.utilities), bank


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


def test_foreign_text_cannot_become_markup_in_any_figure(lived: Any) -> None:
    recall, decision, memories = parts(lived)
    evil = {i: replace(memory, intent=HOSTILE) for i, memory in memories.items()}
    assert "&lt;a href" in recall_picture(recall, decision, evil, "r").to_json()
    score_picture(decision, evil, "r")


def test_plain_text_is_one_short_escaped_line() -> None:
    assert plain("<b>x</b> %{y}\n&lt;i\u202e", 200) == "&lt;b&gt;x&lt;/b&gt; %{y} &amp;lt;i"
    assert plain("a" * 100, 10) == "a" * 9 + "…"


def test_the_diagram_of_a_decision_has_a_row_for_each_interval_of_lambda() -> None:
    lines = spectrum(decided([0.9, 0.5, 0.1, 0.4], [0.0, 1.0, 0.4, -0.3], 2, 0.5, "pool"))
    assert lines.flips
    picture = decision_diagram(lines, 0.3, 0.5, "r")
    assert len(picture.table) == len(lines.intervals) > 1
    assert picture.height == 430 and list(picture.table.columns) == ["λ from", "λ to", "selected"]


def test_a_picture_that_says_no_height_has_none(every_picture_keeps_the_rules: list[Picture]) -> None:
    for figure in ({"data": [], "layout": {}}, go.Figure()):
        assert Picture(figure, pd.DataFrame(), "t", "t.").height is None
    every_picture_keeps_the_rules.clear()


def test_a_property_that_plotly_does_not_have_is_refused_by_the_figure(
    every_picture_keeps_the_rules: list[Picture],
) -> None:
    with pytest.raises(ValueError, match="colour"):
        _ = Picture(drawn([{"type": "scatter", "colour": 1}]), pd.DataFrame(), "t", "t.").figure
    every_picture_keeps_the_rules.clear()


def test_a_foreign_id_is_read_as_it_was_written_and_is_no_markup() -> None:
    foreign = "<a href='https://other.example'>x</a> <b>y</b> %{customdata[0]} <extra>z</extra>"
    label = memory_label(foreign, "r")
    assert label.replace("\u2060", "") == foreign
    assert not [mark for mark in ("<a href", "</a>", "<b>y", "%{customdata[0]} ", "<extra>z") if mark in label]


def test_a_funnel_has_a_bar_for_each_stage_and_says_how_many_came_to_its_end() -> None:
    stages = pd.DataFrame(
        {"stage": ["recalled", "selected", "followed", "right"], "steps": [9, 8, 6, 4], "of": [10, 9, 8, 6]}
    )
    picture = funnel_picture(stages)
    rest, came = picture.figure["data"]
    assert [*came["x"]] == [9, 8, 6, 4] and [*rest["x"]] == [10, 9, 8, 6]
    assert picture.title == "Of 10 steps, 4 got a right answer from a memory"
