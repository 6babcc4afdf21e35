"""One piece of long work in a thread: a screen shows how far it is, stops it, and takes the result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from memrl_core.errors import MemRLError, StepError
from memrl_core.logs import logger

PATIENCE = 0.15
UNEXPECTED = "Something unexpected went wrong ({error}). Nothing was changed; try again."

Result = TypeVar("Result")
log = logger(__name__)


class Work(Generic[Result]):
    """Runs `do(report, cancelled)` at once; `done` of `total` is what it last reported.

    `result` is what it returned, None while it runs and when it was stopped or failed; `error` is what went wrong.
    """

    def __init__(self, do: Callable[[Callable[[int, int], None], Callable[[], bool]], Result | None]) -> None:
        self.done, self.total = 0, 0
        self.result: Result | None = None
        self.error: MemRLError | None = None
        self._do = do
        self._cancel = threading.Event()
        self._thread = threading.Thread(target=self._guarded, daemon=True, name="work")
        self._thread.start()
        self._thread.join(PATIENCE)

    @property
    def busy(self) -> bool:
        """Whether it is still running."""
        return self._thread.is_alive()

    @property
    def stopped(self) -> bool:
        """Whether it was asked to stop before its end."""
        return self._cancel.is_set()

    def stop(self) -> None:
        """Ask it to end; what it has found so far may be its result."""
        self._cancel.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it; True when it has ended."""
        self._thread.join(timeout)
        return not self.busy

    def _report(self, done: int, total: int) -> None:
        self.done, self.total = done, total

    def _guarded(self) -> None:
        try:
            self.result = self._do(self._report, self._cancel.is_set)
        except MemRLError as error:
            self.error = error
        except Exception as error:
            log.exception("work in the background failed in an unexpected way")
            self.error = StepError(UNEXPECTED.format(error=type(error).__name__))
