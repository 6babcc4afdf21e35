"""Policies of other packages: they work like the program's own, and what they do wrong is a sentence, not a loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memrl_core.bank import MemoryBank
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import OllamaDown, PolicyFailed, SettingsError
from memrl_core.learning import unmoved
from memrl_core.policies import make_policy, policy_class, policy_names, update_rule
from memrl_core.policies.base import Policy, Written
from memrl_core.policies.contract import CHECKS, World
from memrl_core.policies.guarded import HOOKS
from memrl_core.policies.methods.rag import Rag
from memrl_core.records import Decision, MemoryOperation, Phase, RecallRecord, Utility, ValueChange
from memrl_core.settings import PolicySettings
from memrl_core.view import MemoryView
from tests.core.foreign import Newest, installed
from tests.core.policy_run import an_agent_of

TASKS = sample_tasks("household-train")


class Breaks(Newest):
    """Fails in a phase as long as `broken`."""

    broken = True

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        if self.broken:
            raise ZeroDivisionError("a matrix was singular")
        return super().select(recalled, view, seed)


class ChoosesStrangers(Newest):
    """Chooses a memory that was not recalled as long as `broken`."""

    broken = True

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        decision = super().select(recalled, view, seed)
        return replace(decision, selected=("m-9999",)) if self.broken else decision


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    found = {
        "newest": Newest,
        "breaks": Breaks,
        "strangers": ChoosesStrangers,
        "no_policy": dict,
        "not_there": ModuleNotFoundError("No module named 'lost'"),
    }
    monkeypatch.setattr(Breaks, "broken", True)
    monkeypatch.setattr(ChoosesStrangers, "broken", True)
    with installed(monkeypatch, **found):
        yield


# --- one that works ---------------------------------------------------------------------------------------------------


def test_a_policy_of_another_package_runs_like_the_programs_own(packages: None, tmp_path: Path) -> None:
    agent = an_agent_of(tmp_path / "bank", "newest", k2=2)
    traces = list(agent.run(TASKS[:5]))
    last = traces[-1]
    assert last.policy == "newest"
    assert last.decision is not None
    assert last.decision.selected == ("r-0004", "r-0003")
    assert last.update is not None
    believed = agent.bank.utilities("r")
    assert len(believed) == 5
    assert [believed[change.memory_id].q for change in last.update.changes] == [
        change.after for change in last.update.changes
    ]
    assert {change.alpha for change in last.update.changes} == {0.5}
    assert [bank_trace.policy for bank_trace in MemoryBank.open(agent.bank.uri).traces("r")] == ["newest"] * 5


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_guarding_keeps_the_contract(packages: None, check: Callable[..., Any]) -> None:
    check(lambda: make_policy("newest", {}))


def test_it_is_listed_after_the_programs_own_which_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, rag=Newest, another=Newest):
        assert policy_names()[-1] == "another"
        assert policy_names().count("rag") == 1
        assert policy_class("rag") is Rag
        assert policy_class("another").spec.name == "another"


# --- failures in a step -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        ("breaks", Breaks, r"“breaks” failed in select \(ZeroDivisionError: a matrix was singular\).*is kept; mend"),
        (
            "strangers",
            ChoosesStrangers,
            r"“strangers” broke its contract in select: it chose “m-9999”.*not in the pool",
        ),
    ],
)
def test_a_failure_while_selecting_is_a_sentence_and_the_step_goes_on_once_it_is_mended(
    packages: None, tmp_path: Path, name: str, kind: Any, sentence: str
) -> None:
    kind.broken = False
    agent = an_agent_of(tmp_path / "bank", name)
    list(agent.run(TASKS[:2]))
    kind.broken = True
    episode = agent.begin(TASKS[2])
    for _ in range(2):
        with pytest.raises(PolicyFailed, match=sentence):
            episode.finish()
        assert episode.phase is Phase.SELECT
        assert episode.trace.recall is not None
        assert agent.bank.view("r").size == 2
    kind.broken = False
    episode.finish()
    assert [row.step for row in agent.bank.step_rows("r")] == [1, 2, 3]
    assert agent.bank.view("r").size == 3


def test_every_hook_is_guarded() -> None:
    public = {name for name, found in vars(Policy).items() if callable(found) and not name.startswith("_")}
    assert public - {"Settings", "rule", "__init__"} == set(HOOKS)


@pytest.mark.parametrize("hook", HOOKS)
def test_what_any_hook_raises_becomes_a_sentence(monkeypatch: pytest.MonkeyPatch, hook: str) -> None:
    def fails(*given: Any, **named: Any) -> Any:
        raise KeyError("a memory that was\nforgotten")

    with (
        installed(monkeypatch, odd=type("Odd", (Newest,), {hook: fails})),
        pytest.raises(PolicyFailed, match=rf"“odd” failed in {hook} \(KeyError: .*choose another one"),
    ):
        getattr(make_policy("odd", {}), hook)(None)


def test_a_rule_that_fails_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoRule(Newest):
        @staticmethod
        def rule(believed: Utility, reward: float, settings: Mapping[str, Any]) -> float:
            return float("nan")

    with installed(monkeypatch, odd=NoRule), pytest.raises(PolicyFailed, match=r"in rule: it gave back 'nan'"):
        update_rule("odd")(Utility(0.0, 0), 1.0, {})


OPERATION = MemoryOperation("ADD", "m-1", "a", "b", "success", "a", 0.0, ())


@pytest.mark.parametrize(
    ("hook", "gives"),
    [
        ("when", True),
        ("key", None),
        ("recall", None),
        ("consult", None),
        ("select", None),
        ("render", ("only text",)),
        ("render_turn", None),
        ("reward_of", float("inf")),
        ("outcome_of", "well done"),
        ("update", [0.5]),
        ("write", [OPERATION]),
        ("forget", [Written(OPERATION)]),
        ("learn", None),
        ("values", {"a": "b"}),
    ],
)
def test_what_a_hook_must_not_give_back_is_a_sentence(monkeypatch: pytest.MonkeyPatch, hook: str, gives: Any) -> None:
    odd = type("Odd", (Newest,), {hook: lambda *given, **named: gives})
    with installed(monkeypatch, odd=odd):
        policy = make_policy("odd", {})
        given = (None, None, 1) if hook == "select" else (None,)
        with pytest.raises(PolicyFailed, match=f"“odd” broke its contract in {hook}: it gave back"):
            getattr(policy, hook)(*given)


def test_a_reward_goes_to_nothing_that_was_not_in_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = type("Odd", (Newest,), {"credited": lambda self, decision: ("m-9999",)})
    with installed(monkeypatch, odd=odd):
        _, decision = World(Rag(PolicySettings()), 1).decide()
        with pytest.raises(PolicyFailed, match="it credited “m-9999”, which was not in the prompt"):
            make_policy("odd", {}).credited(decision)


def test_a_failure_of_the_model_in_a_question_stays_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def asks(*given: Any) -> Any:
        raise OllamaDown("Ollama is not running.")

    with installed(monkeypatch, odd=type("Odd", (Newest,), {"consult": asks})), pytest.raises(OllamaDown):
        make_policy("odd", {}).consult(None, None, None)


# --- packages that offer none -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no_policy", "“no_policy” offers no subclass of memrl_core.policies.base.Policy. Nothing was started"),
        (
            "not_there",
            r"“not_there” of another package cannot be loaded \(ModuleNotFoundError: No module named 'lost'\)",
        ),
    ],
)
def test_a_package_without_a_policy_is_a_sentence_and_stays_listed(packages: None, name: str, sentence: str) -> None:
    for _ in range(2):
        with pytest.raises(SettingsError, match=sentence):
            policy_class(name)
    assert name in policy_names()


@pytest.mark.parametrize("missing", [{"spec": None}, {"Settings": dict}])
def test_a_policy_without_a_card_or_settings_is_refused(
    monkeypatch: pytest.MonkeyPatch, missing: Mapping[str, Any]
) -> None:
    with (
        installed(monkeypatch, odd=type("Odd", (Newest,), dict(missing))),
        pytest.raises(SettingsError, match=next(iter(missing))),
    ):
        policy_class("odd")


def test_a_package_that_leaves_while_it_is_imported_does_not_end_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, odd=SystemExit(3)), pytest.raises(SettingsError, match=r"SystemExit: 3"):
        policy_class("odd")


def test_a_package_that_was_mended_is_taken_without_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, odd=ImportError("half written")) as points:
        with pytest.raises(SettingsError, match="half written"):
            policy_class("odd")
        points["odd"].behind = Newest
        assert issubclass(policy_class("odd"), Newest)


def test_an_unknown_policy_names_those_that_there_are(packages: None) -> None:
    with pytest.raises(SettingsError, match=r"no policy “memory-rl”. Known: memrl, none, .*rag.*, newest, breaks"):
        make_policy("memory-rl", {})
    with pytest.raises(SettingsError) as caught:
        policy_class("x" * 5000)
    assert "x" * 81 not in str(caught.value)


def test_a_value_out_of_range_names_the_range(packages: None) -> None:
    with pytest.raises(
        SettingsError, match=r"not changed\. share: Input should be less than or equal to 1 \(given: 7\)"
    ):
        make_policy("newest", {"share": 7})
    with pytest.raises(SettingsError, match=r"no setting “alpha”; allowed: .*share"):
        make_policy("newest", {"alpha": 0.5})


# --- runs of a policy that is not installed ---------------------------------------------------------------------------


@pytest.fixture
def left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryBank:
    """A bank opened where the policy of its run is not installed."""
    with installed(monkeypatch, newest=Newest):
        agent = an_agent_of(tmp_path / "bank", "newest")
        list(agent.run(TASKS[:4]))
        assert any(believed.q for believed in agent.bank.utilities("r").values())
        agent.bank.close()
    return MemoryBank.open(agent.bank.uri)


def test_a_bank_can_be_looked_at_without_the_policy_of_its_run(left_behind: MemoryBank) -> None:
    view = left_behind.view("r")
    assert view.size == 4
    assert [trace.policy for trace in left_behind.traces("r")] == ["newest"] * 4
    assert left_behind.as_of("r", 2).size == 2
    left_behind.close()


def test_without_its_rule_every_q_stays_as_it_was_written(left_behind: MemoryBank) -> None:
    assert update_rule("newest") is unmoved
    written = {
        operation.memory_id: operation.q0
        for trace in left_behind.traces("r")
        if trace.write is not None
        for operation in trace.write.operations
    }
    assert {memory_id: believed.q for memory_id, believed in left_behind.utilities("r").items()} == written


def test_its_recorded_moves_of_q_are_still_told(left_behind: MemoryBank) -> None:
    moved = [change for trace in left_behind.traces("r") if trace.update for change in trace.update.changes]
    assert moved
    assert all(isinstance(change, ValueChange) and change.after != change.before for change in moved)


def test_such_a_run_is_not_continued_and_says_why(left_behind: MemoryBank, tmp_path: Path) -> None:
    agent = an_agent_of(tmp_path / "other", "rag")
    agent.bank = left_behind
    with pytest.raises(SettingsError, match="no policy “newest”"):
        agent.begin(TASKS[0])
    assert left_behind.next_step("r") == 5
