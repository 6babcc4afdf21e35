"""The beginnings of runs that a damaged ledger has lost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from memrl_core.bank import codec
from memrl_core.bank.faults import payload_in
from memrl_core.bank.mended import Mended
from memrl_core.records import EventKind, LedgerEvent, RunInfo, StepTrace


def let_runs_begin(made: Mended, traces: Mapping[str, StepTrace]) -> None:
    """Let runs that have lost their beginning begin again, by their first step or like another; else set them aside."""
    known = {info.id: info for info in made.runs()}
    first = {trace.run: trace for trace in sorted(traces.values(), key=lambda trace: -trace.step)}
    kinds = [e for e in made.ledger.values() if e["kind"] != EventKind.ROLE_ASSIGNED]
    named = dict.fromkeys([*(trace.run for trace in traces.values()), *(e["run"] for e in kinds)])
    for run in named.keys() - known.keys():
        info = _begun(run, first.get(run), next(iter(known.values()), None))
        if info is None or not run:
            for event in [e for e in kinds if e["run"] == run]:
                made.set_aside("ledger", made.ledger.pop(event["id"]), "belongs to a run that never begins")
            continue
        seq = min((e["seq"] for e in kinds if e["run"] == run), default=1)
        again = LedgerEvent(
            f"{run}:begun-again",
            max(0, seq - 1),
            run,
            0,
            "",
            0,
            EventKind.RUN_STARTED,
            payload=codec.run_payload(info),
            created=info.created,
        )
        made.add_event(again)
        made.told.append(
            f"The beginning of run {run[:80]} was lost. It begins again with what its steps tell; its seed, its tasks "
            "and the options of its environment are not known."
        )
    begun = {info.id for info in made.runs()}
    for event in [e for e in made.ledger.values() if e["kind"] == EventKind.RUN_STARTED]:
        payload = payload_in(event) or {}
        if payload.get("base") is not None and payload["base"] not in begun:
            made.set_aside("ledger", dict(event), "goes on from a run that is not there")
            info = replace(codec.run_of(payload), base=None, base_step=0)
            made.ledger[event["id"]] = {**event, "payload": json.dumps(codec.run_payload(info))}
            made.rebuilt["ledger"] += 1
            made.told.append(f"Run {event['run'][:80]} went on from a run that is lost; it begins with nothing now.")


def _begun(run: str, first: StepTrace | None, other: RunInfo | None) -> RunInfo | None:
    if first is None:
        return None if other is None else replace(other, id=run, base=None, base_step=0, tasks="", task_count=0)
    embedder = first.embed.embedder if first.embed else other.embedder if other else ""
    return RunInfo(
        id=run,
        environment=first.task.environment,
        tasks="",
        policy=first.policy,
        settings=first.settings or (other.settings if other else {}),
        seed=0,
        model=first.generate.model if first.generate else "",
        simulated=first.generate.simulated if first.generate else False,
        embedder=embedder,
        base=None,
        base_step=0,
        created=first.started,
        first_step=first.step,
    )
