"""Policies of other packages: they work like the program's own, and what fails in one is a sentence, not a loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import field_validator

from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check, rebuild
from memrl_core.errors import InputError, PolicyFailed, SettingsError
from memrl_core.exchange.bring_in import bring_in
from memrl_core.exchange.contents import contents_of
from memrl_core.guards import POLICY_HOOKS
from memrl_core.learning import unmoved
from memrl_core.policies import make_policy, policy_class, policy_names, update_rule, usable_policies
from memrl_core.policies.base import Policy, Written
from memrl_core.policies.contract import World
from memrl_core.policies.methods.rag import Rag
from memrl_core.records import Decision, MemoryOperation, Phase, StepTrace, ValueChange
from memrl_core.settings import PolicySettings
from tests.builders import a_bank, a_step, alike_tasks
from tests.policies.foreign import Newest, NewestSettings, installed
from tests.policies.policy_run import an_agent_of
from tests.small_banks import give_reward

TASKS = alike_tasks()
OPERATION = MemoryOperation("ADD", "m-1", "a", "b", "success", "a", 0.0, ())


def odd(**own: Any) -> Any:
    """The newest first with something else in it."""
    return type("Odd", (Newest,), own)


# --- one that works ---------------------------------------------------------------------------------------------------


def test_a_policy_of_another_package_runs_like_the_programs_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with installed(monkeypatch, newest=Newest):
        agent = an_agent_of(tmp_path / "bank", "newest", k2=2)
        last = list(agent.run(TASKS[:5]))[-1]
        assert last.decision.selected == ("r-0004", "r-0003")
        believed = agent.bank.utilities("r")
        assert [believed[c.memory_id].q for c in last.update.changes] == [c.after for c in last.update.changes]
        assert {c.alpha for c in last.update.changes} == {0.5}
        assert [trace.policy for trace in MemoryBank.open(agent.bank.uri).traces("r")] == ["newest"] * 5


def test_it_is_listed_after_the_programs_own_which_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, rag=Newest, another=Newest):
        assert policy_names()[-1] == "another"
        assert policy_names().count("rag") == 1
        assert policy_class("rag") is Rag
        assert policy_class("another").spec.name == "another"
        with pytest.raises(SettingsError, match=r"rag.*another") as caught:
            make_policy("x" * 5000, {})
        assert "x" * 81 not in str(caught.value)


# --- failures in a step -----------------------------------------------------------------------------------------------


def raising(decision: Decision) -> Decision:
    raise ZeroDivisionError("a matrix was singular")


def choosing_strangers(decision: Decision) -> Decision:
    return replace(decision, selected=("m-9999",))


@pytest.mark.parametrize("spoil", [raising, choosing_strangers])
def test_a_step_keeps_its_trace_and_goes_on_once_the_policy_is_corrected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spoil: Callable[[Decision], Decision]
) -> None:
    spoiling = [False]

    def select(self: Any, *given: Any) -> Decision:
        decision = Newest.select(self, *given)
        return spoil(decision) if spoiling[0] else decision

    with installed(monkeypatch, odd=odd(select=select)):
        agent = an_agent_of(tmp_path / "bank", "odd")
        list(agent.run(TASKS[:2]))
        spoiling[0] = True
        episode = agent.begin(TASKS[2])
        for _ in range(2):
            with pytest.raises(PolicyFailed, match=r"“odd”.*in select"):
                episode.finish()
            assert episode.phase is Phase.SELECT
            assert episode.trace.recall is not None
            assert agent.bank.view("r").size == 2
        spoiling[0] = False
        episode.finish()
        assert [row.step for row in agent.bank.steps.rows("r")] == [1, 2, 3]


@pytest.mark.parametrize("error", [KeyError("a memory that was\nforgotten"), SystemExit(3)])
@pytest.mark.parametrize("hook", POLICY_HOOKS)
def test_what_any_hook_raises_names_the_plugin_and_the_hook(
    monkeypatch: pytest.MonkeyPatch, hook: str, error: BaseException
) -> None:
    def fails(*given: Any, **named: Any) -> Any:
        raise error

    with (
        installed(monkeypatch, odd=odd(**{hook: fails})),
        pytest.raises(PolicyFailed, match=rf"“odd” failed in {hook} \({type(error).__name__}"),
    ):
        getattr(make_policy("odd", {}), hook)(None)


# --- what a hook gives ------------------------------------------------------------------------------------------------

_, _, _, RECALLED, DECISION = World(Rag(PolicySettings()), 1).look()
MOVED = ValueChange("m-9999", 0.0, 0.5, 1, 1.0, 0.5)


@pytest.mark.parametrize(
    ("hook", "gives", "called_with"),
    [
        ("when", True, ()),
        ("key", "\ud800", ()),
        ("recall", None, ()),
        ("recall", replace(RECALLED, rule="moon"), ()),
        ("consult", {"a": object()}, ()),
        ("select", None, ()),
        ("select", replace(DECISION, draw=nan), (RECALLED, None, 1)),
        ("select", replace(DECISION, mode="wild"), (RECALLED, None, 1)),
        ("render", ("only text",), ()),
        ("reward_of", inf, ()),
        ("rule", nan, ()),
        ("outcome_of", "well done", ()),
        ("credited", ("m-9999",), (DECISION,)),
        ("update", (MOVED,), (["m-1"],)),
        ("update", (replace(MOVED, after=nan),), (["m-9999"],)),
        ("write", [OPERATION], ()),
        ("write", (Written(replace(OPERATION, q0=nan)),), ()),
        ("forget", [OPERATION], ()),
        ("learn", (replace(MOVED, after=inf),), ()),
        ("values", {"a": nan}, ()),
    ],
)
def test_what_a_hook_must_not_give_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, hook: str, gives: Any, called_with: Sequence[Any]
) -> None:
    with installed(monkeypatch, odd=odd(**{hook: lambda *given, **named: gives})):
        called: Any = update_rule("odd") if hook == "rule" else getattr(make_policy("odd", {}), hook)
        with pytest.raises(PolicyFailed, match=f"“odd” broke its contract in {hook}: "):
            called(*(called_with or (None, None, None)))


def test_what_a_hook_gives_is_used_as_it_will_be_read_from_the_bank(monkeypatch: pytest.MonkeyPatch) -> None:
    given = replace(OPERATION, q0="0.5", parents=["m-1"], data={"a": (1, 2)})
    with installed(monkeypatch, odd=odd(write=lambda *_: [Written(given, np.ones(2))])):
        (written,) = make_policy("odd", {}).write(None, None, None)
    operation = written.operation
    assert (operation.q0, operation.parents, operation.data) == (0.5, ("m-1",), {"a": [1, 2]})
    assert written.embedding.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("values", [{"q0": nan}, {"outcome": "great"}, {"data": {"a": {1, 2}}}])
def test_a_step_that_nobody_could_read_is_not_stored(tmp_path: Path, values: Mapping[str, Any]) -> None:
    bank, (sound, vectors) = a_bank(tmp_path / "bank"), a_step(1)
    (operation,) = sound.write.operations
    step: StepTrace = replace(sound, policy="lost")
    spoiled = replace(step, write=replace(sound.write, operations=(replace(operation, **values),)))
    before = bank.events()
    with pytest.raises(PolicyFailed, match="“lost”"):
        bank.write.commit_step(spoiled, vectors)
    assert bank.events() == before and not bank.steps.rows("r") and not bank.view("r").size
    assert bank.write.commit_step(step, vectors) == MemoryBank.open(bank.uri).trace("r", 1)


# --- what cannot be used at all ---------------------------------------------------------------------------------------


class Fragile(NewestSettings):
    """A validator that fails in a way of its own."""

    @field_validator("share")
    @classmethod
    def _known(cls, share: float) -> float:
        return {0.5: share}[share]


class Late(Newest):
    """A card that is spoiled when it is made."""

    def __init__(self, settings: NewestSettings) -> None:
        super().__init__(settings)
        self.spec = replace(Newest.spec, variant="adapted", deviations=())


@pytest.mark.parametrize(
    ("behind", "reported"),
    [
        (dict, "Policy"),
        (ModuleNotFoundError("No module named 'lost'"), "lost"),
        (SystemExit(3), "SystemExit: 3"),
        (odd(spec=None), "`spec`"),
        (odd(spec=replace(Newest.spec, variant="official")), "variant"),
        (Late, "deviations"),
        (odd(Settings=dict), "Settings"),
        (odd(ignored=("k3",)), "ignored"),
        (odd(__init__=lambda self, settings, matrix: None), "TypeError"),
    ],
)
def test_what_cannot_be_used_is_listed_with_the_reason_and_not_offered(
    monkeypatch: pytest.MonkeyPatch, behind: Any, reported: str
) -> None:
    with installed(monkeypatch, odd=behind, newest=Newest) as points:
        for _ in range(2):
            with pytest.raises(SettingsError, match=f"“odd”.*{reported}"):
                policy_class("odd")
        assert "odd" in policy_names()
        assert "odd" not in usable_policies() and "newest" in usable_policies()
        points["odd"].behind = Newest
        assert policy_class("odd").spec.name == "odd"


def test_one_that_cannot_be_made_under_some_settings_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def halves(self: Any, settings: NewestSettings) -> None:
        Policy.__init__(self, settings)
        self.odds = 1 / (1 - settings.share)

    with installed(monkeypatch, odd=odd(__init__=halves), fragile=odd(Settings=Fragile)):
        for name, error in (("odd", "ZeroDivisionError"), ("fragile", "KeyError")):
            assert make_policy(name, {"share": 0.5}).settings.share == 0.5
            with pytest.raises(SettingsError, match=f"“{name}”.*{error}"):
                make_policy(name, {"share": 1.0})
            with pytest.raises(SettingsError, match="“alpha”"):
                make_policy(name, {"alpha": 0.5})


# --- runs of a policy that is not installed ---------------------------------------------------------------------------


def test_a_run_of_a_policy_that_is_not_installed_can_be_looked_at_and_not_continued(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with installed(monkeypatch, newest=Newest):
        agent = an_agent_of(tmp_path / "bank", "newest")
        traces = list(agent.run(TASKS[:4]))
        believed = agent.bank.utilities("r")
        assert any(one.q for one in believed.values())
        agent.bank.close()
    bank = MemoryBank.open(agent.bank.uri)
    assert bank.traces("r") == traces
    assert (bank.view("r").size, bank.view("r", 2).size) == (4, 2)
    assert update_rule("newest") is unmoved
    assert bank.utilities("r") == believed
    assert any(change.after != change.before for trace in traces if trace.update for change in trace.update.changes)
    agent = an_agent_of(tmp_path / "other", "rag")
    agent.bank = bank
    with pytest.raises(SettingsError, match="“newest”"):
        agent.begin(TASKS[0])
    assert bank.next_step("r") == 5


def test_without_its_package_a_run_keeps_its_q_and_what_would_move_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with installed(monkeypatch, newest=Newest):
        agent = an_agent_of(tmp_path / "bank", "newest", k2=2)
        list(agent.run(TASKS[:4]))
        bank = agent.bank
        believed, step = dict(bank.utilities("r")), bank.steps.rows("r")[-1]
        bank.close()
    with MemoryBank.open(str(tmp_path / "bank")) as again:
        credited = again.credits.of("r", step.step)
        with pytest.raises(InputError, match=r"“newest”.*not installed"):
            give_reward(again, "r", step.step, step.id, credited, -1.0, "Ada")
        with pytest.raises(InputError, match=r"“newest”.*not installed"):
            again.write.rebuild()
        assert again.utilities("r") == believed
    assert MemoryBank.open(str(tmp_path / "bank")).utilities("r") == believed
    assert [finding for finding in check(str(tmp_path / "bank")) if not finding.ok] == []
    with installed(monkeypatch, newest=Newest), MemoryBank.open(str(tmp_path / "bank")) as back:
        give_reward(back, "r", step.step, step.id, credited, -1.0, "Ada")
        assert dict(back.utilities("r")) != believed


def test_a_run_that_arrives_without_its_package_says_that_its_rewards_moved_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with installed(monkeypatch, newest=Newest):
        agent = an_agent_of(tmp_path / "bank", "newest", k2=2)
        list(agent.run(TASKS[:4]))
        believed, contents = dict(agent.bank.utilities("r")), contents_of(agent.bank)
        agent.bank.close()
    copy = str(tmp_path / "copy")
    bring_in(contents, copy)
    with MemoryBank.open(str(tmp_path / "bank")) as kept, MemoryBank.open(copy) as arrived:
        assert kept.credits.unmoved("r") == ""
        assert "newest" in arrived.credits.unmoved("r") and arrived.utilities("r") != believed
    (finding,) = [finding for finding in check(copy) if not finding.ok]
    assert (finding.name, "--rebuild" in finding.remedy) == ("utilities", True)
    with installed(monkeypatch, newest=Newest):
        rebuild(copy)
        with MemoryBank.open(copy) as rebuilt:
            assert (rebuilt.credits.unmoved("r"), dict(rebuilt.utilities("r"))) == ("", believed)
