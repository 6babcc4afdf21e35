"""Functions of MySQL that SQLite lacks or means otherwise; each is called `mysql_` and its name.

As in MySQL a function gives NULL for what it cannot use, and text counts as the number it begins with. The clock stands
still, so that the same statement always gives the same rows. Run as a program, this is the sandbox's process with them.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal, localcontext
from functools import cmp_to_key, partial
from typing import Any

import regex

from memrl_core.environments.databases.mysql.dates import FUNCTIONS as DATES

PREFIX = "mysql_"
LONGEST = 1_000_000
"""Characters of a text; MySQL gives NULL for what would be longer."""

LONGEST_LIST = 1024
"""Characters of a GROUP_CONCAT, as MySQL has it unless told otherwise."""

SEARCHING = 0.5
"""Seconds for a pattern in one text."""

_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def number(value: Any) -> int | float:
    """A value that is not NULL as a number: a text as the number it begins with, 0 when it begins with none."""
    if isinstance(value, int | float):
        return value
    found = _NUMBER.match(text(value))
    if found is None:
        return 0
    return float(found.group()) if found.group(2) or found.group(1)[0] == "." or found.group(3) else int(found.group())


def is_number(value: str) -> bool:
    """Whether a text is a number from its beginning to its end."""
    return _NUMBER.fullmatch(value.rstrip()) is not None


def text(value: Any) -> str:
    """A value that is not NULL, as MySQL would write it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def rounded(value: Any, digits: Any = 0, how: str = ROUND_HALF_UP) -> int | float:
    """Rounded as MySQL rounds its exact numbers: half away from zero, 15 digits of a float being taken as meant."""
    given = number(value)
    if not math.isfinite(given):
        return given
    places = max(-30, min(30, int(digits)))
    if isinstance(given, int) and places >= 0:
        return given
    with localcontext(prec=80):
        meant = Decimal(given) if isinstance(given, int) else Decimal(f"{given:.15g}")
        done = meant.quantize(Decimal(1).scaleb(-places), rounding=how)
    return float(done) if isinstance(given, float) else int(done)


def whole(value: Any) -> Any:
    """What a column of whole numbers stores: a number rounded, also one in a text; other text stays as it is."""
    if isinstance(value, str) and is_number(value):
        value = number(value)
    if isinstance(value, float):
        return int(rounded(value)) if math.isfinite(value) else value
    return value


def concat(*values: Any) -> str | None:
    """The texts one after the other; NULL when one is."""
    return None if None in values else _bounded("".join(map(text, values)))


def concat_ws(separator: Any, *values: Any) -> str | None:
    """The texts that are not NULL, with a separator between them."""
    return None if separator is None else _bounded(text(separator).join(text(v) for v in values if v is not None))


def substring(value: str, start: Any, length: Any = None) -> str:
    """From the position `start`, counted from 1, or from the end when it is negative."""
    string, first = text(value), int(rounded(start))
    if first == 0 or first < -len(string):
        return ""
    kept = string[first - 1 :] if first > 0 else string[first:]
    return kept if length is None else kept[: max(0, int(rounded(length)))]


def locate(part: Any, value: Any, start: Any = 1) -> int:
    """The position of a part, from 1; 0 when it is not there. Case does not count."""
    first = int(start)
    return text(value).lower().find(text(part).lower(), first - 1) + 1 if first > 0 else 0


def trim(value: Any, characters: Any = " ", where: str = "BOTH") -> str:
    """Without a text at the start, the end, or both."""
    string, part = text(value), text(characters)
    while part and where != "TRAILING" and string.startswith(part):
        string = string[len(part) :]
    while part and where != "LEADING" and string.endswith(part):
        string = string[: -len(part)]
    return string


def substring_index(value: Any, delimiter: Any, count: Any) -> str:
    """What stands before the delimiter number `count`, or, when that is negative, after it counted from the end."""
    parts, wanted = text(value).split(text(delimiter)), int(count)
    return text(delimiter).join(parts[:wanted] if wanted > 0 else parts[wanted:] if wanted < 0 else [])


