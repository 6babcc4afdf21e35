"""Which steps of a run a table shows, and in which order: the same on the page and in its address."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from memrl_core.analysis.decision.labels import memory_named
from memrl_core.analysis.people.linked_filter import Linked
from memrl_core.bank.step_search import SortKey, StepQuery

YES_NO = {"": None, "yes": True, "no": False}


class StepFilter(Linked):
    """A filter of the table of steps; everything is let in by default."""

    task: str = Field("", max_length=200, title="Task", description="Part of a task's id or intent.")
    outcome: Literal["", "success", "failure", "unrated"] = Field("", title="Outcome", description="As the step ended.")
    by: Literal["", "environment", "person", "nobody"] = Field(
        "", title="Reward by", description="Who gave a reward that stands now."
    )
    empty: Literal["", "yes", "no"] = Field("", title="Empty pool", description="Whether no memory was recalled.")
    reranked: Literal["", "yes", "no"] = Field(
        "", title="Rank changed", description="Whether a recalled memory changed its rank from phase A to phase B."
    )
    pooled: str = Field("", max_length=200, title="Memory in the pool", description="A memory's id, or its number.")
    sort: SortKey = Field("step", title="Sorted by", description="A column of the table.")
    order: Literal["up", "down"] = Field("up", title="Order", description="up: the smallest first.")

    def query(self, run: str) -> StepQuery:
        """The same, asked of a bank."""
        return StepQuery(
            task=self.task.strip(),
            outcome=self.outcome,
            source=self.by,
            empty_pool=YES_NO[self.empty],
            reranked=YES_NO[self.reranked],
            memory=memory_named(self.pooled, run),
            sort=self.sort,
            descending=self.order == "down",
        )

    @property
    def lets_all_in(self) -> bool:
        """Whether it leaves no step out."""
        return not any((self.task.strip(), self.outcome, self.by, self.empty, self.reranked, self.pooled.strip()))
