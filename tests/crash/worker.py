"""A process that does the work of `tests.crash.work`, as the one who started it sees it."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import IO, Any, cast

from memrl_core.errors import BankError
from tests.crash.work import Job, Stored

PROGRAM = (sys.executable, "-m", "tests.crash.work")
PATIENCE = 120.0
LAST_COMPLAINT = 400


class Worker:
    """One such process; it loads what it needs at once and waits for its job.

    `reported` are the facts that it has acknowledged so far.
    """

    def __init__(self, program: Sequence[str] = PROGRAM) -> None:
        self.reported: list[Stored] = []
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the process lives
        self._process = subprocess.Popen(
            list(program), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints, text=True
        )
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reading = threading.Thread(target=self._read, daemon=True, name="acknowledged")
        self._reading.start()

    def begin(self, job: Job) -> None:
        """Give it its job and wait until it has opened the bank. Raises `BankError` when it fails."""
        self._ask(json.dumps(asdict(job)))
        self.expect("ready")

    def expect(self, what: str) -> dict[str, Any]:
        """Wait for the line that says `what`. Raises `BankError` when it fails or takes too long."""
        try:
            line = self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            raise BankError(f"A process said nothing for {PATIENCE:.0f} seconds. {self._complaint()}") from None
        if what not in line:
            raise BankError(f"A process failed: {line.get('failed', 'it ended')} {self._complaint()}")
        return line

    @property
    def has_ended_its_work(self) -> bool:
        """Whether a line waits that is no acknowledgement: it is done, or has failed."""
        return not self._lines.empty()

    def known(self) -> str:
        """What it knows now, after it has taken in what others appended. Raises `BankError` when it fails."""
        self._ask("")
        return str(self.expect("known")["known"])

    def kill(self) -> None:
        """End it by SIGKILL, and read what it had acknowledged by then."""
        self._process.kill()
        self._process.wait()
        self._reading.join()
        self._close()

    def end(self) -> int:
        """Let it close its bank and end; its exit code."""
        with suppress(OSError):
            cast(IO[str], self._process.stdin).close()
        code = self._process.wait(PATIENCE)
        self._reading.join()
        self._close()
        return code

    def _ask(self, line: str) -> None:
        pipe = cast(IO[str], self._process.stdin)
        with suppress(OSError):
            pipe.write(line + "\n")
            pipe.flush()

    def _read(self) -> None:
        for text in cast(IO[str], self._process.stdout):
            with suppress(ValueError):  # The last line of a process that was killed may be a part of one.
                self._take(json.loads(text))
        self._lines.put({"ended": True})

    def _take(self, line: Mapping[str, Any]) -> None:
        if "stored" in line:
            reported = line["stored"]
            ids = {name: tuple(reported[name]) for name in ("memories", "events", "steps")}
            self.reported.append(Stored(**ids, places=reported["places"], begun=reported["begun"]))
        else:
            self._lines.put(dict(line))

    def _complaint(self) -> str:
        self._process.poll()
        self._complaints.seek(0)
        return self._complaints.read()[-LAST_COMPLAINT:].decode(errors="replace").strip()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout, self._complaints):
            with suppress(OSError):
                cast(IO[Any], pipe).close()
