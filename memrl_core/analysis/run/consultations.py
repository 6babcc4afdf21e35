"""How often a policy's questions to the model came back as the form that was asked for, and what they cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from memrl_core.bank import MemoryBank
from memrl_core.records import Consulted

READ_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Consultations:
    """What became of all questions of one purpose in a run.

    Each of the `asked` was either `filled` by a model, `not_parsed` (the model's reply did not fit the form), or filled
    by the policy's own template where no model was asked (`simulated`). `tokens` of prompts and replies together, as
    far as the model reports them, and `seconds` are sums.
    """

    purpose: str
    asked: int
    filled: int
    not_parsed: int
    simulated: int
    tokens: int
    seconds: float

    @property
    def failure_rate(self) -> float | None:
        """The share of the model's replies that did not fit the form; None where no model was asked."""
        replies = self.filled + self.not_parsed
        return self.not_parsed / replies if replies else None


def consultations(bank: MemoryBank, run: str) -> list[Consultations]:
    """One entry a purpose of the run's finished steps, in the order in which they were first asked.

    Raises `UnknownRun`.
    """
    return summed(_asked(bank, run))


def summed(asked: Iterable[Consulted]) -> list[Consultations]:
    """One entry a purpose of these questions, in the order in which they were first asked."""
    by_purpose: dict[str, list[Consulted]] = {}
    for one in asked:
        by_purpose.setdefault(one.purpose, []).append(one)
    return [_of_purpose(purpose, questions) for purpose, questions in by_purpose.items()]


def _asked(bank: MemoryBank, run: str) -> Iterator[Consulted]:
    first = bank.run(run).first_step
    for start in range(first, bank.next_step(run), READ_AT_ONCE):
        for trace in bank.traces(run, (start, start + READ_AT_ONCE - 1)):
            yield from trace.consulted


def _of_purpose(purpose: str, asked: Sequence[Consulted]) -> Consultations:
    simulated = sum(one.simulated for one in asked)
    not_parsed = sum(one.filled is None for one in asked)
    return Consultations(
        purpose=purpose,
        asked=len(asked),
        filled=len(asked) - simulated - not_parsed,
        not_parsed=not_parsed,
        simulated=simulated,
        tokens=sum((one.prompt_tokens or 0) + (one.answer_tokens or 0) for one in asked),
        seconds=sum(one.seconds for one in asked),
    )
