"""MySQL's functions of dates, on texts like "2024-03-01" and "2024-03-01 12:30:00"."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

NOW = datetime(2025, 1, 1)
"""What the clock shows, always: the same statement gives the same rows on every day."""

_MONTHS = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
_SECONDS = {"WEEK": 604_800, "DAY": 86_400, "HOUR": 3_600, "MINUTE": 60, "SECOND": 1}
_MOMENT = re.compile(r"\s*(\d{4})[-/.]?(\d{1,2})[-/.]?(\d{1,2})(?:[T ]+(\d{1,2}):(\d{1,2})(?::(\d{1,2}))?)?")
_CODES = {code: "%" + code for code in "YymdHIpjUab"} | {
    "M": "%B", "W": "%A", "h": "%I", "i": "%M", "s": "%S", "S": "%S", "T": "%H:%M:%S", "r": "%I:%M:%S %p",
}  # fmt: skip
"""Codes of DATE_FORMAT as `strftime` has them."""


def moment(value: Any) -> datetime:
    """The date and time in a text or number. Raises `ValueError` when there is none."""
    found = _MOMENT.match(str(value))
    if found is None:
        raise ValueError("no date")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups())
    return datetime(year, month, day, hour, minute, second)


def day_text(when: datetime) -> str:
    """As MySQL writes a date."""
    return f"{when:%Y-%m-%d}"


def moment_text(when: datetime) -> str:
    """As MySQL writes a date with its time."""
    return f"{when:%Y-%m-%d %H:%M:%S}"


def later(value: Any, count: Any, unit: str, sign: int = 1) -> str:
    """A date moved by so many units; with a time when it had one or the unit is smaller than a day.

    Raises `ValueError` for what is no date and no number, and `KeyError` for the unit.
    """
    when, steps = moment(value), sign * float(str(count))
    if unit in _MONTHS:
        year, month = divmod(when.year * 12 + when.month - 1 + round(steps) * _MONTHS[unit], 12)
        day = min(when.day, calendar.monthrange(year, month + 1)[1])
        moved = when.replace(year=year, month=month + 1, day=day)
    else:
        moved = when + timedelta(seconds=steps * _SECONDS[unit])
    timed = ":" in str(value) or unit in ("HOUR", "MINUTE", "SECOND")
    return moment_text(moved) if timed else day_text(moved)


def between(unit: str, first: Any, second: Any) -> int:
    """TIMESTAMPDIFF: whole units from the first to the second moment. Raises `ValueError`, `KeyError` for the unit."""
    start, end = moment(first), moment(second)
    if unit in _SECONDS:
        return int((end - start).total_seconds() / _SECONDS[unit])
    if end < start:
        return -between(unit, second, first)
    months = (end.year - start.year) * 12 + end.month - start.month
    months -= (end.day, end.time()) < (start.day, start.time())
    return months // _MONTHS[unit]


def part(unit: str, value: Any) -> int:
    """One part of a date. Raises `ValueError`, `KeyError` for the unit."""
    when = moment(value)
    return {
        "YEAR": when.year, "QUARTER": (when.month + 2) // 3, "MONTH": when.month, "WEEK": int(f"{when:%U}"),
        "DAY": when.day, "HOUR": when.hour, "MINUTE": when.minute, "SECOND": when.second,
        "YEAR_MONTH": when.year * 100 + when.month,
    }[unit]  # fmt: skip


def formatted(value: Any, pattern: Any) -> str:
    """DATE_FORMAT. Raises `ValueError` for what is no date."""
    when = moment(value)
    plain = {"e": when.day, "c": when.month, "k": when.hour, "l": when.hour % 12 or 12}

    def written(found: re.Match[str]) -> str:
        code = found.group(1)
        return str(plain[code]) if code in plain else when.strftime(_CODES[code]) if code in _CODES else code

    return re.sub(r"%(.)", written, str(pattern))


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "now": lambda *_: moment_text(NOW),
    "curdate": lambda: day_text(NOW),
    "date": lambda x: day_text(moment(x)),
    "datetime": lambda x: moment_text(moment(x)),
    **{unit.lower(): partial(part, unit) for unit in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE")},
    "dayofmonth": partial(part, "DAY"),
    "dayofyear": lambda x: moment(x).timetuple().tm_yday,
    "dayofweek": lambda x: moment(x).isoweekday() % 7 + 1,
    "weekday": lambda x: moment(x).weekday(),
    "dayname": lambda x: f"{moment(x):%A}",
    "monthname": lambda x: f"{moment(x):%B}",
    "extract": part,
    "last_day": lambda x: day_text(moment(x).replace(day=calendar.monthrange(moment(x).year, moment(x).month)[1])),
    "datediff": lambda x, y: moment(x).toordinal() - moment(y).toordinal(),
    "timestampdiff": between,
    "date_add": later,
    "date_sub": partial(later, sign=-1),
    "date_format": formatted,
}
"""By name in lower case; units are given as texts in capitals."""
