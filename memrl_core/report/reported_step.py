"""What a report is made from: one finished step with everything the bank knows of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memrl_core.analysis.decision.labels import memory_label, weights_label
from memrl_core.bank import MemoryBank
from memrl_core.records import Memory, RunInfo, StepTrace


@dataclass(frozen=True, slots=True)
class ReportedStep:
    """A step with its run, the settings in force, and those of its memories that the bank holds."""

    bank: MemoryBank
    info: RunInfo
    trace: StepTrace
    settings: Mapping[str, Any]
    memories: Mapping[str, Memory]

    def label(self, memory_id: str) -> str:
        """The memory's short name."""
        return memory_label(memory_id, self.info.id)

    def labels(self, memory_ids: Iterable[str]) -> str:
        """Short names in a row."""
        return ", ".join(map(self.label, memory_ids)) or "none"


def reported_step(bank: MemoryBank, run: str, step: int) -> ReportedStep:
    """The step of a run. Raises `UnknownRun`, or `InputError` when the run has no such step."""
    trace = bank.trace(run, step)
    held = set(bank.memory_ids())
    return ReportedStep(
        bank,
        bank.run(run),
        trace,
        {**bank.settings(run, step), **trace.settings},
        {memory_id: bank.memory(memory_id) for memory_id in _named(trace) if memory_id in held},
    )


def bank_name(bank: MemoryBank) -> str:
    """The last part of a bank's address: the rest says where somebody keeps it, which is nobody else's business."""
    return bank.uri.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1]


def model_name(info: RunInfo) -> str:
    """The model of a run with what its server or file reports of it, or that none was at work."""
    if info.simulated:
        return "SIMULATED: no language model was at work"
    weights = weights_label(info.model_facts)
    return f"{info.model} ({weights})" if weights else info.model


def _named(trace: StepTrace) -> Iterator[str]:
    if trace.recall:
        yield from (seen.memory_id for seen in (*trace.recall.pool, *trace.recall.left_out))
    if trace.decision:
        yield from (candidate.memory_id for candidate in trace.decision.candidates)
    if trace.update:
        yield from (change.memory_id for change in trace.update.changes if change.memory_id)
