"""Other simulated models: they answer like the embedded one, but read the memories in only some of the steps.

With them, the question what a memory is worth to another model can be asked where no language model is installed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from memrl_core.errors import InputError
from memrl_core.models.base import Cancelled, ModelOptions, OnText
from memrl_core.models.simulated import SimulatedModel
from memrl_core.prompting import CAUTION, CHOICES, FOLLOW, UNRATED, YOUR_TASK
from memrl_core.records import Message, Reply

NAME = re.compile(r"simulated-(\d{1,3})")


class SimulatedReader:
    """The simulated model, which reads the memories in `percent` of the steps, as each step's seed decides.

    In the others it answers as if there were none (a `LanguageModel`).
    """

    simulated = True
    binds = False

    def __init__(self, percent: int) -> None:
        if not 0 <= percent <= 100:
            raise InputError(
                f"A simulated model reads the memories in 0 to 100 % of the steps; {percent} was asked for."
            )
        self.name = f"simulated-{percent}"
        self._percent = percent
        self._model = SimulatedModel()

    def chat(
        self,
        messages: Sequence[Message],
        options: ModelOptions,
        on_text: OnText | None = None,
        cancelled: Cancelled | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Reply:
        """What the simulated model answers to what was read."""
        reads = np.random.default_rng(options.seed).random() * 100 < self._percent
        return self._model.chat(messages if reads else _unread(messages), options, on_text, cancelled)


def _unread(messages: Sequence[Message]) -> list[Message]:
    return [
        replace(message, content=_bare(message.content)) if message.role == "user" else message for message in messages
    ]


def _bare(content: str) -> str:
    """A message without the memories in it: those before the task, or those put under a later observation."""
    if YOUR_TASK in content:
        return content[content.rfind(YOUR_TASK) :]
    begins = [at for heading in (FOLLOW, CAUTION, UNRATED) if (at := content.find(heading)) >= 0]
    if not begins:
        return content
    _, found, choices = content.rpartition(CHOICES)
    return content[: min(begins)] + found + choices if found else content[: min(begins)]
