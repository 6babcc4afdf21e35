"""Functions of MySQL that SQLite lacks or means otherwise; each is called `mysql_` and its name.

As in MySQL a function gives NULL for what it cannot use, and text counts as the number it begins with. Dates are texts
like "2024-03-01" and "2024-03-01 12:30:00". Run as a program, this is the sandbox's process with these functions.
"""

from __future__ import annotations

import calendar
import math
import re
import sqlite3
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal, localcontext
from functools import partial
from typing import Any

import regex

PREFIX = "mysql_"
NOW = datetime(2025, 1, 1)
"""What the clock shows, always: the same statement gives the same rows on every day."""

SEARCHING = 0.5
"""Seconds for a pattern in one text."""

_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


# --- numbers and texts ------------------------------------------------------------------------------------------------


def number(value: Any) -> int | float:
    """A value that is not NULL as a number: a text as the number it begins with, 0 when it begins with none."""
    if isinstance(value, int | float):
        return value
    found = _NUMBER.match(text(value))
    if found is None:
        return 0
    return int(found.group()) if found.group().strip().lstrip("+-").isdecimal() else float(found.group())


def text(value: Any) -> str:
    """A value that is not NULL, as MySQL writes it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)


def rounded(value: Any, digits: Any = 0, how: str = ROUND_HALF_UP) -> int | float:
    """Rounded as MySQL rounds its exact numbers: half away from zero, 15 digits of a float being taken as meant."""
    given = number(value)
    places = max(-30, min(30, int(digits)))
    if not math.isfinite(given) or (isinstance(given, int) and places >= 0):
        return given
    with localcontext(prec=80):
        meant = Decimal(given) if isinstance(given, int) else Decimal(f"{given:.15g}")
        done = meant.quantize(Decimal(1).scaleb(-places), rounding=how)
    return float(done) if isinstance(given, float) else int(done)


def whole(value: Any) -> Any:
    """What a column of whole numbers stores: a number rounded, also one in a text; other text stays as it is."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.rstrip()):
        value = number(value)
    return int(rounded(value)) if isinstance(value, float) and math.isfinite(value) else value


def _modulo(value: Any, by: Any) -> int | float:
    """The rest of a division, with the sign of what was divided. Raises `ValueError` for a division by 0."""
    rest = math.fmod(number(value), number(by))
    return int(rest) if isinstance(number(value), int) and isinstance(number(by), int) else rest


def _cast(value: Any, kind: str, digits: Any = 0) -> Any:
    """CAST: a number given as text loses what follows its whole part, any other is rounded."""
    if kind == "SIGNED":
        return int(number(value) if isinstance(value, str) else rounded(value))
    if kind == "DECIMAL":
        return rounded(value, digits)
    if kind == "DOUBLE":
        return float(number(value))
    return text(value)[: int(digits)] if digits else text(value)


def _extreme(*values: Any, best: Callable[..., Any]) -> Any:
    """GREATEST and LEAST; as texts when all are."""
    is_text = all(isinstance(value, str) for value in values)
    return best(values, key=str.lower) if is_text else best(map(number, values))


def _concat_ws(separator: Any, *values: Any) -> str | None:
    """The texts that are not NULL, with a separator between them."""
    return None if separator is None else text(separator).join(text(v) for v in values if v is not None)


def _substring(value: Any, start: Any, length: Any = None) -> str:
    """From the position `start`, counted from 1, or from the end when it is negative."""
    string, first = text(value), int(rounded(start))
    if first == 0 or first < -len(string):
        return ""
    kept = string[first - 1 :] if first > 0 else string[first:]
    return kept if length is None else kept[: max(0, int(rounded(length)))]


def _locate(part: Any, value: Any, start: Any = 1) -> int:
    """The position of a part, from 1; 0 when it is not there. Case does not count."""
    return text(value).lower().find(text(part).lower(), max(0, int(start) - 1)) + 1


def _substring_index(value: Any, delimiter: Any, count: Any) -> str:
    """What stands before the delimiter number `count`, or, when that is negative, after it counted from the end."""
    parts, wanted = text(value).split(text(delimiter)), int(count)
    return text(delimiter).join(parts[:wanted] if wanted > 0 else parts[wanted:] if wanted < 0 else [])


def _padded(value: Any, length: Any, filler: Any, left: bool) -> str:
    """Brought to a length."""
    string, wanted = text(value), max(0, int(length))
    missing = (text(filler) * wanted)[: max(0, wanted - len(string))]
    return (missing + string if left else string + missing)[:wanted]


def _regexp(value: Any, pattern: Any) -> int:
    """Whether a pattern is found in a text; case does not count. Raises `TimeoutError` after `SEARCHING` seconds."""
    return int(regex.search(text(pattern), text(value), regex.IGNORECASE, timeout=SEARCHING) is not None)


# --- dates and times --------------------------------------------------------------------------------------------------

_MONTHS = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
_SECONDS = {"WEEK": 604_800, "DAY": 86_400, "HOUR": 3_600, "MINUTE": 60, "SECOND": 1}
_WRITTEN = {
    **{same: f"%{same}" for same in "YymdbaHIjp"},
    **{"i": "%M", "s": "%S", "S": "%S", "M": "%B", "W": "%A", "h": "%I", "T": "%H:%M:%S"},
    **{"c": "%-m", "e": "%-d", "k": "%-H", "l": "%-I"},
}
"""MySQL's codes of a layout as Python has them."""


def moment(value: Any) -> datetime:
    """The date and time in a text. Raises `ValueError` when there is none."""
    return datetime.fromisoformat(text(value).strip())


