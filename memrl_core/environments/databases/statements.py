"""SQL in a reply: its statements one by one, what they are beside SQL, and each on one line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from memrl_core.environments.base import DONE, block
from memrl_core.prompting import ANSWER_MARK, AVOID, CHOICE_MARK, STEPS_THAT_WORKED, TASK_LINE, WHAT_WENT_WRONG
from memrl_core.records import Outcome, Turn

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
    left_out = ""
    kept = reply[:MOST_CHARACTERS]
    found = [statement for part in _of_sql(kept, dialect) for statement in split(part, dialect)]
    if len(reply) > MOST_CHARACTERS:
        # Half a statement may say something else than the whole.
        del found[-1:]
        left_out = f"the reply was cut after {MOST_CHARACTERS:,} characters"
    if len(found) > MOST_STATEMENTS:
        left_out = f"only the first {MOST_STATEMENTS} statements were read"
    return found[:MOST_STATEMENTS], left_out


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


HANDED_IN = "handed in"
BACK = "the tables are as they were at the start"
OPEN = "a transaction is always open"
FAILED = "Failed: "
LONGEST_LINE = 4_000

_RESULT = re.compile(r"^\[(\d+)\] (.*)$", re.MULTILINE)
_CHANGED = re.compile(r"(?!0 )[\d,]+ rows? changed|done$")
_RETURNED = re.compile(r"(more than )?[\d,]+ rows?(?! changed)")


@dataclass(frozen=True, slots=True)
class _Done:
    """A statement of a reply, and the first line of what came of it."""

    turn: int
    statement: str
    control: Control
    came: str


def experience(intent: str, kind: str, turns: Sequence[Turn], outcome: Outcome, dialect: Dialect = "sqlite") -> str:
    """What to do again after a success, what to avoid after a failure; a turn's statements on one line.

    The lines are statements that can be typed as they stand. `kind` is the task's: for a query the last statement that
    returned rows matters, for a modification those that changed something since the last ROLLBACK.
    """
    done = [one for number, turn in enumerate(turns) for one in _done(number, turn, dialect)]
    committed = bool(done) and done[-1].came == HANDED_IN
    head = f"{TASK_LINE}{intent}\n"
    if outcome == "success":
        return head + block(STEPS_THAT_WORKED, _lines(_that_mattered(done, kind), committed, dialect))
    if outcome == "unrated":
        return head + block(DONE, _lines([one for one in done if not one.control], committed, dialect))
    title = AVOID if committed else DONE
    return f"{head}{WHAT_WENT_WRONG}{_why(turns)}\n{block(title, _lines(_that_failed(done, kind), committed, dialect))}"


def _done(number: int, turn: Turn, dialect: Dialect) -> list[_Done]:
    came = {int(at): first_line for at, first_line in _RESULT.findall(turn.observation)}
    statements, _ = read(turn.reply.text, dialect)
    return [
        _Done(number, one, control_of(one, dialect), came[at])
        for at, one in enumerate(statements, start=1)
        if at in came
    ]


def _that_mattered(done: Sequence[_Done], kind: str) -> list[_Done]:
    """What must be done again to come to the same; where nothing stands out, the last turn with a statement."""
    begun = max((n + 1 for n, one in enumerate(done) if one.came == BACK), default=0)
    returned = [n for n, one in enumerate(done) if _RETURNED.match(one.came)][-1:] if kind == "query" else []
    kept = [one for n, one in enumerate(done) if n in returned or (n >= begun and _CHANGED.match(one.came))]
    if kept:
        return kept
    asked = [one for one in done if not one.control]
    return [one for one in asked if one.turn == asked[-1].turn]


def _that_failed(done: Sequence[_Done], kind: str) -> list[_Done]:
    kept = _that_mattered(done, kind)
    asked = [one for one in done if not one.control]
    if asked and asked[-1] not in kept and asked[-1].came.startswith("failed"):
        kept.append(asked[-1])
    return kept


def _lines(kept: Sequence[_Done], committed: bool, dialect: Dialect) -> list[str]:
    """A line per turn; together they are a reply that does the same."""
    turns = list(dict.fromkeys(one.turn for one in kept))
    lines = [joined([one.statement for one in kept if one.turn == turn], dialect) for turn in turns]
    lines = [" ".join(line.splitlines())[:LONGEST_LINE] for line in lines]
    last = f"; {COMMIT}" if committed else ";"
    return [line + ";" for line in lines[:-1]] + [line + last for line in lines[-1:]]


def _why(turns: Sequence[Turn]) -> str:
    """The world's own sentence, or that somebody else found fault with what it did not."""
    lines = turns[-1].observation.strip().splitlines() if turns else []
    verdict = lines[-1] if lines else ""
    return verdict.removeprefix(FAILED) if verdict.startswith(FAILED) else "this was judged badly."
