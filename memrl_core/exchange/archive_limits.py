"""How much a file may become when it is unfolded, counted while it is read and not believed beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from memrl_core.errors import InputError
from memrl_core.exchange.archive_format import AGAIN, NOTHING, reason_of

LARGEST = 4 * 2**30
LONGEST_LINE = 64 * 2**20
LARGEST_RATIO = 200
RATIO_FROM = 64 * 2**20
"""Below this many bytes unfolded, no ratio is suspicious: a short file may well repeat itself."""
LINES_NAMED = 5


class BudgetSpent(Exception):
    """A file became larger than it may; the text is a clause."""


class Budget:
    """How many more bytes may be read of one import."""

    def __init__(self, size: int | None = None) -> None:
        self._size = LARGEST if size is None else size
        self._spent = 0

    def spend(self, size: int) -> None:
        """Count bytes that were read. Raises `BudgetSpent`."""
        self._spent += size
        if self._spent > self._size:
            raise BudgetSpent(f"unfolds to more than {self._size / 2**20:,.0f} MB")


def must_not_swell(name: str, unfolded: int, stored: int) -> None:
    """Raise `InputError` when `stored` bytes say that they unfold to more than a bank plausibly does."""
    if unfolded > LARGEST:
        raise InputError(f"{name} unfolds to {unfolded / 2**20:,.0f} MB. {NOTHING} Import a smaller bank.")
    if unfolded > RATIO_FROM and unfolded > LARGEST_RATIO * max(stored, 1):
        raise InputError(
            f"{name} unfolds to more than {LARGEST_RATIO} times its size, as no bank does. {NOTHING} "
            "Take a copy from someone you trust."
        )


def lines_of(stream: BinaryIO, name: str, budget: Budget) -> Iterator[tuple[int, bytes]]:
    """The lines that hold something, numbered from 1. Raises `InputError` for one that is too long, or too many."""
    number = 0
    try:
        while line := stream.readline(LONGEST_LINE + 1):
            number += 1
            budget.spend(len(line))
            if len(line) > LONGEST_LINE:
                raise InputError(f"Line {number} of {name} is longer than {LONGEST_LINE // 2**20} MB. {AGAIN}")
            if line.strip():
                yield number, line
    except BudgetSpent as error:
        raise InputError(f"{name} {error}. {NOTHING} Import a smaller bank.") from error


class BadLines:
    """The lines (or rows) of one file that could not be read."""

    def __init__(self, name: str, what: str = "line") -> None:
        self._name = name
        self._what = what
        self._numbers: list[int] = []
        self._count = 0
        self._reason = ""

    def note(self, number: int, error: Exception) -> None:
        """Remember a line and, of the first, what was wrong with it."""
        self._count += 1
        self._reason = self._reason or reason_of(error)
        if len(self._numbers) < LINES_NAMED:
            self._numbers.append(number)

    def refuse(self) -> None:
        """Raise `InputError` with the numbers of the lines, if there are any."""
        if not self._count:
            return
        numbers = ", ".join(map(str, self._numbers))
        more = f" and {self._count - LINES_NAMED:,} more" if self._count > LINES_NAMED else ""
        lines = self._what if self._count == 1 else f"{self._what}s"
        raise InputError(f"{self._name} cannot be read in {lines} {numbers}{more}: {self._reason}. {AGAIN}")
