"""The pictures of what is learned say what their frames say: tested on their data, not on pixels."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from memrl_core.analysis.run.learned.deciding import BECAME, GIVEN, NOTHING, SILENT, Ranks
from memrl_core.analysis.run.learned.notes import CaseHistory, LinkGraph, NoteNode
from memrl_core.analysis.run.learned.values import COLUMNS, OPERATIONS, Deletion, KnownAction, KnownState
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.learned_notes import (
    case_calibration_picture,
    kernel_picture,
    link_picture,
    loss_picture,
    novelty_picture,
    tips_picture,
)
from memrl_core.figures.run.learned_steps import (
    ENDED,
    actions_picture,
    bump_picture,
    citations_picture,
    norms_picture,
    operations_picture,
    pass_picture,
    timeline_picture,
)
from memrl_core.figures.run.learned_values import NAMED, names_at_ends, rates_picture, values_picture
from memrl_core.policies.methods.a_mem import Note
from memrl_core.policies.methods.memento import Cases, MementoSettings
from tests.builders import numbers

EVIL = "<b>x</b><a href='javascript:alert(1)'>y</a> %{customdata} <i>\n\u202e"
SETTINGS = {"reward_failure": -1.0, "reward_success": 1.0}


def values_of(**lines: list[float]) -> pd.DataFrame:
    """A frame of `values_over_uses`: for each memory its q as it began and after each use."""
    rows = [
        (f"r-{name[1:]}", use, use + 1, line[use - 1] if use else None, q, 1.0 if use else None)
        for name, line in lines.items()
        for use, q in enumerate(line)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def texts_of(picture: Picture) -> str:
    """All that a figure shows, as Plotly gets it."""
    return str(picture.figure.to_json())


def test_every_used_memory_has_a_line_and_the_furthest_have_names() -> None:
    many = {f"m{number}": [0.0, number / 100] for number in range(1, NAMED + 4)}
    picture = values_picture(values_of(m90=[0.0], **many), SETTINGS, "r")
    others, *named = picture.figure.data
    assert len(named) == NAMED and others.y.count(None) == 3
    assert {tuple(trace.y) for trace in named} >= {(0.0, 0.09), (0.0, 0.01)}
    assert {note.text for note in picture.figure.layout.annotations} == {trace.name for trace in named}
    assert numbers(picture.title)[:5] == ["9", "10", "9", "+0.000", "+0.090"]
    assert len(picture.table) == 1 + 2 * (NAMED + 3)


def test_values_without_a_memory_or_a_reward_say_so() -> None:
    assert values_picture(values_of(), SETTINGS, "r").title.startswith("No memory yet")
    assert "the 1 memories" in values_picture(values_of(m1=[0.0]), SETTINGS, "r").title


def test_names_of_lines_that_end_together_are_one_and_none_lies_on_another() -> None:
    notes = names_at_ends([(3, 0.5, "#1", "a"), (3, 0.5, "#2", "b"), (3, 0.51, "#3", "c"), (9, 0.5, "#4", "d")], 0, 1)
    at = {note["text"]: note["y"] for note in notes}
    assert at["#1, #2"] == at["#4"] == 0.5
    assert at["#3"] - at["#1, #2"] > 0.05


def test_rates_and_q_share_one_axis_and_the_rule_is_drawn_where_it_holds() -> None:
    rates = values_of(m1=[0.0, 0.0, 0.0, 0.0], m2=[0.0, 1.0])
    values = values_of(m1=[0.0, -0.3, -0.5], m2=[0.0, 0.3], m3=[0.0, 1.0])
    rule = Deletion(3, 0.5, False, {"r-1": 3}, ())
    picture = rates_picture(rates, values, rule, SETTINGS, "r")
    left = {trace.name: trace for trace in picture.figure.data if trace.xaxis == "x" and trace.name}
    right = {trace.name: trace for trace in picture.figure.data if trace.xaxis == "x2" and trace.name}
    assert list(left["#1"].x) == [1, 2, 3] and list(left["#2"].y) == [1.0]
    assert list(right["#1"].y) == pytest.approx([0.5, 0.35, 0.25])
    assert "#3" not in right
    dashed = next(trace for trace in picture.figure.data if trace.mode == "lines")
    assert (dashed.x[0], list(dashed.y)) == (3, [0, 0.5, 0.5])
    crosses = picture.figure.data[-1]
    assert (list(crosses.x), list(crosses.y)) == ([3], [0.0])
    assert numbers(picture.title) == ["1", "2", "1"] and "would delete" in picture.title
    done = rates_picture(rates, values, Deletion(3, 0.5, True, {"r-1": 3}, ("r-1",)), SETTINGS, "r")
    assert "has deleted 1 of 2" in done.title
    nothing = rates_picture(values_of(), values, Deletion(3, 0.5, False, {}, ()), SETTINGS, "r")
    assert "no success rate" in nothing.title


def test_the_loss_stands_before_and_after_each_tasks_step() -> None:
    losses = pd.DataFrame({"step": [2, 5], "rows": [3, 6], "before": [0.7, 0.4], "after": [0.6, 0.35]})
    picture = loss_picture(losses)
    before, after = picture.figure.data
    assert (list(before.y), list(after.y)) == ([0.7, 0.4], [0.6, 0.35])
    assert "fell from" in loss_picture(pd.concat([losses] * 4)).title or "rose from" in picture.title
    assert loss_picture(losses[:0]).title.startswith("No task has")


def test_calibration_is_a_dot_a_bin_with_its_count() -> None:
    bins = pd.DataFrame(
        [(0.1, 0.2, 0.15, 4, 0.25, 0.05, 0.7), (0.8, 0.9, 0.85, 1, 1.0, 0.2, 1.0)],
        columns=["low", "high", "p", "n", "success", "success_low", "success_high"],
    )
    picture = case_calibration_picture(bins)
    dots = picture.figure.data[1]
    assert (list(dots.x), list(dots.y), list(dots.text)) == ([0.15, 0.85], [0.25, 1.0], ["n = 4", "n = 1"])
    assert numbers(picture.title) == ["11", "5"]
    assert case_calibration_picture(bins[:0]).title.startswith("No prediction was")


def test_a_past_use_is_a_bar_distinct_by_how_it_ended() -> None:
    weights = pd.DataFrame(
        {
            "step": [3, 8],
            "outcome": [1.0, 0.0],
            "similarity": [0.9, 0.2],
            "weight": [0.6, 0.2],
            "share": [0.75, 0.25],
        }
    )
    history = CaseHistory(MementoSettings(read="kernel"), Cases(), Cases(), ())
    picture = kernel_picture(weights, history, "#1")
    won, lost = picture.figure.data
    assert (list(won.x), list(lost.x)) == ([0.75, None], [None, 0.25])
    assert numbers(picture.title)[:3] == ["1", "0.750", "2"]
    many = pd.concat([weights] * 40, ignore_index=True)
    drawn = kernel_picture(many, history, "#1")
    assert len(drawn.figure.data[0].x) == 30 and len(drawn.table) == 80 and "30 that weigh most" in drawn.title
    assert "counts as 0.5" in kernel_picture(weights[:0], history, "#1").title


def a_state(*actions: KnownAction) -> KnownState:
    return KnownState("r-1", "put it there", "You see nothing.", actions, 1)


def test_an_action_shows_q_and_n_and_what_is_invented_says_so() -> None:
    state = a_state(
        KnownAction("search drawer", 0.5, 2, 0.0, ""),
        KnownAction("take egg", -0.2, 1, 0.0, "discouraged"),
        KnownAction("search drawer", 0.3, 0, 0.0, "encouraged", invented=True),
    )
    picture = actions_picture(state)
    bars = {trace.name: trace for trace in picture.figure.data if trace.type == "bar"}
    assert list(bars["▲ encouraged"].y) == ["search drawer (invented)"]
    assert list(bars["▲ encouraged"].marker.pattern.shape) == ["x"]
    assert list(bars["▼ discouraged"].x) == [-0.2]
    beside = picture.figure.data[-1].text
    assert [text.strip() for text in beside] == ["Q = 0.50, n = 2", "Q = -0.20, n = 1", "0.30 made up"]
    assert numbers(picture.title) == ["2"] and "search drawer" in picture.title
    assert "none is encouraged" in actions_picture(a_state(KnownAction("x", 0.0, 1, 0.0, ""))).title


def test_actions_that_begin_alike_keep_a_bar_each() -> None:
    long = "the same fifty characters again and again and again, then"
    picture = actions_picture(a_state(*(KnownAction(f"{long} {n}", 0.1, 1, 0.0, "") for n in range(3))))
    assert len(set(picture.figure.data[0].y)) == 3


RANKS = (Ranks("r-2", 3, 2, 1), Ranks("r-1", 1, 1, 2), Ranks("r-3", 2, 3, 3))


def test_a_line_goes_through_three_ranks_and_colour_is_for_crossing_the_cut() -> None:
    picture = bump_picture(RANKS, 1, "r")
    assert [list(trace.y) for trace in picture.figure.data] == [[3, 2, 1], [1, 1, 2], [2, 3, 3]]
    colours = [trace.line.color for trace in picture.figure.data]
    assert len(set(colours)) == 3
    assert [trace.text[2] for trace in picture.figure.data] == ["✓ #2", "#1", "#3"]
    assert numbers(picture.title) == ["2", "3", "2"]
    assert "empty" in bump_picture((), 3, "r").title
    assert "changed nothing" in bump_picture((Ranks("r-1", 1, 1, 1),), 1, "r").title


def test_norms_are_two_lines() -> None:
    norms = pd.DataFrame({"step": [2, 3], "lessons": [1, 2], "‖W_q‖": [1.0, 1.5], "‖W_m‖": [2.0, 2.5]})
    picture = norms_picture(norms)
    assert [list(trace.y) for trace in picture.figure.data] == [[1.0, 1.5], [2.0, 2.5]]
    assert picture.title.startswith("After 2 lessons")
    assert "no lesson yet" in norms_picture(norms[:0]).title


def test_citations_are_marked_and_unreadable_replies_counted() -> None:
    cited = pd.DataFrame(
        {"step": [1, 1, 2], "place": [1, 2, 1], "memory": ["r-1", "r-2", "r-1"], "cited": [True, False, None]},
    ).astype({"cited": object})
    picture = citations_picture(cited, "r")
    assert [list(trace.x) for trace in picture.figure.data] == [[1], [1], [2]]
    assert numbers(picture.title) == ["1", "2", "1", "2"]
    assert "No answer was" in citations_picture(cited[:0], "r").title


def test_novelty_is_a_bar_a_step_and_a_dot_a_turn() -> None:
    novelty = pd.DataFrame({"step": [1, 1, 2], "turn": [0, 1, 0], "tips": [0, 1, 3], "novelty": [1.0, 0.5, 0.25]})
    picture = novelty_picture(novelty)
    bars, dots = picture.figure.data
    assert list(bars.y) == [0.75, 0.25] and list(dots.y) == [1.0, 0.5, 0.25]
    assert numbers(picture.title) == ["0.75", "1", "0.25", "2"]
    assert "not asked" in novelty_picture(novelty[:0]).title


def test_tips_are_joined_from_score_to_similarity() -> None:
    tips = pd.DataFrame(
        {
            "memory": ["r-1", "r-2"],
            "score": [1.0, 0.0],
            "similarity": [0.6, 0.9],
            "by score": [1, 2],
            "by similarity": [2, 1],
            "given": [True, False],
        }
    )
    picture = tips_picture(tips, 1, "r")
    assert [list(trace.y) for trace in picture.figure.data] == [[1, 2], [2, 1]]
    assert numbers(picture.title)[-3:] == ["1", "1", "0"]
    assert "the first 2" in tips_picture(tips, 5, "r").title
    assert "No tip was" in tips_picture(tips[:0], 5, "r").title


def a_graph(context: str = "what it was for") -> LinkGraph:
    note = Note(keywords=("egg",), tags=("hot",), context=context)
    notes = tuple(NoteNode(f"r-{n}", note) for n in range(1, 5))
    outcomes: dict[str, Any] = dict.fromkeys(("r-1", "r-2", "r-3"), "success")
    return LinkGraph(
        notes, (("r-2", "r-1"), ("r-4", "r-1")), {**outcomes, "r-4": "failure"}, frozenset({"r-4"}), frozenset({"r-2"})
    )


def test_links_join_notes_on_a_circle_or_where_the_map_has_them() -> None:
    picture = link_picture(a_graph(), "r")
    marks = {trace.name: trace for trace in picture.figure.data}
    points = [
        (x, y) for name in ("note", "edited in this step", "written in this step")
        for x, y in zip(marks[name].x, marks[name].y, strict=True)
    ]  # fmt: skip
    assert len(points) == 4 and all(math.hypot(x, y) == pytest.approx(1) for x, y in points)
    assert marks["link of what is new"].x.count(None) == 2 and marks["link"].x == ()
    assert {note.text for note in picture.figure.layout.annotations} == {"#1", "#2", "#3", "#4"}
    assert numbers(picture.title)[:5] == ["4", "2", "1", "1", "2"]
    placed = link_picture(a_graph(), "r", {"r-1": (5.0, 6.0), "r-4": (7.0, 8.0)})
    written = next(trace for trace in placed.figure.data if trace.name == "written in this step")
    assert (written.x, written.y) == ((7.0,), (8.0,))
    assert list(placed.table["linked with"]) == ["#2, #4", "#1", "", "#1"]


def test_no_note_is_no_error() -> None:
    assert link_picture(LinkGraph((), (), {}, frozenset(), frozenset()), "r").title == "No note yet"


def became_of(*rows: tuple[Any, ...]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=BECAME)


WORDS = {GIVEN: "spoke", SILENT: "kept silent", NOTHING: "nothing to read"}


def test_a_timeline_has_a_row_a_way_and_how_each_step_ended() -> None:
    became = became_of(
        (1, 0, NOTHING, 0, 0, 0, "", "failure"),
        (2, 0, GIVEN, 3, 0, 3, "it fits", "success"),
        (2, 2, SILENT, 3, 0, 0, "it does not", "success"),
    )
    picture = timeline_picture(became, WORDS, 2)
    rows = {trace.name: trace for trace in picture.figure.data if trace.name}
    assert list(rows["spoke"].x) == [2] and 2 < rows["kept silent"].x[0] < 3
    (ends,) = [trace for trace in picture.figure.data if trace.mode == "text"]
    assert (list(ends.text), set(ends.y)) == (["▼", "▲"], {ENDED})
    assert numbers(picture.title) == ["3", "1", "1", "1"]
    assert list(picture.table["what"]) == ["nothing to read", "spoke", "kept silent"]
    assert "not asked" in timeline_picture(became[:0], WORDS, 1).title


def test_operations_are_stacked_by_epoch() -> None:
    counts = pd.DataFrame([(1, 3, 1, 0, 2, 0), (2, 2, 0, 1, 0, 1)], columns=["epoch", *OPERATIONS])
    picture = operations_picture(counts)
    assert {trace.name: list(trace.y) for trace in picture.figure.data}["ADD"] == [3, 2]
    assert numbers(picture.title) == ["5", "1", "1", "2", "1"]
    assert operations_picture(counts[:0]).title.startswith("No operation was")


def test_pass_at_k_is_hollow_where_tries_are_to_come() -> None:
    solved = pd.DataFrame({"k": [1, 2], "solved": [1, 2], "over": [4, 3], "tasks": [4, 4], "share": [0.25, 0.5]})
    picture = pass_picture(solved)
    (line,) = picture.figure.data
    assert list(line.y) == [0.25, 0.5] and list(line.marker.symbol) == ["circle", "circle-open"]
    assert numbers(picture.title)[-1:] == ["1"]
    assert pass_picture(solved[:0]).title.startswith("No try was")


def test_foreign_text_is_escaped_in_every_picture_that_shows_some() -> None:
    pictures = (
        actions_picture(a_state(KnownAction(EVIL, 0.1, 1, 0.0, "encouraged"))),
        link_picture(a_graph(EVIL), "r"),
        timeline_picture(became_of((1, 0, GIVEN, 1, 0, 1, EVIL, "success")), WORDS, 1),
        values_picture(values_of(m1=[0.0, 0.5]).assign(memory=EVIL), SETTINGS, "r"),
    )
    for picture in pictures:
        shown = texts_of(picture)
        assert "<b>x" not in shown and "<a href" not in shown and "\\u003ca href" not in shown
        assert "\u202e" not in shown and "\\u202e" not in shown
