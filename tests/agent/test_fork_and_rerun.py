"""A run forked from a step, a step answered again, and shares of its reward."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from memrl_core.agent.preferences import Preferences
from memrl_core.agent.rerun import Credit, Rerun, credit, subsets
from memrl_core.agent.run_parts import make_embedder
from memrl_core.agent.runs import fork, live_run, rerunner, start_run
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError, ModelError, SettingsError
from memrl_core.records import GenerateRecord, Message, Reply, Turn
from memrl_core.settings import MemRLSettings
from pages.shared.work import Work
from tests.analysis.lockstep import go_on

STEPS = 24


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    """A bank with one run of `STEPS` household tasks by the simulated model."""
    return _bank_with_run(tmp_path_factory.mktemp("banks") / "bank", {})


def _bank_with_run(path: Path, settings: dict[str, object]) -> MemoryBank:
    embedder = make_embedder("hashing", Preferences())
    bank = MemoryBank.create(str(path), embedder.name, embedder.dimension)
    start_run(
        bank, environment="household", tasks="household-train", settings=MemRLSettings.of(settings), run="base", seed=3
    )
    go_on(bank, "base", STEPS)
    return bank


def test_a_fork_under_the_same_settings_repeats_the_run_step_by_step(learned: MemoryBank) -> None:
    settings = learned.trace("base", 10).settings
    forked = fork(learned, "base", 10, settings, name="same")
    assert dict(learned.utilities("same")) == dict(learned.utilities("base", 9))
    go_on(learned, forked.id, 5)
    for step in range(10, 15):
        own, original = learned.trace("same", step), learned.trace("base", step)
        assert own.task == original.task
        assert own.decision.seed == original.decision.seed
        assert [_role(i, "same") for i in own.decision.selected] == [
            _role(i, "base") for i in original.decision.selected
        ]
        assert [turn.reply.text for turn in own.generate.turns] == [turn.reply.text for turn in original.generate.turns]
        assert own.reward.reward == original.reward.reward


def _role(memory_id: str, run: str) -> str:
    """A memory's name apart from the run that wrote it."""
    for name in (run, "base"):
        memory_id = memory_id.removeprefix(f"{name}-")
    return memory_id


def test_a_fork_under_other_settings_decides_its_first_step_by_them(learned: MemoryBank) -> None:
    settings = {**learned.trace("base", 20).settings, "k2": 1, "weight": 1.0}
    forked = fork(learned, "base", 20, settings)
    go_on(learned, forked.id, 1)
    trace = learned.trace(forked.id, 20)
    assert len(trace.decision.selected) <= 1
    assert trace.settings["weight"] == 1.0
    assert learned.trace("base", 20).settings["weight"] == 0.5


def test_a_fork_with_another_model_has_that_models_facts_and_options(learned: MemoryBank) -> None:
    forked = fork(learned, "base", 10, learned.settings("base"), model="gguf:smollm2")
    assert (forked.model, forked.simulated) == ("gguf:smollm2", False)
    assert forked.model_facts["digest"] and not learned.run("base").model_facts
    with pytest.raises(ModelError):
        fork(learned, "base", 10, learned.settings("base"), name="none", model="gguf:/not/there.gguf")
    assert "none" not in [info.id for info in learned.runs()]


def test_a_fork_of_a_step_that_is_not_there_leaves_no_run_behind(learned: MemoryBank) -> None:
    runs = len(learned.runs())
    with pytest.raises(InputError, match="no step 99"):
        fork(learned, "base", 99, learned.settings("base"))
    with pytest.raises(SettingsError):
        fork(learned, "base", 3, {**learned.settings("base"), "alpha": 7})
    assert len(learned.runs()) == runs


def test_answering_again_with_the_same_memories_gives_the_recorded_episode(learned: MemoryBank) -> None:
    for step in range(1, STEPS + 1):
        trace = learned.trace("base", step)
        again = rerunner(learned, trace, Preferences())
        found = again.rerun(again.memories)
        assert [t.reply.text for t in found.generate.turns] == [t.reply.text for t in trace.generate.turns]
        assert found.generate.messages == trace.generate.messages
        assert (found.reward, found.verdict) == (trace.reward.reward, trace.reward.verdict)


def test_a_memory_that_is_left_out_is_not_in_the_prompt(learned: MemoryBank) -> None:
    trace = next(t for t in learned.traces("base") if t.decision is not None and len(t.decision.selected) > 1)
    again = rerunner(learned, trace, Preferences())
    first, *rest = again.memories
    found = again.rerun(rest)
    assert all(f"[memory {first}]" not in message.content for message in found.generate.messages)
    assert all(any(f"[memory {i}]" in message.content for message in found.generate.messages) for i in rest)


