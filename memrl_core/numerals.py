"""How numbers are written on screens, in the terminal and in reports: one minus sign, one thousands separator.

A table's column keeps one precision: `signed` for q, rewards and their moves, `percent` for shares, `weight` for λ.
"""

from __future__ import annotations

MINUS = "−"
NOTHING = "–"
"""What stands where there is no number."""


def fixed(value: float, places: int = 3) -> str:
    """The number with so many decimals and a true minus sign; never "−0.000"."""
    text = f"{value:,.{places}f}"
    return text.lstrip("-") if float(text.replace(",", "")) == 0 else text.replace("-", MINUS)


def signed(value: float, places: int = 3) -> str:
    """The number with so many decimals and its sign always shown, and never "−0.000"."""
    text = fixed(value, places)
    return text if text.startswith(MINUS) else f"+{text}"


def short(value: float) -> str:
    """The number as short as it is (1, 0.25, −0.5), with a true minus sign."""
    return f"{value:g}".replace("-", MINUS)


def percent(share: float, places: int = 1) -> str:
    """A share as per cent: 0.8333 is 83.3 %."""
    return f"{fixed(100 * share, places)} %"


def weight(value: float) -> str:
    """A λ with four decimals."""
    return fixed(value, 4)


def counted(count: int, noun: str) -> str:
    """A number of things: "1 step", "2 steps", "1,024 memories"."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def dimensions(count: int) -> str:
    """The size of an embedding: "1,024 dimensions"."""
    return f"{count:,} dimension{'' if count == 1 else 's'}"
