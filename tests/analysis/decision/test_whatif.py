"""One step decided again: by every method, and on the vectors of another embedder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from memrl_core.agent import Agent
from memrl_core.analysis.compare.counterfactual import counterfactual
from memrl_core.analysis.decision import whatif
from memrl_core.analysis.decision.whatif import Situation, decided, embedded_anew, moved, on_this_pool, situation_of
from memrl_core.analysis.people.reward_effect import compiled
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import InputError
from memrl_core.policies import POLICIES
from memrl_core.records import Memory
from memrl_core.retrieval.view import Asked
from memrl_core.settings import MemRLSettings
from tests.builders import an_agent, an_agent_after, view_of
from tests.small_banks import give_reward


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    made = an_agent(tmp_path_factory.mktemp("pool") / "bank", delta=-1.0)
    for task in sample_tasks("household-train")[:6] * 3:
        made.begin(task).finish()
    return made


def test_every_method_answers_from_the_very_pool_of_the_step(recorded: Agent) -> None:
    trace, before = recorded.bank.trace("r", 18), recorded.bank.facts
    found = on_this_pool(recorded.bank, trace, POLICIES)
    assert recorded.bank.facts == before
    assert [one.spec.name for one in found] == list(POLICIES)
    pool = {member.memory_id for member in trace.recall.pool}
    for one in found:
        assert one.problem == ""
        assert set(one.decision.selected) <= pool


def test_the_runs_own_method_says_what_it_did(recorded: Agent) -> None:
    trace = recorded.bank.trace("r", 18)
    for own_recall in (False, True):
        (one,) = on_this_pool(recorded.bank, trace, ["memrl"], own_recall) or ()
        assert one.decision.selected == trace.decision.selected
        assert one.given and trace.generate.messages[-1].content.startswith(one.given)


@pytest.mark.parametrize("chosen", [{"epsilon": 0.5}, {"exploration": "thompson"}, {"weight": 1.0}], ids=str)
def test_whoever_asks_gets_the_decision_of_the_step_with_its_propensity(tmp_path: Path, chosen: dict[str, Any]) -> None:
    agent = an_agent(tmp_path / "bank", delta=-1.0, k2=2, **chosen)
    bank, tasks = agent.bank, sample_tasks("household-train")[:4]
    earlier = list(agent.run(tasks, epochs=2))[-1]
    for task in tasks:
        episode = agent.begin(task)
        episode.advance()
        # Between the step's beginning and its decision, so that q as of its beginning is not what decided.
        give_reward(bank, "r", earlier.step, earlier.id, earlier.decision.selected, -9.0, "ann")
        earlier = episode.finish()
    in_one_pass = {one.step: one.decision for one in counterfactual(bank, "r", {})}
    choices = compiled(bank, "r")
    assert choices is not None and len(choices.of_step) == len(in_one_pass) == 12
    for trace in bank.traces("r"):
        (by_method,) = on_this_pool(bank, trace, ["memrl"], own_recall=True) or ()
        (on_its_pool,) = on_this_pool(bank, trace, ["memrl"]) or ()
        choice = choices.of_step[trace.step]
        by_q = choice.decided(choice.q)
        assert trace.decision == decided(situation_of(bank, trace))[1] == in_one_pass[trace.step] == by_method.decision
        for again in (by_q, on_its_pool.decision):
            assert (again.selected, again.propensity) == (trace.decision.selected, trace.decision.propensity)


def test_with_its_own_recall_a_method_goes_by_recency(recorded: Agent) -> None:
    trace = recorded.bank.trace("r", 18)
    (recent,) = on_this_pool(recorded.bank, trace, ["exprecent"], own_recall=True) or ()
    newest = [memory.id for memory in recorded.bank.memories("r") if memory.step < 18][-3:]
    assert set(recent.decision.selected) == set(newest)


def test_it_can_be_stopped_and_tells_how_far_it_is(recorded: Agent) -> None:
    reported: list[tuple[int, int]] = []
    trace = recorded.bank.trace("r", 9)
    on_this_pool(recorded.bank, trace, ["rag", "none"], on_progress=lambda done, total: reported.append((done, total)))
    assert reported == [(1, 2), (2, 2)]
    assert on_this_pool(recorded.bank, trace, POLICIES, cancelled=lambda: len(reported) > 1) is None


def test_a_step_without_its_pool_gets_a_sentence(recorded: Agent) -> None:
    trace = replace(recorded.bank.trace("r", 9), recall=None)
    with pytest.raises(InputError):
        on_this_pool(recorded.bank, trace, ["rag"])


INTENTS = {"warm": "heat an egg", "cold": "cool an egg", "far": "buy a car"}
BEFORE = {"heat one egg": (1.0, 0.0), "heat an egg": (0.6, 0.8), "cool an egg": (0.8, 0.6), "buy a car": (0.0, 1.0)}
AFTER = {"heat one egg": (1.0, 0.0), "heat an egg": (0.8, 0.6), "cool an egg": (0.0, 1.0), "buy a car": (0.6, 0.8)}


def embedder(table: dict[str, tuple[float, float]]) -> SimpleNamespace:
    def embed(texts: list[str]) -> np.ndarray:
        return np.array([table[text] for text in texts], dtype=np.float32)

    return SimpleNamespace(name="table", dimension=2, digest="", version="", embed=embed)


def by_hand() -> Situation:
    """Three memories, of which the middle one belongs to another run; q is 0, 0, 1."""
    memories = {i: Memory(i, text, "", "success", text, (), "r", 1, "", "") for i, text in INTENTS.items()}
    memories["theirs"] = replace(memories["far"], id="theirs", run="s")
    ids = ["warm", "theirs", "cold", "far"]
    vectors = np.array([BEFORE[memories[i].intent] for i in ids], dtype=np.float32)
    query = np.array(BEFORE["heat one egg"], dtype=np.float32)
    visible, asked = np.array([True, False, True, True]), Asked(query, intent="heat one egg")
    view = view_of(ids, vectors, q=np.array([0.0, 9.0, 0.0, 1.0]), visible=visible, memories=memories, asked=asked)
    settings = MemRLSettings.of({"k1": 2, "k2": 1, "delta": 0.1, "weight": 0.5}).model_dump()
    return Situation("memrl", settings, view, 0)


def test_the_other_vectors_make_another_pool_and_another_choice_with_the_q_of_then() -> None:
    situation = by_hand()
    anew = embedded_anew(situation, embedder(AFTER))
    assert anew is not None
    before, after = decided(situation), decided(anew)
    # Cosines before: cold 0.8, warm 0.6, both with q 0. After: warm 0.8 with q 0, far 0.6 with q 1, so all z are ±1,
    # both scores are 0, and the more similar goes first.
    assert before[1].selected == ("cold",) and after[1].selected == ("warm",)
    found = {one.memory_id: one for one in moved((situation, *before), (anew, *after))}
    assert [*found] == ["warm", "far", "cold"]
    warm, far, cold = found.values()
    assert (warm.before.similarity, warm.after.similarity) == pytest.approx((0.6, 0.8))
    assert (warm.before.rank, warm.after.rank) == (2, 1)
    assert (warm.before.selected, warm.after.selected) == (False, True)
    assert (far.before.in_pool, far.after.in_pool) == (False, True)
    assert (cold.before.rank_select, cold.after.rank_select) == (1, None)


def test_a_higher_weight_of_q_takes_the_one_that_only_the_other_embedder_recalls() -> None:
    anew = embedded_anew(by_hand(), embedder(AFTER))
    assert decided(anew, {**anew.settings, "weight": 0.6})[1].selected == ("far",)


def test_the_same_embedder_gives_the_recorded_decision_and_nothing_is_stored(tmp_path) -> None:
    bank = an_agent_after(tmp_path / "bank", 14, delta=0.0, k1=4).bank
    trace, facts, heard = bank.trace("r", 14), bank.facts, []
    situation = situation_of(bank, trace)
    again = embedded_anew(situation, HashingEmbedder(), lambda *done: heard.append(done))
    assert again is not None and decided(again) == (trace.recall, trace.decision)
    assert heard[-1][0] == heard[-1][1] > 1
    other = embedded_anew(situation, HashingEmbedder(64))
    assert other.view.embeddings.shape[1] == 64
    assert bank.facts == facts


def test_it_can_be_stopped_and_a_bank_that_is_too_large_or_found_by_more_than_intents_is_refused(monkeypatch) -> None:
    situation = by_hand()
    assert embedded_anew(situation, embedder(AFTER), cancelled=lambda: True) is None
    with pytest.raises(InputError):
        embedded_anew(replace(situation, view=replace(situation.view, learned={})), embedder(AFTER))
    monkeypatch.setattr(whatif, "MOST", 2)
    with pytest.raises(InputError, match="3 memories"):
        embedded_anew(situation, embedder(AFTER))
