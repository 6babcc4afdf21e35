"""Self-RAG-style, prompted: the model says whether it needs memory, and grades what was found."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.environments.tasks import sample_tasks
from memrl_core.guards import decision_breaks
from memrl_core.policies.methods.self_rag import NEED, RELEVANCE, Grade, Grades, Need
from tests.builders import numbers
from tests.models.forms import FillsForms
from tests.policies.policy_run import an_agent_of
from tests.policies.pools import a_pool, by_template, candidate, decided, reasons

TASKS = sample_tasks("household-train")
OUTCOMES = st.sampled_from(["success", "failure", "unrated"])
KNOWN = st.lists(st.tuples(OUTCOMES, st.integers(-9, 9).map(lambda tenth: tenth / 10)), min_size=1, max_size=7)
GRADES = st.dictionaries(st.integers(0, 8), st.integers(0, 20).map(lambda n: n / 20))
THREE = a_pool(("success", 0.9), ("failure", 0.6), ("unrated", 0.3))


def model(needed: bool | None = True, grades: dict[str, float] | None = None) -> Any:
    """Answers both questions; None where a reply cannot be read."""

    def ask(question: Any) -> Any:
        if question.purpose == NEED:
            return None if needed is None else Need(needed=needed, reason="it is new.")
        assert question.purpose == RELEVANCE
        if grades is None:
            return None
        return Grades(grades=[Grade(memory_id=memory_id, relevance=grade) for memory_id, grade in grades.items()])

    return ask


@given(KNOWN, GRADES, st.integers(0, 4), st.integers(0, 10).map(lambda n: n / 10))
def test_the_best_graded_above_the_threshold_are_used(
    known: Any, graded: dict[int, float], k2: int, threshold: float
) -> None:
    given_grades = {f"m-{n}": grade for n, grade in graded.items()}
    recalled, decision = decided(
        "self_rag", a_pool(*known), model(grades=given_grades), k1=10, k2=k2, threshold=threshold, ties="older"
    )
    grade = {n: graded.get(n, 0.0) for n in range(len(known))}
    best = sorted(grade, key=lambda n: (-grade[n], -known[n][1], n))
    assert list(decision.selected) == [f"m-{n}" for n in best if grade[n] > threshold][:k2]
    for n in grade:
        found = candidate(decision, f"m-{n}")
        assert found.score == pytest.approx(grade[n])
        assert (found.reason == "pruned_by_model") == (grade[n] <= threshold)
    assert decision_breaks(recalled, decision) == ""


def test_relevance_has_all_the_weight_and_similarity_is_shown() -> None:
    terms = candidate(by_template("self_rag", THREE), "m-1").terms
    assert [(term.name, term.weight, round(term.raw, 6)) for term in terms] == [
        ("relevance", 1.0, 0.3),
        ("similarity", 0.0, 0.6),
    ]


def test_when_memory_is_not_needed_nothing_is_used_and_nothing_is_graded() -> None:
    asked: list[str] = []

    def ask(question: Any) -> Any:
        asked.append(question.purpose)
        return Need(needed=False, reason="it is simple.")

    decision = decided("self_rag", THREE, ask)[1]
    assert (decision.mode, decision.selected) == ("silent", ())
    assert set(reasons(decision).values()) == {"kept_silent"}
    assert decision.note.endswith("it is simple.")
    assert asked == [NEED]


def test_whether_memory_is_needed_is_asked_without_showing_it() -> None:
    reported = {}

    def ask(question: Any) -> Any:
        reported[question.purpose] = question.message
        return model(grades={})(question)

    decided("self_rag", THREE, ask)
    assert reported[NEED] == "Task: put a hot apple on the desk\nYou see an apple."
    assert reported[RELEVANCE].startswith(reported[NEED])
    assert reported[RELEVANCE].count("[memory m-") == 3


def test_a_need_that_cannot_be_read_counts_as_needed() -> None:
    decision = decided("self_rag", THREE, model(None, {"m-2": 0.9}))[1]
    assert decision.selected == ("m-2",)
    assert decision.note


def test_grades_that_cannot_be_read_leave_the_choice_to_similarity() -> None:
    decision = decided("self_rag", THREE, model(True, None), k2=2)[1]
    assert decision.selected == ("m-0", "m-1")
    assert decision.note
    assert [term.name for term in candidate(decision, "m-0").terms] == ["similarity"]


def test_what_got_no_grade_counts_as_nothing_and_strangers_are_passed_over() -> None:
    decision = decided("self_rag", THREE, model(True, {" m-1 ": 0.8, "m-77": 1.0}))[1]
    assert decision.selected == ("m-1",)
    assert " 2 of 3 " in decision.note


@given(KNOWN, st.integers(0, 9).map(lambda n: n / 10 + 0.03))
def test_by_the_rule_relevance_is_the_similarity_and_half_of_it_without_a_success(known: Any, threshold: float) -> None:
    relevance = [max(similarity, 0.0) * (1.0 if outcome == "success" else 0.5) for outcome, similarity in known]
    decision = by_template("self_rag", a_pool(*known), k1=10, k2=10, threshold=threshold, ties="older")
    used = sorted((n for n in range(len(known)) if relevance[n] > threshold), key=lambda n: decision_order(known, n))
    assert list(decision.selected) == [f"m-{n}" for n in used]
    assert (decision.mode == "silent") == (not used)


def decision_order(known: Any, n: int) -> tuple[float, float, int]:
    """The higher relevance first, then the more similar, then the older."""
    outcome, similarity = known[n]
    return -round(max(similarity, 0.0) * (1.0 if outcome == "success" else 0.5), 6), -similarity, n


# --- a whole run ------------------------------------------------------------------------------------------------------


def test_in_a_run_with_a_model_its_words_decide(tmp_path_factory: pytest.TempPathFactory) -> None:
    shown = {"needed": True, "reason": "it is like the first.", "grades": [{"memory_id": "r-0001", "relevance": 0.9}]}
    agent = an_agent_of(tmp_path_factory.mktemp("asked") / "bank", "self_rag", FillsForms(lambda reported: shown))
    trace = list(agent.run(TASKS[:3]))[-1]
    assert trace.decision.selected == ("r-0001",)
    assert shown["reason"] in trace.decision.note and numbers(trace.decision.note) == ["1", "2", "0"]
