"""What people's rewards did to a run's q and selections: against folds and selections in plain Python."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memrl_core.agent.recorder import Recorder
from memrl_core.agent.rerun import Rerunner
from memrl_core.analysis.people.reward_effect import (
    FROM_A_FILE,
    NOT_RECORDED,
    OTHER_RULES,
    AnsweredBothWays,
    Choice,
    Choices,
    Differing,
    actions_since,
    compiled,
    differing,
    differing_after,
    marked,
    moves_sentence,
    rerun_tasks,
    reruns_sentence,
    reward_effect,
    selections_changed,
    selections_sentence,
    selections_with,
)
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments import make_environment
from memrl_core.environments.tasks import sample_tasks
from memrl_core.learning import REWARDING
from memrl_core.models.simulated import SimulatedModel
from memrl_core.policies.methods.memrl import MemRL
from memrl_core.records import EventKind, Recalled, RecallRecord, StepTrace, UtilityPoint
from memrl_core.settings import MemRLSettings
from tests.analysis.eventful import an_eventful_bank, believed_by_definition
from tests.builders import DIMENSION, a_chain, a_run, a_step, a_vector, an_agent, numbers
from tests.oracles.ledger import believed
from tests.oracles.selection import taken, z_sides
from tests.small_banks import give_reward

STEPS = 20
OWN: dict[str, Any] = {"epsilon": 0.15, "delta": -1.0, "weight": 0.7, "k1": 6, "k2": 2, "alpha": 0.5}
KINDS: Sequence[dict[str, Any]] = (
    {},
    {"normaliser": "fixed", "weight": 0.9},
    {"normaliser": "raw", "weight": 0.4},
    {"k1": 3, "k1_counts": "intent", "epsilon": 0.0},
)

of_every_kind = pytest.mark.parametrize("bank", range(len(KINDS)), indirect=True)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A run under each kind of settings; halfway λ and α change."""
    made = []
    for number, kind in enumerate(KINDS):
        path = tmp_path_factory.mktemp("learned") / "bank"
        agent = an_agent(path, **{**OWN, **kind})
        tasks = [sample_tasks("household-train")[i] for i in np.random.default_rng(number).integers(12, size=STEPS)]
        with agent.bank.write.batch(STEPS):
            list(agent.run(tasks[: STEPS // 2]))
            agent.bank.write.change_settings(
                "r", {**agent.bank.settings("r"), "weight": 0.5, "alpha": 0.2}, STEPS // 2 + 1
            )
            list(agent.run(tasks[STEPS // 2 :]))
        agent.bank.close()
        made.append(path)
    return made


@pytest.fixture
def bank(request: pytest.FixtureRequest, folders: list[Path], tmp_path: Path) -> MemoryBank:
    """A copy of one of the runs (the first, unless a test asks for others), to be rated."""
    shutil.copytree(folders[getattr(request, "param", 0)], tmp_path / "bank")
    return MemoryBank.open(str(tmp_path / "bank"))


def choices_of(bank: MemoryBank, run: str = "r") -> Choices:
    found = compiled(bank, run)
    assert found is not None
    return found


def rated(bank: MemoryBank, step: int, value: float, run: str = "r") -> str:
    trace = bank.trace(run, step)
    return give_reward(bank, run, step, trace.id, trace.decision.selected, value, "ann").id


def selection_by_definition(trace: StepTrace, q: Mapping[str, float]) -> set[str]:
    """What a step selects with q; a random draw does not look at q."""
    if trace.decision.mode == "explore":
        return set(trace.decision.selected)
    own, pool = trace.settings, trace.recall.pool
    near = [member.similarity for member in pool]
    values = [q[member.memory_id] for member in pool]
    sides = z_sides(near, values, own["normaliser"], own["fixed_mean"], own["fixed_sd"])
    return {pool[i].memory_id for i in taken(*sides, near, own["weight"], own["k2"], trace.decision.seed)}


def selections_by_definition(bank: MemoryBank, run: str = "r") -> dict[int, set[str]]:
    """What every step would select now, with q folded from the events about the steps before it."""
    info = bank.run(run)
    start = believed_by_definition(bank, info.base, info.base_step) if info.base else None
    finished = {row.id for row in bank.steps.rows(run)}
    found = {}
    for trace in bank.traces(run):
        known = believed([e for e in bank.events(run) if e.step < trace.step], finished, start)
        found[trace.step] = selection_by_definition(trace, {i: q for i, (q, _) in known.items()})
    return found


def marks_by_definition(bank: MemoryBank, run: str = "r") -> dict[int, set[str]]:
    chosen = {t.step: set(t.decision.selected) for t in bank.traces(run) if t.decision}
    return {step: now for step, now in selections_by_definition(bank, run).items() if now != chosen[step]}


def point(memory_id: str, step: int, q: float) -> UtilityPoint:
    return UtilityPoint(memory_id, step, None, q, 0, None, None, ())


def as_sets(found: Sequence[Differing]) -> dict[int, set[str]]:
    return {one.step: set(one.would) for one in found}


# --- a run that was rated late ----------------------------------------------------------------------------------------


@of_every_kind
def test_a_run_that_nobody_rated_late_has_no_marks_and_costs_no_decision(
    bank: MemoryBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices = choices_of(bank)
    assert (list(choices.of_step), choices.left_out, choices.why_left_out) == (list(range(1, STEPS + 1)), {}, "")
    monkeypatch.setattr(MemRL, "select", lambda *_: pytest.fail("a step was decided again"))
    assert marked(choices, bank.histories("r")) == marked(choices, {}) == []


@of_every_kind
def test_late_rewards_mark_the_steps_that_select_otherwise_by_definition(bank: MemoryBank) -> None:
    choices, rng = choices_of(bank), np.random.default_rng(5)
    for step in rng.integers(2, STEPS, size=4):
        before, selected = bank.histories("r"), selections_by_definition(bank)
        rated(bank, int(step), float(rng.choice([-4.0, 4.0])))
        after, would = bank.histories("r"), selections_by_definition(bank)
        found = differing(choices, before, after)
        assert as_sets(found) == {s: would[s] for s in would if would[s] != selected[s]}
        assert all(set(one.selected) == selected[one.step] for one in found)
        assert as_sets(marked(choices, after)) == marks_by_definition(bank)
    marks = marked(choices, after)
    assert marks
    assert all(one.selected == choices.of_step[one.step].selected for one in marks)


@of_every_kind
def test_only_steps_with_a_changed_memory_in_their_pool_are_read_to_see_which_choose_otherwise(
    bank: MemoryBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices, rng, read = choices_of(bank), np.random.default_rng(7), []
    each = bank.each_trace
    monkeypatch.setattr(bank, "each_trace", lambda run, steps=None: read.append(steps) or each(run, steps))
    found = 0
    for step in rng.integers(2, STEPS, size=4).tolist():
        credited = bank.credits.of("r", step)
        whole, before = bank.histories("r"), bank.histories("r", credited)
        rated(bank, step, float(rng.choice([-4.0, 4.0])))
        after = bank.histories("r", credited)
        others = differing_after(bank, "r", step, before, after)
        assert others == differing(choices, whole, bank.histories("r"))
        found += len(others)
        with_one = {at for memory_id in credited for at in choices.steps_of.get(memory_id, ()) if at > step}
        assert {at for at, _ in read} <= with_one
        read.clear()
    assert found
    assert differing_after(bank, "r", 2, before, after, cancelled=lambda: True) in (None, [])


def test_a_run_that_begins_with_the_memory_of_another_takes_its_last_q(tmp_path: Path) -> None:
    agent, tasks = an_agent(tmp_path / "bank", **OWN), sample_tasks("household-train")
    with agent.bank.write.batch(10):
        list(agent.run(tasks[:10]))
    agent.bank.write.start_run(replace(a_run("s", base="r", base_step=10, **OWN), embedder=agent.bank.embedder.name))
    agent.run_id = "s"
    with agent.bank.write.batch(12):
        list(agent.run(tasks[:12]))
    choices = choices_of(agent.bank, "s")
    assert marked(choices, agent.bank.histories("s")) == []
    for step in (1, 3, 5):
        rated(agent.bank, step, -6.0, "s")
    marks = marked(choices, agent.bank.histories("s"))
    assert marks and as_sets(marks) == marks_by_definition(agent.bank, "s")


# --- any q ------------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(kind=st.sampled_from(range(len(KINDS))), seed=st.integers(0, 10_000))
def test_any_q_selects_what_the_definition_selects(
    prepared: list[tuple[Choices, list[StepTrace]]], kind: int, seed: int
) -> None:
    choices, traces = prepared[kind]
    q = dict(zip(choices.steps_of, np.random.default_rng(seed).integers(-3, 4, len(choices.steps_of)) / 4, strict=True))
    found = selections_with(choices, {i: [point(i, 0, float(value))] for i, value in q.items()})
    assert {s: set(chosen) for s, chosen in found.items()} == {t.step: selection_by_definition(t, q) for t in traces}


@pytest.fixture(scope="module")
def prepared(folders: list[Path]) -> list[tuple[Choices, list[StepTrace]]]:
    banks = [MemoryBank.open(str(path)) for path in folders]
    return [(choices_of(bank), bank.traces("r")) for bank in banks]


@pytest.mark.parametrize(
    ("entries", "steps"),
    [
        ([(0, -1.0), (2, 1.0), (2, -0.5), (3, 0.5)], {4}),
        ([(0, -1.0), (2, -0.5), (2, 1.0), (3, -0.5)], {3}),
        ([(0, 1.0), (1, -1.0)], {1}),
    ],
)
def test_of_the_entries_about_earlier_steps_the_last_one_counts(
    entries: list[tuple[int, float]], steps: set[int]
) -> None:
    pool = Recalled("a", 0.9, 1, None), Recalled("b", 0.8, 2, None)
    recall = RecallRecord(2, "record", -1.0, True, 2, pool, ())
    policy = MemRL(MemRLSettings(k1=2, k2=1, weight=1.0))
    made = {s: Choice(policy, recall, 0, {"a": 0.0, "b": 0.0}, (0, 0), ("a",)) for s in range(1, 5)}
    histories = {"a": [point("a", 0, 0.0)], "b": [point("b", step, q) for step, q in entries]}
    choices = Choices(made, {"a": list(made), "b": list(made)}, {})
    assert as_sets(marked(choices, histories)) == {step: {"b"} for step in steps}


# --- what can be decided again ----------------------------------------------------------------------------------------


def test_steps_of_others_are_left_out_with_a_reason(tmp_path: Path) -> None:
    bank = MemoryBank.create(str(tmp_path / "bank"), "hashing-8", DIMENSION)
    recorder = Recorder(bank, "r", MemRLSettings(k2=1, weight=0.0))
    near, far = (recorder.remember(f"intent {n}", f"experience {n}", a_vector(n)) for n in range(2))
    for chosen in (near, far):
        with recorder.step("heat the egg") as step:
            step.recalled({near: 0.9, far: 0.1})
            step.selected([chosen])
    bank.write.commit_step(*a_step(3))
    first = bank.trace("r", 1)
    strange = {"origin": "import"}, {"settings": {"k1": -1}}, {"policy": "unheard of"}
    others = [replace(first, id=f"other-{n}", step=4 + n, **change) for n, change in enumerate(strange)]
    bank.write.adopt({}, [], others)
    choices = choices_of(bank)
    assert list(choices.of_step) == [1]
    assert choices.left_out == {2: OTHER_RULES, 3: NOT_RECORDED, 4: FROM_A_FILE, 5: OTHER_RULES, 6: OTHER_RULES}
    assert numbers(choices.why_left_out) == ["5", "6", "3", "1", "1"]


def test_a_part_of_a_run_is_read_and_its_reading_can_be_followed_and_stopped(folders: list[Path]) -> None:
    bank, seen = MemoryBank.open(str(folders[0])), list[tuple[int, int]]()
    part = compiled(bank, "r", (5, 9), None, lambda done, total: seen.append((done, total)))
    assert list(part.of_step) == [5, 6, 7, 8, 9]
    assert seen == [(n, 5) for n in range(1, 6)]
    assert all(step in part.of_step for steps in part.steps_of.values() for step in steps)
    assert compiled(bank, "r", cancelled=lambda: True) is None


@of_every_kind
def test_of_a_run_that_goes_on_only_the_new_steps_are_read(bank: MemoryBank, monkeypatch: pytest.MonkeyPatch) -> None:
    read, each = list[Any](), bank.each_trace
    monkeypatch.setattr(bank, "each_trace", lambda run, steps: read.append(steps) or each(run, steps))
    known = compiled(bank, "r", (1, 12))
    first = bank.trace("r", 1)
    bank.write.adopt({}, [], [replace(first, id=f"late-{n}", step=STEPS + n, recall=None) for n in (1, 2)])
    found, anew = compiled(bank, "r", known=known), choices_of(bank)
    assert found is not None and _as_read(found) == _as_read(anew)
    assert anew.left_out == {STEPS + 1: NOT_RECORDED, STEPS + 2: NOT_RECORDED}
    assert read == [(1, 12), (13, STEPS + 2), (1, STEPS + 2)]


def _as_read(choices: Choices) -> Any:
    of_step = [(at, c.policy.spec, c.recall, c.seed, c.q, c.visits, c.selected) for at, c in choices.of_step.items()]
    return list(choices.of_step), of_step, list(choices.steps_of.items()), choices.left_out


# --- what rewards did to q --------------------------------------------------------------------------------------------

LEARNED_STEPS = 24
GREEDY = {**OWN, "epsilon": 0.0, "k2": 1}


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    """A run of an agent whose every step "ann" has rated against the environment; it stays as it is."""
    agent, tasks = an_agent(tmp_path_factory.mktemp("rated") / "bank", **GREEDY), sample_tasks("household-train")
    with agent.bank.write.batch(LEARNED_STEPS):
        traces = list(agent.run([tasks[i] for i in np.random.default_rng(1).integers(12, size=LEARNED_STEPS)]))
    verdicts = {trace.step: trace.reward.environment or 0.0 for trace in traces[1:] if trace.reward}
    agent.bank.write.ratings.rate_all([Rating("r", step, -verdict, "ann") for step, verdict in verdicts.items()])
    agent.bank.close()
    return MemoryBank.open(agent.bank.uri)


@pytest.fixture
def rated_bank(learned: MemoryBank, tmp_path: Path) -> MemoryBank:
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


def again(bank: MemoryBank, steps: Sequence[Differing], *more: Any) -> list[AnsweredBothWays]:
    return rerun_tasks(bank, "r", steps, lambda trace: rerunner(bank, trace), *more)


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
    bank = a_chain(tmp_path / "bank", 5, alpha=0.3)
    bank.write.start_run(replace(a_run("fork", base="r", base_step=5, alpha=0.3), first_step=6))
    bank.close()
    shutil.copytree(tmp_path / "bank", tmp_path / "unrated")
    unrated = MemoryBank.open(str(tmp_path / "unrated"))
    bank = MemoryBank.open(bank.uri)
    for step, value in ((3, -1.0), (5, -0.5)):
        bank.write.ratings.rate(Rating("r", step, value, "ann"))
    for run in ("r", "fork"):
        found, never = reward_effect(bank, run, ids_of(bank)), unrated.histories(run)
        assert set(found.moved) == {"r-0002", "r-0004"}
        assert found.without == {i: never[i] for i in found.moved}


def test_what_rewards_moved_goes_on_in_the_memory_that_takes_the_place_of_another(rated_bank: MemoryBank) -> None:
    first = next(iter(reward_effect(rated_bank, "r", ids_of(rated_bank)).moved))
    old = rated_bank.memory(first)
    new = rated_bank.write.editing.edit("r", first, old.intent, "reworded", HashingEmbedder(), "ann")
    found = reward_effect(rated_bank, "r", ids_of(rated_bank))
    without = believed_by_definition(rated_bank, "r", without=ids_of(rated_bank))
    assert first not in found.moved
    assert found.moved[new.id] == (pytest.approx(without[first][0]), rated_bank.utilities("r")[new.id].q)
    assert found.without[first][-1].after == pytest.approx(without[first][0])
    assert found.q[first] == rated_bank.editing.away("r")[first].q


# --- selections -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [0, 1, 9, 100])
def test_the_selections_that_a_person_has_changed_are_those_by_definition(learned: MemoryBank, last: int) -> None:
    ids = set(ids_of(learned))
    beliefs = (believed_by_definition(learned, "r", without=left_out) for left_out in (set(), ids))
    now, without = ({i: q for i, (q, _) in believed.items()} for believed in beliefs)
    pairs = {
        trace.step: (selection_by_definition(trace, without), selection_by_definition(trace, now))
        for trace in learned.traces("r")
        if trace.step > LEARNED_STEPS - last
    }
    found = selections_changed(choices_of(learned), reward_effect(learned, "r", ids), last)
    assert {d.step: (set(d.selected), set(d.would)) for d in found} == {s: p for s, p in pairs.items() if p[0] != p[1]}
    assert bool(found) == (last > 0)


def test_no_selection_changes_for_events_that_moved_nothing(learned: MemoryBank) -> None:
    found = reward_effect(learned, "r", [])
    assert (found.moved, found.without) == ({}, {})
    assert selections_changed(choices_of(learned), found, LEARNED_STEPS) == []


# --- answered again ---------------------------------------------------------------------------------------------------


def test_the_recorded_memories_give_the_recorded_outcome_and_answer(learned: MemoryBank) -> None:
    traces = learned.traces("r")[-3:]
    steps = [Differing(t.step, t.decision.selected, ()) for t in traces if t.decision]
    facts = learned.facts
    for one, trace in zip(again(learned, steps), traces, strict=True):
        assert (one.step, one.intent) == (trace.step, trace.task.intent)
        assert one.before == ("success" if trace.reward.environment == 1 else "failure")
        assert one.answers[0] == "\n".join(turn.reply.text for turn in trace.generate.turns)
        assert one.answers[1] == rerunner(learned, trace).rerun(()).answer
    assert learned.facts == facts


def test_a_memory_that_the_run_no_longer_sees_is_used_as_stored(rated_bank: MemoryBank) -> None:
    trace = rated_bank.trace("r", LEARNED_STEPS)
    steps = [Differing(LEARNED_STEPS, trace.decision.selected, ())]
    before = again(rated_bank, steps)
    rated_bank.write.editing.forget("r", trace.decision.selected, "ann")
    assert again(rated_bank, steps) == before


def test_how_far_it_is_is_reported_and_a_stop_keeps_the_tasks_that_were_answered_twice(learned: MemoryBank) -> None:
    steps = [Differing(step, (), ("r-0001",)) for step in (10, 11, 12)]
    reported: list[tuple[int, int]] = []
    every = again(learned, steps, lambda *at: reported.append(at))
    assert reported == [(n, 6) for n in range(1, 7)]
    reported.clear()
    assert again(learned, steps, lambda *at: reported.append(at), lambda: len(reported) == 3) == every[:1]


def test_an_answer_that_was_cut_short_is_not_judged(learned: MemoryBank) -> None:
    in_the_middle = iter([False] * 3)
    steps = [Differing(10, (), ("r-0001",))]
    assert again(learned, steps, None, lambda: next(in_the_middle, True)) == []


# --- a session --------------------------------------------------------------------------------------------------------


def test_what_a_person_did_since_a_moment_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bank, given = a_chain(tmp_path / "bank", 3), []
    for hour, value in ((8, 0.1), (12, 0.2), (13, 0.4)):
        monkeypatch.setattr("memrl_core.bank.ledger.now", lambda hour=hour: f"2026-01-01T{hour:02}:00:00.123+00:00")
        given.append(bank.write.ratings.rate(Rating("r", 2, value, "ann")))
        bank.write.ratings.rate(Rating("r", 3, value, "bo"))
    bank.write.notes.pin("r", 2, "seen", "ann")
    assert actions_since(bank, " ann ", "2026-01-01T12:00:00.123+00:00") == given[1:]
    assert actions_since(bank, "ann", "2026-01-01T14:00:00.000+00:00") == []
    assert actions_since(bank, "ann") == given


def test_what_a_person_does_for_another_is_their_own_action(rated_bank: MemoryBank) -> None:
    theirs = rated_bank.ratings.mine("r", LEARNED_STEPS, "ann")
    rated_bank.write.ratings.revoke(theirs.id, "cy")
    rated_bank.write.undo.undo("cy")
    revoked, given = actions_since(rated_bank, "cy")
    assert (revoked.kind, given.kind, given.rater) == (EventKind.REWARD_REVOKED, EventKind.REWARD_GIVEN, "ann")
    assert given.id not in ids_of(rated_bank)


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
