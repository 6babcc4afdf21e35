"""MemP: its numbers by hand and by a recount, what each mode stores, rewords and deletes, and whole runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.agent.asking import templates
from memrl_core.analysis.decision.explain import update_formula
from memrl_core.analysis.decision.whatif import decided, situation_of
from memrl_core.policies.base import NewExperience
from memrl_core.policies.methods.memp import UNUSABLE, Adjusted, Memp, MempSettings
from memrl_core.records import (
    Decision,
    GenerateRecord,
    MemoryOperation,
    Outcome,
    Reply,
    RewardRecord,
    StepTrace,
    Task,
    Turn,
    UpdateRecord,
    Utility,
    ValueChange,
)
from memrl_core.retrieval.view import MemoryView
from tests.builders import a_vector, alike_tasks
from tests.policies.policy_run import a_view, an_agent_of
from tests.small_banks import give_reward

WORKED = "Task: {0}\nSteps that worked:\n> take egg from table\n> heat egg with microwave\n> put egg on desk\n"
FAILED = (
    "Task: {0}\nWhat went wrong: The microwave fails.\nAvoid:\n> heat cup with microwave\nTry instead:\n"
    "> take cup from table\n> heat cup with stove\n> put cup on desk\n"
)


def memp(**chosen: Any) -> Memp:
    return Memp(MempSettings.of(chosen))


def utilities(view: MemoryView, **of: tuple[float, int]) -> MemoryView:
    """The view with other q and visits for some of its memories, named by m00, m01, …"""
    q, visits = view.q.copy(), view.visits.copy()
    for name, (rate, hits) in of.items():
        position = view.position(f"m-{name[1:]}")
        q[position], visits[position] = rate, hits
    return replace(view, q=q, visits=visits)


def worded(view: MemoryView, memory_id: str, intent: str) -> MemoryView:
    """The view with a script of a success in the place of a memory's text."""
    memory = replace(view.memories[memory_id], intent=intent, experience=WORKED.format(intent), outcome="success")
    return replace(view, memories={**view.memories, memory_id: memory})


def decision_of(policy: Memp, view: MemoryView, seed: int = 1) -> Decision:
    recalled = policy.recall(view.asked.embedding, view)
    asked = replace(view.asked, answers=policy.consult(recalled, view, templates))
    return policy.select(recalled, replace(view, asked=asked), seed)


def ended(
    outcome: Outcome, decision: Decision | None, experience: str = "", intent: str = "do b", moved: Any = ()
) -> NewExperience:
    """The end of an episode of two turns whose prompt was decided so."""
    turns = (
        Turn(Reply("take egg from table"), "You hold the egg.", 0.0, False, False),
        Turn(Reply("look around"), "Nothing happens.", 0.0, False, False),
        Turn(Reply("put egg on desk"), "Done.", 1.0, True, False),
    )
    base = StepTrace("s", "r", 9, 1, Task("b", intent, "household"), "memp", MempSettings().model_dump(), "")
    trace = replace(
        base,
        decision=decision,
        generate=GenerateRecord("simulated", True, {}, (), (), turns),
        reward=RewardRecord(None, None, outcome, "It ended.", "", "", ()),
        update=UpdateRecord(tuple(moved)),
    )
    text = experience or (FAILED if outcome == "failure" else WORKED).format(intent)
    return NewExperience(
        "r-0009", intent, a_vector(7), text, outcome, decision.selected if decision else (), trace,
        lambda: "r-0009-2", lambda texts: np.stack([a_vector(len(text)) for text in texts]),
    )  # fmt: skip


def written(policy: Memp, new: NewExperience, view: MemoryView, ask: Any = templates) -> list[MemoryOperation]:
    return [one.operation for one in policy.write(new, view, ask)]


# --- the success rate -------------------------------------------------------------------------------------------------


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.sampled_from([(0.0, 1.0), (-1.0, 1.0), (1.0, 5.0)]))
def test_q_is_successes_by_hits_on_any_scale_of_rewards(won: list[bool], scale: tuple[float, float]) -> None:
    settings = MempSettings(reward_failure=scale[0], reward_success=scale[1]).model_dump()
    known = Utility(0.0, 0)
    for success in won:
        known = Utility(Memp.rule(known, scale[success], settings), known.visits + 1)
    assert known.q == pytest.approx(sum(won) / len(won), abs=1e-12)


