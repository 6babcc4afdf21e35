"""Policies of other packages that do not keep the contract: nothing of them is stored, and the checks find them out."""

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
from pydantic import field_validator

from memrl_core.bank import MemoryBank
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import PolicyFailed, SettingsError
from memrl_core.learning import unmoved
from memrl_core.policies import contract, make_policy, policy_class, usable_policies
from memrl_core.policies.base import Lesson, Policy, When, added, deleted
from memrl_core.policies.contract import CHECKS, World
from memrl_core.policies.methods.rag import Rag
from memrl_core.policies.methods.rmm_reranker import RMMReranker, RMMSettings
from memrl_core.policies.ranking import Chosen, TermColumn, ranked
from memrl_core.policies.spec import PolicySpec
from memrl_core.records import Decision, Memory, MemoryOperation, RecallRecord, StepTrace, ValueChange, WriteRecord
from memrl_core.settings import PolicySettings
from memrl_core.view import Asked, MemoryView
from tests.builders import a_bank, a_step
from tests.core.foreign import Newest, NewestSettings, installed
from tests.core.policy_run import an_agent_of

TASKS = sample_tasks("household-train")
Make = Callable[[], Policy[Any]]

NONSENSE: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("write", {"op": "FOO"}),
    ("write", {"q0": nan}),
    ("write", {"outcome": "great"}),
    ("write", {"intent": None}),
    ("write", {"data": {"a": nan}}),
    ("write", {"data": {"a": {1, 2}}}),
    ("write", {"data": {"a": ("b",)}}),
    ("write", {"data": {1: "b"}}),
    ("recall", {"rule": "moon"}),
    ("select", {"mode": "wild"}),
    ("select", {"draw": nan}),
)
"""A hook, and values that no record of it may have."""


def spoiled(hook: str, given: Any, values: Mapping[str, Any]) -> Any:
    """What a hook gave, with these values."""
    if hook == "write":
        return tuple(replace(one, operation=replace(one.operation, **values)) for one in given)
    return replace(given, **values)


def spoiling(hook: str, values: Mapping[str, Any]) -> Any:
    """A policy whose hook gives records with these values as long as it is `broken`."""
    sound = getattr(Newest, hook)

    def spoils(self: Any, *given: Any, **named: Any) -> Any:
        record = sound(self, *given, **named)
        return spoiled(hook, record, values) if self.broken else record

    return type("Spoils", (Newest,), {hook: spoils, "broken": True})


# --- what is stored ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hook", "values"), NONSENSE)
def test_nonsense_of_a_hook_is_a_sentence_and_the_step_goes_on_once_it_is_mended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hook: str, values: Mapping[str, Any]
) -> None:
    kind = spoiling(hook, values)
    with installed(monkeypatch, odd=kind):
        agent = an_agent_of(tmp_path / "bank", "odd")
        episode = agent.begin(TASKS[0])
        with pytest.raises(PolicyFailed, match=f"“odd” broke its contract in {hook}: "):
            episode.finish()
        assert not agent.bank.step_rows("r") and not agent.bank.view("r").size
        kind.broken = False
        stored = episode.finish()
        assert MemoryBank.open(agent.bank.uri).trace("r", 1) == stored


@pytest.mark.parametrize("said", [{"a": {1}}, {"a": nan}, {1: "a"}, {"a": object()}])
def test_an_answer_in_consult_that_is_no_json_is_a_sentence(monkeypatch: pytest.MonkeyPatch, said: Any) -> None:
    odd = type("Odd", (Newest,), {"consult": lambda *given: said})
    with (
        installed(monkeypatch, odd=odd),
        pytest.raises(PolicyFailed, match=r"in consult: “.” of its answer is no JSON"),
    ):
        make_policy("odd", {}).consult(None, None, None)


def a_foreign_step(hook: str = "", values: Mapping[str, Any] | None = None) -> tuple[StepTrace, Any]:
    """A finished step of a policy of another package, with what a hook gave spoiled."""
    recalled, decision = World(Rag(PolicySettings()), 1).decide()
    sound, vectors = a_step(1)
    assert sound.write is not None
    records: dict[str, Any] = {"recall": recalled, "decision": decision, "write": sound.write}
    if hook == "write":
        (operation,) = sound.write.operations
        records["write"] = WriteRecord((replace(operation, **values or {}),))
    elif hook:
        name = {"recall": "recall", "select": "decision"}[hook]
        records[name] = replace(records[name], **values or {})
    return replace(sound, policy="lost", **records), vectors


@pytest.mark.parametrize(("hook", "values"), NONSENSE[:-1])
def test_a_step_that_nobody_could_read_is_not_stored(tmp_path: Path, hook: str, values: Mapping[str, Any]) -> None:
    bank = a_bank(tmp_path / "bank")
    before = bank.events()
    with pytest.raises(PolicyFailed, match=r"The step of the policy “lost” .* was not stored; mend the policy"):
        bank.commit_step(*a_foreign_step(hook, values))
    assert bank.events() == before and not bank.step_rows("r") and not bank.view("r").size
    stored = bank.commit_step(*a_foreign_step())
    again = MemoryBank.open(bank.uri)
    assert again.trace("r", 1) == stored
    assert again.view("r").size == 1


