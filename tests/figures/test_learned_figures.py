"""The pictures of what is learned say what their frames say: tested on their data, not on pixels."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from memrl_core.analysis.run.learned.deciding import Ranks
from memrl_core.analysis.run.learned.notes import LinkGraph
from memrl_core.analysis.run.learned.values import COLUMNS, OPERATIONS
from memrl_core.figures.run.learned import (
    NAMED,
    bump_picture,
    case_calibration_picture,
    counts_picture,
    link_picture,
    loss_picture,
    names_at_ends,
    novelty_picture,
    pass_picture,
    values_picture,
)
from memrl_core.policies.methods.a_mem import Note
from tests.builders import numbers
from tests.figures.conftest import HOSTILE

SETTINGS = {"reward_failure": -1.0, "reward_success": 1.0}


def values_of(**lines: list[float]) -> pd.DataFrame:
    """A frame of `values_over_uses`: for each memory its q as it began and after each use."""
    rows = [
        (f"r-{name[1:]}", use, use + 1, line[use - 1] if use else None, q, 1.0 if use else None)
        for name, line in lines.items()
        for use, q in enumerate(line)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


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
    notes = names_at_ends([(3, 0.5, "#1"), (3, 0.5, "#2"), (3, 0.51, "#3"), (9, 0.5, "#4")], 0, 1)
    at = {note["text"]: note["y"] for note in notes}
    assert at["#1, #2"] == at["#4"] == 0.5
    assert at["#3"] - at["#1, #2"] > 0.05


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


def test_novelty_is_a_bar_a_step_and_a_dot_a_turn() -> None:
    novelty = pd.DataFrame({"step": [1, 1, 2], "turn": [0, 1, 0], "tips": [0, 1, 3], "novelty": [1.0, 0.5, 0.25]})
    picture = novelty_picture(novelty)
    bars, dots = picture.figure.data
    assert list(bars.y) == [0.75, 0.25] and list(dots.y) == [1.0, 0.5, 0.25]
    assert numbers(picture.title) == ["0.75", "1", "0.25", "2"]
    assert "not asked" in novelty_picture(novelty[:0]).title


def a_graph(context: str = "what it was for") -> LinkGraph:
    note = Note(keywords=("egg",), tags=("hot",), context=context)
    notes = {f"r-{n}": note for n in range(1, 5)}
    outcomes: dict[str, Any] = dict.fromkeys(("r-1", "r-2", "r-3"), "success")
    return LinkGraph(
        notes, (("r-2", "r-1"), ("r-4", "r-1")), {**outcomes, "r-4": "failure"}, frozenset({"r-4"}), frozenset({"r-2"})
    )


def test_links_join_notes_on_a_circle() -> None:
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
    assert list(picture.table["linked with"]) == ["#2, #4", "#1", "", "#1"]
    assert link_picture(LinkGraph({}, (), {}, frozenset(), frozenset()), "r").title == "No note yet"


def test_operations_are_stacked_by_epoch() -> None:
    counts = pd.DataFrame([(1, 3, 1, 0, 2, 0), (2, 2, 0, 1, 0, 1)], columns=["epoch", *OPERATIONS])
    picture = counts_picture(counts, "operations")
    assert {trace.name: list(trace.y) for trace in picture.figure.data}["ADD"] == [3, 2]
    assert numbers(picture.title) == ["5", "1", "1", "2", "1"]
    assert counts_picture(counts[:0], "operations").title == "No operations yet"


def test_pass_at_k_is_hollow_where_tries_are_to_come() -> None:
    solved = pd.DataFrame({"k": [1, 2], "solved": [1, 2], "over": [4, 3], "tasks": [4, 4], "share": [0.25, 0.5]})
    picture = pass_picture(solved)
    (line,) = picture.figure.data
    assert list(line.y) == [0.25, 0.5] and list(line.marker.symbol) == ["circle", "circle-open"]
    assert numbers(picture.title)[-1:] == ["1"]
    assert pass_picture(solved[:0]).title.startswith("No try was")


def test_foreign_text_is_escaped_in_every_picture_that_shows_some() -> None:
    of_memory = values_picture(values_of(m1=[0.0, 0.5]).assign(memory=HOSTILE), SETTINGS, "r")
    assert all("&lt;" in picture.to_json() for picture in (link_picture(a_graph(HOSTILE), "r"), of_memory))
