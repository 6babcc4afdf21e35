"""What an answer cost in calls, tokens and seconds, and how often a policy's own questions came back as asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from memrl_core.bank import MemoryBank
from memrl_core.records import Consulted, StepTrace, Turn


@dataclass(frozen=True, slots=True)
class Consultations:
    """What became of all questions of one purpose in a run.

    Of the `asked`, some were `not_parsed` (the model's reply did not fit the form) or filled by the policy's own
    template where no model was asked (`simulated`); a model filled the others.
    """

    purpose: str
    asked: int
    not_parsed: int
    simulated: int

    @property
    def failure_rate(self) -> float | None:
        """The share of the model's replies that did not fit the form; None where no model was asked."""
        replies = self.asked - self.simulated
        return self.not_parsed / replies if replies else None


def consultations(bank: MemoryBank, run: str) -> list[Consultations]:
    """One entry per purpose of the run's finished steps, in the order in which they were first asked.

    Raises `UnknownRun`.
    """
    by_purpose: dict[str, list[Consulted]] = {}
    for trace in bank.each_trace(run):
        for one in trace.consulted:
            by_purpose.setdefault(one.purpose, []).append(one)
    return [
        Consultations(
            purpose, len(asked), sum(one.filled is None for one in asked), sum(one.simulated for one in asked)
        )
        for purpose, asked in by_purpose.items()
    ]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one step asked of the model.

    `calls` are the turns of the answer and the method's own questions, which are `consulted`; of these, `unparsed` came
    back in a form that could not be read. Tokens are None when the model did not report them. `seconds` are the
    model's.
    """

    prompt_tokens: int | None
    answer_tokens: int | None
    calls: int
    consulted: int
    unparsed: int
    seconds: float


def cost_of(turns: Sequence[Turn], consulted: Sequence[Consulted]) -> Cost:
    """The cost of an answer of `turns` for which a method asked `consulted`.

    The simulated model counts words as tokens. A question that its template answered counts alike: as if a model had
    read it and had filled in the form. Putting an experience into words is not in a step's record, nor here.
    """
    replies = [turn.reply for turn in turns]
    return Cost(
        _sum([*(reply.prompt_tokens for reply in replies), *map(_tokens_read, consulted)]),
        _sum([*(reply.answer_tokens for reply in replies), *map(_tokens_said, consulted)]),
        len(turns) + len(consulted),
        len(consulted),
        sum(one.filled is None for one in consulted),
        sum(reply.seconds for reply in replies) + sum(one.seconds for one in consulted),
    )


def step_cost(trace: StepTrace) -> Cost:
    """The cost of a step of this program's agent."""
    return cost_of(trace.generate.turns if trace.generate is not None else (), trace.consulted)


def _tokens_read(one: Consulted) -> int | None:
    return sum(len(message.content.split()) for message in one.messages) if one.simulated else one.prompt_tokens


def _tokens_said(one: Consulted) -> int | None:
    return len(json.dumps(one.filled).split()) if one.simulated else one.answer_tokens


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