def test_a_step_of_another_package_is_stored_as_it_will_be_read(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    stored = bank.commit_step(*a_foreign_step("write", {"q0": "0.5", "parents": ["m-1"]}))
    assert stored.write is not None
    assert (stored.write.operations[0].q0, stored.write.operations[0].parents) == (0.5, ("m-1",))
    assert bank.utilities("r")["r-0001"].q == 0.5
    assert MemoryBank.open(bank.uri).trace("r", 1) == stored


# --- what is shown ----------------------------------------------------------------------------------------------------

BAD_CARDS: Sequence[dict[str, Any]] = (
    {"variant": "official"},
    {"feedback": None},
    {"feedback": ("applause",)},
    {"needs": None},
    {"needs": "citations"},
    {"title": None},
    {"learns": "wisdom"},
    {"deviations": "one only"},
    {"variants": ("paper", "mine")},
    {"variant": "adapted", "deviations": ()},
)


@pytest.mark.parametrize("wrong", BAD_CARDS, ids=str)
def test_a_policy_whose_card_cannot_be_shown_is_not_offered(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    class Late(Newest):
        def __init__(self, settings: NewestSettings) -> None:
            super().__init__(settings)
            self.spec = replace(Newest.spec, **wrong)

    early = type("Early", (Newest,), {"spec": replace(Newest.spec, **wrong)})
    with installed(monkeypatch, early=early, late=Late, newest=Newest):
        assert "newest" in usable_policies()
        assert not {"early", "late"} & set(usable_policies())
        for name in ("early", "late"):
            with pytest.raises(SettingsError, match=f"“{name}” .*`spec` .*{next(reversed(wrong))}"):
                policy_class(name)


@pytest.mark.parametrize("ignored", ["k1", ("k3",), None, (1,)])
def test_settings_to_be_ignored_are_names_of_settings(monkeypatch: pytest.MonkeyPatch, ignored: Any) -> None:
    odd = type("Odd", (Newest,), {"ignored": ignored})
    with installed(monkeypatch, odd=odd), pytest.raises(SettingsError, match="`ignored` is no tuple of names"):
        policy_class("odd")


def test_a_policy_keeps_the_name_under_which_it_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    class Renames(Newest):
        def __init__(self, settings: NewestSettings) -> None:
            super().__init__(settings)
            self.spec = replace(Newest.spec, name="rag", variant="code", needs=["citations"])  # type: ignore[arg-type]

    with installed(monkeypatch, odd=Renames):
        spec = make_policy("odd", {}).spec
        assert (spec.name, spec.variant, spec.needs) == ("odd", "code", ("citations",))


def test_one_that_cannot_be_made_is_a_sentence_and_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    class NeedsMore(Newest):
        def __init__(self, settings: NewestSettings, matrix: Any) -> None:
            super().__init__(settings)

    with installed(monkeypatch, odd=NeedsMore):
        assert "odd" not in usable_policies()
        with pytest.raises(SettingsError, match=r"“odd” cannot be made under these settings \(TypeError"):
            make_policy("odd", {})


def test_one_that_cannot_be_made_under_some_settings_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Halves(Newest):
        def __init__(self, settings: NewestSettings) -> None:
            super().__init__(settings)
            self.odds = 1 / (1 - settings.share)

    with installed(monkeypatch, odd=Halves):
        assert make_policy("odd", {"share": 0.5}).settings.share == 0.5
        with pytest.raises(SettingsError, match=r"“odd” cannot be made under these settings \(ZeroDivisionError"):
            make_policy("odd", {"share": 1})


class FailingSettings(NewestSettings):
    """A validator that fails in a way of its own."""

    @field_validator("share")
    @classmethod
    def _known(cls, share: float) -> float:
        return {0.5: share}[share]


def test_settings_whose_check_fails_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, odd=type("Odd", (Newest,), {"Settings": FailingSettings})):
        assert make_policy("odd", {"share": 0.5}).settings.share == 0.5
        with pytest.raises(SettingsError, match=r"“odd” cannot be checked \(KeyError: 0\.7\)\. Settings were not"):
            make_policy("odd", {"share": 0.7})
        with pytest.raises(SettingsError, match="no setting “alpha”"):
            make_policy("odd", {"alpha": 0.5})


def test_q_moves_only_of_what_is_credited(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = (ValueChange("m-9999", 0.0, 0.5, 1, 1.0, 0.5),)
    odd = type("Odd", (Newest,), {"update": lambda *given: moved})
    with installed(monkeypatch, odd=odd), pytest.raises(PolicyFailed, match="moved “m-9999”, which was not credited"):
        make_policy("odd", {}).update(["m-1"], 1.0, {})


def test_forgetting_only_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    operation = MemoryOperation("UPDATE", "m-1", "a", "b", "success", "a", 0.0, (), replaces=("m-0",))
    odd = type("Odd", (Newest,), {"forget": lambda *given: (operation,)})
    with installed(monkeypatch, odd=odd), pytest.raises(PolicyFailed, match="it gave back UPDATE instead of DELETE"):
        make_policy("odd", {}).forget(None)


# --- what the checks find out -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hook", "values"), NONSENSE)
def test_nonsense_is_found_by_a_check(hook: str, values: Mapping[str, Any]) -> None:
    with pytest.raises(AssertionError):
        for check in CHECKS:
            check(lambda: spoiling(hook, values)(NewestSettings()))


@pytest.mark.parametrize("wrong", BAD_CARDS, ids=str)
def test_a_card_that_cannot_be_shown_is_found_by_its_check(wrong: Mapping[str, Any]) -> None:
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


def test_a_state_that_can_be_copied_passes() -> None:
    contract.has_a_state_that_can_be_copied(lambda: Counting(lambda: {"lessons": 0.0}))


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (lambda: {"lessons": 0.0, "lock": threading.Lock()}, "cannot be copied"),
        (lambda: OnlyOne(lessons=0.0), "has changed the state"),
    ],
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


class Unmeasured(RMMReranker):
    """Draws at random, but not by the chances that it tells."""

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        log_propensity = super().select(recalled, view, seed).log_propensity
        order = super().select(recalled, view, seed % 2).selected
        at = {member.memory_id: position for position, member in enumerate(recalled.pool)}
        chosen = Chosen([at[i] for i in order], "sampled", log_propensity=log_propensity)
        return ranked(recalled, view, [], k2=self.settings.k2, seed=seed, chosen=chosen)


class Ucb(Newest):
    """A bonus for memories with few visits, with what is learned left as in plain RAG."""

    spec = replace(Newest.spec, learns="nothing")

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        visits = view.visits[[view.position(member.memory_id) for member in recalled.pool]]
        bonus = TermColumn("bonus", 1 / np.sqrt(1.0 + visits))
        return ranked(recalled, view, [bonus], k2=self.settings.k2, seed=seed)


def test_a_card_says_where_learning_is_kept() -> None:
    fields = {field.name: getattr(Newest.spec, field.name) for field in dataclasses.fields(Newest.spec)}
    del fields["learns"]
    with pytest.raises(TypeError, match="learns"):
        PolicySpec(**fields)


@pytest.mark.parametrize(
    ("check", "make", "sentence"),
    [
        (contract.learns_where_its_card_says, lambda: Ucb(NewestSettings()), "q or visits decide"),
        (contract.learns_where_its_card_says, a_policy(credited=lambda s, decision: ()), "no memory is credited"),
        (contract.learns_where_its_card_says, a_policy(rule=staticmethod(unmoved)), "no reward moves q"),
        (
            contract.learns_where_its_card_says,
            a_policy(spec=Ucb.spec, credited=lambda s, decision: decision.selected),
            "are credited with rewards",
        ),
        (
            contract.learns_where_its_card_says,
            lambda: type("Odd", (Counting,), {"spec": Ucb.spec})(lambda: {"lessons": 0.0}),
            "Values are learned",
        ),
        (contract.forgets_only_what_is_there, a_policy(forget=lambda s, v: (deleted(("m-9999",), ""),)), "not there"),
        (contract.forgets_only_what_is_there, a_policy(forget=lambda s, v: (deleted((), ""),)), "deletes nothing"),
        (
            contract.decides_alike_however_the_step_ends,
            lambda: Remembers(NewestSettings()),
            "knows that the step ended",
        ),
        (
            contract.reads_no_hidden_label,
            a_policy(write=lambda s, new, view, ask: (added(new, new.memory_id, new.trace.task.family or "-"),)),
            "family or the data",
        ),
        (contract.says_how_likely_its_order_was, lambda: Unmeasured(RMMSettings()), "probabilit"),
        (contract.works_in_later_turns, a_policy(when=lambda s, asked: True), "no When"),
        (contract.gives_what_can_be_stored, a_policy(consult=lambda *given: {"a": 1}), "not what the model said"),
    ],
)
def test_what_breaks_the_contract_is_found_by_its_check(check: Any, make: Make, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check(make)


def test_a_failure_in_a_later_turn_is_found() -> None:
    def render_turn(self: Any, selected: Sequence[Memory], view: MemoryView) -> str:
        assert view.asked is not None
        return {0: ""}[view.asked.turn]

    def when(self: Any, asked: Asked) -> When:
        return When(True, "always")

    with pytest.raises(KeyError):
        contract.works_in_later_turns(a_policy(when=when, render_turn=render_turn))


def test_a_failure_without_a_reward_is_found() -> None:
    def learn(self: Any, state: Any, lesson: Lesson) -> tuple[ValueChange, ...]:
        assert lesson.reward is not None
        return ()

    with pytest.raises(AssertionError):
        contract.takes_a_lesson_without_reward(a_policy(learn=learn))


def test_the_newest_first_keeps_every_check() -> None:
    assert isinstance(Newest.spec, PolicySpec)
    for check in CHECKS:
        check(lambda: Newest(NewestSettings()))
