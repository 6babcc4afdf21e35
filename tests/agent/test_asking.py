"""What a policy asks the model for its own ends: forms that are filled in, or count as no answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from memrl_core.agent.asking import Asking, answers_in, templates
from memrl_core.errors import ModelInterrupted, PolicyFailed
from memrl_core.models.base import ModelOptions
from memrl_core.models.simulated import SimulatedModel
from memrl_core.policies.base import Ask, Lesson, Question, When
from memrl_core.policies.methods.rag import Rag
from memrl_core.records import Decision, Memory, Phase, RecallRecord, StepTrace, ValueChange
from memrl_core.retrieval.view import Asked, MemoryView
from tests.builders import alike_tasks
from tests.models.forms import FillsForms
from tests.policies.foreign import installed
from tests.policies.policy_run import an_agent_of

TASKS = alike_tasks()
LOST = ModelInterrupted("The connection was lost.")


class Opinion(BaseModel):
    """A form."""

    helped: bool
    share: float = Field(ge=0, le=1)
    names: list[str] = []


QUESTION = Question("opinion", Opinion, "Say what you think.", "Task: boil an egg", Opinion(helped=True, share=0.5))
FITS = {"helped": False, "share": 0.25, "names": ["a"]}
UNUSABLE = ["", "no idea", "[]", "null", '{"helped": true}', '{"helped": true, "share": 7}', '{"helped": true, "sha']


def asking(model: Any, **given: Any) -> Asking:
    return Asking(model, ModelOptions(seed=4), Phase.SELECT, **given)


# --- one question -----------------------------------------------------------------------------------------------------


def test_with_the_simulated_model_the_template_stands_in_and_says_so() -> None:
    ask = asking(SimulatedModel())
    filled = ask(QUESTION)
    assert filled == QUESTION.template
    (reported,) = ask.asked
    assert (reported.simulated, reported.reply, reported.filled) == (True, "", QUESTION.template.model_dump())
    assert [message.content for message in reported.messages] == ["Say what you think.", "Task: boil an egg"]


@pytest.mark.parametrize("ask", [asking(SimulatedModel()), templates])
def test_a_template_is_not_changed_by_who_gets_it(ask: Ask) -> None:
    filled = ask(QUESTION)
    filled.names.append("b")
    assert QUESTION.template.names == []


def test_the_model_gets_the_forms_schema_and_what_fits_is_filled_in() -> None:
    model = FillsForms(lambda reported: FITS)
    ask = asking(model)
    assert ask(QUESTION) == Opinion.model_validate(FITS)
    assert model.schemas == [Opinion.model_json_schema()]
    (reported,) = ask.asked
    assert (reported.filled, reported.simulated) == (FITS, False)
    assert (reported.prompt_tokens, reported.answer_tokens, reported.seconds) == (10, 5, 0.5)


@pytest.mark.parametrize(("reply", "stopped"), [*((reply, False) for reply in UNUSABLE), (json.dumps(FITS), True)])
def test_a_reply_that_does_not_fit_or_was_stopped_is_no_answer_and_stays_as_it_came(reply: str, stopped: bool) -> None:
    ask = asking(FillsForms(lambda reported: reply), cancelled=lambda: stopped)
    assert ask(QUESTION) is None
    assert [(reported.filled, reported.reply) for reported in ask.asked] == [(None, reply)]


def test_a_failure_of_the_model_passes_and_is_not_recorded_as_an_answer() -> None:
    shown: list[Any] = [FITS, LOST]
    ask = asking(FillsForms(lambda reported: shown.pop(0)))
    ask(QUESTION)
    with pytest.raises(ModelInterrupted):
        ask(QUESTION)
    assert [reported.filled for reported in ask.asked] == [FITS]


# --- in a step --------------------------------------------------------------------------------------------------------


class Curious(Rag):
    """Asks twice before it selects, once before each later turn and once in review; learns only from what it is told.

    `quiet` leaves out the questions before it selects; `broken` fails after them.
    """

    spec = replace(Rag.spec, name="curious", learns="counts")
    quiet = broken = False

    def when(self, asked: Asked) -> When:
        return When(True, "always")

    def consult(self, recalled: RecallRecord, view: MemoryView, ask: Ask) -> dict[str, Any]:
        if view.asked.turn:
            ask(replace(QUESTION, purpose="turn"))
            return {}
        if self.quiet:
            return {}
        filled = {name: ask(replace(QUESTION, purpose=name, message=name)) for name in ("first", "second")}
        return {name: None if form is None else form.model_dump() for name, form in filled.items()}

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        if self.broken:
            raise ValueError("not yet")
        return super().select(recalled, view, seed)

    def review(self, trace: StepTrace, memories: Sequence[Memory], ask: Ask) -> None:
        ask(replace(QUESTION, purpose="review", message="review"))

    def start(self, memories: Sequence[Memory]) -> dict[str, float]:
        return {"helped": 0.0}

    def learn(self, state: dict[str, float], lesson: Lesson) -> tuple[ValueChange, ...]:
        shown = [one.filled for one in lesson.trace.consulted if one.purpose == "review" and one.filled is not None]
        if not shown:
            return ()
        before, state["helped"] = state["helped"], state["helped"] + shown[0]["share"]
        return (
            ValueChange("", before, state["helped"], 1, shown[0]["share"], 1.0, target="parameters", name="helped"),
        )

    def values(self, state: dict[str, float]) -> dict[str, float]:
        return dict(state)


@pytest.fixture
def curious(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(Curious, "quiet", False)
    monkeypatch.setattr(Curious, "broken", False)
    with installed(monkeypatch, curious=Curious):
        yield


def purposes(trace: StepTrace) -> list[str]:
    return [one.purpose for one in trace.consulted]


def test_what_was_said_before_selecting_is_given_back_at_every_replay(curious: None, tmp_path: Path) -> None:
    model = FillsForms(lambda reported: "?" if reported == "second" else FITS)
    trace = an_agent_of(tmp_path / "bank", "curious", model).begin(TASKS[0]).finish()
    assert answers_in(trace) == {"first": FITS, "second": None}


def test_what_can_be_read_in_review_moves_values(curious: None, tmp_path: Path) -> None:
    trace = an_agent_of(tmp_path / "bank", "curious", FillsForms(lambda reported: FITS)).begin(TASKS[0]).finish()
    assert [(c.name, c.before, c.after) for c in trace.update.changes] == [("helped", 0.0, 0.25)]


@pytest.mark.parametrize("reply", UNUSABLE)
def test_what_cannot_be_read_in_review_is_no_feedback_and_no_reward(curious: None, tmp_path: Path, reply: str) -> None:
    trace = an_agent_of(tmp_path / "bank", "curious", FillsForms(lambda reported: reply)).begin(TASKS[0]).finish()
    assert trace.update.changes == ()
    assert trace.reward.reward == trace.reward.environment
    assert {(one.filled, one.reply) for one in trace.consulted} == {(None, reply)}


def test_a_break_between_two_questions_asks_both_again_and_records_each_once(curious: None, tmp_path: Path) -> None:
    model = FillsForms(lambda reported: LOST if reported == "second" else FITS)
    agent = an_agent_of(tmp_path / "bank", "curious", model)
    episode = agent.begin(TASKS[0])
    for _ in range(3):
        with pytest.raises(ModelInterrupted):
            episode.finish()
        assert (episode.phase, episode.trace.decision) == (Phase.SELECT, None)
        assert purposes(episode.trace) == []
        assert agent.bank.steps.rows("r") == []
    model.say = lambda reported: FITS
    episode.advance()
    assert purposes(episode.trace) == ["first", "second"]


@pytest.mark.parametrize("phase", [Phase.GENERATE, Phase.UPDATE])
def test_a_break_later_in_a_step_leaves_each_question_once(curious: None, tmp_path: Path, phase: Phase) -> None:
    whole = an_agent_of(tmp_path / "whole", "curious", FillsForms(lambda reported: FITS)).begin(TASKS[0]).finish()
    at = "Task: boil an egg" if phase is Phase.GENERATE else "review"
    failures = iter([True, True])
    model = FillsForms(lambda reported: LOST if reported == at and next(failures, False) else FITS)
    agent = an_agent_of(tmp_path / "broken", "curious", model)
    episode = agent.begin(TASKS[0])
    for _ in range(2):
        with pytest.raises(ModelInterrupted):
            episode.finish()
        assert episode.phase is phase
    trace = episode.finish()
    assert purposes(trace) == purposes(whole)
    assert trace.update == whole.update
    assert len(agent.bank.steps.rows("r")) == 1


def test_an_attempt_that_asks_nothing_leaves_nothing_of_the_one_before(curious: None, tmp_path: Path) -> None:
    episode = an_agent_of(tmp_path / "bank", "curious", FillsForms(lambda reported: FITS)).begin(TASKS[0])
    Curious.broken = True
    with pytest.raises(PolicyFailed):
        episode.finish()
    assert purposes(episode.trace) == ["first", "second"]
    Curious.quiet, Curious.broken = True, False
    episode.advance()
    assert purposes(episode.trace) == []
