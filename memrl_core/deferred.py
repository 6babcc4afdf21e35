"""Fields of a frozen record that are made when they are first asked for.

Whoever reads such a record cannot tell: it has the same class, and the same values, equality, text and pickle as one
that was made at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar


class Source(Protocol):
    """What makes fields of a record."""

    def __call__(self) -> Mapping[str, object]:
        """The fields by name; the same values each time."""


class Deferring:
    """What a frozen dataclass with slots has to inherit from for `deferred` to leave fields of it unmade."""

    __slots__ = ("_source",)

    _source: Source | None

    if not TYPE_CHECKING:  # A type checker would take every misspelt name for an attribute.

        def __getattr__(self, name: str) -> object:
            if name not in type(self).__slots__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            source = self._source
            if source is not None:
                for field, value in source().items():
                    object.__setattr__(self, field, value)
                # Last, because another thread that finds no source takes the fields for made.
                object.__setattr__(self, "_source", None)
            return object.__getattribute__(self, name)


Record = TypeVar("Record", bound=Deferring)


def deferred(record: Record, source: Source, *names: str) -> Record:
    """`record`, which nobody else has seen yet, with the fields `names` made by `source` when one is first read."""
    for name in names:
        object.__delattr__(record, name)
    object.__setattr__(record, "_source", source)
    return record


def source_of(record: Deferring) -> Source | None:
    """What will make the fields of a record that are still unmade; None when it has them all."""
    try:
        return record._source
    except AttributeError:
        return None