def test_nothing_is_stored_by_answering_again(learned: MemoryBank) -> None:
    facts = learned.facts
    again = rerunner(learned, learned.trace("base", STEPS), Preferences())
    credit("leave-one-out", again.memories, again.rerun)
    assert learned.facts == facts


# --- the prompt itself, asked again -----------------------------------------------------------------------------------


class Parrot:
    """A model that says one line, and keeps what it was asked and how."""

    name, simulated, binds = "parrot", False, False

    def __init__(self, line: str) -> None:
        self.line = line
        self.asked: list[tuple[tuple[Message, ...], float, int]] = []

    def chat(self, messages, options, on_text=None, cancelled=None, schema=None) -> Reply:
        self.asked.append((tuple(messages), options.temperature, options.seed))
        if on_text is not None:
            on_text(self.line)
        return Reply(self.line, cancelled is not None and cancelled(), 7, 2, 0.5)


def test_the_recorded_prompt_with_the_recorded_options_gives_the_recorded_episode(learned: MemoryBank) -> None:
    trace = learned.trace("base", STEPS)
    assert trace.generate is not None
    then, facts = trace.generate, learned.facts
    heard: list[int] = []
    again = rerunner(learned, trace, Preferences(), "simulated")
    found = again.rerun_prompt(
        then.messages,
        then.options["temperature"],
        then.options["seed"],
        on_turn=lambda now: heard.append(len(now.turns)),
    )
    assert [t.reply.text for t in found.generate.turns] == [t.reply.text for t in then.turns]
    assert (found.reward, found.generate.spans) == (trace.reward.reward, then.spans)
    assert heard == list(range(1, len(then.turns) + 1))
    assert learned.facts == facts


