"""The finished steps of a run as rows to filter: asked of the tables, not of the traces."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import JSON, ColumnElement, Select, Subquery, and_, case, cast, func, or_, select

from memrl_core.bank.storage import schema
from memrl_core.bank.storage.codec import trace_of
from memrl_core.bank.storage.connecting import AT_ONCE
from memrl_core.bank.storage.database import Database
from memrl_core.records import MISSED, EventKind

_S, _C, _L = schema.steps.c, schema.candidates.c, schema.ledger.c
_POOLED = or_(_C.reason.is_(None), _C.reason.not_in([str(reason) for reason in MISSED]))
_OFF_THE_LIST = '"offered":false'
"""How a trace says of an answer that it is not on the list offered; in a text of it the quotes are escaped."""
_RERANKED = and_(_POOLED, _C.rank_select.is_not(None), _C.rank_select != _C.rank_recall)


@dataclass(frozen=True, slots=True)
class StepQuery:
    """Which steps; what is None or "" asks for nothing.

    `task` is part of a task's id or intent, `epochs` the first and the last of those asked for, and `steps` likewise.
    `source` asks for steps with a standing reward of the environment, of a person, or with none. `memory` is the id of
    a memory that was in the pool. `follows` asks for steps with memories in the prompt whose answer follows one of
    them, or is known to follow none, `invalid` for steps with an answer that is not on the list offered, or without
    one. `better` asks for steps in whose pool a memory that was not selected had a higher q than all that were, or for
    those in which none had. `pooled` asks for steps with one of these memories in the pool. `words` is part of what was
    asked, sent, answered or observed, or of a reward's reason.
    """

    task: str = ""
    outcome: str = ""
    source: Literal["", "environment", "person", "nobody"] = ""
    empty_pool: bool | None = None
    reranked: bool | None = None
    memory: str = ""
    epochs: tuple[int, int] | None = None
    follows: bool | None = None
    better: bool | None = None
    words: str = ""
    steps: tuple[int, int] | None = None
    invalid: bool | None = None
    pooled: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class FoundStep:
    """A finished step as a row of a table.

    `reward` and `outcome` are those it ended with, where an unrated one may be "no answer" or "skipped"; `now` is the
    reward that counts by now, `sources` who gave it, and `reason` why, where they said so. Of the `asked` answers that
    had to come from a list, `valid` did. `reranked` of the `pool` recalled changed their rank from phase A to phase B,
    and `used` went to the model. `follows` are the memories that the answer follows; None where that is not known.
    `better` counts the memories of the pool that were not selected although their q was above that of all selected.
    """

    step: int
    task: str
    intent: str
    epoch: int
    outcome: str
    reward: float | None
    sources: tuple[str, ...]
    valid: int
    asked: int
    reranked: int
    pool: int
    used: int
    seconds: float
    now: float | None
    reason: str = ""
    follows: tuple[str, ...] | None = None
    better: int = 0

    @property
    def as_it_ended(self) -> bool:
        """Whether nothing but the environment's reward stands, or no reward where none was given."""
        return self.sources == (("environment",) if self.reward is not None else ())


def matching_steps(database: Database, run: str, query: StepQuery) -> list[int]:
    """The numbers of the finished steps that the query lets in, in their order."""
    statement = select(_S.step).where(*_conditions(database, run, query)).order_by(_S.step)
    steps = [step for (step,) in database.rows(statement)]
    if query.pooled is not None:
        # Of any number of memories: more than a statement takes.
        pools = select(_C.step, _C.memory_id).where(_C.run == run, _POOLED)
        having = {step for step, memory_id in database.rows(pools) if memory_id in query.pooled}
        steps = [step for step in steps if step in having]
    return _with_words(database, run, steps, query.words) if query.words.strip() else steps


def steps_with_unusable_reports(database: Database, run: str) -> int:
    """How many steps have a sentence in `lacks` that names the call of a recorder, such as "recalled(): …"."""
    named = _of_trace(database, "lacks").contains("(): ", autoescape=True)
    ((count,),) = database.rows(select(func.count()).select_from(schema.steps).where(_S.run == run, named))
    return int(count)


