"""A whole run decided again: against the run itself, runs under other settings, and what others would have earned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memrl_core.agent.recorder import Recorder
from memrl_core.agent.rerun import Rerunner
from memrl_core.analysis.compare.counterfactual import Supposed, counterfactual, estimates, ties_of, would_have_earned
from memrl_core.analysis.decision.whatif import decided, situation_of
from memrl_core.analysis.memory.provenance import contamination
from memrl_core.analysis.people.reward_effect import reward_effect
from memrl_core.bank import MemoryBank
from memrl_core.environments import make_environment
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import InputError
from memrl_core.experiments.executors import run_experiment
from memrl_core.experiments.plan import Plan
from memrl_core.experiments.reports import reports
from memrl_core.models.simulated import SimulatedModel
from memrl_core.policies import POLICIES, policy_class
from memrl_core.records import Phase, StepTrace
from tests.analysis.many_methods import a_bank_of
from tests.builders import a_bank, a_run, a_step, a_vector, an_agent, an_agent_after
from tests.policies.foreign import installed
from tests.policies.policy_run import an_agent_of
from tests.policies.test_policy_contract import ReportedTies, Softmax
from tests.small_banks import give_reward

STEPS = 40
OWN = {"epsilon": 0.2, "delta": 0.1}


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    return an_agent_after(tmp_path_factory.mktemp("learned") / "bank", STEPS, **OWN).bank


def _under(bank: MemoryBank, **changes: Any) -> list[Supposed]:
    return counterfactual(bank, "r", {**bank.settings("r"), **changes})


def test_under_its_own_settings_every_step_decides_as_it_did(learned: MemoryBank) -> None:
    supposed = _under(learned)
    assert [s.step for s in supposed] == list(range(1, STEPS + 1))
    assert any(s.decision.mode == "explore" for s in supposed)
    for s in supposed:
        trace = learned.trace("r", s.step)
        assert trace.decision is not None
        assert (s.recall, s.decision) == (trace.recall, trace.decision)
        assert s.recorded == s.selected == trace.decision.selected
        assert (s.task, s.differs, s.entered, s.left) == (trace.task.id, False, (), ())


@pytest.mark.parametrize(
    "changes",
    [{"weight": 1.0}, {"weight": 0.0}, {"k2": 1}, {"k1": 3, "k2": 2}, {"delta": 0.6}, {"normaliser": "fixed"},
     {"epsilon": 0.6}, {"k1": 2, "k2": 2, "k1_counts": "intent"}],
)  # fmt: skip
def test_the_first_step_that_differs_is_where_a_real_run_parts(
    learned: MemoryBank, tmp_path: Path, changes: dict[str, Any]
) -> None:
    supposed = _under(learned, **changes)
    parts = next(s for s in supposed if s.selected != s.recorded)
    assert parts.step < STEPS
    real = an_agent_after(tmp_path / "bank", parts.step, **{**OWN, **changes}).bank
    for s in supposed[: parts.step]:
        trace = real.trace("r", s.step)
        assert s.selected == trace.decision.selected
        assert (s.recall, s.decision) == (trace.recall, trace.decision)


def test_each_step_is_decided_as_when_asked_alone(learned: MemoryBank) -> None:
    settings = {**learned.settings("r"), "weight": 0.9, "k1": 5}
    for s in counterfactual(learned, "r", settings):
        recall, decision = decided(situation_of(learned, learned.trace("r", s.step)), settings)
        assert (s.recall, s.decision) == (recall, decision)
        assert set(s.entered) == set(s.selected) - set(s.recorded)
        assert set(s.left) == set(s.recorded) - set(s.selected)
        assert s.differs == bool(s.entered or s.left)


def test_a_reward_that_came_while_a_step_was_under_way_counts_as_it_did(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank", k2=2, weight=1.0, delta=-1.0)
    tasks = sample_tasks("household-train")
    traces = list(agent.run(tasks[:12]))
    for number, task in enumerate(tasks[12:20]):
        episode, earlier = agent.begin(task), traces[-1]
        assert earlier.decision is not None
        for phase in (Phase.EMBED, Phase.RECALL):
            if number % 2 == (phase is Phase.RECALL):
                give_reward(agent.bank, "r", earlier.step, earlier.id, earlier.decision.selected, -9.0, "ann")
            episode.advance()
        traces.append(episode.finish())
    for s in counterfactual(agent.bank, "r", agent.bank.settings("r")):
        trace = agent.bank.trace("r", s.step)
        assert s.selected == trace.decision.selected
        assert [(c.q, c.score) for c in s.decision.candidates] == [(c.q, c.score) for c in trace.decision.candidates]


def test_progress_counts_and_cancel_keeps_what_was_done(learned: MemoryBank) -> None:
    settings = {**learned.settings("r"), "weight": 0.0}
    seen: list[tuple[int, int]] = []
    whole = counterfactual(learned, "r", settings, lambda *at: seen.append(at))
    assert seen == [(step, STEPS) for step in range(1, STEPS + 1)]
    seen.clear()
    part = counterfactual(learned, "r", settings, lambda *at: seen.append(at), lambda: len(seen) >= 7)
    assert len(seen) == 7
    assert part == whole[:7]
    assert counterfactual(learned, "r", settings, cancelled=lambda: True) == []
    assert learned.next_step("r") == STEPS + 1


def test_nothing_is_decided_where_nothing_was_recorded(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    assert counterfactual(bank, "r", bank.settings("r")) == []
    bank.write.commit_step(*a_step(1))
    assert counterfactual(bank, "r", bank.settings("r")) == []


def test_a_fork_is_decided_from_what_it_knew(learned: MemoryBank, tmp_path: Path) -> None:
    agent = an_agent_after(tmp_path / "bank", 12)
    agent.run_id, bank = "fork", agent.bank
    fork = a_run("fork", base="r", base_step=8, weight=0.8)
    bank.write.start_run(replace(fork, first_step=9, embedder=bank.embedder.name))
    list(agent.run(sample_tasks("household-train")[8:14]))
    supposed = counterfactual(bank, "fork", bank.settings("fork"))
    assert [s.step for s in supposed] == list(range(9, 15))
    assert all(s.selected == s.recorded for s in supposed)
    assert any(memory.startswith("r-") for s in supposed for memory in s.selected)


# --- by the other rule for ties ---------------------------------------------------------------------------------------


def test_ties_are_counted_at_both_cuts_and_the_other_rule_is_reported(tmp_path: Path) -> None:
    for rule, other in (("seeded", "older"), ("older", "seeded")):
        agent = an_agent(tmp_path / rule, weight=0.0, k1=3, k2=1, ties=rule)
        task = sample_tasks("household-train")[:1]
        traces = list(agent.run(task, 6))
        found = ties_of(agent.bank, "r")
        # From the third step on two equals stand at the cut of k2, from the fifth on four at that of k1.
        assert (found.steps, found.prompt, found.pool, found.either) == (6, 4, 2, 4)
        assert (found.rule, found.other) == (rule, other)
        first = traces[0].write.operations[0].memory_id if traces[0].write else ""
        for one in found.changed:
            by_age = one.selected if other == "older" else one.recorded
            assert by_age == (first,) != (one.recorded if other == "older" else one.selected)


def test_reports_tell_ties_and_own_memories_and_a_stream_can_leave_these_out(tmp_path: Path) -> None:
    plan = Plan.model_validate(
        {
            "title": "t", "seeds": 1, "epochs": 3, "arms": [{"name": "a", "settings": {"weight": 0, "k2": 1}}],
            "streams": [{"name": "s", "stages": [{"count": 4}], "grid": {"own_memories": [True, False]}}],
        }
    )  # fmt: skip
    experiment = run_experiment(plan, tmp_path / "out", jobs=1)
    with_own, without = (part for _, part in experiment.steps.groupby("stream", sort=False))
    assert with_own["used_same_task"].map(any).any() and not without["used_same_task"].map(any).any()
    tied = with_own[with_own["tied"]]
    assert len(tied) and not with_own[~with_own["tied"]]["other_by_tie"].any()
    notes = " · ".join(reports(experiment)[0].notes)
    own = 100 * experiment.steps["used_same_task"].map(any).mean()
    changed = 100 * experiment.steps["other_by_tie"].mean()
    assert f"a {100 * experiment.steps['tied'].mean():.0f} % ({changed:.0f} %)" in notes
    assert f"a {own:.0f} %" in notes


# --- every method -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def all_methods(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    """A run of each policy on four tasks, twice; then the second step of each gets a person's reward."""
    made = a_bank_of(tmp_path_factory.mktemp("replays") / "all_methods", {name: {} for name in POLICIES}, steps=8)
    for name in POLICIES:
        row = made.steps.rows(name)[1]
        give_reward(made, name, row.step, row.id, made.credits.of(name, row.step), 1.0, "ann")
    return made


