"""Which step of a run is under way, noted in the bank's folder: so a step that a crash ended leaves a trace.

The process that runs the step holds a lock for as long, which tells what it left from what it still does.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from memrl_core.bank.storage.addresses import is_local

BEGUN = "begun-"
"""How the names of the marks begin: a copy of a bank has nothing under way."""


@dataclass(frozen=True, slots=True)
class BegunStep:
    """A step that was begun; `since` is when, in ISO format."""

    step: int
    intent: str
    since: str


class StepMark:
    """The mark of a run's step under way. A bank that is no folder of this machine, or cannot be written, has none."""

    def __init__(self, uri: str, run: str) -> None:
        # A run's name may come from a file: it is no name for one.
        name = f"{BEGUN}{hashlib.blake2b(run.encode(), digest_size=8).hexdigest()}"
        self._file = Path(uri) / f"{name}.json" if is_local(uri) else None
        self._lock = FileLock(str(Path(uri) / f"{name}.lock"), thread_local=False)

    def set(self, begun: BegunStep) -> None:
        """Note that a step has begun."""
        if self._file is not None:
            with suppress(OSError, Timeout):
                self._lock.acquire(timeout=0)
                self._file.write_text(json.dumps(asdict(begun)))

    def clear(self) -> None:
        """Note that the step has ended, or that nobody wants it any more."""
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)
                self._lock.release()

    def left(self) -> BegunStep | None:
        """The step that was begun by a process that ended before it; None where there is none."""
        if self._file is None or not self._file.exists():
            return None
        try:
            with self._lock.acquire(timeout=0):
                return BegunStep(**json.loads(self._file.read_text()))
        except (OSError, Timeout, ValueError, TypeError):
            return None
