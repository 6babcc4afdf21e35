"""No memory: the control arm. Source: arXiv 2601.03192, baselines without memory."""

from __future__ import annotations

from memrl_core.policies.base import Ask, NewExperience, Policy, PolicySpec, Vector, When, Written
from memrl_core.policies.ranking import Chosen, ranked
from memrl_core.records import Decision, Reason, RecallRecord
from memrl_core.retrieval.view import Asked, MemoryView
from memrl_core.settings import PolicySettings

WHY = "this method has no memory"


def nothing_selected(recalled: RecallRecord, view: MemoryView, seed: int, note: str) -> Decision:
    """A phase B that leaves the pool alone, also where it is another policy's."""
    silent = Chosen((), "silent", reasons=dict.fromkeys(range(len(recalled.pool)), Reason.KEPT_SILENT))
    return ranked(recalled, view, (), k2=0, seed=seed, chosen=silent if recalled.pool else None, note=note)


class NoMemory(Policy[PolicySettings]):
    """Every task is met as if it were the first."""

    why = WHY
    wants_summary = False
    ignored = (
        "k1", "k1_counts", "delta", "k2", "ties", "exclude_same_task", "batch_size", "duplicates",
        "duplicate_threshold",
    )  # fmt: skip

    spec = PolicySpec(
        name="none",
        title="No memory",
        citation="control arm (arXiv 2601.03192, baselines)",
        variant="paper",
        deviations=(),
        idea="The model answers without any memory. What the other methods gain, they gain over this.",
        record="None.",
        when="Never.",
        recall="Nothing.",
        select="Nothing.",
        update="Nothing: rewards are recorded and change no value.",
        write="Nothing.",
        cannot="It cannot learn: a task that failed is met again as if for the first time, and only luck solves it.",
        carries_over="Nothing: memories of another policy stay in the bank and are not read.",
        learns="nothing",
        feedback=(),
    )

    def when(self, asked: Asked) -> When:
        """Never."""
        return When(False, self.why)

    def recall(self, query: Vector, view: MemoryView, coarse: Vector | None = None) -> RecallRecord:
        """Nothing."""
        return RecallRecord(0, "record", -1.0, False, view.size, (), (), rule="nothing", why=self.why)

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """Nothing."""
        return nothing_selected(recalled, view, seed, self.why)

    def write(self, new: NewExperience, view: MemoryView, ask: Ask) -> tuple[Written, ...]:
        """Nothing."""
        return ()
