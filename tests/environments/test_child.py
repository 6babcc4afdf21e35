"""A world in a process of its own: whatever it does, a question ends in an answer or in a failure that says why."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from memrl_core.environments import child as child_module
from memrl_core.environments.child import Child, ChildFailed

LONG = 60.0
"""Seconds within which everything answers that answers at all."""

SHORT = 0.2

WORLD = """
import os, subprocess, sys, time
from memrl_core.environments import child

child.TIME_TO_END = 0.1
asked = 0

def answer(question):
    global asked
    asked += 1
    match question.get("do"):
        case "noise":
            print("noise")
            os.write(1, b"noise\\n")
            subprocess.run([sys.executable, "-c", "print('noise')"])
            print("noise" * 1_000_000)
            return {"read": sys.stdin.read(), "input": os.read(0, 100).decode()}
        case "fail":
            raise ValueError("there is no such room")
        case "vanish":
            os.kill(os.getpid(), 9)
        case "number":
            return {"number": {1, 2}}
        case "sleep":
            time.sleep(question["seconds"])
        case "start":
            started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            return {"started": started.pid}
    return {"asked": asked, "me": os.getpid(), "text": question.get("text", "")[::-1]}

child.serve(answer)
"""

SAYS = "import sys, time; sys.stdin.readline(); sys.stdout.write({}); sys.stdout.flush(); time.sleep(600)"
DEAF = "import time; time.sleep(600)"
Make = Callable[[str], Child]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes a child of a module with this text."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made: list[Child] = []

    def of(text: str) -> Child:
        name = f"tiny_{len(made)}"
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        made.append(Child(name, shared=False))
        return made[-1]

    yield of
    for child in made:
        child.close()


def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds; fails when it never does."""
    deadline = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def asked_by_another(child: Child) -> tuple[threading.Thread, list[str]]:
    """A thread that asks, and a list of how that failed."""
    reported: list[str] = []

    def ask() -> None:
        try:
            child.ask({"text": "x" * 1_000_000}, 2 * LONG)
        except ChildFailed as error:
            reported.append(str(error))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    return asking, reported


def gone(process: int) -> bool:
    """Whether a process has ended; one that nobody has asked for its code has."""
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# --- questions and answers --------------------------------------------------------------------------------------------


def test_it_knows_what_it_was_asked_until_it_is_closed(make: Make) -> None:
    child = make(WORLD)
    assert not child.running
    assert [child.ask({}, LONG)["asked"] for _ in range(2)] == [1, 2]
    assert child.running
    child.close()
    child.close()
    assert not child.running
    assert child.ask({}, LONG)["asked"] == 1


def test_long_and_strange_texts_arrive_as_they_are_and_noise_is_no_answer(make: Make) -> None:
    child = make(WORLD)
    for text in ("x" * 10_000_000, "\0\x1b\r\n\u2028 ä 🙂 \ud800", ""):
        assert child.ask({"text": text}, LONG)["text"] == text[::-1]
    assert child.ask({"do": "noise"}, LONG) == {"read": "", "input": ""}
    assert child.ask({}, LONG)["asked"] == 5


def test_files_of_the_current_folder_do_not_take_the_place_of_modules(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "json.py").write_text("raise SystemExit('not this one')", encoding="utf-8")
    monkeypatch.chdir(elsewhere)
    assert make(WORLD).ask({}, LONG)["asked"] == 1


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "sentence"),
    [({"do": "fail"}, "ValueError: there is no such room"), ({"do": "number"}, "JSON"), ({"do": "vanish"}, "code -9")],
)
def test_a_failure_says_why_and_the_next_question_begins_anew(
    make: Make, question: dict[str, Any], sentence: str
) -> None:
    child = make(WORLD)
    child.ask({}, LONG)
    with pytest.raises(ChildFailed, match=sentence):
        child.ask(question, LONG)
    assert not child.running
    assert child.ask({}, LONG)["asked"] == 1


@pytest.mark.parametrize(
    "message", ["'hello\\n'", "'[1]\\n'", "'[' * 100_000 + '\\n'", "'1' * 10_000 + '\\n'", "'x' * 25_000_000"]
)
def test_an_answer_that_is_none_is_a_failure(make: Make, message: str) -> None:
    child = make(SAYS.format(message))
    with pytest.raises(ChildFailed):
        child.ask({}, LONG)
    assert not child.running