@given(st.floats(-10, 10), st.integers(0, 20), st.booleans())
def test_what_another_rule_left_is_cut_to_a_rate_first(q: float, visits: int, won: bool) -> None:
    rate = 0.0 if q < 0 else 1.0 if q > 1 else q
    found = Memp.rule(Utility(q, visits), float(won), MempSettings().model_dump())
    assert found == pytest.approx((rate * visits + won) / (visits + 1))
    assert 0 <= found <= 1


def test_an_update_tells_the_mean_with_its_numbers() -> None:
    (change,) = memp(reward_failure=-1.0).update(["r-0004"], 1.0, {"r-0004": Utility(0.5, 2)})
    assert (change.after, change.visits, change.alpha) == (pytest.approx(2 / 3), 3, pytest.approx(1 / 3))
    assert update_formula(change, "r") == "q(#4): (2 × 0.500 + 1) / 3 = 0.667"


def test_only_the_first_memory_of_the_prompt_is_credited() -> None:
    policy = memp(delta=-1.0)
    decision = decision_of(policy, a_view(["a", "b", "c"], asked="b"))
    assert len(decision.selected) == 3
    assert policy.credited(decision) == decision.selected[:1]


# --- what is written --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("update", "stored"),
    [("vanilla", "ADD ADD ADD"), ("validation", "ADD NOOP NOOP"), ("adjustment", "ADD UPDATE NOOP")],
)
def test_each_mode_stores_what_it_says(update: str, stored: str) -> None:
    policy, view = memp(update=update, delta=-1.0), a_view(["a", "b"], asked="b")
    decision = decision_of(policy, view)
    ends: tuple[Outcome, ...] = ("success", "failure", "unrated")
    assert [op.op for end in ends for op in written(policy, ended(end, decision), view)] == stored.split()


def test_a_failure_rewords_the_first_memory_in_its_place() -> None:
    policy = memp(delta=-1.0)
    view = worded(a_view(["a", "b", "c"], asked="b"), "m-02", "heat egg")
    first = "m-02"
    decision = replace(decision_of(policy, view), selected=(first, "m-00"))
    new = ended("failure", decision, intent="heat cup")
    (one,) = policy.write(new, view, templates)
    operation = one.operation
    assert (operation.op, operation.replaces, operation.intent) == ("UPDATE", (first,), "heat egg")
    assert operation.outcome == "success"
    assert operation.experience == FAILED.format("heat cup")
    assert one.embedding.tolist() == view.embeddings[view.position(first)].tolist()


def test_a_memory_whose_steps_are_not_to_blame_keeps_them() -> None:
    policy = memp(delta=-1.0)
    view = worded(a_view(["a"], asked="b"), "m-00", "heat egg")
    other = "Task: do b\nWhat went wrong: Too slow.\nAvoid:\n> search drawer\nTry instead:\n> take book from shelf\n"
    (operation,) = written(policy, ended("failure", decision_of(policy, view), other), view)
    assert operation.experience == WORKED.format("heat egg") + "What went wrong: Too slow.\n"


# --- deletion ---------------------------------------------------------------------------------------------------------


def test_the_released_code_forgets_from_three_hits_below_a_half() -> None:
    rates = {"m00": (1 / 3, 3), "m01": (0.5, 4), "m02": (0.0, 2), "m03": (0.49, 100), "m04": (0.0, 0)}
    view = utilities(a_view(["a", "b", "c", "d", "e"]), **rates)
    (deletion,) = memp(variant="code").forget(view)
    assert (deletion.op, deletion.replaces) == ("DELETE", ("m-00", "m-03"))
    assert memp(variant="code", delete_from=2, delete_below=0.1).forget(view)[0].replaces == ("m-02",)
    assert memp(variant="paper").forget(view) == ()


def test_memories_that_the_run_does_not_see_are_not_forgotten() -> None:
    view = utilities(a_view(["a", "b"]), m00=(0.0, 5), m01=(0.0, 5))
    view = replace(view, visible=np.array([False, True]), learned={"m-00", "m-01"})
    assert [one.replaces for one in memp(variant="code").forget(view)] == [("m-01",)]
    assert memp(variant="code").forget(replace(view, learned={"m-00"})) == (), "only what this run stored"


@pytest.mark.parametrize("update", ["vanilla", "validation", "adjustment"])
def test_what_the_step_itself_condemns_is_deleted_and_not_reworded(update: str) -> None:
    policy = memp(variant="code", update=update, delta=-1.0)
    view = utilities(a_view(["a", "b"], asked="b"), m00=(0.5, 2), m01=(0.5, 2))
    decision = decision_of(policy, view)
    first = decision.selected[0]
    moved = [ValueChange(first, 0.5, 1 / 3, 3, 0.0, 1 / 3)]
    *others, deletion = written(policy, ended("failure", decision, intent="do z", moved=moved), view)
    assert (deletion.op, deletion.replaces) == ("DELETE", (first,))
    assert [op.op for op in others] == ["ADD" if update == "vanilla" else "NOOP"]
    assert policy.forget(view) == ()


