"""A streamed answer of a server that can be left at any moment.

A blocked read cannot be interrupted from another thread, but a task of an event loop can be cancelled while it waits,
and cancelling it closes the connection, which is what makes the server stop generating. So the asynchronous client
reads in a thread of its own; the caller's thread takes the parts from a queue and looks in between whether to go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Generic, TypeVar

import httpx

from memrl_core.errors import EmptyAnswer, PromptTooLong
from memrl_core.models.base import Cancelled, ModelOptions, OnText, whole_characters, without_thinking
from memrl_core.numerals import counted
from memrl_core.records import Reply

MOST_BYTES = 64 * 1024 * 1024
"""Of one reply: more than the longest list of models or batch of embeddings, and too little to fill a memory."""
POLL = 0.05
"""Seconds between two looks at whether the person cancelled."""
BLANKS = 3
"""So many blanks behind the JSON of a bound answer are no line's end any more."""

Part = TypeVar("Part")
Ask = Callable[[Any], Awaitable[AsyncIterator[Part]]]


class Broken(Exception):
    """The stream failed; `cause` is one of the client's `failures`."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Stream(Generic[Part]):
    """Iterate over it once to get the parts, in the thread that iterates.

    `client` makes what `ask` is given, and is closed when the stream ends. The first part may take `first` seconds,
    every other one `timeout`; `patience` is the one of them that is running. It ends early, with `stopped` set, when
    `cancelled()` turns true. Leaving the iteration in any way closes the connection. Raises `Broken` when the client
    fails (with one of `failures`).
    """

    def __init__(
        self,
        client: Callable[[], contextlib.AbstractAsyncContextManager[Any]],
        ask: Ask[Part],
        failures: tuple[type[Exception], ...],
        timeout: float,
        cancelled: Cancelled | None = None,
        first: float | None = None,
    ) -> None:
        self.stopped = False
        self.patience = timeout if first is None else first
        self._client, self._ask, self._failures = client, ask, failures
        self._timeout, self._cancelled = timeout, cancelled
        # Last comes what the reader failed with, or None.
        self._arrived: queue.SimpleQueue[Part | Exception | None] = queue.SimpleQueue()
        self._running = threading.Event()
        self._task: asyncio.Task[None] | None = None

    def __iter__(self) -> Iterator[Part]:
        reader = threading.Thread(target=self._run, daemon=True, name="model stream")
        reader.start()
        since = time.monotonic()
        try:
            while True:
                if self._cancelled is not None and self._cancelled():
                    self.stopped = True
                    return
                try:
                    part = self._arrived.get(timeout=POLL)
                except queue.Empty:
                    if time.monotonic() - since > self.patience:
                        raise Broken(httpx.ReadTimeout(f"nothing within {self.patience:g} s")) from None
                    continue
                if part is None:
                    return
                if isinstance(part, Exception):
                    raise Broken(part) if isinstance(part, self._failures) else part
                yield part
                since, self.patience = time.monotonic(), self._timeout
        finally:
            self._close()
            reader.join(timeout=2)

    def _close(self) -> None:
        self._running.wait()
        if self._task is not None:
            # The loop is closed already when the stream came to its own end.
            with contextlib.suppress(RuntimeError):
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    def _run(self) -> None:
        failed: Exception | None = None
        try:
            asyncio.run(self._read())
        except asyncio.CancelledError:
            pass
        except Exception as error:
            failed = error
        finally:
            self._running.set()
            self._arrived.put(failed)

    async def _read(self) -> None:
        self._task = asyncio.current_task()
        self._running.set()
        async with self._client() as client:
            async for part in await self._ask(client):
                self._arrived.put(part)


class Arriving:
    """An answer as it arrives: `text` and `thought` so far, the limit at which it was `cut`, or that it was `stopped`.

    `first` is when something arrived (0 before that), by `time.perf_counter`. `clean` replaces what cannot be kept of
    a text, and counts it. An answer that is `bound` to a schema is `whole` where only blanks follow its JSON: some
    models write them up to the limit.
    """

    def __init__(
        self,
        options: ModelOptions,
        on_text: OnText | None,
        cancelled: Cancelled | None,
        clean: Callable[[str], tuple[str, int]] = whole_characters,
        bound: bool = False,
    ) -> None:
        self.text = self.thought = self.cut = ""
        self.stopped = self.whole = False
        self._bound = bound
        self.first = 0.0
        self._begun = time.perf_counter()
        self._options, self._on_text, self._cancelled, self._clean = options, on_text, cancelled, clean

    @property
    def seconds(self) -> float:
        """Since it was asked for."""
        return time.perf_counter() - self._begun

    @property
    def writing(self) -> float:
        """Seconds since something arrived: the prompt has been read by then."""
        return time.perf_counter() - self.first if self.first else 0.0

    def ended(self) -> bool:
        """Whether a person cancels, a limit is met, or only blanks would follow (a `Cancelled`)."""
        self.stopped = self._cancelled is not None and self._cancelled()
        if not self.stopped and self.seconds > self._options.in_all:
            self.cut = f"{self._options.in_all:g} s"
        self.whole = self._bound and _ends_in_blanks(self.text)
        return self.stopped or bool(self.cut) or self.whole

    def take(self, text: str, thought: str, last: bool = False) -> None:
        """Add what has arrived; a server that goes on beyond all limits is cut before its `last` part."""
        self.first = self.first or (time.perf_counter() if text or thought else 0.0)
        most = self._options.most_characters
        self.thought += thought[: most - len(self.thought)]
        piece = text[: most - len(self.text)]
        self.text += piece
        if piece and self._on_text is not None:
            self._on_text(whole_characters(piece)[0])
        if not last and len(self.text) + len(self.thought) >= most:
            self.cut = f"{most:,} characters"

    @property
    def partial(self) -> str:
        """The text so far, as it can be kept."""
        return self._clean(self.text)[0]

    def reply(
        self,
        model: str,
        *,
        full: bool = False,
        read: int | None = None,
        written: int | None = None,
        cached: int | None = None,
        seconds: float | None = None,
        window: int | None = None,
        notes: tuple[str, ...] = (),
    ) -> Reply:
        """The whole answer, or what there is of it when a person stopped it.

        The server says how many tokens it `read`, had `cached` and has `written`, its `window`, and whether it cut
        the answer at a limit (`full`). Raises `EmptyAnswer`, and `PromptTooLong` where the window had no room for one.
        """
        text, replaced = self._clean(self.text)
        inline, text = without_thinking(text.rstrip() if self.whole else text)
        thinking = self._clean(self.thought)[0].strip() or inline
        if self.stopped and not self.cut:
            return Reply(text, stopped=True, seconds=self.seconds, replaced=replaced, thinking=thinking)
        if full and not self.cut:
            most = self._options.num_predict
            self.cut = counted(most, "token")
            if written is not None and written < most:
                no_room = PromptTooLong(model, window)
                if not text.strip():
                    raise no_room
                self.cut = no_room.room
        if not text.strip():
            limit = f" It was cut at {self.cut}." if self.cut else ""
            only_thought = " All of it was thinking." if thinking else ""
            raise EmptyAnswer(
                f"{model} finished without an answer; no reward was given.{limit}{only_thought} Try again, give a new "
                "run a higher limit among its model options, or change model.",
                self.cut,
                thinking,
            )
        return Reply(
            text,
            prompt_tokens=read,
            answer_tokens=written,
            cached_tokens=cached,
            seconds=self.seconds if seconds is None else seconds,
            cut=self.cut,
            replaced=replaced,
            thinking=thinking,
            window=window,
            notes=notes,
        )


def _ends_in_blanks(text: str) -> bool:
    """Whether `text` is a JSON value and more than a line's end behind it."""
    value = text.rstrip()
    if len(text) - len(value) < BLANKS:
        return False
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


class ReplyTooLong(Exception):
    """A reply of more than `MOST_BYTES`."""


class Bounded:
    """The bytes of a reply; raises `ReplyTooLong` after `MOST_BYTES`. To be mixed into a client's own streams."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._left = stream, MOST_BYTES

    def __iter__(self) -> Iterator[bytes]:
        for data in self._stream:
            yield self._counted(data)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._stream:
            yield self._counted(data)

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def _counted(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise ReplyTooLong
        return data