def test_an_edited_prompt_goes_to_the_model_that_is_chosen_with_its_temperature_and_seed(
    learned: MemoryBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    parrot = Parrot("fly to the moon")
    monkeypatch.setattr("memrl_core.agent.runs.make_model", lambda name, preferences: parrot)
    trace = learned.trace("base", STEPS)
    system, user = trace.generate.messages
    edited = (replace(system, content="Say anything."), user)
    found = rerunner(learned, trace, Preferences(), "parrot").rerun_prompt(edited, 0.9, 41)
    assert parrot.asked[0] == (edited, 0.9, 41)
    assert found.generate.spans == () and found.generate.model == "parrot"
    assert all(turn.reply.offered is False for turn in found.generate.turns)
    assert found.reward == trace.settings["reward_failure"]


def test_a_prompt_that_is_stopped_has_no_reward(learned: MemoryBank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memrl_core.agent.runs.make_model", lambda name, preferences: Parrot("go"))
    trace = learned.trace("base", STEPS)
    again = rerunner(learned, trace, Preferences(), "parrot")
    found = again.rerun_prompt(trace.generate.messages, 0.0, 1, cancelled=lambda: True)
    assert found.stopped and found.reward is None and len(found.generate.turns) == 1


def test_a_prompt_that_is_never_answered_has_no_reward(learned: MemoryBank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memrl_core.agent.runs.make_model", lambda name, preferences: Parrot(""))
    trace = learned.trace("base", STEPS)
    again = rerunner(learned, trace, Preferences(), "parrot")
    found = again.rerun_prompt(trace.generate.messages, 0.0, 1)
    assert (found.reward, found.outcome) == (None, "unrated") and found.verdict.startswith("No answer.")


# --- shares ---------------------------------------------------------------------------------------------------------


def _rerun(reward: float | None) -> Rerun:
    turn = Turn(Reply("said"), "", 0.0, terminated=True, truncated=False)
    return Rerun(GenerateRecord("m", True, {}, (), (), (turn,)), "", reward, "unrated")


def _worth(memories: tuple[str, ...]) -> float:
    """A game in which a and b only help together, c harms and d does nothing."""
    return (1.0 if {"a", "b"} <= set(memories) else -1.0) - (0.5 if "c" in memories else 0.0)


def test_shapley_shares_are_the_mean_over_all_orders() -> None:
    members = ("a", "b", "c", "d")
    found = credit("Shapley", members, lambda chosen: _rerun(_worth(chosen)))
    for member in members:
        gains = []
        for order in permutations(members):
            before = tuple(order[: order.index(member)])
            gains.append(_worth((*before, member)) - _worth(before))
        assert found.shares[member] == pytest.approx(sum(gains) / len(gains))
    assert sum(found.shares.values()) == pytest.approx(_worth(members) - _worth(()))


def test_leave_one_out_is_what_is_lost_without_a_memory() -> None:
    found = credit("leave-one-out", ("a", "b", "c", "d"), lambda chosen: _rerun(_worth(chosen)))
    assert found.shares == {"a": 2.0, "b": 2.0, "c": -0.5, "d": 0.0}
    assert found.rewards(-1.0, 1.0) == {"a": 1.0, "b": 1.0, "c": -0.25, "d": 0.0}


def test_the_cost_that_is_reported_is_the_number_of_answers() -> None:
    asked: list[tuple[str, ...]] = []

    def answered(chosen: tuple[str, ...]) -> Rerun:
        asked.append(chosen)
        return _rerun(0.0)

    reported: list[tuple[int, int]] = []
    credit("Shapley", ("a", "b", "c"), answered, lambda done, needed: reported.append((done, needed)))
    assert len(asked) == 8 == reported[0][1]
    assert [done for done, _ in reported] == list(range(8))
    assert subsets("Shapley", ("a",)) == [("a",), ()]


def test_a_cancelled_credit_has_no_shares() -> None:
    assert credit("Shapley", ("a", "b"), lambda chosen: _rerun(1.0), cancelled=lambda: True) is None


@pytest.mark.parametrize(
    ("memories", "reward", "says"),
    [((), 1.0, "No memory"), (("a", "b", "c", "d", "e", "f"), 1.0, "64 answers"), (("a",), None, "no reward")],
)
def test_shares_that_cannot_be_had_get_a_sentence(memories: tuple[str, ...], reward: float | None, says: str) -> None:
    with pytest.raises(InputError, match=says):
        credit("Shapley", memories, lambda chosen: _rerun(reward))


def test_credit_counts_for_q_only_when_it_is_assigned_and_until_it_is_revoked(tmp_path: Path) -> None:
    bank = _bank_with_run(tmp_path / "bank", {"alpha": 0.5})
    trace = next(t for t in reversed(bank.traces("base")) if t.decision is not None and len(t.decision.selected) > 1)
    assert trace.update is not None
    before = dict(bank.utilities("base"))
    shares = Credit(
        "Shapley", {m: 2.0 * n / len(trace.decision.selected) for n, m in enumerate(trace.decision.selected)}, 1.0
    )
    given = bank.write.credits.assign("base", trace.step, trace.id, shares.rewards(-1, 1), "me", "Shapley")
    moved = {p.memory_id: p for m in trace.decision.selected for p in bank.history("base", m) if p.step == trace.step}
    for number, memory_id in enumerate(trace.decision.selected):
        own = number / len(trace.decision.selected)
        assert moved[memory_id].reward == pytest.approx(own)
        assert moved[memory_id].after == pytest.approx(0.5 * moved[memory_id].before + 0.5 * own)
    bank.write.credits.revoke(given.id, "me")
    assert dict(bank.utilities("base")) == before


# --- work in the background --------------------------------------------------------------------------------------


def test_work_reports_how_far_it_is_and_ends_when_it_is_stopped() -> None:
    reached = threading.Event()

    def long(report, cancelled):
        report(3, 10)
        reached.set()
        while not cancelled():
            threading.Event().wait(0.01)
        return "half"

    work = Work(long)
    assert reached.wait(5)
    assert work.busy and (work.done, work.total) == (3, 10)
    work.stop()
    assert work.wait(5)
    assert work.result == "half" and work.stopped


def test_work_that_fails_keeps_the_sentence() -> None:
    def broken(report, cancelled):
        raise InputError("No such thing.")

    work = Work(broken)
    assert work.wait(5)
    assert str(work.error) == "No such thing." and work.result is None


def test_a_step_that_recalled_in_its_turns_is_answered_again_as_it_was(tmp_path: Path) -> None:
    preferences = Preferences()
    embedder = make_embedder("hashing", preferences)
    with MemoryBank.create(str(tmp_path / "bank"), embedder.name, embedder.dimension) as bank:
        start_run(bank, environment="household", tasks="household-train", task_count=2, policy="rememberer", run="r")
        live = live_run(bank, "r", preferences)
        for trace in live.agent.run(live.tasks, 2):
            again = rerunner(bank, trace, preferences).rerun(trace.decision.selected if trace.decision else ())
            shown = [turn.reply.text for turn in trace.generate.turns]
            assert [turn.reply.text for turn in again.generate.turns] == shown
            assert [turn.recalled for turn in again.generate.turns] == [t.recalled for t in trace.generate.turns]
