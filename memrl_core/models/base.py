"""What the agent needs of a language model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

from memrl_core.records import Message, Reply

OnText = Callable[[str], None]
Cancelled = Callable[[], bool]


class ModelOptions(BaseModel):
    """Options of a generation, under Ollama's names."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    seed: int = Field(0, ge=0, title="Seed")
    temperature: float = Field(0.0, ge=0, le=2, title="Temperature")
    num_ctx: int = Field(8192, ge=512, le=1_048_576, title="Context window (tokens)")


class LanguageModel(Protocol):
    """A frozen chat model.

    `name` identifies it in traces; `simulated` is True when no language model is behind it.
    """

    name: str
    simulated: bool

    def chat(
        self,
        messages: Sequence[Message],
        options: ModelOptions,
        on_text: OnText | None = None,
        cancelled: Cancelled | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Answer `messages`, by a JSON schema where one is given. `on_text` receives each piece of text as it arrives;
        when `cancelled()` turns true the generation is stopped and the reply holds the partial text with
        `stopped=True`.

        Raises `ModelError` (see `memrl_core.errors`).
        """
        ...
