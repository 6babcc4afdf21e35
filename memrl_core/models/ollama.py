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
    whole_characters,
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
    binds = True

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
        An answer that meets a limit of `options` is cut there, and a broken character replaced: the reply tells both.
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
                think=options.think,
                options=options.sent,
                keep_alive=self.keep_alive,
            )

        begun = time.perf_counter()
        said, thought, last, cut = "", 0, None, ""

        def ended() -> bool:
            nonlocal cut
            if cancelled is not None and cancelled():
                return True
            if time.perf_counter() - begun > options.in_all:
                cut = f"{options.in_all:g} s"
            return bool(cut)

        patience = options.between_tokens or self.timeout
        stream = Stream(ask, self.address, patience, ended, options.first_token or self.timeout)
        try:
            for part in stream:
                piece = (part.message.content or "")[: options.most_characters - len(said)]
                said += piece
                thought += len(part.message.thinking or "")
                if piece and on_text is not None:
                    on_text(whole_characters(piece)[0])
                if part.done:
                    last = part
                elif len(said) + thought >= options.most_characters:
                    cut = f"{options.most_characters:,} characters"
        except Broken as broken:
            text, _ = whole_characters(said)
            raise failure(broken.cause, self.address, self.name, stream.patience, text) from None
        text, replaced = whole_characters(said)
        if stream.stopped and not cut:
            return Reply(text, stopped=True, seconds=time.perf_counter() - begun, replaced=replaced)
        if last is not None and last.done_reason == "length":
            cut = _cut_at(options, last.eval_count)
        if last is None and not cut:
            if not text.strip():
                raise ModelInterrupted(f"The answer of {self.name} broke off before it began. Try again.", text)
            # Ollama ends the stream so, without a last part, when a model repeats one token 31 times.
            cut = "the server's own limit"
        if not text.strip() and cut:
            thinking = " All of it was thinking." if thought else ""
            raise EmptyAnswer(
                f"{self.name} was cut at {cut} before it had answered anything; no reward was given.{thinking} Give a "
                "new run a higher limit among its model options, or change model.",
                cut,
            )
        if not text.strip():
            raise EmptyAnswer(
                f"{self.name} finished without an answer; no reward was given. Try again or change model."
            )
        measured = last.total_duration if last is not None else None
        return Reply(
            text,
            prompt_tokens=last.prompt_eval_count if last is not None else None,
            answer_tokens=last.eval_count if last is not None else None,
            seconds=measured / NANOSECONDS if measured else time.perf_counter() - begun,
            cut=cut,
            replaced=replaced,
        )


def _cut_at(options: ModelOptions, written: int | None) -> str:
    """The limit at which a server cut an answer of `written` tokens."""
    if written is not None and written < options.num_predict:
        return f"the context window of {options.num_ctx:,} tokens"
    return "1 token" if options.num_predict == 1 else f"{options.num_predict:,} tokens"
