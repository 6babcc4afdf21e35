"""A streamed answer of Ollama that can be left at any moment.

A blocked read cannot be interrupted from another thread, but a task of an event loop can be cancelled while it waits,
and cancelling it closes the connection, which is what makes the server stop generating. So the asynchronous client
reads in a thread of its own; the caller's thread takes the parts from a queue and looks in between whether to go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Generic, TypeVar

import httpx
import ollama

from memrl_core.models.base import Cancelled
from memrl_core.models.ollama_client import FAILURES, checked_address, connection

POLL = 0.05
"""Seconds between two looks at whether the person cancelled."""

Part = TypeVar("Part")
Ask = Callable[[Any], Awaitable[AsyncIterator[Part]]]


class Broken(Exception):
    """The stream failed; `cause` is one of the client's `FAILURES`."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Stream(Generic[Part]):
    """Iterate over it once to get the parts, in the thread that iterates.

    The first part may take `first` seconds, every other one `timeout`; `patience` is the one of them that is running.
    It ends early, with `stopped` set, when `cancelled()` turns true. Leaving the iteration in any way closes the
    connection. Raises `Broken` when the client fails (with one of `failures`), `InputError` for a bad address.
    """

    failures: tuple[type[Exception], ...] = FAILURES

    def __init__(
        self,
        ask: Ask[Part],
        address: str,
        timeout: float,
        cancelled: Cancelled | None = None,
        first: float | None = None,
    ) -> None:
        self.stopped = False
        self.patience = timeout if first is None else first
        self._timeout = timeout
        self._ask = ask
        self._address = checked_address(address)
        self._longest = max(timeout, self.patience)
        self._cancelled = cancelled
        self._arrived: queue.SimpleQueue[Part | _End] = queue.SimpleQueue()
        self._running = threading.Event()
        self._task: asyncio.Task[None] | None = None

    def __iter__(self) -> Iterator[Part]:
        reader = threading.Thread(target=self._run, daemon=True, name="ollama stream")
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
                if isinstance(part, _End):
                    if part.error is None:
                        return
                    raise Broken(part.error) if isinstance(part.error, self.failures) else part.error
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
        end = _End(None)
        try:
            asyncio.run(self._read())
        except asyncio.CancelledError:
            pass
        except Exception as error:
            end = _End(error)
        finally:
            self._running.set()
            self._arrived.put(end)

    def _client(self) -> contextlib.AbstractAsyncContextManager[Any]:
        """What `ask` is given, and is closed when the stream ends."""
        return ollama.AsyncClient(**connection(self._address, self._longest, asynchronous=True))

    async def _read(self) -> None:
        self._task = asyncio.current_task()
        self._running.set()
        async with self._client() as client:
            async for part in await self._ask(client):
                self._arrived.put(part)


class _End:
    """What the reader puts last."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
