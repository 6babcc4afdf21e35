"""The experience of an episode of SQL: what mattered, from the texts of its turns alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from memrl_core.environments.databases.statements import COMMIT, Control, Dialect, control_of, joined, read
from memrl_core.environments.layout import DONE, block
from memrl_core.prompting import AVOID, STEPS_THAT_WORKED, TASK_LINE, WHAT_WENT_WRONG
from memrl_core.records import Outcome, Turn

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
    came = {int(at): told for at, told in _RESULT.findall(turn.observation)}
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
    """A line a turn; together they are a reply that does the same."""
    turns = list(dict.fromkeys(one.turn for one in kept))
    lines = [joined([one.statement for one in kept if one.turn == turn], dialect) for turn in turns]
    lines = [" ".join(line.splitlines())[:LONGEST_LINE] for line in lines]
    last = f"; {COMMIT}" if committed else ";"
    return [line + ";" for line in lines[:-1]] + [line + last for line in lines[-1:]]


def _why(turns: Sequence[Turn]) -> str:
    """The world's own sentence, or that somebody else found fault with what it did not."""
    said = turns[-1].observation.strip().splitlines() if turns else []
    verdict = said[-1] if said else ""
    return verdict.removeprefix(FAILED) if verdict.startswith(FAILED) else "this was judged badly."