def found_steps(database: Database, run: str, steps: Sequence[int]) -> list[FoundStep]:
    """The rows of these steps, in the order given."""
    return [row for at in range(0, len(steps), AT_ONCE) for row in _rows(database, run, steps[at : at + AT_ONCE])]


def _conditions(database: Database, run: str, query: StepQuery) -> list[ColumnElement[bool]]:
    wanted: list[ColumnElement[bool]] = [_S.run == run]
    if query.task:
        words = query.task.lower()
        columns = func.lower(_S.task), func.lower(_of_trace(database, "task", "intent"))
        wanted.append(or_(*(column.contains(words, autoescape=True) for column in columns)))
    if query.steps is not None:
        wanted.append(_S.step.between(*query.steps))
    if query.invalid is not None:
        off_the_list = _S.trace.contains(_OFF_THE_LIST)
        wanted.append(off_the_list if query.invalid else ~off_the_list)
    if query.epochs is not None:
        wanted.append(_S.epoch.between(*query.epochs))
    if query.outcome:
        wanted.append(_S.outcome == query.outcome)
    if query.source:
        given = _given(run, query.source)
        wanted.append(_S.id.not_in(given) if query.source == "nobody" else _S.id.in_(given))
    if query.empty_pool is not None:
        recalled = select(_C.step).where(_C.run == run, _POOLED)
        wanted.append(_S.step.not_in(recalled) if query.empty_pool else _S.step.in_(recalled))
    if query.reranked is not None:
        moved = select(_C.step).where(_C.run == run, _RERANKED)
        wanted.append(_S.step.in_(moved) if query.reranked else _S.step.not_in(moved))
    if query.memory:
        wanted.append(_S.step.in_(select(_C.step).where(_C.run == run, _C.memory_id == query.memory, _POOLED)))
    if query.follows is not None:
        followed = _of_trace(database, "follows", "memories")
        given = select(_C.step).where(_C.run == run, _C.selected)
        wanted += [_S.step.in_(given), followed != "[]" if query.follows else followed == "[]"]
    if query.better is not None:
        overlooked = select(_better(run).c.step)
        wanted.append(_S.step.in_(overlooked) if query.better else _S.step.not_in(overlooked))
    return wanted


def _with_words(database: Database, run: str, steps: Sequence[int], words: str) -> list[int]:
    """Those of the steps whose texts, or whose rewards' reasons, have the words, whatever their case."""
    wanted = words.strip().casefold()
    given = (
        _given(run, "nobody").with_only_columns(_L.step).where(func.lower(_L.reason).contains(wanted, autoescape=True))
    )
    found = {step for (step,) in database.rows(given)}
    rest = [step for step in steps if step not in found]
    for at in range(0, len(rest), AT_ONCE):
        traces = select(_S.step, _S.trace).where(_S.run == run, _S.step.in_(rest[at : at + AT_ONCE]))
        found |= {
            step for step, trace in database.rows(traces) if any(wanted in one.casefold() for one in _texts(trace))
        }
    return [step for step in steps if step in found]


def _texts(trace: str) -> Iterator[str]:
    """What a trace's JSON holds of what was asked, sent, answered and observed."""
    try:
        record = json.loads(trace)
        yield record["task"]["intent"]
        generated = record.get("generate") or {}
        yield from (message["content"] for message in generated.get("messages", ()))
        for turn in generated.get("turns", ()):
            yield from (turn["reply"]["text"], turn["observation"])
        yield from ((record.get("reward") or {}).get(name, "") for name in ("verdict", "reason"))
    except (ValueError, KeyError, TypeError, AttributeError):  # A step that cannot be read has no words to find.
        return


def _of_trace(database: Database, *path: str) -> ColumnElement[Any]:
    """A text or a list in a trace's JSON; null where there is none. An older bank has no column for it."""
    if database.is_sqlite:
        return func.json_extract(_S.trace, "$." + ".".join(path))
    part: Any = cast(func.replace(_S.trace, schema.NUL, schema.BLANK), JSON)
    for name in path:
        part = part[name]
    found: ColumnElement[Any] = part.as_string()
    return found


