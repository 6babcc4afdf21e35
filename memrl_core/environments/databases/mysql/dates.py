"""MySQL's functions of dates and times, on texts like "2024-03-01" and "2024-03-01 12:30:00"."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from typing import Any

NOW = datetime(2025, 1, 1)
"""What the clock shows, always: the same statement gives the same rows on every day."""

_MONTHS = "January February March April May June July August September October November December"
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
MONTHS, DAYS = _MONTHS.split(), _DAYS.split()

_MONTHS_OF = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
_SECONDS = {"WEEK": 604_800, "DAY": 86_400, "HOUR": 3_600, "MINUTE": 60, "SECOND": 1}
_OF_A_DAY = ("HOUR", "MINUTE", "SECOND")

_MOMENT = re.compile(
    r"\s*(\d{4})[-/.]?(\d{1,2})[-/.]?(\d{1,2})(?:[T ]+(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?)?"
)
_TIME = re.compile(r"\s*(\d{1,3}):(\d{1,2})(?::(\d{1,2}))?")
_FIELDS = dict.fromkeys("Wa", "[A-Za-z]+") | {
    code: f"(?P<{codes[0]}>{pattern})"
    for pattern, fields in {
        r"\d{4}": ("Y",), r"\d{2}": ("y",), r"\d{1,2}": ("mc", "de", "Hk", "hIl", "i", "sS"), "[AaPp][Mm]": ("p",),
        "[A-Za-z]+": ("Mb",),
    }.items()
    for codes in fields
    for code in codes
}  # fmt: skip
"""Pattern of each field of STR_TO_DATE; those with the same meaning have the same name."""


def moment(value: Any) -> datetime:
    """The date and time in a text or number. Raises `ValueError` when there is none."""
    found = _MOMENT.match(str(value))
    if found is None:
        raise ValueError("no date")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    return datetime(year, month, day, hour, minute, second, int((found.group(7) or "0").ljust(6, "0")))


def has_time(value: Any) -> bool:
    """Whether a text names a time of day beside its date."""
    found = _MOMENT.match(str(value))
    return found is not None and found.group(4) is not None


def time_of(value: Any) -> tuple[int, int, int]:
    """Hour, minute and second of a text like "12:30:00", with or without a date. Raises `ValueError`."""
    found = _TIME.match(str(value))
    if found is not None:
        hour, minute, second = (int(part or 0) for part in found.groups())
        return hour, minute, second
    when = moment(value)
    return when.hour, when.minute, when.second


def day_text(when: date) -> str:
    """As MySQL writes a date."""
    return f"{when.year:04}-{when.month:02}-{when.day:02}"


def moment_text(when: datetime) -> str:
    """As MySQL writes a date with its time."""
    fraction = f".{when.microsecond:06}" if when.microsecond else ""
    return f"{day_text(when)} {when.hour:02}:{when.minute:02}:{when.second:02}{fraction}"


def day_or_moment(value: Any) -> str:
    """A date as MySQL writes it, with its time when that is not midnight. Raises `ValueError` when there is none."""
    when = moment(value)
    return moment_text(when) if when.time() != datetime.min.time() else day_text(when)


def moment_number(value: Any) -> int:
    """A date, or a date with its time, as the number of its digits. Raises `ValueError` when there is none."""
    when = moment(value)
    return int(f"{when:%Y%m%d%H%M%S}" if has_time(value) else f"{when:%Y%m%d}")


def stored_moment(value: Any, kind: str) -> Any:
    """What a column of dates ("date"), or of dates with their times, stores; what is no date stays as it is."""
    try:
        return day_text(moment(value)) if kind == "date" else moment_text(moment(value))
    except ValueError:
        return value


def week(value: Any, mode: Any = 0) -> int:
    """The number of the week: from the first Sunday (mode 0), or with Monday first as ISO has it (1: 0 … 53, 3: 1 …).

    Raises `ValueError` for the other modes.
    """
    when = moment(value)
    if mode == 0:
        return int(when.strftime("%U"))
    year, number, _ = when.isocalendar()
    if mode == 3:
        return number
    if mode == 1:
        return number if year == when.year else 0 if year < when.year else when.isocalendar()[1] + 52
    raise ValueError("mode")


def later(value: Any, count: Any, unit: str) -> str:
    """A date moved by so many units; with a time when it had one or the unit is smaller than a day.

    Raises `ValueError` for what is no date and no number, and `KeyError` for the unit.
    """
    when, steps, unit = moment(value), float(str(count)), unit.upper()
    if unit in _OF_A_DAY:
        return moment_text(when + timedelta(seconds=steps * _SECONDS[unit]))
    if unit in _SECONDS:
        moved = when + timedelta(seconds=round(steps) * _SECONDS[unit])
    else:
        months = when.year * 12 + when.month - 1 + round(steps) * _MONTHS_OF[unit]
        year, month = divmod(months, 12)
        day = min(when.day, calendar.monthrange(year, month + 1)[1])
        moved = when.replace(year=year, month=month + 1, day=day)
    return moment_text(moved) if has_time(value) else day_text(moved)


def between(unit: str, first: Any, second: Any) -> int:
    """TIMESTAMPDIFF: whole units from the first to the second moment. Raises `ValueError`, `KeyError` for the unit."""
    start, end, unit = moment(first), moment(second), unit.upper()
    if unit in _SECONDS:
        return int((end - start).total_seconds() / _SECONDS[unit])
    if end < start:
        return -between(unit, second, first)
    months = (end.year - start.year) * 12 + end.month - start.month
    months -= (end.day, end.time()) < (start.day, start.time())
    return months // _MONTHS_OF[unit]


def part(unit: str, value: Any) -> int:
    """EXTRACT: one part of a date or time. Raises `ValueError`, `KeyError` for the unit."""
    unit = unit.upper()
    if unit in _OF_A_DAY:
        return time_of(value)[_OF_A_DAY.index(unit)]
    if unit == "WEEK":
        return week(value)
    when = moment(value)
    parts = {
        "YEAR": when.year,
        "MONTH": when.month,
        "DAY": when.day,
        "QUARTER": (when.month + 2) // 3,
        "YEAR_MONTH": when.year * 100 + when.month,
    }
    return parts[unit]


def formatted(value: Any, pattern: Any) -> str:
    """DATE_FORMAT. Raises `ValueError` for what is no date."""
    when = moment(value)
    hour = when.hour % 12 or 12
    noon = "AM" if when.hour < 12 else "PM"
    clock = f"{when.minute:02}:{when.second:02}"
    ending = "th" if 10 <= when.day <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(when.day % 10, "th")
    given = {
        "Y": f"{when.year:04}", "y": f"{when.year % 100:02}", "m": f"{when.month:02}", "c": str(when.month),
        "M": MONTHS[when.month - 1], "b": MONTHS[when.month - 1][:3], "d": f"{when.day:02}", "e": str(when.day),
        "D": f"{when.day}{ending}", "W": DAYS[when.weekday()], "a": DAYS[when.weekday()][:3],
        "w": str(when.isoweekday() % 7), "j": f"{when.timetuple().tm_yday:03}", "H": f"{when.hour:02}",
        "k": str(when.hour), "h": f"{hour:02}", "I": f"{hour:02}", "l": str(hour), "i": f"{when.minute:02}",
        "s": f"{when.second:02}", "S": f"{when.second:02}", "f": f"{when.microsecond:06}", "p": noon,
        "T": f"{when.hour:02}:{clock}", "r": f"{hour:02}:{clock} {noon}", "U": when.strftime("%U"),
        "u": f"{week(value, 1):02}", "v": f"{week(value, 3):02}", "x": str(when.isocalendar()[0]),
    }  # fmt: skip
    return re.sub(r"%(.)", lambda found: given.get(found.group(1), found.group(1)), str(pattern))


def read(value: Any, pattern: Any) -> str:
    """STR_TO_DATE: the date, with its time when the pattern has one. Raises `ValueError`."""
    pieces = re.split(r"%(.)", str(pattern).replace("%T", "%H:%i:%s"))
    wanted = "".join(_FIELDS.get(p, re.escape(p)) if n % 2 else re.escape(p) for n, p in enumerate(pieces))
    found = re.match(r"\s*" + wanted, str(value))
    if found is None:
        raise ValueError("another layout")
    got = found.groupdict()
    year = int(got["Y"]) if "Y" in got else 2000 + int(got.get("y") or 0)
    month = _month(got["M"]) if "M" in got else int(got.get("m") or 1)
    hour = int(got.get("H") or 0) if "h" not in got else int(got["h"]) % 12 + 12 * (got.get("p", "").upper() == "PM")
    when = datetime(year, month, int(got.get("d") or 1), hour, int(got.get("i") or 0), int(got.get("s") or 0))
    return moment_text(when) if {"H", "h", "i", "s"} & set(got) else day_text(when)


def _month(name: str) -> int:
    return [month[:3].lower() for month in MONTHS].index(name[:3].lower()) + 1


def _days(value: Any) -> int:
    return moment(value).toordinal() + 365


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "now": lambda *_: moment_text(NOW),
    "sysdate": lambda *_: moment_text(NOW),
    "curdate": lambda: day_text(NOW),
    "curtime": lambda *_: moment_text(NOW)[11:],
    "date": lambda x: day_text(moment(x)),
    "time": lambda x: "{:02}:{:02}:{:02}".format(*time_of(x)),
    "datetime": lambda x: moment_text(moment(x)),
    "day_or_moment": day_or_moment,
    "moment_number": moment_number,
    "stored_moment": stored_moment,
    "year": lambda x: part("YEAR", x),
    "quarter": lambda x: part("QUARTER", x),
    "month": lambda x: part("MONTH", x),
    "week": week,
    "weekofyear": lambda x: week(x, 3),
    "day": lambda x: part("DAY", x),
    "dayofmonth": lambda x: part("DAY", x),
    "dayofyear": lambda x: moment(x).timetuple().tm_yday,
    "dayofweek": lambda x: moment(x).isoweekday() % 7 + 1,
    "weekday": lambda x: moment(x).weekday(),
    "dayname": lambda x: DAYS[moment(x).weekday()],
    "monthname": lambda x: MONTHS[moment(x).month - 1],
    "hour": lambda x: part("HOUR", x),
    "minute": lambda x: part("MINUTE", x),
    "second": lambda x: part("SECOND", x),
    "extract": part,
    "last_day": lambda x: day_text(moment(x).replace(day=calendar.monthrange(moment(x).year, moment(x).month)[1])),
    "to_days": _days,
    "datediff": lambda x, y: _days(x) - _days(y),
    "timestampdiff": between,
    "timestampadd": lambda unit, count, x: later(x, count, unit),
    "date_add": later,
    "date_sub": lambda x, count, unit: later(x, -float(str(count)), unit),
    "date_format": formatted,
    "str_to_date": read,
}
"""By name in lower case; a date is moved by a count of a unit, given as text."""
