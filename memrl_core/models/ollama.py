"""A language model served by Ollama, through the official client."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import ollama

from memrl_core.errors import ModelError, NotBound, PromptTooLong
from memrl_core.models.base import Cancelled, ModelOptions, OnText, fewest_tokens, slow, tells_no_room
from memrl_core.models.ollama_client import (
    checked_address,
    checked_name,
    default_address,
    failure,
    ollama_stream,
    sendable,
)
from memrl_core.models.ollama_status import show_model
from memrl_core.models.stream import Arriving, Broken
from memrl_core.records import Message, Reply

NANOSECONDS = 1e9
ABOUT_THE_SCHEMA = re.compile(r"schema|grammar|\bformat\b", re.IGNORECASE)
"""Words of a server that refuses a request for its schema."""
SENT = {"seed", "temperature", "num_ctx", "num_predict", "top_p", "num_thread"}
"""The options that go to the server as they are."""

UNPENALISED = {"repeat_penalty": 1.0}
"""Ollama's own 1.1 punishes tokens that stand in the prompt, and so the very answers that memories show."""


class OllamaModel:
    """A chat model of an Ollama server (a `LanguageModel`).

    `timeout` is how many seconds may pass without anything arriving. Nothing is asked of the server before `chat`.
    Raises `InputError` for a name or an address that cannot be one.
    """

    simulated = False
    binds = True

    def __init__(self, name: str, address: str | None = None, timeout: float = 60.0) -> None:
        self.name = checked_name(name)
        self.address = checked_address(address or default_address())
        self.timeout = timeout
        self._whole: dict[str, bool] = {"truncate": False, "shift": False}
        self._own_window: int | None = None
        self._asked_for_window = False

    def chat(
        self,
        messages: Sequence[Message],
        options: ModelOptions,
        on_text: OnText | None = None,
        cancelled: Cancelled | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Answer `messages` (see `LanguageModel`). Thinking and tool calls are not part of the answer.

        `Reply.seconds` is what the server measured, loading of the model included; our own clock when it gave nothing.
        An answer that meets a limit of `options` is cut there, and a broken character replaced: the reply says both.
        Raises `OllamaDown`, `ModelMissing`, `ModelSlow` (nothing arrived), `ModelInterrupted` (with what had arrived),
        `EmptyAnswer`, and `InputError` for text that is not UTF-8. `PromptTooLong` where the server refuses the prompt,
        where it must have cut it (servers before 0.12 do so without a word), or where no room is left for an answer,
        and `NotBound` where the server refuses the schema.
        """
        sent = [{"role": message.role, "content": sendable(message.content)} for message in messages]

        window, words = self._window(options), fewest_tokens(messages)
        if words > window:
            raise PromptTooLong(self.name, window)
        asked: dict[str, Any] = {
            "model": self.name,
            "messages": sent,
            "stream": True,
            "think": options.think,
            "options": {
                **options.model_dump(include=SENT, exclude_none=True),
                **UNPENALISED,
                **({"stop": options.stops} if options.stops else {}),
            },
            "keep_alive": options.keep_alive,
            **({} if schema is None else {"format": dict(schema)}),
        }

        async def ask(client: ollama.AsyncClient) -> AsyncIterator[ollama.ChatResponse]:
            # The official client's `chat` does not know the fields that keep the server from cutting a prompt.
            body = {**asked, **self._whole}
            return await client._request(ollama.ChatResponse, "POST", "/api/chat", json=body, stream=True)

        arriving = Arriving(options, on_text, cancelled)
        last = None
        patience = options.between_tokens or self.timeout
        stream = ollama_stream(ask, self.address, patience, arriving.ended, options.first_token or self.timeout)
        try:
            for part in stream:
                arriving.take(part.message.content or "", part.message.thinking or "", bool(part.done))
                last = part if part.done else last
        except Broken as broken:
            refused = str(broken.cause.error) if isinstance(broken.cause, ollama.ResponseError) else ""
            if self._whole and any(f'"{name}"' in refused for name in self._whole):
                self._whole = {}
                return self.chat(messages, options, on_text, cancelled, schema)
            if tells_no_room(refused):
                raise PromptTooLong(self.name, window) from None
            if options.think and "does not support thinking" in refused:
                plain = options.model_copy(update={"think": False})
                reply = self.chat(messages, plain, on_text, cancelled, schema)
                return replace(reply, notes=(*reply.notes, "this model cannot think first"))
            if schema is not None and not arriving.text and ABOUT_THE_SCHEMA.search(refused):
                raise NotBound(f"Ollama refuses to hold {self.name} to a schema.") from None
            raise failure(broken.cause, self.address, self.name, stream.patience, arriving.partial) from None
        if last is None:
            if not arriving.stopped and not arriving.cut:
                # Ollama ends the stream so, without a last part, when a model repeats one token 31 times.
                arriving.cut = "the server's own limit"
            return arriving.reply(self.name, window=window)
        read, measured = last.prompt_eval_count, last.total_duration
        if read is not None and read < words and words > window // 2:
            raise PromptTooLong(self.name, window)
        return arriving.reply(
            self.name,
            full=last.done_reason == "length",
            read=read,
            written=last.eval_count,
            seconds=measured / NANOSECONDS if measured else None,
            window=window,
            notes=slow(last.eval_count, (last.eval_duration or 0) / NANOSECONDS, options),
        )

    def _window(self, options: ModelOptions) -> int:
        """How many tokens prompt and answer may have: no more than the model was made for, where the server says."""
        if not self._asked_for_window:
            self._asked_for_window = True
            with suppress(ModelError):  # Whatever is wrong, the question itself will show.
                self._own_window = show_model(self.address, self.name, min(self.timeout, 2.0)).context
        return min(options.num_ctx, self._own_window or options.num_ctx)
