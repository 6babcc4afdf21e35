"""WebCoach: condensed episodes, a coach that speaks or keeps silent, and what of that the model reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memrl_core.agent.asking import templates
from memrl_core.environments.tasks import sample_tasks
from memrl_core.guards import decision_breaks
from memrl_core.models.simulated import SimulatedModel
from memrl_core.policies import make_policy
from memrl_core.policies.methods.webcoach import (
    COACH,
    GATE,
    Coaching,
    Condensed,
    FailMode,
    Workflow,
    advice_from,
    laid_out,
)
from memrl_core.records import Outcome
from memrl_core.retrieval.view import Asked
from tests.policies.policy_run import an_agent_of
from tests.policies.pools import ASKED, a_memory, a_pool, an_experience, by_template, decided, prompt_text, reasons

TASKS = sample_tasks("household-train")
OUTCOMES = st.sampled_from(["success", "failure", "unrated"])
SIMILARITIES = st.integers(-9, 9).map(lambda tenth: tenth / 10)
POOL = a_pool(("success", 0.9), ("failure", 0.8), ("unrated", 0.7))


def says(intervene: bool, advice: str = "Look in the pantry.", reason: str = "it fits.") -> dict[str, Any]:
    return {COACH: Coaching(intervene=intervene, advice=advice, reason=reason).model_dump()}


def heard(answers: dict[str, Any]) -> Any:
    return replace(POOL, asked=replace(POOL.asked, answers=answers))


# --- what the coach reads ---------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(OUTCOMES, SIMILARITIES), max_size=9), st.sets(st.integers(0, 8)))
def test_it_reads_the_five_nearest_and_none_of_the_task_that_is_asked(known: Any, own: set[int]) -> None:
    view = a_pool(*known, own=sorted(own))
    recalled, decision = decided("webcoach", view, templates, ties="older")
    others = [n for n in range(len(known)) if n not in own]
    nearest = sorted(others, key=lambda n: (-known[n][1], n))[:5]
    assert [member.memory_id for member in recalled.pool] == [f"m-{n}" for n in nearest]
    assert decision_breaks(recalled, decision) == ""


def test_the_question_holds_the_task_what_is_seen_and_the_episodes_with_their_outcomes() -> None:
    asked: list[str] = []

    def ask(question: Any) -> None:
        asked.append(question.message)

    decided("webcoach", POOL, ask)
    (text,) = asked
    assert "Task: put a hot apple on the desk\nYou see an apple." in text
    assert "[memory m-0]\nOutcome: success. Similarity: 0.90.\nTask: do m-0" in text
    assert text.index("[memory m-0]") < text.index("[memory m-1]") < text.index("[memory m-2]")


# --- speaking and silence ---------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(OUTCOMES, SIMILARITIES), min_size=1, max_size=7))
def test_the_rule_speaks_above_the_gate_when_an_episode_is_judged(known: Any) -> None:
    assume(all(similarity != GATE for _, similarity in known))  # No float32 vector has just this cosine.
    read = [known[n] for n in sorted(range(len(known)), key=lambda n: (-known[n][1], n))[:5]]
    speaks = read[0][1] > GATE and any(outcome != "unrated" for outcome, _ in read)
    decision = by_template("webcoach", a_pool(*known), ties="older")
    assert decision.mode == ("greedy" if speaks else "silent")
    assert len(decision.selected) == (len(read) if speaks else 0)


def test_a_silent_coach_selects_nothing_and_says_why() -> None:
    decision = decided("webcoach", heard(says(False, "", "another kitchen")))[1]
    assert (decision.mode, decision.selected) == ("silent", ())
    assert set(reasons(decision).values()) == {"kept_silent"}
    assert decision.note.endswith("another kitchen.")
    assert decision.greedy == ("m-0", "m-1", "m-2")


def test_a_coach_that_speaks_gives_what_it_has_read() -> None:
    decision = decided("webcoach", heard(says(True)))[1]
    assert (decision.mode, decision.selected) == ("greedy", ("m-0", "m-1", "m-2"))
    assert decision.note.endswith("it fits.")


@pytest.mark.parametrize("answers", [{COACH: None}, says(True, "  ")])
def test_without_usable_advice_it_keeps_silent(answers: dict[str, Any]) -> None:
    decision = decided("webcoach", heard(answers))[1]
    assert decision.mode == "silent" and decision.note


def test_it_is_asked_at_the_beginning_only_unless_it_is_told_every_how_many_turns() -> None:
    def turns(**settings: Any) -> list[int]:
        policy = make_policy("webcoach", settings)
        return [turn for turn in range(7) if policy.when(Asked(ASKED, turn=turn)).now]

    assert turns() == [0]
    assert turns(every=3) == [0, 3, 6]


# --- the message ------------------------------------------------------------------------------------------------------


def test_the_advice_stands_above_the_memories_that_it_comes_from() -> None:
    view = heard(says(True))
    selected = [view.memories["m-0"], view.memories["m-1"]]
    messages, spans = make_policy("webcoach", {}).render(selected, "Act.", "boil it", "You see.", view)
    text = prompt_text(messages)
    assert text.startswith(
        "## Advice of the coach\n\n[memory m-0, m-1]\nLook in the pantry.\n\n## Memories that worked"
    )
    assert text.endswith("## Your task\n\nTask: boil it\nYou see.")
    for span, memory in zip(spans, selected, strict=True):
        assert text[span.start : span.end] == f"[memory {memory.id}]\n{memory.experience}"


def test_within_an_episode_the_same_message_is_added() -> None:
    view = heard(says(True))
    text = make_policy("webcoach", {}).render_turn([view.memories["m-1"]], view)
    assert text.startswith("## Advice of the coach\n\n[memory m-1]\nLook in the pantry.\n\n## Memories that failed")
    assert "Your task" not in text


def test_advice_by_the_rule_quotes_two_of_each_kind_under_their_ids() -> None:
    memories = [a_memory(f"m-{n}", outcome) for n, outcome in enumerate(["success", "failure"] * 3)]
    advice = advice_from(memories)
    assert [line for line in advice.splitlines() if line.startswith("[memory")] == [
        "[memory m-0]",
        "[memory m-2]",
        "[memory m-1]",
        "[memory m-3]",
    ]
    assert "[memory m-1]\nTask: do m-1\nAvoid:\n> burn m-1\nTry instead:\n> cool m-1" in advice
    assert "burned" not in advice


# --- condensed episodes -----------------------------------------------------------------------------------------------

FAILED = "Task: boil an egg\nWhat went wrong: it burst.\nAvoid:\n> heat egg with microwave\nTry instead:\n> heat egg"


@pytest.mark.parametrize(
    ("text", "outcome", "modes", "workflows"),
    [
        (
            "Task: boil an egg\nSteps that worked:\n> heat egg",
            "success",
            [],
            [("put a hot apple on the desk", ["heat egg"])],
        ),
        (FAILED, "failure", [("it burst.", ["heat egg with microwave"], ["heat egg"])], []),
        ("It simply went well.", "success", [], []),
    ],
)
def test_without_a_model_an_episode_is_cut_to_its_lines(
    text: str, outcome: Outcome, modes: list[Any], workflows: list[Any]
) -> None:
    (written,) = make_policy("webcoach", {}).write(an_experience(text, outcome), a_pool(), templates)
    condensed = Condensed.model_validate(written.operation.data)
    assert [(m.pattern, m.avoid, m.instead) for m in condensed.fail_modes] == modes
    assert [(w.name, w.steps) for w in condensed.success_workflows] == workflows
    assert outcome in condensed.summary
    assert written.operation.experience == laid_out("put a hot apple on the desk", condensed)
    assert (written.operation.op, written.operation.outcome, written.operation.parents) == ("ADD", outcome, ("m-0",))


def test_what_nobody_has_judged_is_not_kept_and_not_condensed() -> None:
    def ask(question: Any) -> Any:
        raise AssertionError("asked")

    assert make_policy("webcoach", {}).write(an_experience("Task: a", "unrated"), a_pool(), ask) == ()


def test_two_workflows_and_fail_modes_stand_in_a_prompt_in_its_layout() -> None:
    condensed = Condensed(
        summary="It was\nlong.",
        fail_modes=[FailMode(pattern=f"p{n}", avoid=[f"> avoid {n}"], instead=[]) for n in range(3)],
        success_workflows=[Workflow(name=f"w{n}", steps=[f"step {n}", " "]) for n in range(3)],
    )
    assert laid_out("boil an egg", condensed).splitlines() == [
        "Task: boil an egg",
        "Summary: It was long.",
        "Steps that worked:",
        "> step 0",
        "Steps that worked:",
        "> step 1",
        "What went wrong: p0",
        "Avoid:",
        "> avoid 0",
        "What went wrong: p1",
        "Avoid:",
        "> avoid 1",
    ]


def test_an_episode_that_the_model_cannot_condense_is_kept_as_it_is() -> None:
    (written,) = make_policy("webcoach", {}).write(an_experience(FAILED, "failure"), a_pool(), lambda question: None)
    assert written.operation.experience == FAILED
    assert written.operation.why
    assert written.operation.data == {}


# --- a whole run ------------------------------------------------------------------------------------------------------


def test_in_a_run_the_coach_can_be_asked_within_an_episode(tmp_path: Path) -> None:
    agent = an_agent_of(tmp_path / "bank", "webcoach", SimulatedModel(), every=2, exclude_same_task=False)
    trace = list(agent.run(TASKS[:1], epochs=2))[-1]
    asked = [n for n, turn in enumerate(trace.generate.turns) if turn.recalled is not None]
    assert asked == list(range(2, len(trace.generate.turns), 2))
    assert len([one for one in trace.consulted if one.purpose == COACH]) == 1 + len(asked)
