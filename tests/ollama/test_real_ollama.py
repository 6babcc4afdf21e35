"""A real Ollama, where one answers: the protocol that the stand-in of the other tests imitates."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from memrl_core.agent import Agent
from memrl_core.agent.runs import start_run
from memrl_core.analysis.decision.outline import valid_answers
from memrl_core.bank import MemoryBank
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments.helpdesk import INSTRUCTIONS
from memrl_core.environments.household import Household
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import ModelError, PromptTooLong
from memrl_core.models.base import ModelOptions
from memrl_core.models.ollama import OllamaModel, list_models
from memrl_core.models.ollama_client import default_address
from memrl_core.records import Message

pytestmark = pytest.mark.slow
LIMITED = ModelOptions(num_ctx=2048, num_predict=32, num_thread=1)


@pytest.fixture(scope="module")
def model() -> OllamaModel:
    """The smallest model of that Ollama that answers."""
    if "OLLAMA_HOST" not in os.environ:
        pytest.skip("OLLAMA_HOST is not set: name a real Ollama that has a chat model to run these")
    try:
        found = [one for one in list_models(default_address(), 5.0) if one.can_chat]
    except ModelError as error:
        pytest.skip(f"no Ollama answers at OLLAMA_HOST: {error}")
    if not found:
        pytest.skip("the Ollama at OLLAMA_HOST has no model that can chat")
    return OllamaModel(min(found, key=lambda one: one.size).name, default_address())


def test_an_answer_held_to_a_list_is_on_it(model: OllamaModel) -> None:
    schema = {"type": "string", "enum": ["open the drawer", "wait"]}
    reply = model.chat([Message("user", "What do you do?")], LIMITED, schema=schema)
    assert json.loads(reply.text) in schema["enum"]
    assert reply.prompt_tokens and reply.answer_tokens


def test_what_stands_in_the_prompt_is_no_less_likely_for_it(model: OllamaModel) -> None:
    shown = 'Task: The door will not close.\n"Gold"\n\n' * 3
    sent = [Message("system", INSTRUCTIONS), Message("user", f"{shown}Task: The door will not close.\n\n")]
    schema = {"type": "string", "enum": ["Black", "Blue", "Gold", "Green", "Red", "White"]}
    assert json.loads(model.chat(sent, LIMITED, schema=schema).text) == "Gold"


def test_a_long_answer_is_cut_at_its_limit(model: OllamaModel) -> None:
    reply = model.chat([Message("user", "Count from 1 to 500, in words.")], LIMITED)
    assert (reply.cut, reply.answer_tokens) == ("32 tokens", 32)


def test_a_prompt_that_does_not_fit_is_refused_and_not_cut_in_silence(model: OllamaModel) -> None:
    long = Message("user", " ".join(f"number {n}" for n in range(2000)))
    with pytest.raises(PromptTooLong):
        model.chat([long], LIMITED.model_copy(update={"num_ctx": 512}))


def test_an_answer_stops_within_seconds(model: OllamaModel) -> None:
    arrived: list[float] = []
    options = LIMITED.model_copy(update={"num_predict": 2000})
    reply = model.chat(
        [Message("user", "Tell a very long story.")],
        options,
        lambda _: arrived.append(time.monotonic()),
        lambda: len(arrived) >= 3,
    )
    assert reply.stopped
    assert time.monotonic() - arrived[2] < 5


def test_a_whole_step_answers_with_lines_that_are_offered(model: OllamaModel, tmp_path: Path) -> None:
    with MemoryBank.create(str(tmp_path / "bank"), "hashing-64", 64) as bank:
        run = start_run(
            bank, environment="household", tasks="household-train", task_count=1, model=f"ollama:{model.name}"
        ).id
        agent = Agent(bank, run, model, HashingEmbedder(64), Household(), LIMITED)
        trace = next(agent.run(sample_tasks("household-train")[:1]))
    valid, asked = valid_answers(trace)
    assert valid == asked > 0
