"""SQL in a reply: its statements one by one, what they are beside SQL, and each on one line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from memrl_core.prompting import ANSWER_MARK, CHOICE_MARK

COMMIT = "COMMIT"
MOST_CHARACTERS = 20_000
MOST_STATEMENTS = 20

Control = Literal["commit", "rollback", "begin", ""]
Dialect = Literal["sqlite", "mysql"]
"""Whose rules say where a quote and a comment end."""

_FENCE = "```"
_LANGUAGE = re.compile(r"\A\s*(?:sqlite3?|sql|mysql|text)\b", re.IGNORECASE)
_SQLITE = r"""(?P<quoted>'(?:[^']|'')*'? | "(?:[^"]|"")*"? | `(?:[^`]|``)*`? | \[[^\]]*\]?)
    | (?P<blank>--[^\n]* | /\*.*?(?:\*/|\Z) | \s+)
    | (?P<end>;)
    | (?P<other>[^'"`\[\-/;\s]+ | .)"""
_MYSQL = r"""(?P<quoted>'(?:[^'\\]|''|\\.)*'? | "(?:[^"\\]|""|\\.)*"? | `(?:[^`]|``)*`?)
    | (?P<blank>--(?=\s|\Z)[^\n]* | \#[^\n]* | /\*.*?(?:\*/|\Z) | \s+)
    | (?P<end>;)
    | (?P<other>[^'"`\#\-/;\s]+ | .)"""
_TOKENS: Mapping[Dialect, re.Pattern[str]] = {
    "sqlite": re.compile(_SQLITE, re.VERBOSE | re.DOTALL),
    "mysql": re.compile(_MYSQL, re.VERBOSE | re.DOTALL),
}
_CONTROLS: tuple[tuple[Control, re.Pattern[str]], ...] = (
    ("commit", re.compile(r"commit( work| transaction)?", re.IGNORECASE)),
    ("rollback", re.compile(r"rollback( work| transaction)?", re.IGNORECASE)),
    ("begin", re.compile(r"(begin( deferred| immediate| exclusive)?|start)( work| transaction)?", re.IGNORECASE)),
)


def read(reply: str, dialect: Dialect = "sqlite") -> tuple[list[str], str]:
    """The statements of a reply in their order, without semicolons; and what of it was left out, in words.

    Where parts stand between lines of ```, only those count, and COMMIT and ROLLBACK on lines of their own.
    """
    told = ""
    kept = reply[:MOST_CHARACTERS]
    found = [statement for part in _of_sql(kept, dialect) for statement in split(part, dialect)]
    if len(reply) > MOST_CHARACTERS:
        # Half a statement may say something else than the whole.
        del found[-1:]
        told = f"the reply was cut after {MOST_CHARACTERS:,} characters"
    if len(found) > MOST_STATEMENTS:
        told = f"only the first {MOST_STATEMENTS} statements were read"
    return found[:MOST_STATEMENTS], told


def split(text: str, dialect: Dialect = "sqlite") -> list[str]:
    """The statements of a text, without semicolons and without the marks of answers and choices before them."""
    found: list[str] = []
    statement, filled = "", False
    for token in _TOKENS[dialect].finditer(text):
        if token.lastgroup != "end":
            statement += token.group()
            filled = filled or token.lastgroup != "blank"
            continue
        if filled:
            found.append(statement)
        statement, filled = "", False
    if filled:
        found.append(statement)
    return [one.strip().removeprefix(ANSWER_MARK).removeprefix(CHOICE_MARK).strip() for one in found]


def on_one_line(statement: str, dialect: Dialect = "sqlite") -> str:
    """The statement without comments, and with one blank in the place of other white space outside of quotes."""
    parts: list[str] = []
    for token in _TOKENS[dialect].finditer(statement):
        if token.lastgroup != "blank":
            if token.group() == "-" and parts[-1:] == ["-"]:
                parts.append(" ")  # In MySQL 5--3 is a number, but "-- " begins a comment.
            parts.append(token.group())
        elif parts and parts[-1] != " ":
            parts.append(" ")
    return "".join(parts).strip()


def joined(statements: list[str], dialect: Dialect = "sqlite") -> str:
    """Statements on one line."""
    return "; ".join(on_one_line(statement, dialect) for statement in statements)


def control_of(statement: str, dialect: Dialect = "sqlite") -> Control:
    """Which word to the world this is rather than to the database; "" when it is none."""
    line = on_one_line(statement, dialect)
    return next((control for control, words in _CONTROLS if words.fullmatch(line)), "")


def _of_sql(reply: str, dialect: Dialect) -> list[str]:
    parts = reply.split(_FENCE)
    if len(parts) == 1:
        return parts
    found: list[str] = []
    for number, part in enumerate(parts):
        if number % 2:
            found.append(_LANGUAGE.sub("", part))
        else:
            found += [
                line
                for line in part.splitlines()
                if control_of(line.strip().rstrip(";"), dialect) in ("commit", "rollback")
            ]
    return found
