"""What a policy asks the model for its own ends, over the wire: the schema sent, and what becomes of replies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from memrl_core.agent import Agent, Episode
from memrl_core.agent.asking import Asking
from memrl_core.analysis.run.consultations import consultations
from memrl_core.bank import MemoryBank
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments import make_environment
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import ModelInterrupted
from memrl_core.models.base import ModelOptions
from memrl_core.models.ollama import OllamaModel
from memrl_core.policies import settings_of
from memrl_core.policies.base import Question
from memrl_core.policies.methods.webcoach import COACH, CONDENSE, Coaching, Condensed
from memrl_core.records import Phase
from tests.builders import a_run
from tests.ollama.server import OllamaServer

TASKS = sample_tasks("household-train")
SILENCE = Coaching(intervene=False, advice="", reason="it does not fit").model_dump_json()
UNUSABLE = {
    "not JSON": "I think the agent should look in the pantry.",
    "JSON of another shape": '{"help": "yes"}',
    "a list": "[1, 2]",
    "stopped half-way": '{"intervene": true, "advice": "Look in the pan',
    "a value of another kind": '{"intervene": "perhaps", "advice": "", "reason": ""}',
}


class Grade(BaseModel):
    """A form with a range and a part."""

    share: float = Field(ge=0, le=1)


class Form(BaseModel):
    """A form as a policy would have it."""

    useful: bool
    grades: list[Grade]


QUESTION = Question("a try", Form, "Grade this.", "Task: boil an egg", Form(useful=False, grades=[]))


def asking(server: OllamaServer) -> Asking:
    return Asking(OllamaModel("llama3.2", server.address), ModelOptions(seed=3), Phase.SELECT)


def coached(path: Path, server: OllamaServer, **settings: Any) -> Agent:
    """An agent under WebCoach whose model is served."""
    embedder = HashingEmbedder()
    bank = MemoryBank.create(str(path), embedder.name, embedder.dimension)
    chosen = settings_of("webcoach", {"exclude_same_task": False, **settings}).model_dump()
    bank.write.start_run(replace(a_run(), policy="webcoach", settings=chosen, embedder=embedder.name))
    household = make_environment("household")
    household.max_turns = 3
    return Agent(bank, "r", OllamaModel("llama3.2", server.address), embedder, household)


def second(agent: Agent, until: Phase) -> Episode:
    """The second step, about to begin with a phase; one memory is there."""
    agent.begin(TASKS[0]).finish()
    episode = agent.begin(TASKS[0])
    while episode.phase is not until:
        episode.advance()
    return episode


def purposes(episode: Episode) -> list[str]:
    return [one.purpose for one in episode.trace.consulted]


def test_the_schema_that_arrives_is_the_forms(server: OllamaServer) -> None:
    asking(server)(QUESTION)
    (body,) = server.asked("/api/chat")
    assert body["format"] == Form.model_json_schema()
    assert [message["content"] for message in body["messages"]] == ["Grade this.", "Task: boil an egg"]
    assert body["options"]["seed"] == 3


def test_a_server_that_refuses_a_form_is_asked_without_it_and_read_leniently(server: OllamaServer) -> None:
    server.faults.schema = "refused"
    server.faults.answer = 'Sure:\n```json\n{"useful": true, "grades": [{"share": 0.25}]}\n```'
    ask = asking(server)
    assert ask(QUESTION) == Form(useful=True, grades=[Grade(share=0.25)])
    assert "refused the schema" in ask.asked[0].notes[0]
    assert ["format" in body for body in server.asked("/api/chat")] == [True, False]


def test_a_whole_step_asks_by_form_and_answers_in_words(tmp_path: Path, server: OllamaServer) -> None:
    agent = coached(tmp_path / "bank", server)
    agent.begin(TASKS[0]).finish()
    server.requests.clear()
    trace = agent.begin(TASKS[0]).finish()
    sent = [body.get("format") for body in server.asked("/api/chat")]
    assert sent[0] == Coaching.model_json_schema()
    assert sent[-1] == Condensed.model_json_schema()
    for schema, turn in zip(sent[1:-1], trace.generate.turns, strict=True):
        assert turn.reply.text in schema["enum"] or turn.reply.offered is False
    assert [(one.purpose, one.phase) for one in trace.consulted] == [(COACH, Phase.SELECT), (CONDENSE, Phase.WRITE)]
    assert trace == agent.bank.trace("r", 2)
    assert "[memory r-0001]" in trace.generate.messages[1].content
    assert trace.write.operations[0].data == trace.consulted[1].filled


@pytest.mark.parametrize("reply", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_what_cannot_be_read_gives_no_advice_moves_nothing_and_is_counted(
    tmp_path: Path, server: OllamaServer, reply: str
) -> None:
    agent = coached(tmp_path / "bank", server)
    server.faults.form = reply
    for _ in range(2):
        trace = agent.begin(TASKS[0]).finish()
    assert (trace.decision.mode, trace.decision.selected) == ("silent", ())
    assert "no answer" in trace.decision.note
    assert [(one.filled, one.reply) for one in trace.consulted] == [(None, reply)] * 2
    assert trace.update.changes == ()
    assert trace.reward.reward == trace.reward.environment
    reported = {one.purpose: (one.asked, one.not_parsed, one.simulated) for one in consultations(agent.bank, "r")}
    assert reported == {CONDENSE: (2, 2, 0), COACH: (1, 1, 0)}


def test_a_broken_connection_while_condensing_writes_one_memory_after_all(tmp_path: Path, server: OllamaServer) -> None:
    agent = coached(tmp_path / "bank", server)
    episode = second(agent, Phase.WRITE)
    server.faults.stream = "drop"
    with pytest.raises(ModelInterrupted):
        episode.advance()
    assert agent.bank.view("r").size == 1
    assert purposes(episode) == [COACH]
    server.faults.stream = ""
    episode.finish()
    assert agent.bank.view("r").size == 2
    assert purposes(episode) == [COACH, CONDENSE]


def test_an_answer_that_breaks_after_a_question_within_the_episode_asks_it_once(
    tmp_path: Path, server: OllamaServer
) -> None:
    episode = second(coached(tmp_path / "bank", server, every=1), Phase.GENERATE)
    episode.advance()
    server.faults.form = SILENCE
    server.faults.answer = "look around"

    def breaks(piece: str) -> None:
        raise ModelInterrupted("The connection was lost.")

    for _ in range(3):
        with pytest.raises(ModelInterrupted):
            episode.advance(breaks)
        assert purposes(episode) == [COACH, COACH]
    episode.advance()
    assert len(episode.trace.generate.turns) == 2
    assert purposes(episode) == [COACH, COACH]
    episode.advance()
    assert purposes(episode) == [COACH, COACH, COACH]
