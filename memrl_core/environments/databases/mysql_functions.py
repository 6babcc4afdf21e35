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

LONGEST_LIST = 1024
"""Characters of a GROUP_CONCAT, by MySQL's default."""

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
    return float(found.group()) if found.group(2) or found.group(1)[0] == "." or found.group(3) else int(found.group())


def text(value: Any) -> str:
    """A value that is not NULL, as MySQL writes it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


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


def _modulo(value: Any, by: Any) -> int | float | None:
    """The rest of a division, with the sign of what was divided; NULL for a division by 0."""
    one, other = number(value), number(by)
    if not other:
        return None
    if isinstance(one, int) and isinstance(other, int):
        return int(math.copysign(abs(one) % abs(other), one))
    return math.fmod(one, other)


def _cast(value: Any, kind: str, digits: Any = 0) -> Any:
    """CAST: a number given as text loses what follows its whole part, any other is rounded."""
    if kind == "SIGNED":
        return int(number(value) if isinstance(value, str) else rounded(value))
    if kind == "DECIMAL":
        return rounded(value, digits)
    if kind == "DOUBLE":
        return float(number(value))
    return text(value)[: int(digits)] if digits else text(value)


def _logarithm(*values: Any) -> float:
    """LOG(x), or LOG(base, x)."""
    given = [float(number(value)) for value in values]
    return math.log(given[-1]) if len(given) == 1 else math.log(given[1], given[0])


def _extreme(*values: Any, best: Callable[..., Any]) -> Any:
    """GREATEST and LEAST; as texts when all are."""
    if all(isinstance(value, str) for value in values):
        return best(values, key=str.lower)
    return best(map(number, values))


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
    first = int(start)
    return text(value).lower().find(text(part).lower(), first - 1) + 1 if first > 0 else 0


def _trim(value: Any, characters: Any = " ", where: str = "BOTH") -> str:
    """Without a text at the start, the end, or both."""
    string, part = text(value), text(characters)
    while part and where != "TRAILING" and string.startswith(part):
        string = string[len(part) :]
    while part and where != "LEADING" and string.endswith(part):
        string = string[: -len(part)]
    return string


def _substring_index(value: Any, delimiter: Any, count: Any) -> str:
    """What stands before the delimiter number `count`, or, when that is negative, after it counted from the end."""
    parts, wanted = text(value).split(text(delimiter)), int(count)
    return text(delimiter).join(parts[:wanted] if wanted > 0 else parts[wanted:] if wanted < 0 else [])


def _padded(value: Any, length: Any, filler: Any, left: bool) -> str:
    """Brought to a length."""
    string, wanted = text(value), max(0, int(length))
    missing = (text(filler) * wanted)[: max(0, wanted - len(string))]
    return (missing + string if left else string + missing)[:wanted]


def _field(value: Any, *values: Any) -> int:
    """The position of a value among others, from 1; 0 when it is not there."""
    return next((n for n, one in enumerate(values, 1) if value is not None and _same_text(one, value)), 0)


def _same_text(one: Any, other: Any) -> bool:
    return one is not None and text(one).lower() == text(other).lower()


def _regexp(value: Any, pattern: Any) -> int:
    """Whether a pattern is found in a text; case does not count. Raises `TimeoutError` after `SEARCHING` seconds."""
    return int(regex.search(text(pattern), text(value), regex.IGNORECASE, timeout=SEARCHING) is not None)


def _like_binary(value: Any, pattern: Any) -> int:
    """LIKE where case counts: % is any text, _ any sign, and a backslash takes the next sign literally."""
    signs = regex.findall(r"\\.|.", text(pattern), regex.DOTALL)
    wanted = "".join({"%": ".*", "_": "."}.get(sign) or regex.escape(sign[-1]) for sign in signs)
    return int(regex.fullmatch(wanted, text(value), regex.DOTALL, timeout=SEARCHING) is not None)


# --- dates and times --------------------------------------------------------------------------------------------------

_MONTHS = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
_SECONDS = {"WEEK": 604_800, "DAY": 86_400, "HOUR": 3_600, "MINUTE": 60, "SECOND": 1}
_OF_A_DAY = ("HOUR", "MINUTE", "SECOND")
_MOMENT = re.compile(
    r"\s*(\d{4})[-/.]?(\d{1,2})[-/.]?(\d{1,2})(?:[T ]+(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?)?"
)
_TIME = re.compile(r"\s*(\d{1,3}):(\d{1,2})(?::(\d{1,2}))?")
_WRITTEN = {
    **{same: f"%{same}" for same in "YymdbaHIjpfwU"},
    **{"i": "%M", "s": "%S", "S": "%S", "M": "%B", "W": "%A", "h": "%I", "x": "%G", "v": "%V"},
    **{"T": "%H:%M:%S", "r": "%I:%M:%S %p"},
}
_UNPADDED = {"c": "%m", "e": "%d", "k": "%H", "l": "%I"}
"""MySQL's codes of a layout as Python has them."""


