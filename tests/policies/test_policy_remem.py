"""ReMem as a prompted loop: what is retrieved is pruned once by the model before it is used."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memrl_core.environments.tasks import sample_tasks
from memrl_core.guards import decision_breaks
from memrl_core.policies.methods.remem import UNREADABLE, Pruning
from memrl_core.records import Phase
from tests.models.forms import FillsForms
from tests.policies.policy_run import an_agent_of
from tests.policies.pools import a_pool, by_template, decided, reasons

TASKS = sample_tasks("household-train")
OUTCOMES = st.sampled_from(["success", "failure", "unrated"])
KNOWN = st.lists(st.tuples(OUTCOMES, st.integers(-9, 9).map(lambda tenth: tenth / 10)), min_size=1, max_size=7)
FIVE = a_pool(*[("success", 0.9 - n / 10) for n in range(5)])


def dropping(*ids: str) -> Any:
    return lambda question: Pruning(drop=list(ids), reason="they mislead")


@given(KNOWN, st.sets(st.integers(0, 6)), st.integers(1, 4))
def test_what_is_dropped_is_taken_out_of_the_retrieved_set_and_nothing_takes_its_place(
    known: Any, dropped: set[int], k: int
) -> None:
    nearest = [f"m-{n}" for n in sorted(range(len(known)), key=lambda n: (-known[n][1], n))]
    named = {f"m-{n}" for n in dropped}
    recalled, decision = decided("remem", a_pool(*known), dropping(*sorted(named)), k2=k, ties="older")
    assert list(decision.selected) == [memory_id for memory_id in nearest[:k] if memory_id not in named]
    assert decision.greedy == tuple(nearest[:k])
    reported = reasons(decision)
    pruned = {memory_id for memory_id, reason in reported.items() if reason == "pruned_by_model"}
    assert pruned == named & set(nearest[:k])
    assert {reported[memory_id] for memory_id in nearest[k:]} <= {"beyond_k2"}
    assert decision_breaks(recalled, decision) == ""


def test_the_model_sees_the_retrieved_set_alone() -> None:
    reported: list[str] = []

    def ask(question: Any) -> None:
        reported.append(question.message)

    decided("remem", FIVE, ask, k2=2)
    assert "Task: put a hot apple on the desk\nYou see an apple." in reported[0]
    assert [n for n in range(5) if f"[memory m-{n}]" in reported[0]] == [0, 1]


def test_ids_that_were_not_retrieved_are_passed_over_and_said() -> None:
    decision = decided("remem", FIVE, dropping(" m-1 ", "m-4", "x" * 500))[1]
    assert decision.selected == ("m-0", "m-2", "m-3")
    assert decision.note.startswith("1 of 4 ") and "“m-4”" in decision.note
    assert "xxx" not in decision.note


def test_what_cannot_be_read_prunes_nothing_and_is_said() -> None:
    decision = decided("remem", FIVE, lambda question: None)[1]
    assert decision.selected == ("m-0", "m-1", "m-2", "m-3")
    assert decision.note == UNREADABLE


@given(KNOWN)
def test_the_rule_drops_what_is_half_as_similar_and_failures_beside_a_better_success(known: Any) -> None:
    retrieved = sorted(range(len(known)), key=lambda n: (-known[n][1], n))[:4]
    best = known[retrieved[0]][1]
    assume(all(abs(similarity - best / 2) > 1e-6 for _, similarity in known))  # Cosines of float32 are not that exact.
    successes = [known[n][1] for n in retrieved if known[n][0] == "success"]
    kept = []
    for n in retrieved:
        outcome, similarity = known[n]
        far = similarity < best / 2 and similarity < best
        outdone = outcome == "failure" and any(similarity <= success for success in successes)
        if not far and not outdone:
            kept.append(f"m-{n}")
    assert list(by_template("remem", a_pool(*known), ties="older").selected) == kept


# --- a whole run ------------------------------------------------------------------------------------------------------


def test_in_a_run_with_a_model_its_words_decide(tmp_path_factory: pytest.TempPathFactory) -> None:
    model = FillsForms(lambda reported: {"drop": ["r-0001"], "reason": "too old"})
    agent = an_agent_of(tmp_path_factory.mktemp("asked") / "bank", "remem", model)
    trace = list(agent.run(TASKS[:3]))[-1]
    assert trace.decision.selected == ("r-0002",)
    (asked,) = [one for one in trace.consulted if one.phase is Phase.SELECT]
    assert (asked.filled, asked.simulated) == ({"drop": ["r-0001"], "reason": "too old"}, False)
