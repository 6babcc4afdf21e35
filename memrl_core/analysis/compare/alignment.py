"""Steps of several runs side by side: the same task, met for the same time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memrl_core.analysis.compare.counterfactual import Supposed
from memrl_core.analysis.decision.moment import outcome_now
from memrl_core.analysis.decision.outline import valid_answers
from memrl_core.analysis.memory.exposure import rated_by_people
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.records import EventKind, Outcome, RunInfo, StepTrace

Occurrence = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class ComparedStep:
    """What a comparison reads of one finished step; None is what nobody knows.

    `task` is "" where nobody named it. `reward` and `outcome` are those that count now, with what people said since.
    `answer` joins the replies of all turns; `pool` and `selected` are what phases A and B gave. `valid` is the share of
    its answers that were among the lines offered, of those that had to be.
    """

    run: str
    step: int
    task: str
    intent: str
    pool: int | None = None
    selected: tuple[str, ...] | None = None
    answer: str | None = None
    reward: float | None = None
    outcome: Outcome | None = None
    turns: int | None = None
    tokens_read: int | None = None
    tokens_written: int | None = None
    valid: float | None = None
    follows: bool | None = None
    at_hand: bool | None = None
    taken: bool | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A run as a sequence of steps: a fork's own steps come after those of the run that it goes on from."""

    name: str
    info: RunInfo
    steps: tuple[ComparedStep, ...]

    @property
    def own(self) -> Line:
        """Without the steps of the run that it goes on from."""
        return replace(self, steps=tuple(step for step in self.steps if step.run == self.info.id))


@dataclass(frozen=True, slots=True)
class Row:
    """One task met for the `occurrence`-th time (from 1), with the step of every line."""

    task: str
    intent: str
    occurrence: int
    steps: tuple[ComparedStep, ...]


@dataclass(frozen=True, slots=True)
class Alignment:
    """What several lines have in common.

    `past` steps are the very same in all lines and are not compared; `rows` are the steps that all lines took after
    that, in the order of the first; `alone` counts for each line the steps that some other line has no like of.
    """

    lines: tuple[Line, ...]
    past: int
    rows: tuple[Row, ...]
    alone: tuple[int, ...]

    def reordered(self, line: int) -> bool:
        """Whether a line met the tasks of the rows in another order than the first."""
        index_of = {(s.run, s.step): index for index, s in enumerate(self.lines[line].steps)}
        order = [index_of[row.steps[line].run, row.steps[line].step] for row in self.rows]
        return order != sorted(order)


def line_of(bank: MemoryBank, run: str) -> Line:
    """A run with its past. Raises `UnknownRun`."""
    info = bank.run(run)
    own = _steps_of(bank, run)
    if info.base is None or info.first_step == 1:
        return Line(run, info, own)
    past = tuple(step for step in line_of(bank, info.base).steps if step.step < info.first_step)
    return Line(run, info, past + own)


def parted_after(one: Line, other: Line) -> int:
    """The last step that two runs share because one goes on from the other; 0 when they share none."""
    taken = {(step.run, step.step) for step in other.steps}
    shared = (step.step for step in one.steps if (step.run, step.step) in taken)
    return max(shared, default=0) if one.info.id != other.info.id else 0


def supposed_line(line: Line, supposed: Sequence[Supposed], name: str) -> Line:
    """The steps of `line` as they would have been selected; what would have followed is not known."""
    by_step = {s.step: s for s in supposed}
    steps = tuple(
        ComparedStep(step.run, step.step, step.task, step.intent, len(one.recall.pool), one.selected)
        for step in line.own.steps
        if (one := by_step.get(step.step)) is not None
    )
    return Line(name, line.info, steps)


def align(lines: Sequence[Line]) -> Alignment:
    """Pair the steps of two or more lines by task and occurrence; tasks are one when their name and intent are.

    Raises `InputError` for fewer than two lines, and for a line that is there twice.
    """
    if len(lines) < 2:
        raise InputError("A comparison needs two runs. Choose a second one.")
    if len({line.name for line in lines}) < len(lines):
        raise InputError("A run does not differ from itself. Choose another run, or the same under other settings.")
    met = [_occurrences(line) for line in lines]
    common = [key for key in met[0] if all(key in others for others in met[1:])]
    rows = [Row(*key, tuple(steps[key] for steps in met)) for key in common]
    compared = tuple(row for row in rows if not _is_past(row, lines))
    alone = tuple(len(line.steps) - len(rows) for line in lines)
    return Alignment(tuple(lines), len(rows) - len(compared), compared, alone)