def _moment_text(when: datetime, like: Any = "") -> str:
    """A moment as MySQL writes it; without its time where the value that it comes from has none."""
    return when.isoformat(" ") if when.time() != datetime.min.time() or ":" in str(like) else date.isoformat(when)


def _later(value: Any, count: Any, unit: str, sign: int = 1) -> str:
    """A date moved by so many units; with a time when it had one or the unit is smaller than a day."""
    when, steps = moment(value), sign * int(rounded(count))
    if unit in _SECONDS:
        return _moment_text(when + timedelta(seconds=steps * _SECONDS[unit]), value)
    year, month = divmod(when.year * 12 + when.month - 1 + steps * _MONTHS[unit], 12)
    day = min(when.day, calendar.monthrange(year, month + 1)[1])
    return _moment_text(when.replace(year=year, month=month + 1, day=day), value)


def _between(unit: str, first: Any, second: Any) -> int:
    """TIMESTAMPDIFF: whole units from the first to the second moment."""
    start, end = moment(first), moment(second)
    if unit in _SECONDS:
        return int((end - start).total_seconds() / _SECONDS[unit])
    if end < start:
        return -_between(unit, second, first)
    months = (end.year - start.year) * 12 + end.month - start.month
    return (months - ((end.day, end.time()) < (start.day, start.time()))) // _MONTHS[unit]


def _formatted(value: Any, pattern: Any) -> str:
    """DATE_FORMAT."""
    layout = re.sub(r"%(.)", lambda found: _WRITTEN.get(found.group(1), found.group(1)), str(pattern))
    return moment(value).strftime(layout)


# --- all of them by name ----------------------------------------------------------------------------------------------

SCALARS: Mapping[str, Callable[..., Any]] = {
    "number": number,
    "cast": _cast,
    "mod": _modulo,
    "round": rounded,
    "truncate": lambda x, d: rounded(x, d, ROUND_DOWN),
    "greatest": partial(_extreme, best=max),
    "least": partial(_extreme, best=min),
    "concat": lambda *values: "".join(map(text, values)),
    "left": lambda x, n: text(x)[: max(0, int(n))],
    "right": lambda x, n: text(x)[-int(n) :] if int(n) > 0 else "",
    **dict.fromkeys(("substring", "substr", "mid"), _substring),
    "substring_index": _substring_index,
    "lpad": partial(_padded, left=True),
    "rpad": partial(_padded, left=False),
    "reverse": lambda x: text(x)[::-1],
    "repeat": lambda x, n: text(x) * int(n),
    **dict.fromkeys(("lower", "lcase"), lambda x: text(x).lower()),
    **dict.fromkeys(("upper", "ucase"), lambda x: text(x).upper()),
    "length": lambda x: len(text(x).encode()),
    **dict.fromkeys(("char_length", "character_length"), lambda x: len(text(x))),
    "instr": lambda x, part: _locate(part, x),
    "locate": _locate,
    "regexp": _regexp,
    "now": lambda *_: NOW.isoformat(" "),
    "curdate": lambda: NOW.isoformat()[:10],
    "date": lambda x: date.isoformat(moment(x)),
    **{part: (lambda x, part=part: getattr(moment(x), part)) for part in ("year", "month", "day", "hour", "minute")},
    "dayname": lambda x: f"{moment(x):%A}",
    "monthname": lambda x: f"{moment(x):%B}",
    "datediff": lambda x, y: moment(x).toordinal() - moment(y).toordinal(),
    "timestampdiff": _between,
    "date_add": _later,
    "date_sub": partial(_later, sign=-1),
    "date_format": _formatted,
}
"""Functions that are NULL when an argument is, by name in lower case."""

_TAKING_NULL: Mapping[str, Callable[..., Any]] = {
    "whole": whole,
    "concat_ws": _concat_ws,
    "isnull": lambda x: int(x is None),
}

AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    **dict.fromkeys(("std", "stddev", "stddev_pop"), statistics.pstdev),
    **dict.fromkeys(("variance", "var_pop"), statistics.pvariance),
    "stddev_samp": statistics.stdev,
    "var_samp": statistics.variance,
}
"""Functions of the numbers in many rows, by name in lower case."""

NAMES = frozenset(PREFIX + name for name in (*SCALARS, *_TAKING_NULL, *AGGREGATES))
"""Every name that `register` gives a function to."""


def register(connection: sqlite3.Connection) -> None:
    """Give a connection all of them."""
    for functions, null in ((SCALARS, True), (_TAKING_NULL, False)):
        for name, function in functions.items():
            connection.create_function(PREFIX + name, -1, _careful(function, null=null), deterministic=True)
    for name, measure in AGGREGATES.items():
        connection.create_aggregate(PREFIX + name, 1, _aggregate(measure))


def _careful(function: Callable[..., Any], *, null: bool) -> Callable[..., Any]:
    def called(*values: Any) -> Any:
        if null and None in values:
            return None
        try:
            return function(*values)
        except (ValueError, LookupError, ArithmeticError, RecursionError, regex.error):
            return None

    return called


def _aggregate(measure: Callable[[Sequence[float]], float]) -> type[Any]:
    """Class for `create_aggregate` that gives all numbers to a function; NULL where that has too few."""

    class Gathered:
        def __init__(self) -> None:
            self.values: list[float] = []

        def step(self, value: Any) -> None:
            if value is not None:
                self.values.append(float(number(value)))

        def finalize(self) -> Any:
            try:
                return measure(self.values)
            except statistics.StatisticsError:
                return None

    return Gathered


if __name__ == "__main__":
    from memrl_core.environments.child import serve
    from memrl_core.environments.databases.sandbox_child import Database

    serve(Database(register, NAMES).answer)