def _given(run: str, source: str) -> Select[Any]:
    """The attempts with a standing reward of this source; of any source for "nobody"."""
    revoked = select(_L.revokes).where(_L.run == run, _L.kind == EventKind.REWARD_REVOKED)
    given = select(_L.step_id).where(_L.run == run, _L.kind == EventKind.REWARD_GIVEN, _L.id.not_in(revoked))
    return given if source == "nobody" else given.where(_L.source == source)


def _counts(run: str, steps: Sequence[int]) -> Subquery:
    counted = (("pool", _POOLED), ("used", _C.selected), ("reranked", _RERANKED))
    counts = (func.sum(case((one, 1), else_=0)).label(name) for name, one in counted)
    return select(_C.step, *counts).where(_C.run == run, _C.step.in_(steps)).group_by(_C.step).subquery()


def _better(run: str) -> Subquery:
    """By step, how many memories of the pool were not selected although their q was above that of all selected."""
    selected = select(_C.step, func.max(_C.q).label("q")).where(_C.run == run, _C.selected).group_by(_C.step).subquery()
    return (
        select(_C.step, func.count().label("better"))
        .join(selected, selected.c.step == _C.step)
        .where(_C.run == run, ~_C.selected, _POOLED, _C.q > selected.c.q)
        .group_by(_C.step)
        .subquery()
    )


def _rows(database: Database, run: str, steps: Sequence[int]) -> list[FoundStep]:
    counts, better = _counts(run, steps), _better(run)
    columns = (_S.step, _S.id, _S.task, _S.epoch, _S.outcome, _S.reward, _S.seconds, _S.trace)
    statement = (
        select(*columns, counts.c.reranked, counts.c.pool, counts.c.used, better.c.better)
        .outerjoin(counts, counts.c.step == _S.step)
        .outerjoin(better, better.c.step == _S.step)
        .where(_S.run == run, _S.step.in_(steps))
    )
    sources = _sources(database, run, steps)
    found = {}
    for step, attempt, task, epoch, outcome, reward, seconds, trace, *counted in database.rows(statement):
        reranked, pool, used, overlooked = (count or 0 for count in counted)
        intent, valid, asked, follows = _from_trace(trace)
        outcome, given = _ending(trace) if outcome == "unrated" else outcome, sources.get(attempt, {})
        reason = " · ".join(filter(None, given.values()))
        found[step] = FoundStep(
            step, task, intent, epoch, outcome, reward, tuple(given), valid, asked,
            reranked, pool, used, seconds or 0.0, reward, reason, follows, overlooked,
        )  # fmt: skip
    return [found[step] for step in steps]


def _sources(database: Database, run: str, steps: Sequence[int]) -> dict[str, dict[str, str]]:
    """Who gave the rewards that stand, and their reason, by attempt: "environment", then people by name."""
    columns = _L.source, _L.rater, _L.reason
    given = _given(run, "nobody").add_columns(*columns).where(_L.step.in_(steps)).order_by(_L.position)
    found: dict[str, dict[str, str]] = {}
    for attempt, source, rater, reason in database.rows(given):
        found.setdefault(attempt, {})[rater if source == "person" else str(source)] = reason
    return found


def _ending(trace: str) -> str:
    """How an unrated step ended (`StepTrace.ending`)."""
    try:
        return trace_of(trace, None).ending or "unrated"
    except ValueError:  # A step that cannot be read still has its row.
        return "unrated"


def _from_trace(trace: str) -> tuple[str, int, int, tuple[str, ...] | None]:
    """The intent in a trace's JSON, how many answers were on the list offered, how many had to be, and what the answer
    follows.
    """
    try:
        record = json.loads(trace)
        offered = [turn["reply"].get("offered") for turn in (record.get("generate") or {}).get("turns", ())]
        follows = record.get("follows")
        followed = None if follows is None else tuple(map(str, follows["memories"]))
        return str(record["task"]["intent"]), offered.count(True), len(offered) - offered.count(None), followed
    except (ValueError, KeyError, TypeError, AttributeError):  # A step that cannot be read still has its row.
        return "", 0, 0, None
