"""A language model served by Ollama, through the official client."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import ollama

from memrl_core.errors import EmptyAnswer, ModelInterrupted
from memrl_core.models.base import Cancelled, ModelOptions, OnText
from memrl_core.models.ollama_client import (
    KEEP_ALIVE,
    checked_address,
    checked_name,
    default_address,
    failure,
    sendable,
)
from memrl_core.models.ollama_stream import Broken, Stream
from memrl_core.records import Message, Reply

NANOSECONDS = 1e9


class OllamaModel:
    """A chat model of an Ollama server (a `LanguageModel`).

    `timeout` is how many seconds may pass without anything arriving. Nothing is asked of the server before `chat`.
    Raises `InputError` for a name or an address that cannot be one.
    """

    simulated = False

    def __init__(
        self, name: str, address: str | None = None, timeout: float = 60.0, keep_alive: str = KEEP_ALIVE
    ) -> None:
        self.name = checked_name(name)
        self.address = checked_address(address or default_address())
        self.timeout = timeout
        self.keep_alive = keep_alive

    def chat(
        self,
        messages: Sequence[Message],
        options: ModelOptions,
        on_text: OnText | None = None,
        cancelled: Cancelled | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Answer `messages` (see `LanguageModel`). Thinking and tool calls are not part of the answer.

        `Reply.seconds` is what the server measured, loading of the model included; our own clock when it told nothing.
        Raises `OllamaDown`, `ModelMissing`, `ModelSlow` (nothing arrived), `ModelInterrupted` (with what had arrived),
        `EmptyAnswer`, and `InputError` for text that is not UTF-8.
        """
        sent = [{"role": message.role, "content": sendable(message.content)} for message in messages]

        async def ask(client: ollama.AsyncClient) -> AsyncIterator[ollama.ChatResponse]:
            return await client.chat(
                model=self.name,
                messages=sent,
                stream=True,
                format=None if schema is None else dict(schema),
                options=options.model_dump(),
                keep_alive=self.keep_alive,
            )

        begun = time.perf_counter()
        text, last = "", None
        stream = Stream(ask, self.address, self.timeout, cancelled)
        try:
            for part in stream:
                piece = part.message.content or ""
                text += piece
                if piece and on_text is not None:
                    on_text(piece)
                if part.done:
                    last = part
        except Broken as broken:
            raise failure(broken.cause, self.address, self.name, self.timeout, text) from None
        if last is None and stream.stopped:
            return Reply(text, stopped=True, seconds=time.perf_counter() - begun)
        if last is None:
            kept = "What had arrived is kept" if text else "Nothing had arrived"
            raise ModelInterrupted(f"The answer of {self.name} broke off before its end. {kept}; try again.", text)
        if not text.strip():
            raise EmptyAnswer(
                f"{self.name} finished without an answer; no reward was given. Try again or change model."
            )
        measured = last.total_duration
        return Reply(
            text,
            prompt_tokens=last.prompt_eval_count,
            answer_tokens=last.eval_count,
            seconds=measured / NANOSECONDS if measured else time.perf_counter() - begun,
        )
