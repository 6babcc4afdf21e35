"""A model that is not simulated: it acts as the simulated one does, and fills in forms with what it is told to say."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from memrl_core.models.base import ModelOptions
from memrl_core.models.simulated import SimulatedModel
from memrl_core.records import Message, Reply

Say = str | Exception | Mapping[str, Any]


class FillsForms:
    """Answers every question that comes with a schema by `say` (of what it is told): a text, a form, or a failure."""

    name, simulated, binds = "made-up", False, False

    def __init__(self, say: Callable[[str], Say]) -> None:
        self.say = say
        self.schemas: list[Mapping[str, Any]] = []
        self.reported: list[str] = []

    def chat(
        self,
        messages: Sequence[Message],
        options: ModelOptions,
        on_text: Any = None,
        cancelled: Any = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Reply:
        if schema is None:
            return SimulatedModel().chat(messages, options)
        self.schemas.append(schema)
        self.reported.append(messages[-1].content)
        message = self.say(messages[-1].content)
        if isinstance(message, Exception):
            raise message
        text = message if isinstance(message, str) else json.dumps(message)
        reply = Reply(text, prompt_tokens=10, answer_tokens=5, seconds=0.5)
        return replace(reply, stopped=True) if cancelled is not None and cancelled() else reply
