"""A world in a process of its own, asked one line of JSON at a time.

What runs there can crash, hang, print or eat memory without harm to the app: it is then ended, with everything that it
started, and begun again. It ends by itself when this program does, because its standard input ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import IO, Any

MOST_CHARACTERS = 20_000_000
"""A longer reply counts as a failure."""

STDERR_KEPT = 2_000
"""Bytes that are kept of what a process wrote to its standard error."""

TIME_TO_END = 2.0
"""Seconds that a process has to end by itself once nobody can ask it any more."""


class ChildFailed(Exception):
    """The process died, took too long, was asked what is no JSON, or answered what is no answer; the sentence says
    which. It is ended by then.
    """


class Child:
    """The module `module` run as a program that calls `serve`; it is started at the first question.

    `close` keeps the process for the next `Child` of the module, unless it is not `shared`, busy, or enough are kept;
    so does the end of whoever holds this. `ask` may be called by one thread at a time, `close` by any. After a failure
    the next question starts a new process, without whatever the old one knew. All end with this program.
    """

    def __init__(self, module: str, shared: bool = True) -> None:
        self.module, self.shared = module, shared
        self._process: _Process | None = None
        self._release: weakref.finalize[Any, Any] | None = None

    @property
    def running(self) -> bool:
        """Whether the next question needs no start."""
        if self._process is None and self.shared:
            with _lock:
                waiting = _idle.get(self.module)
                if waiting:
                    self._hold(waiting.pop())
        return self._process is not None and self._process.popen.poll() is None

    @property
    def pid(self) -> int | None:
        """Id of its process; None before the first question and after `close`."""
        return None if self._process is None else self._process.popen.pid

    def ask(self, question: Mapping[str, Any], within: float) -> dict[str, Any]:
        """Its answer to `question`, within so many seconds. Raises `ChildFailed`."""
        asked = _line(question)
        process = self._process if self.running else None
        if process is None:
            try:
                process = _Process(self.module)
            except (OSError, RuntimeError) as error:
                raise ChildFailed(f"its process could not be started ({str(error)[:200]})") from None
            self._hold(process)
        try:
            return process.answer(asked, within)
        except BaseException:  # After an interrupt, too: its answer would be taken for that to the next question.
            process.end()
            self.close()
            raise

    def close(self) -> None:
        """Give its process back, or end it with everything that it started; it can be asked again."""
        self._process = None
        if self._release is not None:
            self._release()

    def _hold(self, process: _Process) -> None:
        self.close()
        self._process = process
        self._release = weakref.finalize(self, _give_back if self.shared else _Process.end, process)


MOST_IDLE = 2
"""Processes of a module that are kept for the next one who needs such."""
_idle: dict[str, list[_Process]] = {}
# What gives a process back may be called while this thread is in here: by the collection of garbage.
_lock = threading.RLock()


def _give_back(process: _Process) -> None:
    with _lock:
        waiting = _idle.setdefault(process.module, [])
        if process.popen.poll() is None and not process.busy and len(waiting) < MOST_IDLE:
            waiting.append(process)
            return
    process.end()


class _Process:
    """One run of the worker process, with a thread that writes to its stdin and one that reads its stderr.

    Only these threads use the pipes, and each closes its own: they may be blocked in them for as long as they like.
    """

    def __init__(self, module: str) -> None:
        self.module, self.busy = module, False
        self.popen = subprocess.Popen(
            [sys.executable, "-P", "-X", "utf8", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **_apart(),
        )
        self._questions: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._stderr = b""
        self._ended = False
        weakref.finalize(self, _kill_if_running, self.popen)
        threading.Thread(target=self._write_stdin, daemon=True).start()
        self._stderr_reader = threading.Thread(target=self._read_stderr, daemon=True)
        self._stderr_reader.start()

    def answer(self, question: bytes, within: float) -> dict[str, Any]:
        self.busy = True
        self._questions.put(question)
        try:
            line = self._replies.get(timeout=within)
        except queue.Empty:
            raise ChildFailed(f"it did not answer within {within:g} seconds") from None
        if not line:
            raise ChildFailed("it was ended meanwhile" if self._ended else f"its process ended ({self._last_line()})")
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            raise ChildFailed("it answered what is not JSON, or too much of it") from None
        if not isinstance(answer, dict):
            raise ChildFailed("it answered what is no object")
        self.busy = False
        return answer

    def end(self) -> None:
        if self._ended:
            return
        self._ended = True
        _kill(self.popen)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(TIME_TO_END)
        self._questions.put(None)
        self._replies.put(b"")

    def _write_stdin(self) -> None:
        questions, answers = _open(self.popen.stdin), _open(self.popen.stdout)
        with contextlib.suppress(OSError), questions, answers:
            while (question := self._questions.get()) is not None:
                questions.write(question)
                questions.flush()
                self._replies.put(answers.readline(MOST_CHARACTERS))
        self._replies.put(b"")

    def _read_stderr(self) -> None:
        with contextlib.suppress(OSError), _open(self.popen.stderr) as pipe:
            while more := os.read(pipe.fileno(), 65_536):
                self._stderr = (self._stderr + more)[-STDERR_KEPT:]

    def _last_line(self) -> str:
        self._stderr_reader.join(TIME_TO_END)
        lines = self._stderr.decode(errors="replace").strip().splitlines()
        if lines:
            return lines[-1][:200]
        with contextlib.suppress(subprocess.TimeoutExpired):
            return f"code {self.popen.wait(TIME_TO_END)}"
        return "without a word"


def serve(answer: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    """Answer questions until there are no more, in the child; it ends with all that it has started.

    What else is printed goes to standard error, and what else is read from standard input is empty.
    """
    questions, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    heard: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_questions, args=(questions, heard), daemon=True).start()
    with contextlib.suppress(BrokenPipeError):
        while line := heard.get():
            replies.write(_line(answer(json.loads(line))))
            replies.flush()
    # Whoever asked is gone. To end here would leave behind what this process has started, should that hang.
    threading.Event().wait()


def _read_questions(questions: IO[bytes], heard: queue.SimpleQueue[bytes]) -> None:
    """Pass the questions on, in the child; when nobody can ask any more, end what is still at work on one."""
    for line in questions:
        heard.put(line)
    heard.put(b"")
    time.sleep(TIME_TO_END)
    if sys.platform != "win32" and os.getsid(0) == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def _line(value: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(value).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise ChildFailed(f"this is no JSON: {str(error)[:200]}") from None


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _apart() -> dict[str, Any]:
    """How a process is started that Ctrl-C does not reach, and that can be ended with everything that it starts."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    return {"start_new_session": True}


def _kill_if_running(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        command = ["taskkill", "/F", "/T", "/PID", str(process.pid)]
        with contextlib.suppress(OSError):
            subprocess.run(command, capture_output=True, check=False, creationflags=subprocess.CREATE_NO_WINDOW)
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
