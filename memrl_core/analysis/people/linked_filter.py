"""A filter that stands in a link: the same on a page, in its address and in the core."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator


class LinkedFilter(BaseModel):
    """What is asked for between two days, as it stands in the address of a page; subclasses add what else can be."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    run: str = Field("", title="Run", description="Of this run only; of every run when empty.")
    since: date | None = Field(None, title="From", description="From this day (UTC) on.")
    until: date | None = Field(None, title="To", description="Up to and with this day (UTC).")

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
