"""Every policy keeps the same contract, under its usual settings and under those that change what it does."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import SettingsError
from memrl_core.learning import unmoved
from memrl_core.policies import POLICIES, contract, make_policy, policy_class
from memrl_core.policies.base import BADGES, Lesson, Policy, When, added, deleted, seed_of
from memrl_core.policies.contract import CHECKS
from memrl_core.policies.methods.rmm_reranker import RMMReranker, RMMSettings
from memrl_core.policies.ranking import Chosen, TermColumn, gumbel_top, positions, ranked, similarities, z
from memrl_core.records import Decision, Memory, MemoryOperation, RecallRecord, ValueChange
from memrl_core.retrieval.view import MemoryView
from tests.policies.foreign import Newest, NewestSettings
from tests.policies.policy_run import an_agent_of
from tests.policies.pools import a_pool, by_template, decided

Make = Callable[[], Policy[Any]]

CHANGED: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("memrl", {"exploration": "ucb"}),
    ("memrl", {"exploration": "thompson"}),
    ("memrl", {"epsilon": 0.5}),
    ("memrl", {"normaliser": "fixed", "k1_counts": "intent"}),
    ("memrl", {"ties": "seeded"}),
    ("memrl", {"q_min": 0.0, "q_floor": -0.5}),
    ("memp", {"update": "vanilla"}),
    ("memp", {"variant": "code", "update": "validation"}),
    ("memp", {"delete_from": 1, "delete_below": 1.0}),
    ("rememberer", {"variant": "paper"}),
    ("rememberer", {"variant": "paper", "n": 3, "capacity": 2}),
    ("memento", {"read": "kernel"}),
    ("memento", {"read": "network", "cold_rows": 2}),
    ("empo2_memory", {"variant": "paper", "capacity": 2}),
    ("webcoach", {"every": 1}),
)
MADE = (*((name, {}) for name in POLICIES), *CHANGED)


def _named(made: tuple[str, Mapping[str, Any]]) -> str:
    name, settings = made
    return " ".join([name, *(f"{key}={value}" for key, value in settings.items())])


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_says_the_name_by_which_it_is_made(name: str) -> None:
    assert make_policy(name, {}).spec.name == name


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("empo2_memory", "EMPO² memory (no GRPO)"),
        ("memory_r1_ops", "Memory-R1 operations (prompted look-alike)"),
        ("remem", "ReMem (prompted loop)"),
        ("self_rag", "Self-RAG-style (prompted)"),
    ],
)
def test_a_look_alike_never_carries_the_bare_name_of_the_trained_system(name: str, title: str) -> None:
    spec = make_policy(name, {}).spec
    assert (spec.title, spec.variant) == (title, "adapted")
    assert spec.deviations and "%" not in str(dataclasses.asdict(spec))


WRONG: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "a_mem": [{"linked": -1}, {"neighbours": 51}, {"k2": 11}, {"alpha": 0.1}],
    "awm": [{"successes": 0}, {"k2": 11}, {"alpha": 0.1}],
    "empo2_memory": [{"capacity": 0}, {"variant": "grpo"}, {"delta": 2}],
    "exprag": [{"k1": 3, "k2": 5}, {"k2": -1}, {"delta": 2}, {"alpha": 0.3}],
    "memrl": [{"exploration": "none"}, {"ucb_c": -1}, {"thompson_scale": 0}, {"ties": "newer"}, {"q_floor": -11}],
    "memento": [{"read": "best"}, {"bandwidth": 0}, {"cold_rows": 1}, {"learning_rate": 1}],
    "memory_r1_ops": [{"shown": 0}, {"shown": 201}, {"alpha": 0.1}],
    "memp": [{"update": "reflect"}, {"delete_from": 0}, {"delete_below": 2}],
    "reflexion": [{"last": 0}, {"last": 11}, {"last": 2.5}, {"alpha": 0.3}],
    "remem": [{"k2": -1}, {"k1": 2}, {"delta": 2}, {"alpha": 0.3}],
    "rememberer": [{"n": 0}, {"gamma": 1.5}, {"task_weight": 2}, {"variant": "x"}, {"capacity": 1}],
    "rmm_reranker": [{"temperature": 0}, {"rank": 0}, {"learning_rate": 2}],
    "self_rag": [{"threshold": 1.1}, {"threshold": -0.1}, {"k2": 11}, {"weight": 0.5}],
    "webcoach": [{"every": -1}, {"k1": 2}],
}


@pytest.mark.parametrize("made", [(name, wrong) for name, wrongs in WRONG.items() for wrong in wrongs], ids=_named)
def test_settings_out_of_range_are_refused_by_name(made: tuple[str, Mapping[str, Any]]) -> None:
    with pytest.raises(SettingsError, match="|".join([*made[1], "k1", "k2"])):
        make_policy(*made)


@pytest.mark.parametrize("name", ["remem", "self_rag", "webcoach"])
def test_where_no_model_was_asked_the_rule_decides_and_nothing_is_asked_about_nothing(name: str) -> None:
    def ask(question: Any) -> Any:
        raise AssertionError("asked")

    assert decided(name, a_pool(), ask)[1].mode == "fallback"
    view = a_pool(("success", 0.9), ("failure", 0.8), ("unrated", 0.2))
    decision = decided(name, view)[1]
    assert decision.selected == by_template(name, view).selected
    assert decision.note


@pytest.mark.parametrize("name", ["empo2_memory", "rememberer"])
def test_what_no_form_offers_changes_nothing(tmp_path: Path, name: str) -> None:
    others = {"k1_counts": "intent", "duplicates": "group", "duplicate_threshold": 0.0}
    assert set(others) == set(policy_class(name).ignored)
    runs = []
    for number, chosen in enumerate([{}, others]):
        agent = an_agent_of(tmp_path / str(number), name, **chosen)
        traces = agent.run(sample_tasks("household-train")[:2], epochs=2)
        runs.append([(trace.recall, trace.decision, trace.write) for trace in traces])
    assert runs[0] == runs[1]


@pytest.mark.parametrize("made", MADE, ids=_named)
def test_a_badge_is_one_that_the_card_offers(made: tuple[str, Mapping[str, Any]]) -> None:
    spec = make_policy(*made).spec
    assert (
        spec.variant in (spec.variants or (policy_class(made[0]).spec.variant,)) and set(spec.variants) <= BADGES.keys()
    )


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("made", MADE, ids=_named)
def test_a_policy_keeps_the_contract(made: tuple[str, Mapping[str, Any]], check: Callable[..., Any]) -> None:
    name, settings = made
    check(lambda: make_policy(name, settings))


# --- what the checks find out -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hook", "values"),
    [
        ("write", {"op": "FOO"}),
        ("write", {"q0": nan}),
        ("write", {"data": {"a": nan}}),
        ("write", {"data": {"a": {1, 2}}}),
        ("write", {"data": {"a": ("b",)}}),
        ("write", {"data": {1: "b"}}),
        ("recall", {"rule": "moon"}),
        ("select", {"mode": "wild"}),
        ("select", {"draw": nan}),
    ],
)
def test_what_could_not_be_stored_is_found(hook: str, values: Mapping[str, Any]) -> None:
    def spoils(self: Any, *given: Any, **named: Any) -> Any:
        record = getattr(Newest, hook)(self, *given, **named)
        if hook != "write":
            return replace(record, **values)
        return tuple(replace(one, operation=replace(one.operation, **values)) for one in record)

    with pytest.raises(AssertionError):
        for check in CHECKS:
            check(a_policy(**{hook: spoils}))


@pytest.mark.parametrize(
    "wrong",
    [{"variant": "official"}, {"feedback": None}, {"needs": "citations"}, {"variant": "adapted", "deviations": ()}],
    ids=str,
)
def test_a_card_that_cannot_be_shown_is_found(wrong: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="`spec`"):
        contract.has_a_card(a_policy(spec=replace(Newest.spec, **wrong)))


def a_policy(**hooks: Any) -> Make:
    """Makes the newest first with other hooks."""
    return lambda: type("Odd", (Newest,), hooks)(NewestSettings())


class Counting(Newest):
    """Counts its lessons, in a state that is given."""

    def __init__(self, state: Callable[[], Any]) -> None:
        super().__init__(NewestSettings())
        self.state = state

    def start(self, memories: Sequence[Memory]) -> Any:
        return self.state()

    def learn(self, state: Any, lesson: Lesson) -> tuple[ValueChange, ...]:
        before = state["lessons"]
        state["lessons"] += 1.0
        return (ValueChange("", before, before + 1, 1, 0.0, 0.0, "parameters", "lessons"),)

    def values(self, state: Any) -> Mapping[str, float]:
        return {"lessons": state["lessons"]}


class OnlyOne(dict[str, Any]):
    """What is not copied when it is."""

    def __deepcopy__(self, memo: Any) -> OnlyOne:
        return self


@pytest.mark.parametrize(
    ("state", "sentence"),
    [(lambda: {"lessons": 0.0, "lock": threading.Lock()}, "copied"), (lambda: OnlyOne(lessons=0.0), "changed")],
)
def test_a_state_that_cannot_be_copied_is_found(state: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        contract.has_a_state_that_can_be_copied(lambda: Counting(state))


class Remembers(Newest):
    """Keeps beside its state how a step ended."""

    seen = ""

    def learn(self, state: Any, lesson: Lesson) -> tuple[ValueChange, ...]:
        self.seen = lesson.outcome
        return ()

    def render(self, selected: Sequence[Memory], *given: Any) -> Any:
        messages, spans = super().render(selected, *given)
        return tuple(replace(message, content=message.content + self.seen) for message in messages), spans


class ByLabel(Counting):
    """Learns what only the environment may know of a task."""

    def learn(self, state: Any, lesson: Lesson) -> tuple[ValueChange, ...]:
        state["lessons"] += len(lesson.trace.task.family)
        return ()


class Unmeasured(RMMReranker):
    """Draws at random, but not by the chances that it tells."""

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        log_propensity = super().select(recalled, view, seed).log_propensity
        order = super().select(recalled, view, seed % 2).selected
        at = {member.memory_id: position for position, member in enumerate(recalled.pool)}
        chosen = Chosen([at[i] for i in order], "sampled", log_propensity=log_propensity)
        return ranked(recalled, view, [], k2=self.settings.k2, seed=seed, chosen=chosen)


class Ucb(Newest):
    """A bonus for memories with few visits in one step of ten, with what is learned left as in plain RAG."""

    spec = replace(Newest.spec, learns="nothing")

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        if seed % 10:
            return super().select(recalled, view, seed)
        visits = view.visits[positions(recalled, view)]
        bonus = TermColumn("bonus", 1 / np.sqrt(1.0 + visits))
        return ranked(recalled, view, [bonus], k2=self.settings.k2, seed=seed)


class Thompson(Newest):
    """Draws a utility for every memory, in one step of so many, and takes the largest, without a word of it."""

    every, reported = 1, False

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        if seed % self.every:
            return super().select(recalled, view, seed)
        rows = positions(recalled, view)
        drawn = np.random.default_rng(seed).normal(view.q[rows], 1 / np.sqrt(1.0 + view.visits[rows]))
        best = np.argsort(-drawn)[: self.settings.k2].tolist()
        chosen = Chosen(best, "sampled", propensity=0.01) if self.reported and best else None
        return ranked(recalled, view, [TermColumn("drawn", drawn)], k2=self.settings.k2, seed=seed, chosen=chosen)


class Softmax(Newest):
    """Draws memories by softmax of their similarity; with a chance reported, that is the same for every set."""

    reported: float | None = None

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        similarity = similarities(recalled)
        order, _ = gumbel_top(5 * similarity, self.settings.k2, np.random.default_rng(seed))
        chosen = Chosen(order, "greedy" if self.reported is None else "sampled", propensity=self.reported or 1.0)
        return self.ranked(recalled, view, [TermColumn("similarity", similarity)], seed, chosen=chosen)


class RandomTies(Newest):
    """The largest q; the seed draws among equals, without a word of it."""

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        q = view.q[positions(recalled, view)]
        order = np.lexsort((np.random.default_rng(seed).random(len(q)), -q))[: self.settings.k2]
        chosen = Chosen(order.tolist(), "greedy" if len(q) else "fallback")
        return self.ranked(recalled, view, [TermColumn("q", q)], seed, chosen=chosen)


class Shuffled(Newest):
    """The most similar, in an order that the seed draws."""

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        made = self.by_similarity(recalled, view, seed)
        selected = tuple(np.random.default_rng(seed).permutation(made.selected).tolist())
        return replace(made, selected=selected)


class Noisy(Newest):
    """Noise in each score that is too small to change what is taken."""

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        noise = TermColumn("noise", 1e-6 * np.random.default_rng(seed).random(len(recalled.pool)))
        return self.ranked(recalled, view, [TermColumn("similarity", similarities(recalled)), noise], seed)


class DrawnPool(Newest):
    """A pool that the seed draws from all memories."""

    def recall(self, query: Any, view: MemoryView, coarse: Any = None) -> RecallRecord:
        found = super().recall(query, view, coarse)
        drawn = np.random.default_rng(seed_of(view)).random(len(found.pool)) < 0.5
        return replace(found, pool=tuple(m for m, kept in zip(found.pool, drawn, strict=True) if kept))


def thompson(**attributes: Any) -> Make:
    return lambda: type("Own", (Thompson,), attributes)(NewestSettings())


class ReportedTies(Newest):
    """The largest q; the seed draws among equals, and the probability of each draw is recorded."""

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        return self.ranked(recalled, view, [TermColumn("q", view.q[positions(recalled, view)])], seed)


def test_a_policy_that_draws_and_says_how_likely_its_choice_was_keeps_the_contract() -> None:
    for check in CHECKS:
        check(lambda: ReportedTies(NewestSettings()))
    contract.says_when_chance_chooses(thompson(reported=True))


class Rarely(Newest):
    """What was visited three times is forgotten, where no reward adds a visit."""

    spec = Ucb.spec

    def forget(self, view: MemoryView) -> tuple[MemoryOperation, ...]:
        return tuple(deleted((view.ids[row],), "") for row in view.positions() if view.visits[row] == 3)


@pytest.mark.parametrize(
    ("check", "make", "sentence"),
    [
        (contract.learns_where_its_card_says, lambda: Ucb(NewestSettings()), "visits.*nothing"),
        (contract.learns_where_its_card_says, lambda: Rarely(NewestSettings()), "visits.*nothing"),
        (contract.learns_where_its_card_says, a_policy(credited=lambda s, decision: ()), "credited"),
        (contract.learns_where_its_card_says, a_policy(rule=staticmethod(unmoved)), "moves q"),
        (
            contract.learns_where_its_card_says,
            a_policy(spec=Ucb.spec, credited=lambda s, decision: decision.selected),
            "credited",
        ),
        (
            contract.learns_where_its_card_says,
            lambda: type("Odd", (Counting,), {"spec": Ucb.spec})(lambda: {"lessons": 0.0}),
            "Values are learned",
        ),
        (contract.forgets_only_what_is_there, a_policy(forget=lambda s, v: (deleted(("m-9999",), ""),)), "not there"),
        (contract.forgets_only_what_is_there, a_policy(forget=lambda s, v: (deleted((), ""),)), "deletes nothing"),
        (contract.decides_alike_however_the_step_ends, lambda: Remembers(NewestSettings()), "ended"),
        (
            contract.reads_no_hidden_label,
            a_policy(write=lambda s, new, view, ask: (added(new, new.memory_id, new.trace.task.family or "-"),)),
            "family",
        ),
        (contract.reads_no_hidden_label, lambda: ByLabel(lambda: {"lessons": 0.0}), "learned"),
        (contract.says_when_chance_chooses, thompson(), "greedy, propensity 1.*sampled"),
        (contract.says_when_chance_chooses, thompson(every=40), "greedy, propensity 1.*sampled"),
        (contract.says_when_chance_chooses, lambda: Softmax(NewestSettings()), "greedy, propensity 1"),
        (contract.says_when_chance_chooses, lambda: RandomTies(NewestSettings()), "sets.*greedy, propensity 1"),
        (contract.says_when_chance_chooses, lambda: Shuffled(NewestSettings()), "orders.*log_propensity"),
        (contract.says_when_chance_chooses, lambda: Noisy(NewestSettings()), "scores.*sampled"),
        (contract.recalls_the_same_whatever_the_seed, lambda: DrawnPool(NewestSettings()), "pools"),
        (
            contract.says_how_likely_its_choice_was,
            lambda: type("Odd", (Softmax,), {"reported": 0.3})(NewestSettings()),
            "probabilit",
        ),
        (contract.says_how_likely_its_choice_was, lambda: Unmeasured(RMMSettings()), "probabilit"),
        (contract.works_in_later_turns, a_policy(when=lambda s, asked: True), "no When"),
        (contract.gives_what_can_be_stored, a_policy(consult=lambda *given: {"a": 1}), "model said"),
        (
            contract.works_in_later_turns,
            a_policy(
                when=lambda *_: When(True, "always"), render_turn=lambda s, chosen, view: {0: ""}[view.asked.turn]
            ),
            "1",
        ),
        (contract.reports_what_it_learns, a_policy(learn=lambda s, state, lesson: () * int(lesson.reward)), "None"),
    ],
)
def test_what_breaks_the_contract_is_found_by_its_check(check: Any, make: Make, sentence: str) -> None:
    with pytest.raises((AssertionError, KeyError, TypeError), match=sentence):
        check(make)


def test_what_a_policy_computes_with_has_one_row_per_member_of_the_pool() -> None:
    looked = contract.World(Newest(NewestSettings(k1=3)), 1, size=12, steps=0).look()
    pool, view = looked.recalled.pool, looked.view
    assert len(pool) == 3 and looked.recalled.left_out
    assert [view.ids[row] for row in positions(looked.recalled, view)] == [member.memory_id for member in pool]
    q = view.q[positions(looked.recalled, view)]
    assert z(q) == pytest.approx((q - q.mean()) / q.std())
    assert z(np.full(3, 0.5)).tolist() == [0.0, 0.0, 0.0]
