"""How figures and aims are told in a terminal and in files: three digits, and a unit that suits them."""

from __future__ import annotations

from benchmarks.measuring import Row

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def figure(value: float) -> str:
    """A number with three digits, or all those before the point."""
    size = abs(value)
    if size == 0 or size >= 99.95:
        return f"{value:,.0f}"
    if size < 0.001:
        return f"{value:.1e}"
    decimals = 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
    return f"{value:.{decimals}f}"


def duration(seconds: float) -> str:
    """Seconds in s, ms or µs."""
    scale, unit = next((each for each in UNITS if abs(seconds) >= 0.9995 * each[0]), UNITS[-1])
    return f"{figure(seconds / scale)} {unit}"


def ratio(value: float) -> str:
    """How many times as long."""
    return f"{figure(value)} ×"


def aim_of(row: Row) -> str:
    """What a row has to keep to, in words; empty without an aim."""
    if row.aim is None:
        return ""
    limit = row.aim.limit
    told = {
        "ratio": lambda: f"{limit:g} ×",
        "over_s": lambda: f"{_round(limit)} more",
        "median_s": lambda: _round(limit),
        "value": lambda: f"{limit:,g} {row.unit}".rstrip(),
    }[row.aim.of]()
    return f"{'≥' if row.aim.at_least else '≤'} {told}"


def _round(seconds: float) -> str:
    """A limit as somebody would say it: no digits that nobody set."""
    scale, unit = next((each for each in UNITS if seconds >= 0.9995 * each[0]), UNITS[-1])
    return f"{seconds / scale:g} {unit}"
