"""Runs to be compared: lines made of records alone, and steps committed to a bank."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from memrl_core.agent.preferences import Preferences
from memrl_core.agent.runs import live_run
from memrl_core.analysis.compare.alignment import Alignment, ComparedStep, Line, align
from memrl_core.bank import MemoryBank
from memrl_core.records import (
    Decision,
    GenerateRecord,
    MemoryOperation,
    Outcome,
    Recalled,
    RecallRecord,
    Reply,
    RewardRecord,
    RunInfo,
    StepTrace,
    Task,
    Turn,
    WriteRecord,
)
from tests.builders import a_run, a_vector

OUTCOMES: dict[float | None, Outcome] = {1.0: "success", -1.0: "failure", None: "unrated"}


def a_compared(run: str, step: int, task: str, intent: str = "do it", **known: Any) -> ComparedStep:
    """A step of which nothing is known but what is said."""
    return ComparedStep(run, step, task, intent, **known)


def a_line(name: str, steps: Sequence[ComparedStep], **info: Any) -> Line:
    return Line(name, replace(a_run(name), **info), tuple(steps))


def tasks_line(name: str, tasks: str, /, **info: Any) -> Line:
    """A line that met a task for each letter."""
    return a_line(name, [a_compared(name, n, task) for n, task in enumerate(tasks, start=1)], **info)


def rewarded(tasks: Sequence[str], *runs: Sequence[float | None]) -> Alignment:
    """Runs `a`, `b`, … on these tasks, which earned these rewards."""
    lines = []
    for name, rewards in zip("abcdefg", runs, strict=False):
        met = enumerate(zip(tasks, rewards, strict=True), 1)
        lines.append(a_line(name, [a_compared(name, n, task, reward=reward) for n, (task, reward) in met]))
    return align(lines)


def begun(bank: MemoryBank, run: str, base: str | None = None, base_step: int = 0, **info: Any) -> RunInfo:
    """A new run of the bank."""
    started = replace(a_run(run, base, base_step), **info)
    bank.write.start_run(started)
    return started


def a_trace(
    run: str,
    step: int,
    task: str,
    intent: str = "do it",
    *,
    pool: Sequence[str] | None = (),
    selected: Sequence[str] | None = (),
    answers: Sequence[str] = ("done",),
    tokens: Sequence[tuple[int | None, int | None]] = (),
    offered: Sequence[bool | None] = (),
    reward: float | None = 1.0,
    wrote: Sequence[str] = (),
    settings: dict[str, Any] | None = None,
) -> StepTrace:
    """A finished step; None is what is not recorded."""
    chosen = tuple(selected or ())
    each = zip(answers, tokens or [(10, 2)] * len(answers), offered or [None] * len(answers), strict=True)
    turns = tuple(
        Turn(Reply(text, False, read, written, offered=on_list), "", 0.0, False, False)
        for text, (read, written), on_list in each
    )
    recalled = tuple(Recalled(m, 0.9, n, None) for n, m in enumerate(pool or (), 1))
    decision = Decision(3, 0.5, "pool", (), (), chosen, chosen, "greedy", 0.0, None, 0, 1.0)
    operations = (MemoryOperation("ADD", m, intent, f"wrote {m}", "success", intent, 0.0, chosen) for m in wrote)
    return StepTrace(
        uuid.uuid4().hex, run, step, 1, Task(task, intent, "household"), "memrl", settings or {},
        "2026-01-01T00:00:00+00:00",
        recall=None if pool is None else RecallRecord(10, "record", 0.2, True, 10, recalled, ()),
        decision=None if selected is None else decision,
        generate=GenerateRecord("m", True, {}, (), (), turns),
        reward=RewardRecord(reward, None if reward is None else "environment", OUTCOMES[reward], "", "", "", chosen),
        write=WriteRecord(tuple(operations)),
    )  # fmt: skip


def commit(bank: MemoryBank, run: str, task: str, intent: str = "do it", **reported: Any) -> StepTrace:
    """The next step of a run, given as in `a_trace`; it writes one memory, `run-step`, unless it says what it wrote."""
    step = bank.next_step(run)
    reported = {"wrote": [f"{run}-{step:04d}"], **reported}
    trace = a_trace(run, step, task, intent, **reported)
    bank.write.commit_step(trace, {m: a_vector(step * 10 + n) for n, m in enumerate(reported["wrote"])})
    return trace


def go_on(bank: MemoryBank, run: str, steps: int) -> None:
    """A run does so many more steps with the parts that it began with."""
    live = live_run(bank, run, Preferences())
    live.run_many(steps)
    assert live.wait(60)
    assert live.error is None
