"""The arithmetic of a decision in words, and short names for memories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from memrl_core.analysis.compare import counterfactual
from memrl_core.analysis.compare.counterfactual import overtaking, reversal
from memrl_core.analysis.decision.explain import (
    credited_because,
    draw,
    followed,
    normaliser_line,
    score_formula,
    setting_notes,
    update_formula,
    warnings,
)
from memrl_core.analysis.decision.labels import memory_label, reason_sentence
from memrl_core.records import (
    Decision,
    Follows,
    GenerateRecord,
    Recalled,
    RecallRecord,
    Reply,
    RewardRecord,
    StepTrace,
    Task,
    Turn,
    ValueChange,
)
from memrl_core.retrieval import select
from memrl_core.settings import MemRLSettings
from tests.builders import numbers


def a_decision(pool: list[tuple[float, float]], **settings: object) -> tuple[RecallRecord, Decision]:
    chosen = MemRLSettings.of(settings)
    members = tuple(Recalled(f"r-{i + 1:04d}", s, i + 1, None) for i, (s, _) in enumerate(pool))
    found = RecallRecord(chosen.k1, "record", chosen.delta, True, len(pool), members, ())
    of_phase_b = chosen.model_dump(include={"k2", "weight", "normaliser", "fixed_mean", "fixed_sd", "epsilon"})
    q, visits = np.array([q for _, q in pool], dtype=float), np.zeros(len(pool), dtype=np.int64)
    return found, select(found, q, visits, **of_phase_b, seed=0)


def test_the_formula_holds_this_candidates_numbers() -> None:
    _, decision = a_decision([(0.9, -1.0), (0.7, 1.0)])
    assert numbers(score_formula(decision.candidates[0], "r")) == ["1", "0.5", "+1.000", "0.5", "−1.000", "+0.000"]


def test_a_draw_among_equals_is_told_with_its_chance_and_an_unknown_one_as_unknown() -> None:
    _, decision = a_decision([(0.9, 0.0), (0.9, 0.0), (0.9, 0.0)], k2=1)
    assert "0.333" in numbers(draw(decision, "r"))
    assert "no number" not in draw(decision, "r")
    assert draw(replace(decision, propensity=0.0), "r").startswith("Not known")
    assert "no number" in draw(a_decision([(0.9, 0.0), (0.7, 0.0)], k2=1)[1], "r")


def test_the_normaliser_line_tells_mean_sd_and_where_they_come_from() -> None:
    _, decision = a_decision([(0.9, 0.0), (0.7, 1.0)], normaliser="fixed", fixed_mean=0.3, fixed_sd=0.1)
    assert numbers(normaliser_line(decision)) == ["0.300", "0.100", "0.500", "0.500", "2", "3"]


def test_a_pool_that_is_not_standardised_says_so() -> None:
    _, decision = a_decision([(0.9, 0.0), (0.7, 1.0)], normaliser="raw")
    assert numbers(normaliser_line(decision)) == []
    assert [candidate.score for candidate in decision.candidates] == pytest.approx([0.85, 0.45])


@pytest.mark.parametrize(
    ("pool", "settings", "says"),
    [
        ([(0.9, 0.0)], {}, "pool of one"),
        ([(0.9, 0.5), (0.8, 0.5), (0.7, 0.5)], {}, "pure similarity"),
        ([(0.8, 0.1), (0.8, 0.5), (0.8, 0.9)], {}, "pure utility"),
        ([(0.9, 0.1), (0.8, 0.5)], {}, "looks like 2"),
        ([(0.9 - n / 100, float(n == 11)) for n in range(12)], {"normaliser": "fixed", "k1": 12}, "cut at ±3"),
        ([(0.9, 0.1), (0.5, 0.5), (0.4, 0.2)], {"epsilon": 1.0, "k2": 1}, "random pick"),
        ([(0.8, 0.4), (0.8, 0.4), (0.1, -1.0)], {"k2": 1}, "tie at the cut"),
    ],
)
def test_what_to_be_careful_about_is_said(
    pool: list[tuple[float, float]], settings: dict[str, object], says: str
) -> None:
    assert any(says in sentence for sentence in warnings(*a_decision(pool, **settings), "r"))


def test_an_ordinary_pool_needs_no_warning() -> None:
    assert warnings(*a_decision([(0.9, 0.1), (0.7, 0.5), (0.6, -0.2), (0.5, 0.3)], k2=2), "r") == []


def test_every_reason_has_a_sentence_with_its_numbers() -> None:
    found, decision = a_decision([(0.9, 0.1), (0.7, 0.5), (0.6, -0.2)], k2=1)
    message = [reason_sentence(candidate, found, decision) for candidate in decision.candidates]
    assert [numbers(one)[0] for one in message[:2]] == ["1", "2"]
    assert all("k2 = 1" in one for one in message[:2])


def test_an_update_is_reported_with_its_numbers() -> None:
    change = ValueChange("r-0004", -0.3, 0.09, 2, 1.0, 0.3)
    assert numbers(update_formula(change, "r")) == ["4", "−0.300", "0.3", "+1.000", "−0.300", "+0.090"]
    stopped_by_the_floor = ValueChange("r-0004", 0.1, 0.0, 2, -1.0, 0.3)
    assert numbers(update_formula(stopped_by_the_floor, "r"))[-2:] == ["−0.230", "+0.000"]


def test_a_switched_off_part_is_noted() -> None:
    assert "plain similarity" in setting_notes({"weight": 0, "k2": 3})[0]
    assert setting_notes(MemRLSettings().model_dump()) == []


POOL = [(0.9, -0.8), (0.5, 0.8), (0.4, -0.1)]
FOUND, HAD = a_decision(POOL, k2=1, weight=0.8)
BY_SIMILARITY = a_decision(POOL, k2=1, weight=0.0)
WITH, INSTEAD = ("r-0002",), ("r-0001",)


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> StepTrace:
    """A solved step in which q decided; λ = 0 would have given the most similar memory to the model."""
    monkeypatch.setattr(counterfactual, "situation_of", lambda bank, trace: None)
    monkeypatch.setattr(counterfactual, "decided", lambda situation, settings: BY_SIMILARITY)
    options: dict[str, Any] = {}
    return StepTrace(
        "x", "r", 9, 1, Task("t", "t", "household"), "memrl", MemRLSettings().model_dump(), "", recall=FOUND,
        decision=HAD, generate=GenerateRecord("simulated", True, options, (), (), ()),
        reward=RewardRecord(1.0, "environment", "success", "", "", "", ()),
    )  # fmt: skip


BANK: Any = None


def test_a_reversal_is_a_more_similar_memory_overtaken_by_one_of_higher_q(solved: StepTrace) -> None:
    found = overtaking(BANK, solved)
    assert (found.step, found.by_similarity) == (9, INSTEAD)
    assert overtaking(BANK, replace(solved, decision=BY_SIMILARITY[1])) is None


@pytest.mark.parametrize(
    ("solves", "holds"),
    [
        (lambda reported, first: reported == WITH, True),
        (lambda reported, first: reported in (WITH, INSTEAD), False),
        (lambda reported, first: False, False),
        (lambda reported, first: reported == WITH and first, False),
        (lambda reported, first: reported == WITH or (reported == INSTEAD and not first), False),
    ],
)
def test_it_counts_only_where_the_choice_by_similarity_fails_and_not_by_luck(
    solved: StepTrace, solves: Callable[[tuple[str, ...], bool], bool], holds: bool
) -> None:
    def again(asked: StepTrace) -> Any:
        def rerun(reported: Sequence[str]) -> Any:
            return SimpleNamespace(outcome="success" if solves(tuple(reported), asked is solved) else "failure")

        return SimpleNamespace(rerun=rerun)

    assert (reversal(BANK, solved, again) is not None) is holds


@pytest.mark.parametrize(
    ("memory_id", "label"),
    [
        *[("run-0004", "#4"), ("run-0004.2", "#4.2"), ("run-0120.13", "#120.13")],
        *[("run-poison-001", "poison-001"), ("run-given-012", "given-012")],
        *((name, name) for name in ("other-0004.2", "run-0004.2.1", "run-0004.", "other-given-012", "0004.2", "run")),
    ],
)
def test_a_memory_of_the_run_is_called_by_its_number_and_wording(memory_id: str, label: str) -> None:
    assert memory_label(memory_id, "run") == label


@pytest.mark.parametrize(
    ("follows", "credit", "credited", "said", "why"),
    [
        (Follows(("r-0001",), True, True), "followed", ("r-0001",), "follows #1 · right one at hand, taken",
         "Credited, because the answer follows: #1. In the prompt, not followed, not credited: #2."),
        (Follows((), True, False), "followed", (), "follows no memory · right one at hand, not taken",
         "The answer follows no memory: none is credited."),
        (Follows((), False, False), "followed", ("r-0001", "r-0002"), "follows no memory · right one not at hand",
         "The answer follows no memory: all of the prompt are credited."),
        (Follows(("r-0002",)), "prompt", ("r-0001", "r-0002"), "follows #2", "All of the prompt are credited."),
        (None, "followed", ("r-0001", "r-0002"), "which memory it follows is not known",
         "Which memory the answer follows is not known: all of the prompt are credited."),
    ],
)  # fmt: skip
def test_a_step_says_what_it_follows_and_whom_that_credits(
    follows: Follows | None, credit: str, credited: tuple[str, ...], said: str, why: str
) -> None:
    recall, decision = a_decision([(0.9, 0.0), (0.8, 0.0)])
    answer = GenerateRecord("m", False, {}, (), (), (Turn(Reply("Blue"), "", 1.0, True, False),))
    reward = RewardRecord(1.0, "environment", "success", "Solved.", "", "", credited)
    trace = StepTrace(
        "r-0003-a", "r", 3, 1, Task("t", "?", "helpdesk"), "memrl", {"credit": credit}, "",
        recall=recall, decision=decision, generate=answer, reward=reward, follows=follows,
    )  # fmt: skip
    assert followed(trace) == said and credited_because(trace) == why
    nothing = replace(trace, decision=replace(trace.decision, selected=())) if trace.decision else trace
    assert followed(nothing) == credited_because(nothing) == ""
    assert credited_because(replace(trace, reward=replace(reward, reward=None))) == ""