def moment(value: Any) -> datetime:
    """The date and time in a text or number. Raises `ValueError` when there is none."""
    found = _MOMENT.match(str(value))
    if found is None:
        raise ValueError("no date")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    return datetime(year, month, day, hour, minute, second, int((found.group(7) or "0").ljust(6, "0")))


def _has_time(value: Any) -> bool:
    found = _MOMENT.match(str(value))
    return found is not None and found.group(4) is not None


def _time_of(value: Any) -> tuple[int, int, int]:
    """Hour, minute and second of a text like "12:30:00", with or without a date. Raises `ValueError`."""
    if found := _TIME.match(str(value)):
        hour, minute, second = (int(part or 0) for part in found.groups())
        return hour, minute, second
    when = moment(value)
    return when.hour, when.minute, when.second


_day_text = date.isoformat
"""The date in a moment, as MySQL writes it."""


def _moment_text(when: datetime) -> str:
    return when.isoformat(" ")


def _day_or_moment(value: Any) -> str:
    """A date as MySQL writes it, with its time when that is not midnight."""
    when = moment(value)
    return _moment_text(when) if when.time() != datetime.min.time() else _day_text(when)


def _moment_number(value: Any) -> int:
    """A date, or a date with its time, as the number of its digits."""
    return int(f"{moment(value):{'%Y%m%d%H%M%S' if _has_time(value) else '%Y%m%d'}}")


def stored_moment(value: Any, kind: str) -> Any:
    """What a column of dates ("date"), or of dates with their times, stores; what is no date stays as it is."""
    try:
        return _day_text(moment(value)) if kind == "date" else _moment_text(moment(value))
    except ValueError:
        return value


def _week(value: Any, mode: Any = 0) -> int:
    """The number of the week: from the first Sunday (mode 0), or from Mondays as ISO has it (1: 0 … 53, 3: 1 …)."""
    when = moment(value)
    year, number, _ = when.isocalendar()
    if mode not in (0, 1, 3):
        raise ValueError("mode")
    if mode == 0:
        return int(when.strftime("%U"))
    if mode == 3 or year == when.year:
        return number
    return 0 if year < when.year else 53


def _later(value: Any, count: Any, unit: str) -> str:
    """A date moved by so many units; with a time when it had one or the unit is smaller than a day."""
    when, steps, unit = moment(value), float(str(count)), unit.upper()
    if unit in _OF_A_DAY:
        return _moment_text(when + timedelta(seconds=steps * _SECONDS[unit]))
    if unit in _SECONDS:
        moved = when + timedelta(seconds=round(steps) * _SECONDS[unit])
    else:
        year, month = divmod(when.year * 12 + when.month - 1 + round(steps) * _MONTHS[unit], 12)
        day = min(when.day, calendar.monthrange(year, month + 1)[1])
        moved = when.replace(year=year, month=month + 1, day=day)
    return _moment_text(moved) if _has_time(value) else _day_text(moved)


def _between(unit: str, first: Any, second: Any) -> int:
    """TIMESTAMPDIFF: whole units from the first to the second moment."""
    start, end, unit = moment(first), moment(second), unit.upper()
    if unit in _SECONDS:
        return int((end - start).total_seconds() / _SECONDS[unit])
    if end < start:
        return -_between(unit, second, first)
    months = (end.year - start.year) * 12 + end.month - start.month
    return (months - ((end.day, end.time()) < (start.day, start.time()))) // _MONTHS[unit]


