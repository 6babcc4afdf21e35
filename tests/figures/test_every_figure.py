"""No figure is left out: each is drawn in a test of figures, which holds it against the rules in `conftest.py`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from memrl_core.figures.compare.comparison import results_picture
from memrl_core.figures.decision.rerank import difference_picture
from memrl_core.figures.memory.utility import MOST_SHOWN, reward_effect_picture
from memrl_core.records import Candidate, Term
from tests.builders import numbers
from tests.figures.conftest import HOSTILE, colours

HERE = Path(__file__).parent
FIGURES = sorted((HERE.parents[1] / "memrl_core" / "figures").rglob("*.py"))


def test_every_figure_is_drawn_by_a_test() -> None:
    tests = {path: ast.parse(path.read_text(encoding="utf-8")) for path in HERE.glob("test_*.py")}
    named = {node.id for tree in tests.values() for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for path in FIGURES:
        for made in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(made, ast.FunctionDef) and ast.unparse(made.returns or made) == "Picture":
                is_drawn = made.name in named or made.name.startswith("_")
                assert is_drawn, f"{made.name} in {path.name} is drawn by no test of figures."


def test_no_figure_has_a_colour_of_its_own() -> None:
    for path in FIGURES:
        if path.name != "palette.py":
            tree = ast.parse(path.read_text(encoding="utf-8"))
            texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
            assert list(colours(texts)) == [], f"{path.name}: its colours belong into palette.py."


def a_candidate(memory_id: str, q: float, name: str = "q") -> Candidate:
    terms = (Term("similarity", 0.5, 0.1, 0.5, 0.05), Term(name, q, q, 0.5, q / 2))
    return Candidate(memory_id, 0.5, q, 1, terms, 0.05 + q / 2, 1, 1, True, "selected")


def test_the_seeds_of_a_class_are_counted_and_those_who_saw_the_opposite_named() -> None:
    picture = results_picture([0.1, 0.11, 0.02, -0.06], "what it adds")
    (bars,) = picture.figure.data
    assert dict(zip(bars.x, bars.y, strict=True)) == {-5.0: 1, 0.0: 1, 10.0: 2}
    assert picture.title.startswith("4 seeds: +4.2 points") and "1 of them" in picture.title
    # A mean of nothing is no number, and one seed has no average.
    nobody, one = results_picture([], "nothing yet"), results_picture([0.132], "one")
    assert nobody.title == "No phone has played yet" and "0.0" not in nobody.alt
    assert one.title == "One seed: +13.2 points"
    # Lines without a colour of their own are black, which nobody sees on a dark projector.
    assert len(one.figure.layout.shapes) == 2 and all(line.line.color for line in one.figure.layout.shapes)
    # Where the words are longer than the axis they go on in another line, and room is made for them.
    axis = results_picture([0.1], "what choosing by q as well adds to similarity alone " * 2).figure.layout.xaxis
    assert axis.automargin and max(map(len, axis.title.text.split("<br>"))) <= 70
    effect = "what choosing by q as well (λ = 0.5) adds to similarity alone (λ = 0) after the shift"
    said = results_picture([0.1], effect).figure.layout.xaxis.title.text
    assert said.replace("<br>", " ") == effect


def test_the_parts_of_a_difference_add_up_to_it() -> None:
    picture = difference_picture(a_candidate("r-0001", 0.8), a_candidate("r-0002", 0.2), "r")
    (bars,) = picture.figure.data
    assert sum(bars.x[:-1]) == pytest.approx(0.3) and list(bars.measure)[-1] == "total"
    assert picture.table["part of the difference"].sum() == pytest.approx(0.3)
    assert "0.300 ahead" in picture.title and "most of it" in picture.title


def test_the_name_of_a_term_from_a_file_is_no_markup() -> None:
    one, other = a_candidate("r-0001", 0.8, HOSTILE), a_candidate("r-0002", 0.2, HOSTILE)
    assert "&lt;a" in difference_picture(one, other, "r").to_json()


def test_what_people_taught_goes_from_q_without_to_q_now() -> None:
    moved = {f"r-{number:04d}": (0.0, 0.1 if number % 3 else -0.1) for number in range(1, MOST_SHOWN + 4)}
    picture = reward_effect_picture(moved, {"reward_failure": -1.0, "reward_success": 1.0}, "r")
    assert len(picture.table) == len(moved)
    assert list(picture.table["Δ"]) == [now for _, now in moved.values()]
    assert numbers(picture.title)[:2] == ["10", "5"]