def counterparts(bank: MemoryBank, alignment: Alignment, line: int) -> dict[str, str]:
    """For each memory that only another line knows, the one that only the first knows and that the paired step wrote.

    Memories that both lines know stand for themselves and are not listed. The texts of two counterparts may differ.
    """
    one, other = alignment.lines[0].info.id, alignment.lines[line].info.id
    known, theirs = bank.utilities(one).keys(), bank.utilities(other).keys()
    mine = _written(bank, alignment.lines[0], known - theirs)
    foreign = _written(bank, alignment.lines[line], theirs - known)
    like: dict[str, str] = {}
    for row in alignment.rows:
        first, second = row.steps[0], row.steps[line]
        of_first, of_second = mine.get((first.run, first.step), ()), foreign.get((second.run, second.step), ())
        like.update(zip(of_second, of_first, strict=False))
    return like


def _written(bank: MemoryBank, line: Line, ids: set[str]) -> Mapping[tuple[str, int], list[str]]:
    """Which of the memories each step wrote, by run and step; what changed a run between two steps is left out."""
    written: dict[tuple[str, int], list[str]] = defaultdict(list)
    for run in dict.fromkeys([*(step.run for step in line.steps), line.info.id]):
        for event in bank.events(run):
            if event.kind is EventKind.MEMORY_WRITTEN:
                written[run, event.step] += [memory_id for memory_id in event.memory_ids if memory_id in ids]
    return written


def _is_past(row: Row, lines: Sequence[Line]) -> bool:
    different_runs = len({line.info.id for line in lines}) > 1
    return different_runs and len({(step.run, step.step) for step in row.steps}) == 1


def _occurrences(line: Line) -> dict[Occurrence, ComparedStep]:
    seen: Counter[tuple[str, str]] = Counter()
    met = {}
    for step in line.steps:
        seen[step.task, step.intent] += 1
        met[step.task, step.intent, seen[step.task, step.intent]] = step
    return met


def _steps_of(bank: MemoryBank, run: str) -> tuple[ComparedStep, ...]:
    later = rated_by_people(bank, run)
    steps = []
    for trace in bank.each_trace(run):
        reward, outcome = (trace.reward.reward, trace.reward.outcome) if trace.reward else (None, "unrated")
        if trace.step in later and later[trace.step] != reward:
            reward = later[trace.step]
            outcome = outcome_now(trace, reward)
        steps.append(_step_of(trace, reward, outcome))
    return tuple(steps)


def _step_of(trace: StepTrace, reward: float | None, outcome: Outcome) -> ComparedStep:
    turns = trace.generate.turns if trace.generate else None
    valid, asked = valid_answers(trace)
    found = trace.follows if trace.decision is not None and trace.decision.selected else None
    return ComparedStep(
        run=trace.run,
        step=trace.step,
        task=_name_of(trace),
        intent=trace.task.intent,
        pool=len(trace.recall.pool) if trace.recall else None,
        selected=trace.decision.selected if trace.decision else None,
        answer="\n".join(turn.reply.text for turn in turns) if turns else None,
        reward=reward,
        outcome=None if outcome == "unrated" else outcome,
        turns=len(turns) if turns else None,
        tokens_read=_total([turn.reply.prompt_tokens for turn in turns or ()]),
        tokens_written=_total([turn.reply.answer_tokens for turn in turns or ()]),
        valid=valid / asked if asked else None,
        follows=bool(found.memories) if found else None,
        at_hand=found.at_hand if found else None,
        taken=found.taken if found and found.at_hand else None,
    )


def _name_of(trace: StepTrace) -> str:
    """The task's id, or "" for one that was only made from the step's number: the same task has another elsewhere."""
    made_up = {"recorder": f"{trace.run}-{trace.step}", "agent": f"typed-{trace.step}"}.get(trace.origin)
    return "" if trace.task.id == made_up else trace.task.id


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None