def _part(unit: str, value: Any) -> int:
    """EXTRACT: one part of a date or time."""
    unit = unit.upper()
    if unit in _OF_A_DAY:
        return _time_of(value)[_OF_A_DAY.index(unit)]
    when = moment(value)
    parts = {"QUARTER": (when.month + 2) // 3, "YEAR_MONTH": when.year * 100 + when.month, "WEEK": _week(value)}
    return parts[unit] if unit in parts else {"YEAR": when.year, "MONTH": when.month, "DAY": when.day}[unit]


def _formatted(value: Any, pattern: Any) -> str:
    """DATE_FORMAT."""
    when = moment(value)

    def part(found: re.Match[str]) -> str:
        code = found.group(1)
        if code in _UNPADDED:
            return str(int(when.strftime(_UNPADDED[code])))
        if code == "D":
            ending = "th" if 10 <= when.day <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(when.day % 10, "th")
            return f"{when.day}{ending}"
        return f"{_week(value, 1):02}" if code == "u" else when.strftime(_WRITTEN.get(code, code))

    return re.sub(r"%(.)", part, str(pattern))


def _read(value: Any, pattern: Any) -> str:
    """STR_TO_DATE: the date, with its time when the pattern has one."""
    written = re.sub(r"%(.)", lambda found: (_WRITTEN | _UNPADDED).get(found.group(1), found.group(1)), str(pattern))
    when = datetime.strptime(str(value).strip(), written)
    return _moment_text(when) if re.search("%[HIMS]", written) else _day_text(when)


def _days(value: Any) -> int:
    return moment(value).toordinal() + 365


# --- all of them by name ----------------------------------------------------------------------------------------------

SCALARS: Mapping[str, Callable[..., Any]] = {
    "number": number,
    "cast": _cast,
    "mod": _modulo,
    "abs": lambda x: abs(number(x)),
    "round": rounded,
    "truncate": lambda x, d: rounded(x, d, ROUND_DOWN),
    "floor": lambda x: math.floor(number(x)),
    **dict.fromkeys(("ceil", "ceiling"), lambda x: math.ceil(number(x))),
    **dict.fromkeys(("pow", "power"), lambda x, y: math.pow(number(x), number(y))),
    "sqrt": lambda x: math.sqrt(number(x)),
    "exp": lambda x: math.exp(number(x)),
    **dict.fromkeys(("ln", "log"), _logarithm),
    "log2": lambda x: _logarithm(2, x),
    "log10": lambda x: _logarithm(10, x),
    "sign": lambda x: (number(x) > 0) - (number(x) < 0),
    "greatest": partial(_extreme, best=max),
    "least": partial(_extreme, best=min),
    "concat": lambda *values: "".join(map(text, values)),
    "left": lambda x, n: text(x)[: max(0, int(n))],
    "right": lambda x, n: text(x)[-int(n) :] if int(n) > 0 else "",
    **dict.fromkeys(("substring", "mid"), _substring),
    "substring_index": _substring_index,
    "trim": _trim,
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
    "find_in_set": lambda x, listed: _field(x, *text(listed).split(",")),
    "format": lambda x, d: f"{Decimal(str(rounded(x, d))):,.{max(0, int(d))}f}",
    "like_binary": _like_binary,
    **dict.fromkeys(("regexp", "regexp_like"), _regexp),
    **dict.fromkeys(("now", "sysdate"), lambda *_: _moment_text(NOW)),
    "curdate": lambda: _day_text(NOW),
    "curtime": lambda *_: _moment_text(NOW)[11:],
    "date": lambda x: _day_text(moment(x)),
    "time": lambda x: "{:02}:{:02}:{:02}".format(*_time_of(x)),
    "datetime": lambda x: _moment_text(moment(x)),
    "day_or_moment": _day_or_moment,
    "moment_number": _moment_number,
    "stored_moment": stored_moment,
    "week": _week,
    "weekofyear": lambda x: _week(x, 3),
    **{unit: partial(_part, unit) for unit in ("year", "quarter", "month", "day", "hour", "minute", "second")},
    "dayofmonth": partial(_part, "day"),
    "dayofyear": lambda x: moment(x).timetuple().tm_yday,
    "dayofweek": lambda x: moment(x).isoweekday() % 7 + 1,
    "weekday": lambda x: moment(x).weekday(),
    "dayname": lambda x: f"{moment(x):%A}",
    "monthname": lambda x: f"{moment(x):%B}",
    "extract": _part,
    "last_day": lambda x: _day_text(moment(x).replace(day=calendar.monthrange(moment(x).year, moment(x).month)[1])),
    "to_days": _days,
    "datediff": lambda x, y: _days(x) - _days(y),
    "timestampdiff": _between,
    "timestampadd": lambda unit, count, x: _later(x, count, unit),
    "date_add": _later,
    "date_sub": lambda x, count, unit: _later(x, -float(str(count)), unit),
    "date_format": _formatted,
    "str_to_date": _read,
}
"""Functions that are NULL when an argument is, by name in lower case."""

_TAKING_NULL: Mapping[str, Callable[..., Any]] = {
    "whole": whole,
    "concat_ws": _concat_ws,
    "isnull": lambda x: int(x is None),
    "field": _field,
}

Rows = Sequence[tuple[Any, ...]]


def _spread(rows: Rows, measure: Callable[[Sequence[float]], float]) -> float | None:
    """STDDEV or VARIANCE; NULL without values, and for a sample of one."""
    values = [float(number(value)) for (value,) in rows if value is not None]
    try:
        return measure(values)
    except statistics.StatisticsError:
        return None


def _count_distinct(rows: Rows) -> int:
    """COUNT(DISTINCT a, b): the different rows without a NULL; case does not count."""
    return len({tuple(v.lower() if isinstance(v, str) else v for v in row) for row in rows if None not in row})


def _group_concat(rows: Rows) -> str | None:
    """Values joined by a separator, each once or every time, in the order of keys ("a" up, "d" down), cut to a length.

    A row is separator, distinct, directions, value and its keys.
    """
    separator, distinct, directions = rows[0][:3]
    kept = [row for row in rows if row[3] is not None]
    for place, direction in reversed([*enumerate(directions, start=4)]):
        kept.sort(key=lambda row: _sortable(row[place]), reverse=direction == "d")
    values = [text(row[3]) for row in kept]
    if distinct:
        values = list({value.lower(): value for value in reversed(values)}.values())[::-1]
    return text(separator).join(values)[:LONGEST_LIST] if values else None


def _sortable(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    return (1, value) if isinstance(value, int | float) else (2, text(value).lower())


AGGREGATES: Mapping[str, Callable[[Rows], Any]] = {
    **dict.fromkeys(("std", "stddev", "stddev_pop"), partial(_spread, measure=statistics.pstdev)),
    **dict.fromkeys(("variance", "var_pop"), partial(_spread, measure=statistics.pvariance)),
    "stddev_samp": partial(_spread, measure=statistics.stdev),
    "var_samp": partial(_spread, measure=statistics.variance),
    "count_distinct": _count_distinct,
    "group_concat": _group_concat,
    "any_value": lambda rows: rows[0][0],
}
"""Functions of many rows, by name in lower case."""

NAMES = frozenset(PREFIX + name for name in (*SCALARS, *_TAKING_NULL, *AGGREGATES))
"""Every name that `register` gives a function to."""


def register(connection: sqlite3.Connection) -> None:
    """Give a connection all of them."""
    for functions, null in ((SCALARS, True), (_TAKING_NULL, False)):
        for name, function in functions.items():
            connection.create_function(PREFIX + name, -1, _careful(function, null=null), deterministic=True)
    for name, finish in AGGREGATES.items():
        connection.create_aggregate(PREFIX + name, -1, _aggregate(finish))


def _careful(function: Callable[..., Any], *, null: bool) -> Callable[..., Any]:
    def called(*values: Any) -> Any:
        if null and None in values:
            return None
        try:
            return function(*values)
        except (ValueError, LookupError, ArithmeticError, RecursionError, regex.error):
            return None

    return called


def _aggregate(finish: Callable[[Rows], Any]) -> type[Any]:
    """Class for `create_aggregate` that gives all rows to a function."""

    class Gathered:
        def __init__(self) -> None:
            self.rows: list[tuple[Any, ...]] = []

        def step(self, *values: Any) -> None:
            self.rows.append(values)

        def finalize(self) -> Any:
            return finish(self.rows)

    return Gathered


if __name__ == "__main__":
    from memrl_core.environments.child import serve
    from memrl_core.environments.databases.sandbox_child import Database

    serve(Database(register, NAMES).answer)
