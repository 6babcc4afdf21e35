"""Figures that answer a question about a whole run: tested on their data and on what their titles claim."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from memrl_core.agent import Agent
from memrl_core.analysis.decision.gate import GateSuggestion, suggest_delta
from memrl_core.analysis.decision.whatif import on_this_pool
from memrl_core.analysis.memory.exposure import Starvation, starvation, uses
from memrl_core.analysis.recall.queries import STAGES, Funnel
from memrl_core.analysis.recall.success import AgainstSuccess, Group
from memrl_core.analysis.recall.tune import Curve
from memrl_core.analysis.run.calibration import Calibration, in_sample, prequential
from memrl_core.analysis.run.metrics import Estimate
from memrl_core.analysis.run.over_time import Q_BY_EPOCH
from memrl_core.figures.decision.methods_on_pool import methods_on_pool_picture
from memrl_core.figures.decision.recall import similarity_picture
from memrl_core.figures.memory.utility import use_picture
from memrl_core.figures.palette import CUT, SIMILARITY
from memrl_core.figures.run.reliability import q_by_epoch_picture, reliability_picture
from memrl_core.figures.run.tuning import curves_picture, funnel_picture, grid_picture, success_picture
from tests.analysis.memory.test_relations import at_angles
from tests.builders import an_agent_after

SYMMETRIC = {"reward_failure": -1.0, "reward_success": 1.0}
HALVES = {"reward_failure": 0.0, "reward_success": 1.0}


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    return an_agent_after(tmp_path_factory.mktemp("questions") / "bank", 14, epochs=3, k1=8, delta=0.2)


def a_calibration(q: list[float], outcome: list[str], low: float = -1.0) -> Calibration:
    return prequential(pd.DataFrame({"step": range(len(q)), "selected": True, "q": q, "outcome": outcome}), low, 1.0)


def a_starvation(counts: list[int]) -> Starvation:
    """A run that used memory i of orthogonal intents `counts[i]` times."""
    view = at_angles([10.0 * i for i in range(len(counts))])
    rows = [(step, f"m{i}", True) for i, n in enumerate(counts) for step in range(n)]
    table = pd.DataFrame(rows, columns=["step", "memory_id", "selected"]).astype({"selected": bool})
    return starvation(view, table, threshold=0.999, delta=0.9)


def test_a_reliability_plot_has_each_bin_at_its_success_with_its_interval(lived: Agent) -> None:
    calibration = prequential(uses(lived.bank, "r"), -1.0, 1.0)
    picture = reliability_picture(calibration, SYMMETRIC)
    _, dots = picture.figure.data
    bins = calibration.bins
    assert len(bins) > 2
    assert (list(dots.x), list(dots.y)) == (list(bins["q"]), list(bins["success"]))
    assert list(np.add(dots.y, dots.error_y.array)) == pytest.approx(list(bins["success_high"]))
    assert list(np.subtract(dots.y, dots.error_y.arrayminus)) == pytest.approx(list(bins["success_low"]))
    assert list(dots.text) == [f"n = {n}" for n in bins["n"]]
    assert np.argmax(dots.marker.size) == np.argmax(bins["n"])
    assert f"({int(bins['n'].sum())} uses)" in picture.title


@pytest.mark.parametrize(("settings", "low"), [(SYMMETRIC, -1.0), (HALVES, 0.0)])
def test_the_diagonal_goes_from_the_reward_of_a_failure_to_that_of_a_success(
    settings: dict[str, float], low: float
) -> None:
    picture = reliability_picture(a_calibration([0.5], ["success"], low), settings)
    line = picture.figure.data[0]
    assert (list(line.x), list(line.y)) == ([low, 1.0], [0, 1])
    assert list(picture.table["q says"]) == pytest.approx([(0.5 - low) / (1 - low)])


def test_the_title_says_how_far_success_is_from_what_q_says() -> None:
    # q = 0 says half; 10 of 10 succeed: off by 0.5 and beyond the interval. q = -0.9 says 5 %; 0 of 10: off by 0.05.
    calibration = a_calibration([0.0] * 10 + [-0.9] * 10, ["success"] * 10 + ["failure"] * 10)
    picture = reliability_picture(calibration, SYMMETRIC)
    assert "28% off what q says" in picture.title
    assert "1 of 2 bins (20 uses)" in picture.title


def test_what_made_q_is_not_passed_off_as_a_forecast(lived: Agent) -> None:
    seen = in_sample(uses(lived.bank, "r"), lived.bank.utilities("r"), -1.0, 1.0)
    assert reliability_picture(seen, SYMMETRIC).title.startswith("Q now, over")
    ahead = prequential(uses(lived.bank, "r"), -1.0, 1.0)
    assert reliability_picture(ahead, SYMMETRIC).title.startswith("Q before each use")


def test_without_rated_uses_the_reliability_plot_says_so() -> None:
    picture = reliability_picture(a_calibration([], []), SYMMETRIC)
    assert picture.title.startswith("No rated use") and picture.table.empty


def test_the_histogram_counts_every_pair_and_marks_both_gates(lived: Agent) -> None:
    suggestion = suggest_delta(lived.bank.view("r"))
    picture = similarity_picture(suggestion, 0.2)
    (bars,) = picture.figure.data
    assert sum(bars.y) == suggestion.pairs == picture.table["pairs"].sum()
    assert bars.marker.color == SIMILARITY
    assert [shape.x0 for shape in picture.figure.layout.shapes] == [suggestion.delta, 0.2]
    notes = [note.text for note in picture.figure.layout.annotations]
    assert notes == [f"suggested: δ = {suggestion.delta:.3f}", "now: δ = 0.200"]


@pytest.mark.parametrize(
    ("delta", "passed"), [(-1.0, "100%"), (0.0, "100%"), (0.25, "80%"), (0.5, "60%"), (0.75, "30%"), (1.0, "0%")]
)
def test_the_share_that_passes_the_gate_is_read_off_the_bars(delta: float, passed: str) -> None:
    suggestion = GateSuggestion(0.8, 0.5, 0.2, 5, 10, True, np.array([4, 6]), np.array([0.0, 0.5, 1.0]))
    title = similarity_picture(suggestion, delta).title
    assert title.endswith(f"about {passed}")
    assert "20%" in title and "5 intents" in title


def test_the_curve_of_uses_is_the_lorenz_curve(lived: Agent) -> None:
    view, table = lived.bank.view("r"), uses(lived.bank, "r")
    found = starvation(view, table, threshold=0.95, delta=0.2)
    picture = use_picture(found)
    equal, curve = picture.figure.data
    assert (list(equal.x), equal.line.color) == ([0, 1], CUT)
    counts = sorted(int(((table["memory_id"] == i) & table["selected"]).sum()) for i in view.ids)
    assert list(curve.y) == pytest.approx(list(np.cumsum([0, *counts]) / sum(counts)))
    assert list(curve.x) == pytest.approx(list(np.linspace(0, 1, len(counts) + 1)))
    assert f"{counts.count(0)} of {len(counts)} were never used" in picture.title


@pytest.mark.parametrize(
    ("counts", "top", "gini"),
    [([2] * 5, "20%", "0.00"), ([0, 0, 0, 0, 7], "100%", "0.80"), ([1, 1, 1, 1, 4], "50%", "0.30")],
)
def test_the_title_says_what_the_most_used_fifth_had(counts: list[int], top: str, gini: str) -> None:
    title = use_picture(a_starvation(counts)).title
    assert f"had {top} of all uses (Gini {gini})" in title


def test_without_uses_the_curve_says_so() -> None:
    picture = use_picture(a_starvation([0, 0]))
    assert picture.title.startswith("No memory has")
    assert len(picture.figure.data[1].x) == 0


def test_the_picture_has_a_row_a_method_and_says_how_many_choices_there_are(lived: Agent) -> None:
    trace = lived.bank.trace("r", 18)
    found = on_this_pool(lived.bank, trace, ["none", "rag", "memrl"]) or []
    memories = {memory.id: memory for memory in lived.bank.memories("r")}
    picture = methods_on_pool_picture(found, memories, "r")
    assert list(picture.table["method"]) == ["No memory", "RAG", "MemRL"]
    assert picture.table["given to the model"][0] == "none"
    choices = {frozenset(one.decision.selected) for one in found if one.decision}
    assert picture.title.startswith(f"3 methods, {len(choices)} different choices")
    given = picture.figure.data[0]
    assert len(given.x) == sum(len(one.decision.selected) for one in found if one.decision)


def test_the_bands_are_the_quantiles_and_the_bars_add_up_to_all_memories() -> None:
    rows = [
        ("r", 1, 8, 8, 0.5, 0.25, 0.25, 0.5, 0.5, 0.0, -0.5, -0.4, -0.1, 0.0, 0.1, 0.4, 0.5),
        ("r", 2, 16, 16, 0.75, 0.5, 0.25, 0.25, 0.25, 0.1, -0.6, -0.5, -0.2, 0.1, 0.3, 0.6, 0.7),
    ]
    picture = q_by_epoch_picture(pd.DataFrame(rows, columns=list(Q_BY_EPOCH)))
    drawn = {trace.name: trace for trace in picture.figure.data}
    assert list(drawn["median"].y) == [0.0, 0.1]
    assert list(drawn["90 % of memories"].y) == [0.4, 0.6, -0.5, -0.4]
    for epoch in (0, 1):
        assert sum(drawn[name].y[epoch] for name in ("positive", "at zero", "negative")) == pytest.approx(1)
    assert "+0.100" in picture.title and "50%" in picture.title


# --- recall on labelled steps -----------------------------------------------------------------------------------------


def test_a_funnel_shows_what_is_left_and_lost_at_each_stage() -> None:
    counts = {"labelled": 10, "stored": 9, "comparable": 9, "through the gate": 4, "in the pool": 4, "selected": 3}
    lost = dict.fromkeys(STAGES[:-1], ())
    picture = funnel_picture(Funnel({**counts, "in the prompt": 3}, lost, 1))
    left, gone = picture.figure.data
    assert list(left.x) == [10, 9, 9, 4, 4, 3, 3, 1] and list(gone.x) == [0, 1, 0, 5, 0, 1, 0, 2]
    assert "30" in picture.title and "“through the gate” (5)" in picture.title
    assert "10" in funnel_picture(Funnel({**counts, "in the prompt": 3}, lost, None)).title
    assert funnel_picture(Funnel(dict.fromkeys(counts, 0) | {"in the prompt": 0}, lost, None)).title


def test_recall_stands_against_success_with_a_mark_per_family_and_no_effect_is_claimed_of_luck() -> None:
    groups = (Group("mugs", 6, 0.5, 0.25), Group("plates", 4, 1.0, 0.75))
    found = AgainstSuccess(groups, (5, 3), (5, 1), Estimate(0.4, -0.1, 0.8), (4, 3), (2, 0))
    picture = success_picture(found)
    (dots,) = picture.figure.data
    assert list(dots.x) == [0.5, 1.0] and list(dots.y) == [0.25, 0.75]
    assert picture.table["steps"].tolist() == [6, 4] and "No effect" in picture.title
    assert success_picture(replace(found, groups=(), better=(0, 0), worse=(0, 0))).title


def test_curves_of_recall_are_drawn_at_exact_values_with_the_runs_own() -> None:
    step = Curve(np.array([0.25]), np.array([0.8, 0.2]), True)
    nothing = Curve(np.zeros(0), np.array([np.nan]), True)
    picture = curves_picture({"recall": step, "false_recall": nothing}, "δ", 0.0, 1.0, 0.4)
    (line,) = picture.figure.data
    assert np.array_equal(line.y, step.at(line.x)) and 0.4 in line.x
    assert picture.figure.layout.shapes[0].x0 == 0.4 and "0.80" in picture.title
    grid = grid_picture(np.array([[0.1, np.nan], [0.2, 0.3]]), [1, 5], [1, 3], 5, 1, "recall")
    assert "k1 = 5, k2 = 3" in grid.title and grid.figure.data[0].text[0][1] == ""