@pytest.mark.parametrize("name", POLICIES)
def test_each_step_selects_again_what_it_selected_alone_and_in_one_pass(all_methods: MemoryBank, name: str) -> None:
    found = counterfactual(all_methods, name, {})
    for one, trace in zip(found, all_methods.traces(name), strict=True):
        recall, decision = decided(situation_of(all_methods, trace))
        assert [m.memory_id for m in recall.pool] == [m.memory_id for m in trace.recall.pool]
        assert decision.selected == trace.decision.selected
        assert not one.differs


@pytest.mark.parametrize("name", ["memp", "memento", "memrl", "rag"])
def test_what_people_taught_follows_the_methods_own_rule(all_methods: MemoryBank, name: str) -> None:
    given = next(event for event in all_methods.events(name) if event.rater == "ann")
    keeps_q = policy_class(name).spec.keeps_q
    found = reward_effect(all_methods, name, [given.id])
    now, without = all_methods.histories(name), {**all_methods.histories(name), **found.without}
    for memory_id in given.memory_ids:
        assert (now[memory_id] != without[memory_id]) is keeps_q


# --- what other settings would have earned ----------------------------------------------------------------------------


def test_the_estimators_worked_by_hand() -> None:
    reward, logged = np.array([1.0, 0.0, 1.0, 0.0]), np.array([0.5, 0.5, 0.25, 0.25])
    found = estimates(reward, logged, np.array([1, 0, 0.5, 0.5]), np.full(4, 0.5), np.full(4, 0.6))
    # Weights 2, 0, 2, 2.
    assert found.actual.value == 0.5 and found.heaviest == 2
    assert found.ips.value == pytest.approx((2 + 2) / 4)
    assert found.self_normalised.value == pytest.approx(4 / 6)
    assert found.doubly_robust.value == pytest.approx(0.6 + (2 * 0.5 + 2 * 0.5 - 2 * 0.5) / 4)
    assert found.effective == pytest.approx(6**2 / 12)


