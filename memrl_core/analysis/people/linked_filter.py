"""Filters that stand in a link: the same on a page, in its address and in the core."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from memrl_core.analysis.decision.labels import memory_named
from memrl_core.bank.step_search import SortKey, StepQuery


class Linked(BaseModel):
    """What is asked for, as it stands in the address of a page."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_query(self) -> dict[str, str]:
        """What differs from the default, as parameters of a URL."""
        return {name: str(value) for name, value in self.model_dump(mode="json", exclude_defaults=True).items()}

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> tuple[Self, list[str]]:
        """The filter in the parameters of a URL, and a sentence for each value that cannot be; other names are ignored.

        Such a value is left at its default.
        """
        named = {name: query[name] for name in cls.model_fields if name in query}
        try:
            return cls.model_validate_strings(named), []
        except ValidationError as error:
            wrong = {str(problem["loc"][0]): problem["msg"] for problem in error.errors(include_url=False)}
        sentences = [
            f"The link's {name} “{named[name][:80]}” cannot be used: {_lower(message.removeprefix('Value error, '))}. "
            "The default was taken; choose another if you want one."
            for name, message in wrong.items()
        ]
        return cls.model_validate_strings({name: text for name, text in named.items() if name not in wrong}), sentences


class LinkedFilter(Linked):
    """What is asked for between two days; subclasses add what else can be asked."""

    run: str = Field("", title="Run", description="Of this run only; of every run when empty.")
    since: date | None = Field(None, title="From", description="From this day (UTC) on.")
    until: date | None = Field(None, title="To", description="Up to and with this day (UTC).")

    @field_validator("since", "until", mode="before")
    @classmethod
    def _written_day(cls, given: Any) -> Any:
        """Pydantic would also read text of digits as seconds since 1970."""
        if not isinstance(given, str):
            return given
        try:
            return date.fromisoformat(given)
        except ValueError:
            raise ValueError("a day is written like 2026-01-31") from None

    def holds(self, created: str) -> bool:
        """Whether a moment (ISO 8601, UTC) lies within the days asked for."""
        day = created[:10]
        return (self.since is None or day >= self.since.isoformat()) and (
            self.until is None or day <= self.until.isoformat()
        )


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:]


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
