"""What an answer cost in calls and tokens, and what a choice of memories cost in chances of success (regret).

Only in the household and in the parametric world are the true chances known. They are those of doing what the memories
say, in the way in which the simulated model reads a prompt; guesses, which it makes where no memory applies, count for
nothing. So regret judges retrieval, whichever model answered in the run. Source: the regret of a bandit, the sum over
steps of max_m p(s, m) - p(s, m_t) (Lattimore & Szepesvári 2020, chapter 4), with memories as arms that are available
or not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import pandas as pd

from memrl_core.bank import MemoryBank
from memrl_core.environments import make_environment
from memrl_core.environments.household import Household
from memrl_core.environments.parametric import Parametric
from memrl_core.models.simulated import next_line, offered, plans
from memrl_core.prompting import first_messages
from memrl_core.records import Consulted, Memory, StepTrace, Task, Turn


@dataclass(frozen=True, slots=True)
class StepRegret:
    """One step's chances of success; see `step_regret`."""

    step: int
    best: float  # with the best memory of the pool alone
    first: float  # with the first memory of the prompt alone
    got: float  # with the whole prompt
    regret: float  # best - got


World = Household | Parametric
"""The worlds whose true chances are known."""


def chance(world: World, task: Task, lines: Sequence[str], at_step: int) -> float:
    """The true chance that doing `lines` in their order solves `task` at `at_step`; those not offered are passed over.

    It is the product of the reliabilities of the treatments done when the lines end in success, and 0 when they end
    before it. Raises `InputError` when the task is none of that world.
    """
    return _chance(world, task, [lines], at_step)


def step_regret(bank: MemoryBank, trace: StepTrace) -> StepRegret | None:
    """The regret of a step; None where nobody knows the true chances, or without a decision.

    `best` is the highest chance with one memory alone among those available, which are the step's pool: a memory that
    phase A left out is no arm of this step. With an empty pool it is 0. So the regrets of two runs, which have pools of
    their own, are not to be compared.

    The simulated model reads the memories of a prompt in order, successes before cautions before unrated ones, and in
    each turn follows the first whose plan can be applied. So `got` is the chance with all of them. `first` is the
    chance with that one alone which can be applied when the episode begins, 0 when none can: the p(s, m_t) of a bandit
    that pulls one arm. With a prompt of one memory the two are equal.

    `regret` = best - got is below 0 where the memories of a prompt together do what none can alone; cutting that off at
    0 would add up one side of the difference only and call a policy worse than it is. best - first is never below 0,
    since a prompt is taken from the pool.
    """
    info = bank.run(trace.run)
    if trace.task.environment != info.environment or trace.decision is None:
        return None
    if info.environment not in (Household.name, Parametric.name):
        return None
    world = make_environment(info.environment, **info.environment_options)
    assert isinstance(world, World)

    def carried(*memory_ids: str) -> list[tuple[str, ...]]:
        return _plans([bank.memory(memory_id) for memory_id in memory_ids], trace.task)

    def of(plans: Sequence[Sequence[str]]) -> float:
        return _chance(world, trace.task, plans, trace.step)

    pool = [candidate.memory_id for candidate in trace.decision.candidates if candidate.score is not None]
    best = max((of(carried(memory_id)) for memory_id in pool), default=0.0)
    prompt = carried(*trace.decision.selected)
    begin = offered(world.reset(trace.task, seed=0, at_step=trace.step))
    first = next((of([lines]) for lines in prompt if next_line([lines], [], begin) is not None), 0.0)
    got = of(prompt)
    return StepRegret(trace.step, best, first, got, best - got)


def cumulative_regret(bank: MemoryBank, run: str) -> pd.DataFrame:
    """One row a step of the run that has a regret: step, best, first, got, regret, and `cumulative`, its sum so far."""
    found = [step_regret(bank, trace) for trace in bank.traces(run)]
    rows = [astuple(step) for step in found if step is not None]
    table = pd.DataFrame(rows, columns=["step", "best", "first", "got", "regret"])
    return table.assign(cumulative=table["regret"].cumsum())


class _Charmed(Household):
    """The same household where every treatment works; `chance` is how likely that was."""

    def __init__(self, world: Household, at_step: int) -> None:
        super().__init__()
        self._world = world
        self._step = at_step
        self.chance = 1.0

    def works(self, treatment: str, appliance: str) -> bool:
        self.chance *= self._world.reliability(treatment, appliance, self._step)
        return True


def _chance(world: World, task: Task, plans: Sequence[Sequence[str]], at_step: int) -> float:
    if isinstance(world, Parametric):
        line = next_line(plans, [], offered(world.reset(task, seed=0, at_step=at_step)))
        return world.chance(task, [line] if line else [], at_step)
    charmed = _Charmed(world, at_step)
    observation = charmed.reset(task, seed=0, at_step=at_step)
    done: list[str] = []
    while (line := next_line(plans, done, offered(observation))) is not None:
        observation, reward, terminated, truncated, _ = charmed.step(line)
        if terminated or truncated:
            return charmed.chance if reward else 0.0
        done.append(line)
    return 0.0


def _plans(memories: Sequence[Memory], task: Task) -> list[tuple[str, ...]]:
    messages, _ = first_messages("", memories, task.intent, "")
    return plans(messages[-1].content)


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
        _sum([*(reply.prompt_tokens for reply in replies), *map(_read, consulted)]),
        _sum([*(reply.answer_tokens for reply in replies), *map(_said, consulted)]),
        len(turns) + len(consulted),
        len(consulted),
        sum(one.filled is None for one in consulted),
        sum(reply.seconds for reply in replies) + sum(one.seconds for one in consulted),
    )


def step_cost(trace: StepTrace) -> Cost:
    """The cost of a step of this program's agent."""
    return cost_of(trace.generate.turns if trace.generate is not None else (), trace.consulted)


def _read(one: Consulted) -> int | None:
    return sum(len(message.content.split()) for message in one.messages) if one.simulated else one.prompt_tokens


def _said(one: Consulted) -> int | None:
    return len(json.dumps(one.filled).split()) if one.simulated else one.answer_tokens


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
