"""Steps whose records are lost stay ended, by what they left in the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, get_args

from memrl_core.bank.faults import Row
from memrl_core.bank.ledger import now
from memrl_core.bank.mended import Mended, step_row
from memrl_core.records import EventKind, Outcome, RewardRecord, StepTrace, Task

ONLY_THAT = "everything but that it ended and what it earned: its record was damaged"


def stand_in(made: Mended, traces: dict[str, StepTrace], rows: Iterable[Row], steps_lost: bool) -> None:
    """Let steps whose record is gone stay ended: what they earned counts on, and the memories they wrote are seen."""
    attempts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in made.ledger.values():
        if event["step_id"] and event["id"].startswith(f"{event['step_id']}:"):
            attempts[event["step_id"]].append(event)
    taken = {(trace.run, trace.step) for trace in traces.values()}
    newest = {run: max(step for other, step in taken if other == run) for run, _ in taken}
    stood_in: dict[str, list[int]] = defaultdict(list)
    damaged = {row["id"]: row for row in rows if _names_a_step(row) and row["id"] not in traces}
    for step_id, events in sorted(attempts.items(), key=lambda item: -item[1][0]["seq"]):
        run, step = events[0]["run"], events[0]["step"]
        ended = step_id in damaged or steps_lost or step < newest.get(run, 0)
        if ended and step_id not in traces and (run, step) not in taken:
            taken.add((run, step))
            stood_in[run].append(step)
            _add_stand_in(made, traces, step_id, run, step, damaged.get(step_id, {}), events)
    for step_id, row in damaged.items():
        if step_id not in traces and (row["run"], row["step"]) not in taken:
            taken.add((row["run"], row["step"]))
            stood_in[row["run"]].append(row["step"])
            _add_stand_in(made, traces, step_id, row["run"], row["step"], row, ())
    made.told += [_told(run, sorted(steps)) for run, steps in stood_in.items()]


def _told(run: str, steps: Sequence[int]) -> str:
    if len(steps) == 1:
        return f"Of step {steps[0]} of run {run[:80]} it is still known that it ended and what it earned."
    which = f"steps {steps[0]} to {steps[-1]}"
    if steps[-1] - steps[0] >= len(steps):
        which = f"{len(steps)} steps between {steps[0]} and {steps[-1]}"
    return f"Of {which} of run {run[:80]} it is still known that they ended and what they earned."


def _names_a_step(row: Row) -> bool:
    named = isinstance(row.get("id"), str) and isinstance(row.get("run"), str) and isinstance(row.get("step"), int)
    return named and row["id"] != ""


def _add_stand_in(
    made: Mended,
    traces: dict[str, StepTrace],
    step_id: str,
    run: str,
    step: int,
    row: Row,
    events: Sequence[Row],
) -> None:
    info = next((info for info in made.runs() if info.id == run), None)
    given = next((e for e in events if e["kind"] == EventKind.REWARD_GIVEN and e["source"] == "environment"), None)
    reward = None
    if given is not None:
        came: Outcome = next((one for one in get_args(Outcome) if one == row.get("outcome")), "unrated")
        reward = RewardRecord(given["value"], "environment", came, "", "", "", tuple(given["memory_ids"] or ()))
    trace = StepTrace(
        id=step_id,
        run=run,
        step=step,
        epoch=row["epoch"] if isinstance(row.get("epoch"), int) else 1,
        task=Task(str(row.get("task") or ""), "", info.environment if info else ""),
        policy=info.policy if info else "memrl",
        settings=info.settings if info else {},
        started=str(row.get("created") or (events[0]["created"] if events else now())),
        reward=reward,
        origin="import",
        lacks=(ONLY_THAT,),
    )
    traces[step_id] = trace
    made.steps[step_id] = step_row(trace, row, None)
    made.rebuilt["steps"] += 1
