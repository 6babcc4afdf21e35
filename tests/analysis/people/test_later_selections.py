"""Selections that a change of q reaches: held against a fold and a selection in plain Python."""

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

from memrl_core.analysis.people.reward_effect import (
    FROM_A_FILE,
    NOT_RECORDED,
    OTHER_RULES,
    Choice,
    Choices,
    Differing,
    compiled,
    differing,
    marked,
    selections_with,
)
from memrl_core.bank import MemoryBank
from memrl_core.environments.tasks import sample_tasks
from memrl_core.policies.methods.memrl import MemRL
from memrl_core.recorder import Recorder
from memrl_core.records import Recalled, RecallRecord, StepTrace, UtilityPoint
from memrl_core.settings import MemRLSettings
from tests.analysis.eventful import believed_by_definition
from tests.builders import DIMENSION, a_run, a_step, a_vector, an_agent, numbers
from tests.oracles.ledger import believed
from tests.oracles.selection import taken, z_sides

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
        with agent.bank.batch(STEPS):
            list(agent.run(tasks[: STEPS // 2]))
            agent.bank.change_settings("r", {**agent.bank.settings("r"), "weight": 0.5, "alpha": 0.2}, STEPS // 2 + 1)
            list(agent.run(tasks[STEPS // 2 :]))
        agent.bank.close()
        made.append(path)
    return made


@pytest.fixture
def bank(request: pytest.FixtureRequest, folders: list[Path], tmp_path: Path) -> MemoryBank:
    """A copy of one of the runs (the first, unless a test asks for others), to be rated."""
    shutil.copytree(folders[getattr(request, "param", 0)], tmp_path / "bank")
    return MemoryBank.open(str(tmp_path / "bank"))


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of the selections that are made from now on."""
    seeds: list[int] = []
    select = MemRL.select

    def counting(policy: MemRL, recalled: Any, view: Any, seed: int) -> Any:
        seeds.append(seed)
        return select(policy, recalled, view, seed)

    monkeypatch.setattr(MemRL, "select", counting)
    return seeds


def choices_of(bank: MemoryBank, run: str = "r") -> Choices:
    found = compiled(bank, run)
    assert found is not None
    return found


def rated(bank: MemoryBank, step: int, value: float, run: str = "r") -> str:
    trace = bank.trace(run, step)
    return bank.give_reward(run, step, trace.id, trace.decision.selected, value, "ann").id


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
    finished = {row.id for row in bank.step_rows(run)}
    found = {}
    for trace in bank.traces(run):
        known = believed([e for e in bank.events(run) if e.step < trace.step], finished, start)
        found[trace.step] = selection_by_definition(trace, {i: q for i, (q, _) in known.items()})
    return found


def marks_by_definition(bank: MemoryBank, run: str = "r") -> dict[int, set[str]]:
    chosen = {t.step: set(t.decision.selected) for t in bank.traces(run) if t.decision}
    return {step: now for step, now in selections_by_definition(bank, run).items() if now != chosen[step]}


def as_sets(found: Sequence[Differing]) -> dict[int, set[str]]:
    return {one.step: set(one.would) for one in found}


# --- a run that was rated late ----------------------------------------------------------------------------------------


@of_every_kind
def test_a_run_that_nobody_rated_late_has_no_marks_and_costs_no_decision(bank: MemoryBank, decided: list[int]) -> None:
    choices = choices_of(bank)
    assert (list(choices.of_step), choices.left_out, choices.why_left_out) == (list(range(1, STEPS + 1)), {}, "")
    decided.clear()
    assert marked(choices, bank.histories("r")) == []
    assert decided == []


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


def test_a_run_that_begins_with_the_memory_of_another_takes_its_last_q(tmp_path: Path) -> None:
    agent, tasks = an_agent(tmp_path / "bank", **OWN), sample_tasks("household-train")
    with agent.bank.batch(10):
        list(agent.run(tasks[:10]))
    agent.bank.start_run(replace(a_run("s", base="r", base_step=10, **OWN), embedder=agent.bank.embedder.name))
    agent.run_id = "s"
    with agent.bank.batch(12):
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
    found = selections_with(choices, lambda memory_id, step: float(q[memory_id]))
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
    made = {s: Choice(s, policy, recall, 0, {"a": 0.0, "b": 0.0}, (0, 0), ("a",)) for s in range(1, 5)}
    histories = {
        "a": [UtilityPoint("a", 0, None, 0.0, 0, None, None, ())],
        "b": [UtilityPoint("b", step, None, q, 0, None, None, ()) for step, q in entries],
    }
    choices = Choices(made, {"a": list(made), "b": list(made)}, {})
    assert as_sets(marked(choices, histories)) == {step: {"b"} for step in steps}


def test_a_memory_without_an_earlier_entry_keeps_the_q_that_the_step_recorded(bank: MemoryBank) -> None:
    assert marked(choices_of(bank), {}) == []


# --- what can be decided again ----------------------------------------------------------------------------------------


def test_steps_of_others_are_left_out_with_a_reason(tmp_path: Path) -> None:
    bank = MemoryBank.create(str(tmp_path / "bank"), "hashing-8", DIMENSION)
    recorder = Recorder(bank, "r", MemRLSettings(k2=1, weight=0.0))
    near, far = (recorder.remember(f"intent {n}", f"experience {n}", a_vector(n)) for n in range(2))
    for chosen in (near, far):
        with recorder.step("heat the egg") as step:
            step.recalled({near: 0.9, far: 0.1})
            step.selected([chosen])
    bank.commit_step(*a_step(3))
    first = bank.trace("r", 1)
    strange = {"origin": "import"}, {"settings": {"k1": -1}}, {"policy": "unheard of"}
    others = [replace(first, id=f"other-{n}", step=4 + n, **change) for n, change in enumerate(strange)]
    bank.adopt({}, [], others)
    choices = choices_of(bank)
    assert list(choices.of_step) == [1]
    assert choices.left_out == {2: OTHER_RULES, 3: NOT_RECORDED, 4: FROM_A_FILE, 5: OTHER_RULES, 6: OTHER_RULES}
    assert numbers(choices.why_left_out) == ["5", "6", "3", "1", "1"]
    assert list(selections_with(choices, lambda memory_id, step: 0.0, [1, 2, 3])) == [1]


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
    bank.adopt({}, [], [replace(first, id=f"late-{n}", step=STEPS + n, recall=None) for n in (1, 2)])
    found, anew = compiled(bank, "r", known=known), choices_of(bank)
    assert found is not None and _as_read(found) == _as_read(anew)
    assert anew.left_out == {STEPS + 1: NOT_RECORDED, STEPS + 2: NOT_RECORDED}
    assert read == [(1, 12), (13, STEPS + 2), (1, STEPS + 2)]


def _as_read(choices: Choices) -> Any:
    of_step = [(c.step, c.policy.spec, c.recall, c.seed, c.q, c.visits, c.selected) for c in choices.of_step.values()]
    return list(choices.of_step), of_step, list(choices.steps_of.items()), choices.left_out