def test_the_estimators_find_a_truth_that_is_known_and_their_intervals_hold_it() -> None:
    chances = np.array([[0.1, 0.5, 0.9], [0.8, 0.4, 0.2]])  # Reward by context and action.
    logging, target = np.array([0.6, 0.3, 0.1]), np.array([[0.0, 0.1, 0.9], [0.9, 0.1, 0.0]])
    truth = (target * chances).sum(axis=1).mean()
    held, values = np.zeros(3), []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        context, action = rng.integers(0, 2, 400), rng.choice(3, 400, p=logging)
        reward = (rng.random(400) < chances[context, action]).astype(float)
        # A model of the reward that is wrong, so that only the correction makes it right.
        model = chances + 0.2
        expected = (target * model).sum(axis=1)[context]
        found = estimates(reward, logging[action], target[context, action], model[context, action], expected)
        each = (found.ips, found.self_normalised, found.doubly_robust)
        held += [one.low <= truth <= one.high for one in each]
        values.append([one.value for one in each])
    assert np.mean(values, axis=0) == pytest.approx([truth] * 3, abs=0.02)
    assert (held >= 88).all()


def test_a_run_that_explored_tells_what_other_settings_earn_and_a_greedy_one_says_why_it_cannot(tmp_path: Path) -> None:
    bank = an_agent_after(tmp_path / "explored", 6, 4, k1=4, k2=1, delta=-1.0, epsilon=0.5, weight=0.5).bank
    rewards = [t.reward.reward for t in bank.traces("r") if t.reward and t.decision and t.decision.candidates]
    same = would_have_earned(bank, "r", {})
    assert same.effective == pytest.approx(same.steps) == len(rewards)
    assert same.ips.value == same.self_normalised.value == pytest.approx(np.mean(rewards))
    other = would_have_earned(bank, "r", {"weight": 0.0, "epsilon": 0.0})
    assert 0 < other.effective < other.steps and other.heaviest > 1
    with pytest.raises(InputError):
        would_have_earned(bank, "r", {"k2": 3})
    greedy = an_agent_after(tmp_path / "greedy", 6, 4, k1=4, k2=1, delta=-1.0)
    with pytest.raises(InputError, match=r"ε of 0\.1"):
        would_have_earned(greedy.bank, "r", {"weight": 0.0})


def test_where_the_probabilities_of_choices_are_not_known_nothing_is_estimated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bank = a_bank(tmp_path / "recorded")
    ids = [Recorder(bank, "theirs").remember(f"intent {n}", "x", embedding=a_vector(n)) for n in range(3)]
    with Recorder(bank, "theirs").step("do it", embedding=a_vector(9)) as step:
        step.recalled([(memory_id, 0.9) for memory_id in ids])
        step.selected(ids[:1])
        step.rewarded(1.0)
    with pytest.raises(InputError, match="another program"):
        would_have_earned(bank, "theirs", {"k2": 2})
    # A policy that draws, and calls each of its choices certain.
    with installed(monkeypatch, softmax=Softmax, reported=ReportedTies):
        for name in ("softmax", "reported"):
            agent = an_agent_of(tmp_path / name, name, k2=1, delta=-1.0)
            list(agent.run(sample_tasks("household-train")[:8]))
            if name == "reported":
                assert would_have_earned(agent.bank, "r", {}).steps > 0
                continue
            with pytest.raises(InputError, match="calls its choice certain"):
                would_have_earned(agent.bank, "r", {})


def again_in(bank: MemoryBank) -> Callable[[StepTrace], Rerunner]:
    return lambda trace: Rerunner(bank, trace, SimulatedModel(), make_environment("household"))


def test_what_a_memory_earns_alone_is_told_from_what_its_company_earned(tmp_path: Path) -> None:
    alone, together = an_agent_after(tmp_path / "alone", 4, 5, k2=1), an_agent_after(tmp_path / "together", 4, 5, k2=3)
    shares = []
    for agent in (alone, together):
        found = contamination(agent.bank, "r", again_in(agent.bank))
        assert found.share is not None
        table = found.memories.set_index("memory_id")
        assert {i: u.q for i, u in agent.bank.utilities("r").items() if u.visits} == pytest.approx(table["q"].to_dict())
        assert (table["q"] - table["earned"] - table["company"]).abs().max() < 1e-12
        shares.append(found.share)
    assert 0 <= shares[0] <= 1 and shares[1] > shares[0]
