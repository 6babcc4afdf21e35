"""What people have taught a run: held against folds and selections in plain Python, and against never having rated."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memrl_core.agent.rerun import Rerunner
from memrl_core.analysis.people.reward_effect import (
    AnsweredBothWays,
    Differing,
    actions_since,
    moves_sentence,
    rerun_tasks,
    reruns_sentence,
    reward_effect,
    selections_changed,
    selections_sentence,
)
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments import make_environment
from memrl_core.environments.tasks import sample_tasks
from memrl_core.learning import REWARDING
from memrl_core.models.simulated import SimulatedModel
from memrl_core.records import EventKind, StepTrace
from tests.analysis.eventful import an_eventful_bank, believed_by_definition
from tests.analysis.people.test_later_selections import choices_of, selection_by_definition
from tests.builders import a_bank, a_run, a_step, an_agent, numbers

STEPS = 24
OWN: dict[str, Any] = {"delta": -1.0, "weight": 0.7, "k1": 6, "k2": 1, "alpha": 0.5}


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    """A run of an agent whose every step "ann" has rated against the environment; it stays as it is."""
    agent, tasks = an_agent(tmp_path_factory.mktemp("taught") / "bank", **OWN), sample_tasks("household-train")
    with agent.bank.batch(STEPS):
        traces = list(agent.run([tasks[i] for i in np.random.default_rng(1).integers(12, size=STEPS)]))
    verdicts = {trace.step: trace.reward.environment or 0.0 for trace in traces[1:] if trace.reward}
    agent.bank.ratings.rate_all([Rating("r", step, -verdict, "ann") for step, verdict in verdicts.items()])
    agent.bank.close()
    return MemoryBank.open(agent.bank.uri)


@pytest.fixture
def bank(learned: MemoryBank, tmp_path: Path) -> MemoryBank:
    """A copy of it, to go on with."""
    shutil.copytree(learned.uri, tmp_path / "bank")
    return MemoryBank.open(str(tmp_path / "bank"))


@pytest.fixture(scope="module", params=[0, 1])
def eventful(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    return an_eventful_bank(tmp_path_factory.mktemp("eventful") / "bank", request.param, 36)


def ids_of(bank: MemoryBank, person: str = "ann") -> list[str]:
    return [event.id for event in actions_since(bank, person)]


def rerunner(bank: MemoryBank, trace: StepTrace) -> Rerunner:
    return Rerunner(bank, trace, SimulatedModel(), make_environment("household"))


# --- q ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["r", "fork"])
def test_q_without_some_events_is_the_fold_without_them(eventful: MemoryBank, run: str) -> None:
    bank, rng = eventful, np.random.default_rng(3)
    chosen = {e.id for e in bank.events() if e.kind in REWARDING and rng.random() < 0.3}
    found = reward_effect(bank, run, chosen)
    now, without = believed_by_definition(bank, run), believed_by_definition(bank, run, without=chosen)
    reported = {i: found.moved.get(i, (utility.q, utility.q)) for i, utility in bank.utilities(run).items()}
    assert reported == {i: (pytest.approx(without[i][0]), pytest.approx(now[i][0])) for i in now}
    assert found.q == {i: utility.q for i, utility in bank.utilities(run).items()}
    differences = [abs(after - before) for before, after in found.moved.values()]
    assert differences and differences == sorted(differences, reverse=True)


def test_only_events_that_reward_are_left_out(eventful: MemoryBank) -> None:
    events = eventful.events()
    every = reward_effect(eventful, "fork", [e.id for e in events])
    some = reward_effect(eventful, "fork", [e.id for e in events if e.kind in REWARDING])
    assert (every.moved, every.without) == (some.moved, some.without)
    assert every.moved


def test_the_histories_without_are_those_of_a_bank_that_was_never_rated(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank", alpha=0.3)
    for step in range(1, 6):
        bank.commit_step(*a_step(step, (f"r-{step - 1:04d}",) if step > 1 else ()))
    bank.start_run(replace(a_run("fork", base="r", base_step=5, alpha=0.3), first_step=6))
    bank.close()
    shutil.copytree(tmp_path / "bank", tmp_path / "unrated")
    unrated = MemoryBank.open(str(tmp_path / "unrated"))
    bank = MemoryBank.open(bank.uri)
    for step, value in ((3, -1.0), (5, -0.5)):
        bank.ratings.rate(Rating("r", step, value, "ann"))
    for run in ("r", "fork"):
        found, never = reward_effect(bank, run, ids_of(bank)), unrated.histories(run)
        assert set(found.moved) == {"r-0002", "r-0004"}
        assert found.without == {i: never[i] for i in found.moved}
        assert found.now == {i: bank.histories(run)[i] for i in found.moved}


def test_what_was_taught_goes_on_in_the_memory_that_takes_the_place_of_another(bank: MemoryBank) -> None:
    first = next(iter(reward_effect(bank, "r", ids_of(bank)).moved))
    old = bank.memory(first)
    new = bank.editing.edit("r", first, old.intent, "reworded", HashingEmbedder(), "ann")
    found = reward_effect(bank, "r", ids_of(bank))
    without = believed_by_definition(bank, "r", without=ids_of(bank))
    assert first not in found.moved
    assert found.moved[new.id] == (pytest.approx(without[first][0]), bank.utilities("r")[new.id].q)
    assert found.without[first][-1].after == pytest.approx(without[first][0])
    assert found.q[first] == bank.away("r")[first].q


# --- selections -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [0, 1, 9, 100])
def test_the_selections_that_a_person_has_changed_are_those_by_definition(learned: MemoryBank, last: int) -> None:
    ids = set(ids_of(learned))
    now, without = (
        {i: q for i, (q, _) in believed_by_definition(learned, "r", without=out).items()} for out in (set(), ids)
    )
    pairs = {
        trace.step: (selection_by_definition(trace, without), selection_by_definition(trace, now))
        for trace in learned.traces("r")
        if trace.step > STEPS - last
    }
    found = selections_changed(choices_of(learned), reward_effect(learned, "r", ids), last)
    assert {d.step: (set(d.selected), set(d.would)) for d in found} == {s: p for s, p in pairs.items() if p[0] != p[1]}
    assert bool(found) == (last > 0)


def test_no_selection_changes_for_events_that_moved_nothing(learned: MemoryBank) -> None:
    found = reward_effect(learned, "r", [])
    assert (found.moved, found.now, found.without) == ({}, {}, {})
    assert selections_changed(choices_of(learned), found, STEPS) == []


# --- answered again ---------------------------------------------------------------------------------------------------


def test_the_recorded_memories_give_the_recorded_outcome_and_answer(learned: MemoryBank) -> None:
    traces = learned.traces("r")[-3:]
    steps = [Differing(t.step, t.decision.selected, ()) for t in traces if t.decision]
    facts = learned.facts
    for again, trace in zip(rerun_tasks(learned, "r", steps, lambda t: rerunner(learned, t)), traces, strict=True):
        assert (again.step, again.intent) == (trace.step, trace.task.intent)
        assert again.before == ("success" if trace.reward.environment == 1 else "failure")
        assert again.answers[0] == "\n".join(turn.reply.text for turn in trace.generate.turns)
        assert again.answers[1] == rerunner(learned, trace).rerun(()).answer
    assert learned.facts == facts


def test_a_memory_that_the_run_no_longer_sees_is_used_as_stored(bank: MemoryBank) -> None:
    trace = bank.trace("r", STEPS)
    steps = [Differing(STEPS, trace.decision.selected, ())]
    before = rerun_tasks(bank, "r", steps, lambda t: rerunner(bank, t))
    bank.editing.forget("r", trace.decision.selected, "ann")
    assert rerun_tasks(bank, "r", steps, lambda t: rerunner(bank, t)) == before


def test_how_far_it_is_is_reported_and_a_stop_keeps_the_tasks_that_were_answered_twice(learned: MemoryBank) -> None:
    steps = [Differing(step, (), ("r-0001",)) for step in (10, 11, 12)]
    reported: list[tuple[int, int]] = []
    every = rerun_tasks(learned, "r", steps, lambda t: rerunner(learned, t), lambda *at: reported.append(at))
    assert reported == [(n, 6) for n in range(1, 7)]
    reported.clear()
    some = rerun_tasks(
        learned, "r", steps, lambda t: rerunner(learned, t), lambda *at: reported.append(at), lambda: len(reported) == 3
    )
    assert some == every[:1]


def test_an_answer_that_was_cut_short_is_not_judged(learned: MemoryBank) -> None:
    asked: list[bool] = []

    def in_the_middle() -> bool:
        asked.append(True)
        return len(asked) > 3

    steps = [Differing(10, (), ("r-0001",))]
    assert rerun_tasks(learned, "r", steps, lambda t: rerunner(learned, t), cancelled=in_the_middle) == []


# --- a session --------------------------------------------------------------------------------------------------------


def test_what_a_person_did_since_a_moment_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bank = a_bank(tmp_path / "bank")
    for step in (1, 2, 3):
        bank.commit_step(*a_step(step, ("r-0001",) if step > 1 else ()))
    given = []
    for hour, value in ((8, 0.1), (12, 0.2), (13, 0.4)):
        monkeypatch.setattr("memrl_core.bank.ledger.now", lambda hour=hour: f"2026-01-01T{hour:02}:00:00.123+00:00")
        given.append(bank.ratings.rate(Rating("r", 2, value, "ann")))
        bank.ratings.rate(Rating("r", 3, value, "bo"))
    bank.notes.pin("r", 2, "seen", "ann")
    assert actions_since(bank, " ann ", "2026-01-01T12:00:00.123+00:00") == given[1:]
    assert actions_since(bank, "ann", "2026-01-01T14:00:00.000+00:00") == []
    assert actions_since(bank, "ann") == given


def test_what_a_person_does_for_another_is_their_own_deed(bank: MemoryBank) -> None:
    theirs = bank.ratings.mine("r", STEPS, "ann")
    bank.revoke_reward(theirs.id, "cy")
    bank.undo.undo("cy")
    revoked, given = actions_since(bank, "cy")
    assert (revoked.kind, given.kind, given.rater) == (EventKind.REWARD_REVOKED, EventKind.REWARD_GIVEN, "ann")
    assert given.id not in ids_of(bank)


# --- in words ---------------------------------------------------------------------------------------------------------


def test_the_sentences_say_how_much(learned: MemoryBank) -> None:
    found = reward_effect(learned, "r", ids_of(learned))
    furthest = max(abs(now - without) for without, now in found.moved.values())
    assert numbers(moves_sentence(found)) == [str(len(found.moved)), f"{furthest:.2g}"]
    assert numbers(moves_sentence(reward_effect(learned, "r", []))) == []
    assert numbers(selections_sentence([Differing(1, ("a",), ("b",))] * 3, 20)) == ["3", "20"]
    assert numbers(selections_sentence([], 20)) == ["20"]


@pytest.mark.parametrize(
    ("outcomes", "counts"),
    [("fs ss ff", ["3", "1", "0"]), ("us fs sf su ss uu", ["6", "2", "2"]), ("ff", ["1", "0", "0"]), ("", [])],
)
def test_re_run_tasks_are_counted_both_ways(outcomes: str, counts: list[str]) -> None:
    named: Any = {"s": "success", "f": "failure", "u": "unrated"}
    both = [AnsweredBothWays(1, "", named[a], named[b], ("", "")) for a, b in outcomes.split()]
    assert numbers(reruns_sentence(both)) == counts