def padded(value: Any, length: Any, filler: Any, left: bool) -> str | None:
    """Brought to a length."""
    string, wanted, fill = text(value), int(length), text(filler)
    if wanted < 0 or wanted > LONGEST or (not fill and wanted > len(string)):
        return None
    missing = (fill * (wanted // max(1, len(fill)) + 1))[: max(0, wanted - len(string))]
    return (missing + string if left else string + missing) if missing else string[:wanted]


def extreme(values: Sequence[Any], sign: int) -> Any:
    """The largest (sign 1) or smallest (sign -1) of several; as texts when all are."""
    if all(isinstance(value, str) for value in values):
        return sorted(values, key=str.lower)[-1 if sign > 0 else 0]
    return max(map(number, values), key=lambda one: sign * one)


def regexp(value: Any, pattern: Any) -> int:
    """Whether a pattern is found in a text; case does not count. Raises `TimeoutError` after `SEARCHING` seconds."""
    return int(regex.search(text(pattern), text(value), regex.IGNORECASE, timeout=SEARCHING) is not None)


def like_binary(value: Any, pattern: Any) -> int:
    """LIKE where case counts: % is any text, _ any sign, and a backslash takes the next sign literally."""
    signs = regex.findall(r"\\.|.", text(pattern), regex.DOTALL)
    wanted = "".join({"%": ".*", "_": "."}.get(sign) or regex.escape(sign[-1]) for sign in signs)
    return int(regex.fullmatch(wanted, text(value), regex.DOTALL, timeout=SEARCHING) is not None)


def cast(value: Any, kind: str, digits: Any = 0) -> Any:
    """CAST: a number given as text loses what follows its whole part, any other is rounded."""
    if kind == "SIGNED":
        return int(number(value) if isinstance(value, str) else rounded(value))
    if kind == "DECIMAL":
        return rounded(value, digits)
    if kind == "DOUBLE":
        return float(number(value))
    return text(value)[: int(digits)] if digits else text(value)


def logarithm(*values: Any) -> float:
    """LOG(x), or LOG(base, x)."""
    given = [float(number(value)) for value in values]
    return math.log(given[-1]) if len(given) == 1 else math.log(given[1], given[0])


def modulo(value: Any, by: Any) -> int | float | None:
    """The rest of a division, with the sign of what was divided; NULL for a division by 0."""
    one, other = number(value), number(by)
    if not other:
        return None
    if isinstance(one, int) and isinstance(other, int):
        return int(math.copysign(abs(one) % abs(other), one))
    return math.fmod(one, other)


def _bounded(value: str) -> str | None:
    return value if len(value) <= LONGEST else None


def _repeated(value: Any, count: Any) -> str | None:
    string, times = text(value), max(0, int(count))
    return string * times if len(string) * times <= LONGEST else None


def _position(value: Any, values: Sequence[Any]) -> int:
    return next((n for n, one in enumerate(values, 1) if text(one).lower() == text(value).lower()), 0)


SCALARS: Mapping[str, Callable[..., Any]] = {
    "number": number,
    "cast": cast,
    "mod": modulo,
    "abs": lambda x: abs(number(x)),
    "round": rounded,
    "truncate": lambda x, d: rounded(x, d, ROUND_DOWN),
    "floor": lambda x: math.floor(number(x)),
    "ceil": lambda x: math.ceil(number(x)),
    "ceiling": lambda x: math.ceil(number(x)),
    "pow": lambda x, y: math.pow(number(x), number(y)),
    "power": lambda x, y: math.pow(number(x), number(y)),
    "sqrt": lambda x: math.sqrt(number(x)),
    "exp": lambda x: math.exp(number(x)),
    "ln": logarithm,
    "log": logarithm,
    "log2": lambda x: logarithm(2, x),
    "log10": lambda x: logarithm(10, x),
    "sign": lambda x: (number(x) > 0) - (number(x) < 0),
    "greatest": lambda *values: extreme(values, 1),
    "least": lambda *values: extreme(values, -1),
    "concat": concat,
    "left": lambda x, n: text(x)[: max(0, int(n))],
    "right": lambda x, n: text(x)[-int(n) :] if int(n) > 0 else "",
    "substring": substring,
    "mid": substring,
    "substring_index": substring_index,
    "trim": trim,
    "lpad": lambda x, n, fill: padded(x, n, fill, left=True),
    "rpad": lambda x, n, fill: padded(x, n, fill, left=False),
    "reverse": lambda x: text(x)[::-1],
    "repeat": _repeated,
    "space": lambda n: _repeated(" ", n),
    "lcase": lambda x: text(x).lower(),
    "ucase": lambda x: text(x).upper(),
    "lower": lambda x: text(x).lower(),
    "upper": lambda x: text(x).upper(),
    "length": lambda x: len(text(x).encode()),
    "char_length": lambda x: len(text(x)),
    "character_length": lambda x: len(text(x)),
    "ascii": lambda x: (text(x).encode() or b"\0")[0],
    "instr": lambda x, part: locate(part, x),
    "locate": locate,
    "find_in_set": lambda x, listed: _position(x, text(listed).split(",")),
    "strcmp": lambda x, y: (text(x).lower() > text(y).lower()) - (text(x).lower() < text(y).lower()),
    "format": lambda x, d: f"{Decimal(str(rounded(x, d))):,.{max(0, int(d))}f}",
    "like_binary": like_binary,
    "regexp": regexp,
    "regexp_like": regexp,
    **DATES,
}
"""Functions that are NULL when an argument is, by name in lower case."""

_TAKING_NULL: Mapping[str, Callable[..., Any]] = {
    "whole": whole,
    "concat_ws": concat_ws,
    "isnull": lambda x: int(x is None),
    "field": lambda x, *values: 0 if x is None else _position(x, [v for v in values if v is not None]),
    "elt": lambda n, *values: values[int(n) - 1] if 0 < int(n) <= len(values) else None,
}


Rows = Sequence[tuple[Any, ...]]


def _spread(rows: Rows, *, sample: bool, root: bool) -> float | None:
    """STDDEV or VARIANCE, of the population or of a sample; NULL without values, and for a sample of one."""
    values = [float(number(value)) for (value,) in rows if value is not None]
    if len(values) <= sample:
        return None
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - sample)
    return math.sqrt(variance) if root else variance


def _count_distinct(rows: Rows) -> int:
    """COUNT(DISTINCT a, b): the different rows without a NULL; case does not count."""
    return len({tuple(v.lower() if isinstance(v, str) else v for v in row) for row in rows if None not in row})


def _group_concat(rows: Rows) -> str | None:
    """Values joined by a separator, each once or every time, in the order of keys ("a" up, "d" down), cut to a length.

    A row is separator, distinct, directions, value and its keys.
    """

    def order(one: tuple[Any, ...], other: tuple[Any, ...]) -> int:
        for direction, x, y in zip(one[2], map(_sortable, one[4:]), map(_sortable, other[4:]), strict=True):
            if x != y:
                return (1 if x > y else -1) * (1 if direction == "a" else -1)
        return 0

    kept = [text(row[3]) for row in sorted((row for row in rows if row[3] is not None), key=cmp_to_key(order))]
    if int(rows[0][1]):
        kept = list({value.lower(): value for value in reversed(kept)}.values())[::-1]
    return text(rows[0][0]).join(kept)[:LONGEST_LIST] if kept else None


def _sortable(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    return (1, value) if isinstance(value, int | float) else (2, text(value).lower())


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


AGGREGATES: Mapping[str, Callable[[Rows], Any]] = {
    **dict.fromkeys(("std", "stddev", "stddev_pop"), partial(_spread, sample=False, root=True)),
    **dict.fromkeys(("variance", "var_pop"), partial(_spread, sample=False, root=False)),
    "stddev_samp": partial(_spread, sample=True, root=True),
    "var_samp": partial(_spread, sample=True, root=False),
    "count_distinct": _count_distinct,
    "group_concat": _group_concat,
    "any_value": lambda rows: next(value for (value,) in rows),
}
"""Functions of many rows, by name in lower case."""


NAMES = frozenset(PREFIX + name for name in (*SCALARS, *_TAKING_NULL, *AGGREGATES))
"""Every name that `register` gives a function to."""


def register(connection: sqlite3.Connection) -> None:
    """Give a connection all of them."""
    for name, function in SCALARS.items():
        connection.create_function(PREFIX + name, -1, _careful(function, null=True), deterministic=True)
    for name, function in _TAKING_NULL.items():
        connection.create_function(PREFIX + name, -1, _careful(function, null=False), deterministic=True)
    for name, aggregate in AGGREGATES.items():
        connection.create_aggregate(PREFIX + name, -1, _aggregate(aggregate))


def _careful(function: Callable[..., Any], *, null: bool) -> Callable[..., Any]:
    def called(*values: Any) -> Any:
        if null and None in values:
            return None
        try:
            return function(*values)
        except (ValueError, LookupError, ArithmeticError, RecursionError, regex.error):
            return None

    return called


if __name__ == "__main__":
    from memrl_core.environments.child import serve
    from memrl_core.environments.databases.sandbox_child import Database

    serve(Database(register, NAMES).answer)