def test_a_long_question_to_one_that_never_reads_is_given_up(make: Make) -> None:
    child = make(DEAF)
    with pytest.raises(ChildFailed, match=str(SHORT)):
        child.ask({"text": "x" * 10_000_000}, SHORT)
    assert not child.running


def test_what_is_no_json_is_not_asked(make: Make) -> None:
    circle: dict[str, Any] = {}
    circle["circle"] = circle
    for question in ({"thing": object()}, circle):
        with pytest.raises(ChildFailed, match="no JSON"):
            make(DEAF).ask(question, LONG)


def test_one_that_cannot_be_started_is_a_failure(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/not/there/python")
    child = make(DEAF)
    with pytest.raises(ChildFailed, match="/not/there/python"):
        child.ask({}, LONG)
    assert not child.running


def test_after_an_interrupt_no_question_gets_the_answer_to_another(make: Make) -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    child = make(WORLD)
    child.ask({}, LONG)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, SHORT)
        with pytest.raises(KeyboardInterrupt):
            child.ask({"do": "sleep", "seconds": 2 * SHORT, "text": "first"}, LONG)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert child.ask({"text": "abc"}, LONG)["text"] == "cba"


# --- ends -------------------------------------------------------------------------------------------------------------


def test_closing_from_another_thread_ends_the_wait_for_an_answer(make: Make) -> None:
    child = make(DEAF)
    asking, reported = asked_by_another(child)
    until(lambda: child.running)
    child.close()
    asking.join(LONG)
    assert len(reported) == 1
    assert not child.running


def test_what_it_started_ends_with_it(make: Make) -> None:
    child = make(WORLD)
    started = child.ask({"do": "start"}, LONG)["started"]
    assert not gone(started)
    child.close()
    until(lambda: gone(started))


def test_one_at_work_ends_when_the_program_is_killed(make: Make) -> None:
    make(WORLD)
    program = (
        "import os, threading, time; from memrl_core.environments.child import Child; child = Child('tiny_0');"
        "print(child.ask({}, 60)['me'], flush=True);"
        "threading.Timer(0.1, os._exit, [1]).start(); child.ask({'do': 'sleep', 'seconds': 600}, 600)"
    )
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert killed.returncode == 1
    until(lambda: gone(int(killed.stdout)))


@pytest.mark.slow
def test_neither_threads_nor_pipes_are_left(make: Make) -> None:
    def counted() -> tuple[int, int]:
        return threading.active_count(), len(os.listdir("/dev/fd"))

    before = counted()
    child = make(DEAF)
    for text in ("", "x" * 1_000_000):
        with pytest.raises(ChildFailed):
            child.ask({"text": text}, 0.01)
    until(lambda: counted() == before)


# --- those that wait for the next one ---------------------------------------------------------------------------------


def test_what_was_given_back_is_lent_again_to_one_at_a_time(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "MOST_IDLE", 1)
    module = make(WORLD).module
    children = [Child(module) for _ in range(3)]
    first, second = (one.ask({}, LONG)["me"] for one in children[:2])
    assert first != second
    for one in children:
        one.close()
    until(lambda: gone(second))
    assert children[2].ask({}, LONG) == {"asked": 2, "me": first, "text": ""}
    assert children[0].ask({}, LONG)["me"] not in (first, second)
    for one in (children[0], children[2]):
        one._process.end()


def test_one_that_ended_while_it_was_idle_is_not_lent(make: Make) -> None:
    child = Child(make(WORLD).module)
    process = child.ask({}, LONG)["me"]
    child.close()
    (idle,) = child_module._idle[child.module]
    os.kill(process, signal.SIGKILL)
    until(lambda: idle.popen.poll() is not None)
    assert child.ask({}, LONG)["asked"] == 1
    child._process.end()


def test_one_that_is_not_shared_ends_with_whoever_holds_it(make: Make) -> None:
    child = Child(make(WORLD).module, shared=False)
    process = child.ask({}, LONG)["me"]
    del child
    gc.collect()
    until(lambda: gone(process))
