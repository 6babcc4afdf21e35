"""Methods that choose from the bank of one run: what each sees, chooses and comes to, and that nothing is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from memrl_core.agent import workspace
from memrl_core.agent.asking import view_before
from memrl_core.agent.rerun import Rerunner
from memrl_core.bank import MemoryBank
from memrl_core.environments import make_environment
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import InputError
from memrl_core.experiments.studies.methods import SameBank
from memrl_core.models.simulated import SimulatedModel
from memrl_core.policies import make_policy
from memrl_core.policies.base import When
from memrl_core.policies.methods.rag import Rag
from memrl_core.records import StepTrace, Task
from memrl_core.retrieval.view import Asked, MemoryView
from memrl_core.settings import MemRLSettings, PolicySettings

TASKS = sample_tasks("household-train")[:6]
STEPS = 10
EMBEDDER = workspace.make_embedder("hashing", workspace.Preferences())


def a_run_of(path: Path, policy: str, steps: int = STEPS) -> MemoryBank:
    """A bank with the run "r" of a policy over the same six tasks again and again."""
    bank = MemoryBank.create(str(path), EMBEDDER.name, EMBEDDER.dimension)
    workspace.start_run(bank, environment="household", tasks="household-train", run="r", policy=policy, seed=2)
    go_on(bank, "r", TASKS, steps)
    return bank


def go_on(bank: MemoryBank, run: str, tasks: Sequence[Task], steps: int) -> None:
    agent = workspace.live_run(bank, run, workspace.Preferences()).agent
    for number in range(steps):
        agent.begin(tasks[number % len(tasks)], number // len(tasks) + 1).finish()


def same_bank(bank: MemoryBank, run: str = "r") -> SameBank:
    world = make_environment("household", **bank.run(run).environment_options)
    return SameBank(bank, run, SimulatedModel(), EMBEDDER, world)


def chosen_by(bank: MemoryBank, policy: str, run: str = "r", **changes: Any) -> pd.DataFrame:
    return same_bank(bank, run).choose(make_policy(policy, {}), **changes)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    """A run of MemRL."""
    return a_run_of(tmp_path_factory.mktemp("same") / "bank", "memrl")


@pytest.mark.parametrize("policy", ["memrl", "memento", "reflexion", "webcoach", "self_rag"])
def test_the_policy_of_the_run_chooses_what_it_chose_and_comes_to_what_it_came_to(tmp_path: Path, policy: str) -> None:
    with a_run_of(tmp_path / "bank", policy) as bank:
        found, traces = chosen_by(bank, policy), bank.traces("r")
    assert [tuple(used) for used in found["used"]] == [t.decision.selected for t in traces if t.decision]
    assert (
        list(found["success"]) == list(found["recorded"]) == [t.reward.outcome == "success" for t in traces if t.reward]
    )
    assert (found["overlap"] == 1).all()
    calls = [
        len(t.generate.turns) + sum(c.phase in ("SELECT", "GENERATE") for c in t.consulted)
        for t in traces
        if t.generate
    ]
    assert list(found["calls"]) == calls


@pytest.mark.parametrize("policy", ["exprag", "memento", "reflexion", "none"])
def test_another_policy_sees_what_the_run_had_and_what_it_would_have_learned_by_watching(
    learned: MemoryBank, policy: str
) -> None:
    found = chosen_by(learned, policy)
    rules = make_policy(policy, {})
    for used, trace in zip(found["used"], learned.traces("r"), strict=True):
        assert trace.embed is not None
        view = view_before(learned, trace, policy)
        query = view.asked.embedding if view.asked is not None else EMBEDDER.embed([trace.task.intent])[0]
        decided = rules.select(rules.recall(query, view), view, trace.decision.seed)
        assert tuple(used) == decided.selected


def test_nothing_is_stored_and_the_choice_is_the_same_again(learned: MemoryBank) -> None:
    facts = learned.facts
    first, second = chosen_by(learned, "rag"), chosen_by(learned, "rag")
    assert learned.facts == facts
    columns = [name for name in first if name != "model_seconds"]
    pd.testing.assert_frame_equal(first[columns], second[columns])


@pytest.mark.parametrize("policy", ["memento", "pass_at_k"])
def test_a_policy_learns_from_steps_that_it_is_not_asked_about(learned: MemoryBank, policy: str) -> None:
    whole, last = chosen_by(learned, policy), chosen_by(learned, policy, steps=[STEPS])
    assert list(last["step"]) == [STEPS]
    assert list(last["used"].iloc[0]) == list(whole["used"].iloc[-1])


def test_overlap_is_what_both_chose_as_a_share_of_what_either_chose(learned: MemoryBank) -> None:
    found = chosen_by(learned, "exprag")
    shares = set()
    for used, overlap, trace in zip(found["used"], found["overlap"], learned.traces("r"), strict=True):
        own = list(trace.decision.selected)
        both = [memory for memory in used if memory in own]
        either = both + [m for m in used if m not in own] + [m for m in own if m not in used]
        assert overlap == (len(both) / len(either) if either else 1.0)
        shares.add(overlap)
    assert len(shares) > 2, "the two methods differ in some steps and agree in others"


def test_a_policy_under_other_settings_chooses_by_them(learned: MemoryBank) -> None:
    one = same_bank(learned).choose(make_policy("memrl", MemRLSettings(k2=1, weight=0.0).model_dump()))
    similar = same_bank(learned).choose(make_policy("rag", PolicySettings(k2=1).model_dump()))
    assert [list(used) for used in one["used"]] == [list(used) for used in similar["used"]]
    assert max(len(used) for used in one["used"]) == 1


@pytest.mark.parametrize("policy", ["memento", "reflexion"])
def test_what_the_run_began_with_has_been_watched_too(tmp_path: Path, policy: str) -> None:
    with a_run_of(tmp_path / "bank", "memrl") as bank:
        go_on(bank, "r", TASKS, 3)
        forked = workspace.fork(bank, "r", STEPS + 1, bank.settings("r"), name="fork")
        go_on(bank, forked.id, TASKS, 3)
        # The fork repeats the run's last three steps, so whoever has watched what came before chooses alike in both.
        of_run = chosen_by(bank, policy, steps=range(STEPS + 1, STEPS + 4))
        of_fork = chosen_by(bank, policy, run="fork")
    apart = [[name.replace("fork-", "r-") for name in used] for used in of_fork["used"]]
    assert apart == [list(used) for used in of_run["used"]]
    assert any(apart)


def test_a_step_without_a_prompt_is_passed_over(tmp_path: Path) -> None:
    with a_run_of(tmp_path / "bank", "rag", 3) as bank:
        trace = bank.trace("r", 3)
        bare: StepTrace = replace(trace, id="bare", step=4, decision=None, generate=None, write=None)
        bank.commit_step(bare, {})
        assert same_bank(bank).steps == (1, 2, 3)
        assert list(chosen_by(bank, "pass_at_k")["step"]) == [1, 2, 3]


# --- what is recalled within an episode -------------------------------------------------------------------------------


class EachTurn(Rag):
    """RAG that asks memory again before every turn, and shows how often."""

    def when(self, asked: Asked) -> When:
        return When(True, "each turn")

    def key(self, asked: Asked) -> str:
        return f"{asked.intent} {asked.observation[:40] if asked.turn else ''}"

    def render_turn(self, selected: Sequence[Any], view: MemoryView) -> str:
        return f"Turn {view.asked.turn}: {len(selected)} memories."


def test_a_policy_that_recalls_before_each_turn_does_so_again(learned: MemoryBank) -> None:
    trace = learned.trace("r", STEPS)
    world = make_environment("household")
    policy = EachTurn(PolicySettings())
    again = Rerunner(
        learned, trace, SimulatedModel(), world, policy, view_before(learned, trace), EMBEDDER.embed
    ).rerun(())
    first, *later = again.generate.turns
    assert first.recalled is None and later
    for number, turn in enumerate(later, start=1):
        assert turn.recalled.text == f"Turn {number}: {len(turn.recalled.decision.selected)} memories."
        assert turn.recalled.decision.selected
    seeds = [turn.recalled.decision.seed for turn in later if turn.recalled]
    assert len(set(seeds)) == len(seeds)


def test_without_an_embedder_recall_within_an_episode_is_a_sentence(learned: MemoryBank) -> None:
    trace = learned.trace("r", STEPS)
    policy = EachTurn(PolicySettings())
    rerunner = Rerunner(learned, trace, SimulatedModel(), make_environment("household"), policy)
    with pytest.raises(InputError, match="needs an embedder"):
        rerunner.rerun(())