def test_the_released_code_stores_a_task_once() -> None:
    view = a_view(["a", "b"])
    (operation,) = written(memp(variant="code"), ended("success", None, intent="do b"), view)
    assert (operation.op, operation.duplicate_of) == ("NOOP", "m-01")
    assert written(memp(), ended("success", None, intent="do b"), view)[0].op == "ADD"


# --- a language model -------------------------------------------------------------------------------------------------


def test_the_new_wording_is_the_models_and_an_unusable_reply_rewords_nothing() -> None:
    policy, view = memp(delta=-1.0), a_view(["a"], asked="b")
    new = ended("failure", decision_of(policy, view))
    form = Adjusted(what_went_wrong="no\nwater", avoid=["> use the dishwasher"], try_instead=["use the sink"])
    (reworded,) = written(policy, new, view, lambda question: form)
    reported = "What went wrong: no water\nAvoid:\n> use the dishwasher\nTry instead:\n> use the sink\n"
    assert (reworded.op, reworded.experience.partition("\n")[2]) == ("UPDATE", reported)
    (kept,) = written(policy, new, view, lambda question: None)
    assert (kept.op, kept.why) == ("NOOP", UNUSABLE)


# --- whole runs -------------------------------------------------------------------------------------------------------


def recount(traces: Sequence[StepTrace]) -> dict[str, tuple[int, int]]:
    """Oracle: successes and hits of every memory that is left, followed through its rewordings."""
    left: dict[str, tuple[int, int]] = {}
    for trace in traces:
        assert trace.reward
        for memory_id in trace.decision.selected[:1]:
            won, hits = left[memory_id]
            left[memory_id] = (won + (trace.reward.outcome == "success"), hits + 1)
        for op in trace.write.operations:
            before = [left.pop(i) for i in op.replaces]
            if op.memory_id:
                left[op.memory_id] = before[0] if before else (0, 0)
    return left


@pytest.mark.parametrize(
    ("family", "seed", "chosen"),
    [
        ("clean", 30, {}),
        ("clean", 30, {"variant": "code", "update": "vanilla", "k2": 2}),
        ("examine", 29, {"update": "validation"}),
    ],
)
def test_a_run_keeps_the_success_rate_of_each_script(
    tmp_path: Path, family: str, seed: int, chosen: dict[str, Any]
) -> None:
    agent = an_agent_of(tmp_path / "bank", "memp", seed=seed, **chosen)
    tasks = [task for task in alike_tasks() if task.family == family][:4]
    traces = list(agent.run(tasks, epochs=3))
    counted = recount(traces)
    known = agent.bank.utilities("r")
    assert set(known) == set(counted) != set()
    for memory_id, (won, hits) in counted.items():
        assert known[memory_id].visits == hits
        assert known[memory_id].q == pytest.approx(won / max(1, hits))
    last = traces[-1]
    assert last.decision is not None
    assert decided(situation_of(agent.bank, last)) == (last.recall, last.decision)


def test_what_a_late_reward_condemns_is_deleted_at_the_end_of_the_next_step(tmp_path: Path) -> None:
    tasks = [task for task in alike_tasks() if task.family in ("heat", "clean")][:4]
    agent = an_agent_of(tmp_path / "bank", "memp", seed=0, variant="code", update="vanilla", k2=2)
    traces = list(agent.run(tasks, epochs=5))
    doomed = next(i for i, known in agent.bank.utilities("r").items() if known.visits >= 3 and known.q >= 0.5)
    for trace in traces:
        if trace.decision and trace.decision.selected[:1] == (doomed,):
            give_reward(agent.bank, "r", trace.step, trace.id, (doomed,), 0.0, "ann")
    assert agent.bank.utilities("r")[doomed].q == 0
    list(agent.run(tasks[:1]))
    assert doomed not in agent.bank.utilities("r")


@pytest.mark.parametrize(
    ("chosen", "variant"), [({}, "paper"), ({"variant": "code"}, "code"), ({"update": "vanilla"}, "adapted")]
)
def test_the_card_says_whose_rules_these_are(chosen: dict[str, Any], variant: str) -> None:
    spec = memp(**chosen).spec
    assert spec.variant == variant and spec.keeps_q
