"""One exchange of GENERATE: what the model is sent, what it says, and what the world says to that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memrl_core.environments.base import Environment
from memrl_core.models.base import Cancelled, LanguageModel, ModelOptions, OnText
from memrl_core.prompting import conversation_so_far
from memrl_core.records import GenerateRecord, Turn, TurnRecall


def take_turn(
    model: LanguageModel,
    environment: Environment,
    record: GenerateRecord,
    on_text: OnText | None = None,
    cancelled: Cancelled | None = None,
    recalled: TurnRecall | None = None,
) -> tuple[Turn, Mapping[str, Any]]:
    """The turn that follows those in `record`, and the environment's info. Raises what the model or the world raises.

    `recalled` is what memory adds before it. A reply that was stopped does not reach the environment.
    """
    sent = conversation_so_far(record.messages, record.turns, recalled.text if recalled else "")
    reply = model.chat(sent, ModelOptions.model_validate(record.options), on_text, cancelled)
    if reply.stopped:
        return Turn(reply, "", 0.0, terminated=False, truncated=False, recalled=recalled), {}
    observation, reward, terminated, truncated, info = environment.step(reply.text)
    return Turn(reply, observation, reward, terminated, truncated, recalled), info


def ended(turn: Turn) -> bool:
    """Whether no turn follows this one."""
    return turn.terminated or turn.truncated or turn.reply.stopped
