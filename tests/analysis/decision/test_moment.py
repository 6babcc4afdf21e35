"""What a screen shows: the live end of a run, and the same numbers when it is replayed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memrl_core.agent import Agent
from memrl_core.analysis.decision.moment import Texts, as_it_counts, current, later_reward, replayed
from memrl_core.analysis.memory.relations import catalogue, in_common, matching
from memrl_core.bank import utilities
from memrl_core.bank.people.ratings import Rating
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import InputError, NoVector
from memrl_core.records import Memory, Outcome, Phase
from tests.builders import an_agent, numbers
from tests.small_banks import give_reward


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return an_agent(tmp_path / "bank")


def test_a_replay_shows_the_numbers_that_were_live(agent: Agent) -> None:
    live = []
    for task in sample_tasks("household-train")[:10]:
        episode = agent.begin(task)
        episode.finish()
        live.append(current(agent.bank, "r", episode))
    for step, moment in enumerate(live, start=1):
        again = replayed(agent.bank, "r", step)
        assert again.trace == moment.trace
        assert dict(again.utilities) == dict(moment.utilities)
        assert (again.pool, again.selected) == (moment.pool, moment.selected)


def test_what_has_moved_is_seen_before_the_step_is_stored(agent: Agent) -> None:
    tasks = sample_tasks("household-train")[:8]
    list(agent.run(tasks))
    episode = agent.begin(tasks[0])
    while episode.phase is not Phase.WRITE:
        episode.advance()
    moment = current(agent.bank, "r", episode)
    for change in episode.trace.update.changes:
        assert moment.utilities[change.memory_id].q == change.after
        assert agent.bank.utilities("r")[change.memory_id].q == change.before


def test_phases_are_reached_in_order(agent: Agent) -> None:
    episode = agent.begin(sample_tasks("household-train")[0])
    assert not any(current(agent.bank, "r", episode).reached(phase) for phase in Phase)
    episode.advance()
    episode.advance()
    moment = current(agent.bank, "r", episode)
    assert [phase for phase in Phase if moment.reached(phase)] == [Phase.EMBED, Phase.RECALL]
    episode.skip(NoVector("There is no vector. Nothing was stored; skip it."))
    ended = [Phase.EMBED, Phase.RECALL, Phase.REWARD, Phase.UPDATE, Phase.WRITE]
    assert [phase for phase in Phase if current(agent.bank, "r", episode).reached(phase)] == ended


def test_before_the_first_step_there_is_nothing_to_see(tmp_path: Path) -> None:
    moment = current(an_agent(tmp_path / "bank").bank, "r", None)
    assert (moment.trace, moment.pool, moment.selected) == (None, (), ())


def test_a_step_that_does_not_exist_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="3"):
        replayed(an_agent(tmp_path / "bank").bank, "r", 3)


def test_a_later_reward_is_reported_and_the_replay_stays(agent: Agent) -> None:
    traces = list(agent.run(sample_tasks("household-train")[:8]))
    rated = next(trace for trace in traces if trace.decision and trace.decision.selected)
    before = dict(replayed(agent.bank, "r", rated.step).utilities)
    assert later_reward(agent.bank, rated) is None
    give_reward(agent.bank, "r", rated.step, rated.id, rated.decision.selected, 0.4, "ann")
    reported = later_reward(agent.bank, rated)
    assert reported is not None and numbers(reported) == ["+0.400"] and "ann" in reported
    assert dict(replayed(agent.bank, "r", rated.step).utilities) == before


def test_a_replay_folds_nothing_that_nobody_asks_for_and_nothing_twice(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = list(agent.run(sample_tasks("household-train")[:8]))
    folds, folded = [], utilities.folded
    monkeypatch.setattr(utilities, "folded", lambda *given: folds.append(given) or folded(*given))
    moment = replayed(agent.bank, "r", 4)
    assert not folds
    then = dict(moment.utilities)
    assert len(folds) == 1 and len(then) == len(moment.utilities)
    rated = next(trace for trace in traces if trace.decision and trace.decision.selected)
    give_reward(agent.bank, "r", rated.step, rated.id, rated.decision.selected, 0.4, "ann")
    assert dict(replayed(agent.bank, "r", 4).utilities) == then and agent.bank.memory_count("r", 4) == len(then)
    assert len(folds) == 1, "what comes later changes nothing of what was known then"


@pytest.mark.parametrize("rule", ["override", "both"])
def test_a_step_as_it_counts_has_the_reward_and_the_moves_of_the_fold_and_undo_gives_it_back(
    tmp_path: Path, rule: str
) -> None:
    agent = an_agent(tmp_path / "bank", human_rewards=rule)
    bank, traces = agent.bank, list(agent.run(sample_tasks("household-train")[:8], epochs=2))
    assert [as_it_counts(bank, trace) for trace in traces] == traces
    rated = next(trace for trace in traces if trace.decision and trace.decision.selected)
    given = -1.0 if rated.reward and rated.reward.reward == 1.0 else 1.0
    event = bank.write.ratings.rate(Rating("r", rated.step, given, "ann", "the wrong drawer"))
    counted = as_it_counts(bank, rated)
    assert counted.reward is not None and counted.update is not None
    assert counted.reward.reward == bank.ratings.effective("r", rated.step)
    assert (counted.reward.source, counted.reward.rater, counted.reward.reason) == ("person", "ann", "the wrong drawer")
    for trace in traces:
        moves = [(c.memory_id, c.before, c.after) for c in as_it_counts(bank, trace).update.of_q]
        in_fold = [
            (point.memory_id, point.before, point.after)
            for points in bank.histories(
                "r", rated.reward.credited if trace is rated else trace.reward.credited
            ).values()
            for point in points
            if point.step == trace.step and point.reward is not None
        ]
        assert moves == in_fold
    assert replace(counted, reward=rated.reward, update=rated.update) == rated
    bank.write.ratings.revoke(event.id, "ann")
    assert [as_it_counts(bank, trace) for trace in traces] == traces


def test_nothing_is_said_of_a_later_reward_before_the_step_is_stored(agent: Agent) -> None:
    list(agent.run(sample_tasks("household-train")[:4]))
    episode = agent.begin(sample_tasks("household-train")[0])
    while episode.phase is not None:
        episode.advance()
        assert later_reward(agent.bank, episode.trace) is None


def test_memories_are_found_by_words_outcome_and_q(agent: Agent) -> None:
    tasks = sample_tasks("household-train")[:12]
    list(agent.run(tasks))
    moment = current(agent.bank, "r", None)
    memories = Texts(agent.bank, moment.utilities)
    rows = catalogue(moment, memories)
    assert list(rows["id"]) == list(reversed(moment.utilities))
    words = tasks[0].data["object"], tasks[0].data["target"]
    found = matching(rows, " ".join(words).upper())
    assert set(found["id"]) == {
        i for i, m in memories.items() if all(w in f"{m.intent} {m.experience}".lower() for w in words)
    }
    assert len(found) > 0
    assert set(matching(rows, outcomes=["failure"])["outcome"]) == {"failure"}
    assert matching(rows, q=(5.0, 6.0)).empty
    assert matching(rows, "(unclosed [regex").empty


def test_what_memories_have_in_common_by_hand() -> None:
    def memory(name: str, intent: str, outcome: Outcome, run: str) -> Memory:
        return Memory(name, intent, "", outcome, "", (), run, 1, name, "")

    chosen = [
        memory("a", "Cool the egg", "success", "first"),
        memory("b", "cool the apple; the apple", "failure", "first"),
        memory("c", "cool an egg", "success", "second"),
        memory("d", "the lamp", "success", "first"),
    ]
    others = [memory("e", "the egg", "failure", "first"), memory("f", "heat the mug", "failure", "first")]
    found = in_common(chosen, others, [0.5, -0.25, 0.75, 1.0], ["cool", "cool", "cool", "look"])
    assert list(found.families.items()) == [("cool", 3), ("look", 1)]
    assert list(found.outcomes.items()) == [("success", 3), ("failure", 1)]
    assert list(found.runs.items()) == [("first", 3), ("second", 1)]
    assert found.q == (-0.25, 0.625, 1.0)
    assert found.words == (), "three of four beside none of two can be chance"
    # "egg" is in half of either, "the" says nothing, "apple" is in a quarter beside none.
    more = in_common(chosen * 4, others * 4, [0.0], ["cool"] * 16)
    assert [word for word, _, _ in more.words] == ["cool"]
    assert more.words[0][1:] == (0.75, 0.0)
    assert in_common(chosen, [], [1.0], ["look"]).words == ()
