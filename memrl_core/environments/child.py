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

    `ask` may be called by one thread at a time, `close` by any. After a failure the next question starts it anew,
    without whatever it knew: `started` counts the starts. It ends with this program, and when nobody holds it any more.
    """

    def __init__(self, module: str) -> None:
        self.module = module
        self.started = 0
        self._process: _Process | None = None
        self._end: Callable[[], object] | None = None

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        process = self._process
        return process is not None and process.popen.poll() is None

    @property
    def pid(self) -> int | None:
        """Id of its process; None before the first start and after `close`."""
        return None if self._process is None else self._process.popen.pid

    def ask(self, question: Mapping[str, Any], within: float) -> dict[str, Any]:
        """Its answer to `question`, within so many seconds. Raises `ChildFailed`."""
        try:
            asked = _line(question)
            process = self._process
            if process is None or process.popen.poll() is not None:
                process = self._start()
            return process.answer(asked, within)
        except BaseException:  # After an interrupt, too: its answer would be taken for that to the next question.
            self.close()
            raise

    def close(self) -> None:
        """End it and everything that it started; it can be asked again."""
        self._process = None
        if self._end is not None:
            self._end()

    def _start(self) -> _Process:
        self.close()
        try:
            process = _Process(self.module)
        except (OSError, RuntimeError) as error:
            raise ChildFailed(f"its process could not be started ({str(error)[:200]})") from None
        self._process, self._end = process, weakref.finalize(self, process.end)
        self.started += 1
        return process


class _Process:
    """One run of the worker process, with a thread that writes to its stdin and one that reads its stderr.

    Only these threads use the pipes, and each closes its own: they may be blocked in them for as long as they like.
    """

    def __init__(self, module: str) -> None:
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
        threading.Thread(target=self._write_stdin, daemon=True).start()
        self._stderr_reader = threading.Thread(target=self._read_stderr, daemon=True)
        self._stderr_reader.start()

    def answer(self, question: bytes, within: float) -> dict[str, Any]:
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
        return answer

    def end(self) -> None:
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


class Idle:
    """Children that nobody uses at the moment, kept for the next one who needs such; at most `most` a module."""

    def __init__(self, most: int = 2) -> None:
        self._most = most
        self._idle: dict[str, list[Child]] = {}
        # What gives a child back may be called while this thread is in here: by the collection of garbage.
        self._lock = threading.RLock()

    def borrow(self, module: str) -> Child:
        """A child of `module` that nobody else has."""
        with self._lock:
            waiting = self._idle.get(module)
            return waiting.pop() if waiting else Child(module)

    def give_back(self, child: Child) -> None:
        """Keep it for the next one, or end it when enough are waiting. It may be given back once."""
        with self._lock:
            waiting = self._idle.setdefault(child.module, [])
            if any(one is child for one in waiting):
                return
            if child.running and len(waiting) < self._most:
                waiting.append(child)
                return
        child.close()


idle = Idle()


class Borrowed:
    """A child of `module` from those that are idle, borrowed when it is first needed.

    It is given back by `close`, and when nobody holds this any more.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._give_back: Callable[[], object] | None = None
        self._child: Child | None = None

    @property
    def child(self) -> Child:
        """The one that is borrowed."""
        if self._child is None:
            self._child = idle.borrow(self._module)
            self._give_back = weakref.finalize(self, idle.give_back, self._child)
        return self._child

    @property
    def running(self) -> bool:
        """True if the next question need not start it."""
        return self.child.running

    def ask(self, question: Mapping[str, Any], within: float) -> dict[str, Any]:
        """Its answer to `question`, within so many seconds. Raises `ChildFailed`."""
        return self.child.ask(question, within)

    def close(self) -> None:
        """Give it back; another is borrowed when one is needed."""
        if self._give_back is not None:
            self._give_back()
        self._child = self._give_back = None


def serve(answer: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    """Answer questions until there are no more, in the child.

    What else is printed goes to standard error, and what else is read from standard input is empty.
    """
    questions, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    heard: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_questions, args=(questions, heard), daemon=True).start()
    while line := heard.get():
        replies.write(_line(answer(json.loads(line))))
        replies.flush()


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


def _kill(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        command = ["taskkill", "/F", "/T", "/PID", str(process.pid)]
        with contextlib.suppress(OSError):
            subprocess.run(command, capture_output=True, check=False, creationflags=subprocess.CREATE_NO_WINDOW)
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
