"""A run that is moved on by clicks and in the background."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memrl_core.agent.live import LiveRun
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import InputError, ModelInterrupted, NoVector, StepError
from memrl_core.models.simulated import SimulatedModel
from memrl_core.records import Message, Phase, Reply
from tests.builders import an_agent


class SlowModel:
    """Answers when it is let go, or stops when it is told to."""

    name, simulated, binds = "slow", True, False

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.go = threading.Event()

    def chat(
        self, messages: Sequence[Message], options: Any, on_text: Any = None, cancelled: Any = None, schema: Any = None
    ) -> Reply:
        if on_text:
            on_text("> look")
        self.asked.set()
        while not self.go.wait(0.01):
            if cancelled and cancelled():
                return Reply("> look", stopped=True)
        return Reply("> look")


class BreakingModel(SimulatedModel):
    """Breaks off at its first answer, then works."""

    broken = False

    def chat(
        self, messages: Sequence[Message], options: Any, on_text: Any = None, cancelled: Any = None, schema: Any = None
    ) -> Reply:
        if not self.broken:
            self.broken = True
            raise ModelInterrupted("The connection broke.", "half an ans")
        return super().chat(messages, options, on_text, cancelled)


def a_live_run(path: Path, model: Any = None, environment: str = "household", tasks: int = 4) -> LiveRun:
    listed = sample_tasks("household-train")[:tasks] if environment == "household" else []
    return LiveRun(an_agent(path, model, environment), listed)


def test_steps_go_phase_by_phase_to_a_stored_step(tmp_path: Path) -> None:
    live = a_live_run(tmp_path / "bank")
    seen = []
    live.step()
    while live.under_way:
        seen.append(live.episode.phase)
        live.step()
        assert live.wait(10)
    assert list(dict.fromkeys(seen)) == list(Phase)
    assert live.agent.bank.next_step("r") == 2


def test_steps_that_are_asked_for_while_others_run_are_run_after_them(tmp_path: Path) -> None:
    counted, quick = a_live_run(tmp_path / "counted"), a_live_run(tmp_path / "quick")
    counted.step(5)
    for _ in range(5):
        quick.step()
    assert counted.wait(10) and quick.wait(10)
    assert counted.error is quick.error is None
    ended = [live.episode for live in (counted, quick) if live.episode is not None]
    # The task is begun, phases A and B, and what is left is a turn, which ends no task.
    assert [len(e.trace.generate.turns) for e in ended if e.trace.generate] == [1] * 2
    assert ended[0].phase is ended[1].phase


def test_steps_asked_for_ahead_stop_where_a_person_gives_the_reward(tmp_path: Path) -> None:
    live = a_live_run(tmp_path / "bank", environment="conversation")
    live.begin("What is a hash table?")
    live.step(20)
    assert live.wait(10)
    assert live.episode.phase is Phase.REWARD


def test_stop_leaves_out_the_steps_that_are_still_to_come(tmp_path: Path) -> None:
    model = SlowModel()
    live = a_live_run(tmp_path / "bank", model)
    live.step(50)
    assert model.asked.wait(10)
    live.stop()
    assert live.wait(10)
    assert live.agent.bank.next_step("r") == 1
    live.step()
    assert live.wait(10)
    assert live.error is None


def test_the_list_of_tasks_begins_again_with_the_next_epoch(tmp_path: Path) -> None:
    live = a_live_run(tmp_path / "bank", tasks=2)
    live.run_many(3)
    assert live.wait(20)
    following = live.next_task()
    assert (following[0].id, following[1]) == ("train-002", 2)


def test_many_tasks_report_progress_and_stop_keeps_what_is_done(tmp_path: Path) -> None:
    live = a_live_run(tmp_path / "bank")
    live.run_many(500)
    while live.done < 2:
        assert live.busy
    live.stop()
    assert live.wait(10)
    assert live.error is None
    assert len(live.agent.bank.steps.rows("r")) == live.done < 500


def test_what_runs_is_reported_with_its_turn_its_tokens_and_the_time(tmp_path: Path) -> None:
    model = SlowModel()
    model.simulated = False
    live = a_live_run(tmp_path / "bank", model)
    assert live.waiting.line == ""
    live.agent.model, at_once = SimulatedModel(), live.agent.model
    live.step(4)
    assert live.wait(10)
    live.agent.model = at_once
    waiting = live.waiting
    assert live.episode is not None
    waiting.on_move(live.episode)
    assert waiting.line.startswith("turn 1 of 10 · waiting for the server · 0.")
    waiting.on_text("> ")
    assert waiting.line.startswith("turn 1 of 10 · 1 token · 0.")
    waiting.on_text("look")
    assert " 2 tokens · " in waiting.line and " a second · " in waiting.line
    waiting.on_move(live.episode)
    assert "waiting for the server" in waiting.line and not waiting.text
    model.name = "gguf:smollm2"
    assert "waiting for the model" in waiting.line


def test_stop_keeps_the_answer_under_way_and_it_earns_nothing(tmp_path: Path) -> None:
    model = SlowModel()
    live = a_live_run(tmp_path / "bank", model)
    live.run_many(1)
    assert model.asked.wait(10)
    assert live.waiting.text == "> look"
    live.stop()
    assert live.wait(10)
    live.finish()
    assert live.wait(10)
    trace = live.agent.bank.trace("r", 1)
    assert trace.generate.turns[-1].reply.stopped
    assert trace.reward.reward is None


def test_no_second_move_while_the_agent_works(tmp_path: Path) -> None:
    model = SlowModel()
    live = a_live_run(tmp_path / "bank", model)
    live.run_many(1)
    assert model.asked.wait(10)
    with pytest.raises(StepError, match="still working"):
        live.step()
    live.stop()
    assert live.wait(10)


def test_a_broken_answer_can_be_tried_again_or_kept(tmp_path: Path) -> None:
    live = a_live_run(tmp_path / "bank", BreakingModel())
    live.finish()
    assert live.wait(10)
    assert isinstance(live.error, ModelInterrupted)
    assert live.episode.phase is Phase.GENERATE
    live.keep_partial()
    assert live.error is None
    assert live.episode.trace.generate.turns[-1].reply.text == "half an ans"
    live.drop()
    live.finish()
    assert live.wait(10)
    assert live.agent.bank.next_step("r") == 2


def test_a_task_without_a_vector_can_be_skipped_and_the_next_one_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = a_live_run(tmp_path / "bank")
    first, second = (task.intent for task in live.tasks[:2])
    embed = HashingEmbedder.embed

    def without(self: HashingEmbedder, texts: Sequence[str]) -> Any:
        if first in texts:
            raise NoVector(f"There is no vector of {first}. Nothing was stored; skip it.")
        return embed(self, texts)

    monkeypatch.setattr(HashingEmbedder, "embed", without)
    live.finish()
    assert live.wait(10) and isinstance(live.error, NoVector)
    live.skip()
    assert live.error is None and not live.under_way
    trace = live.agent.bank.trace("r", 1)
    assert trace.ending == "skipped" and trace.reward.verdict == f"Skipped: There is no vector of {first}."
    live.finish()
    assert live.wait(10) and live.agent.bank.trace("r", 2).task.intent == second


def test_a_step_whose_memory_has_no_vector_keeps_its_reward_and_writes_nothing(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "bank")
    tasks = sample_tasks("household-train")[:1]
    list(agent.run(tasks))
    before = agent.bank.utilities("r")
    episode = agent.begin(tasks[0], 2)
    while episode.phase is not Phase.WRITE:
        episode.advance()
    trace = episode.skip(NoVector("There is no vector of a note. Nothing was stored; skip it."))
    after = agent.bank.utilities("r")
    assert trace.ending in ("success", "failure") and trace.reward.reward is not None
    assert before != after and before.keys() == after.keys()
    assert trace.operations[0].why == "There is no vector of a note"


def test_a_task_that_a_person_judges_is_finished_without_a_reward_only_on_request(tmp_path: Path) -> None:
    live = a_live_run(tmp_path / "bank", environment="conversation")
    for reward, unrated in ((None, True), (-1.0, False)):
        live.begin("What is a hash table?")
        live.finish()
        assert live.wait(10)
        assert live.episode.awaits_reward
        if reward is not None:
            live.rate(reward, "ann", given={"scale": "thumbs"})
        live.finish(unrated=unrated)
        assert live.wait(10)
        assert live.episode.phase is None
        assert (live.episode.trace.reward.reward, live.episode.trace.reward.rater) == (reward, "ann" if reward else "")
    (event,) = live.agent.bank.ratings.of("r", 2)
    assert event.payload == {"scale": "thumbs"}


@pytest.mark.parametrize(
    "typed", ["", "   \n", "\x00\x1b", "…?!", "x" * 100_000], ids=["", "blank", "ctl", "dots", "100k"]
)
def test_an_intent_that_cannot_be_used_is_refused_and_nothing_begins(tmp_path: Path, typed: str) -> None:
    live = a_live_run(tmp_path / "bank", environment="conversation")
    with pytest.raises(InputError, match="nothing was started"):
        live.begin(typed)
    assert not live.under_way


def test_a_run_without_tasks_asks_for_one(tmp_path: Path) -> None:
    live = a_live_run(tmp_path / "bank", environment="conversation")
    with pytest.raises(InputError, match="Type what"):
        live.step()


def test_an_unexpected_failure_is_a_sentence_and_the_step_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = a_live_run(tmp_path / "bank")
    live.step()
    with monkeypatch.context() as patched:
        patched.setattr(live.agent.embedder, "embed", lambda texts: 1 / 0)
        live.step()
        assert live.wait(10)
    assert isinstance(live.error, StepError)
    assert "ZeroDivisionError" in str(live.error) and "safe" in str(live.error)
    live.finish()
    assert live.wait(10)
    assert live.error is None
    assert live.agent.bank.next_step("r") == 2
