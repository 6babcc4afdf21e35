"""Steps of several runs side by side: which pair, which are shared, which have no like, and where they part."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.agent.preferences import Preferences
from memrl_core.agent.recorder import Recorder
from memrl_core.agent.run_parts import make_embedder
from memrl_core.agent.runs import fork, start_run
from memrl_core.analysis.compare.alignment import Alignment, Line, align, counterparts, line_of, parted_after
from memrl_core.analysis.compare.comparison import Difference, compare, divergences, neighbours, pairs_of
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError, UnknownRun
from tests.analysis.lockstep import a_compared, a_line, begun, commit, go_on, tasks_line
from tests.builders import a_bank, a_vector
from tests.small_banks import give_reward


@pytest.fixture
def bank(tmp_path: Path) -> MemoryBank:
    """A bank in which run `a` has begun."""
    return a_bank(tmp_path / "bank", "a")


def steps_of(alignment: Any, line: int = 0) -> list[int]:
    return [row.steps[line].step for row in alignment.rows]


def test_one_id_with_two_intents_is_two_tasks() -> None:
    one = a_line("a", [a_compared("a", 1, "x", "open"), a_compared("a", 2, "x", "close")])
    other = a_line("b", [a_compared("b", 1, "x", "close")])
    alignment = align([one, other])
    assert [(row.intent, row.steps[0].step) for row in alignment.rows] == [("close", 2)]
    assert alignment.alone == (1, 0)


@given(st.lists(st.text("xyz", max_size=9), min_size=2, max_size=4))
def test_any_number_of_runs_pairs_as_counting_by_hand_does(reported: list[str]) -> None:
    lines = [tasks_line(f"r{n}", tasks) for n, tasks in enumerate(reported)]
    alignment = align(lines)
    wanted = {task: min(tasks.count(task) for tasks in reported) for task in "xyz"}
    assert Counter(row.task for row in alignment.rows) == +Counter(wanted)
    for row in alignment.rows:
        for tasks, step in zip(reported, row.steps, strict=True):
            assert tasks[: step.step].count(row.task) == row.occurrence
            assert tasks[step.step - 1] == row.task
    assert alignment.alone == tuple(len(tasks) - len(alignment.rows) for tasks in reported)
    assert steps_of(alignment) == sorted(steps_of(alignment))
    for line in range(len(lines)):
        assert alignment.reordered(line) == (steps_of(alignment, line) != sorted(steps_of(alignment, line)))


def test_a_run_is_not_compared_with_itself_nor_alone() -> None:
    line = tasks_line("a", "x")
    with pytest.raises(InputError, match="a"):
        align([line, tasks_line("b", "x"), line])
    with pytest.raises(InputError):
        align([line])


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    """Run `base` over six tasks twice, `early` forked from it at 5, `late` at 9, and `deep` from `early` at 8."""
    embedder = make_embedder("hashing", Preferences())
    bank = MemoryBank.create(str(tmp_path_factory.mktemp("banks") / "bank"), embedder.name, embedder.dimension)
    start_run(bank, environment="household", tasks="household-train", task_count=6, run="base", seed=3)
    go_on(bank, "base", 12)
    for base, step, name in (("base", 5, "early"), ("base", 9, "late"), ("early", 8, "deep")):
        fork(bank, base, step, {**bank.settings("base"), "k2": 1}, name=name)
        go_on(bank, name, 13 - step if name != "deep" else 3)
    return bank


def test_a_fork_is_compared_from_where_it_parts(forked: MemoryBank) -> None:
    alignment = align([line_of(forked, "base"), line_of(forked, "early")])
    assert alignment.past == 4
    assert steps_of(alignment) == steps_of(alignment, 1) == list(range(5, 13))
    assert alignment.alone == (0, 0)
    assert not alignment.reordered(1)
    assert {row.steps[1].run for row in alignment.rows} == {"early"}
    # Steps 7 to 12 are the second time that the six tasks are met, whoever met them first.
    assert [row.occurrence for row in alignment.rows] == [1, 1, 2, 2, 2, 2, 2, 2]


def test_a_fork_of_a_fork_has_the_whole_past(forked: MemoryBank) -> None:
    line = line_of(forked, "deep")
    assert [(s.run, s.step) for s in line.steps] == (
        [("base", n) for n in range(1, 5)] + [("early", n) for n in range(5, 8)] + [("deep", n) for n in range(8, 11)]
    )
    assert [s.step for s in line.own.steps] == [8, 9, 10]
    alignment = align([line_of(forked, "base"), line])
    assert (alignment.past, steps_of(alignment)) == (4, list(range(5, 11)))
    assert alignment.alone == (2, 0)


def test_only_what_all_runs_share_is_past(forked: MemoryBank) -> None:
    lines = [line_of(forked, name) for name in ("base", "late", "early")]
    alignment = align(lines)
    assert (alignment.past, steps_of(alignment)) == (4, list(range(5, 13)))
    assert [parted_after(lines[0], line) for line in lines[1:]] == [8, 4]
    assert parted_after(lines[0], lines[0]) == 0
    # Each is compared with the first from where those two part.
    paired = [[pair.one.step for pair in pairs] for pairs in compare(forked, lines).pairs]
    assert paired == [list(range(9, 13)), list(range(5, 13))]


def test_a_fork_from_the_first_step_shares_nothing(bank: MemoryBank) -> None:
    commit(bank, "a", "x")
    begun(bank, "b", base="a")
    commit(bank, "b", "x")
    alignment = align([line_of(bank, "a"), line_of(bank, "b")])
    assert (alignment.past, len(alignment.rows), alignment.alone) == (0, 1, (0, 0))


def test_a_run_that_begins_with_what_another_learned_met_its_own_tasks_only(bank: MemoryBank) -> None:
    for task in "xy":
        commit(bank, "a", task)
    begun(bank, "b", base="a", base_step=2)
    commit(bank, "b", "x")
    assert [s.run for s in line_of(bank, "b").steps] == ["b"]
    with pytest.raises(UnknownRun):
        line_of(bank, "nobody")


def test_a_step_is_read_as_it_was_recorded(bank: MemoryBank) -> None:
    commit(bank, "a", "x", pool=["m1", "m2"], selected=["m2"], answers=["one", "two"], tokens=[(5, 1), (7, 2)])
    two = {"answers": ["one", "two"], "offered": [True, False]}
    commit(bank, "a", "x", **two, tokens=[(5, 1), (None, 2)], reward=-1.0)
    first, second = line_of(bank, "a").steps
    assert (first.pool, first.selected, first.answer, first.turns) == (2, ("m2",), "one\ntwo", 2)
    assert (first.tokens_read, first.tokens_written) == (12, 3)
    assert (first.reward, first.outcome) == (1.0, "success")
    assert (second.tokens_read, second.tokens_written, second.outcome) == (None, 3, "failure")
    assert (second.pool, second.selected) == (0, ())
    assert (first.valid, second.valid) == (None, 0.5)


def test_what_another_agent_did_not_tell_is_unknown(bank: MemoryBank) -> None:
    recorder = Recorder(bank, "theirs")
    with recorder.step("go", task="t"):
        pass
    with recorder.step("go", embedding=a_vector(1), task="t") as step:
        step.answered("left", prompt_tokens=3)
        step.rewarded(-1.0)
    silent, reported = line_of(bank, "theirs").steps
    for name in ("pool", "selected", "answer", "reward", "outcome", "turns", "tokens_read", "tokens_written", "valid"):
        assert getattr(silent, name) is None
    assert (reported.answer, reported.reward, reported.outcome, reported.turns) == ("left", -1.0, "failure", 1)
    assert (reported.tokens_read, reported.tokens_written, reported.selected) == (3, None, None)


def test_tasks_that_nobody_named_pair_by_their_intent(tmp_path: Path) -> None:
    with a_bank(tmp_path / "bank", "r") as bank:
        for run, intents in {"one": ("go", "stop", "go"), "other": ("stop", "go")}.items():
            recorder = Recorder(bank, run)
            for intent in intents:
                with recorder.step(intent) as step:
                    step.answered("yes")
        alignment = align([line_of(bank, "one"), line_of(bank, "other")])
    rows = [(r.task, r.intent, r.occurrence, r.steps[0].step, r.steps[1].step) for r in alignment.rows]
    assert rows == [("", "go", 1, 1, 2), ("", "stop", 1, 2, 1)]
    assert alignment.alone == (1, 0)


def test_the_rewards_of_people_count_from_when_they_were_given_until_they_are_revoked(bank: MemoryBank) -> None:
    trace = commit(bank, "a", "x", reward=1.0)
    silent = commit(bank, "a", "y", reward=None)

    def now() -> list[tuple[float | None, str | None]]:
        return [(step.reward, step.outcome) for step in line_of(bank, "a").steps]

    assert now() == [(1.0, "success"), (None, None)]
    given = give_reward(bank, "a", 1, trace.id, (), -1.0, "ann")
    give_reward(bank, "a", 1, trace.id, (), -0.5, "bob")
    assert now()[0] == (-0.75, "failure")
    give_reward(bank, "a", 2, silent.id, (), 0.4, "ann")
    assert now()[1] == (0.4, "success")
    give_reward(bank, "a", 2, silent.id, (), 0.0, "ann")
    assert now()[1] == (0.0, None)
    bank.write.ratings.revoke(given.id, "ann")
    assert now()[0] == (-0.5, "failure")


def test_an_outcome_is_judged_by_the_scale_of_the_step(bank: MemoryBank) -> None:
    trace = commit(bank, "a", "x", settings={"reward_failure": 0.0, "reward_success": 1.0})
    strange = commit(bank, "a", "x", settings={"from": "elsewhere"})
    for reported in (trace, strange):
        give_reward(bank, "a", reported.step, reported.id, (), 0.3, "ann")
    first, second = line_of(bank, "a").steps
    assert (first.reward, first.outcome) == (0.3, "failure")
    assert (second.reward, second.outcome) == (0.3, None)


def test_memories_that_paired_steps_wrote_are_counterparts(bank: MemoryBank) -> None:
    begun(bank, "b")
    for run, tasks in {"a": "xyz", "b": "wyx"}.items():
        for task in tasks:
            commit(bank, run, task)
    found = counterparts(bank, align([line_of(bank, "a"), line_of(bank, "b")]), 1)
    assert found == {"b-0002": "a-0002", "b-0003": "a-0001"}


def test_what_both_runs_know_stands_for_itself(bank: MemoryBank) -> None:
    for task in "xyz":
        commit(bank, "a", task)
    begun(bank, "b", base="a", base_step=1, first_step=2)
    for task in "yz":
        commit(bank, "b", task)
    lines = [line_of(bank, "a"), line_of(bank, "b")]
    assert counterparts(bank, align(lines), 1) == {"b-0002": "a-0002", "b-0003": "a-0003"}
    assert counterparts(bank, align(lines[::-1]), 1) == {"a-0002": "b-0002", "a-0003": "b-0003"}


def test_what_an_agent_knew_already_is_the_counterpart_of_nothing(tmp_path: Path) -> None:
    with a_bank(tmp_path / "bank", "r") as bank:
        for run in ("one", "other"):
            recorder = Recorder(bank, run)
            with recorder.step("go", task="t", embedding=a_vector(1)) as step:
                step.wrote(f"learned in {run}", f"{run}-learned")
            recorder.remember(f"asked in {run}", f"brought by {run}", a_vector(2), memory_id=f"{run}-brought")
        found = counterparts(bank, align([line_of(bank, "one"), line_of(bank, "other")]), 1)
    assert found == {"other-learned": "one-learned"}


# --- where they part --------------------------------------------------------------------------------------------------


MEMORIES, ORDER, ANSWER, REWARD = Difference

SELECTIONS = st.none() | st.permutations("klm").flatmap(
    lambda ids: st.integers(0, 3).map(lambda n: tuple(f"a-{i}" for i in ids[:n]))
)

ANSWERS, REWARDS = st.sampled_from([None, "p", "q"]), st.sampled_from([None, 1.0, -1.0])
STEPS = st.lists(st.tuples(st.sampled_from("xyz"), SELECTIONS, ANSWERS, REWARDS), min_size=1, max_size=12)


def a_pairing(one: list[Any], other: list[Any]) -> Alignment:
    """Two runs on the tasks of the first, that selected, answered and earned what is given."""

    def line(name: str, reported: list[Any]) -> Line:
        both = enumerate(zip(one, reported, strict=False), start=1)
        return a_line(
            name,
            [a_compared(name, n, task, selected=s, answer=a, reward=r) for n, ((task, *_), (_, s, a, r)) in both],
        )

    return align([line("a", one), line("b", other)])


def by_hand(mine: Any, theirs: Any) -> set[Difference]:
    """In what two given steps differ."""
    found = set()
    if mine[1] is not None and theirs[1] is not None and list(mine[1]) != list(theirs[1]):
        found.add(ORDER if sorted(mine[1]) == sorted(theirs[1]) else MEMORIES)
    for place, difference in ((2, ANSWER), (3, REWARD)):
        if None not in (mine[place], theirs[place]) and mine[place] != theirs[place]:
            found.add(difference)
    return found


@given(STEPS, STEPS)
def test_the_ways_to_differ_are_those_found_by_hand(one: list[Any], other: list[Any]) -> None:
    pairs = pairs_of(a_pairing(one, other), 1, {})
    reported = list(zip(one, other, strict=False))
    assert [pair.differences for pair in pairs] == [by_hand(*both) for both in reported]
    for pair, (mine, theirs) in zip(pairs, reported, strict=True):
        known = mine[1] is not None and theirs[1] is not None
        first, second = (set(mine[1]), set(theirs[1])) if known else (set(), set())
        found = tuple(map(set, (pair.shared, pair.added, pair.removed)))
        assert found == (first & second, second - first, first - second)
    found = {entry.difference: entry for entry in divergences(pairs)}
    for difference, place in ((MEMORIES, 1), (ORDER, 1), (ANSWER, 2), (REWARD, 3)):
        known = [at for at, both in enumerate(reported) if None not in (both[0][place], both[1][place])]
        differing = [at for at in known if difference in by_hand(*reported[at])]
        if not known:
            assert difference not in found
            continue
        entry = found[difference]
        assert (entry.known, entry.differing) == (len(known), len(differing))
        assert entry.first == (pairs[differing[0]] if differing else None)


@given(STEPS, STEPS, st.integers(0, 11))
def test_the_nearest_pairs_that_differ_are_before_and_after(one: list[Any], other: list[Any], at: int) -> None:
    pairs = pairs_of(a_pairing(one, other), 1, {})
    at = min(at, len(pairs) - 1)
    differing = [place for place, pair in enumerate(pairs) if pair.differences]
    before, after = neighbours(pairs, at)
    assert before == next((pairs[place] for place in reversed(differing) if place < at), None)
    assert after == next((pairs[place] for place in differing if place > at), None)


def test_a_counterpart_is_no_difference() -> None:
    alignment = a_pairing(
        [("x", ("a-1", "a-2"), None, None), ("x", ("a-1",), None, None)],
        [("x", ("b-1", "a-2"), None, None), ("x", ("b-9", "b-1"), None, None)],
    )
    like = {"b-1": "a-1"}
    same, other = pairs_of(alignment, 1, like)
    assert same.differences == set()
    assert (same.shared, same.added, same.removed) == (("a-1", "a-2"), (), ())
    assert other.differences == {MEMORIES}
    assert (other.shared, other.added, other.removed) == (("a-1",), ("b-9",), ())
