"""A method that watches a run: what it has learned when each finished step has ended. Nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from memrl_core.agent.learned import learned_before, learned_steps
from memrl_core.bank import MemoryBank
from memrl_core.learning import effective_reward
from memrl_core.models.base import Cancelled
from memrl_core.policies import make_policy, settings_that_fit
from memrl_core.policies.base import Lesson, Policy, outcome_now
from memrl_core.records import StepTrace

Progress = Callable[[int, int], None]
READ_AT_ONCE = 100


@dataclass(frozen=True, slots=True, eq=False)
class Watching:
    """A method, by the name of its policy, that has watched a run up to the end of `step`."""

    bank: MemoryBank
    run: str
    step: int
    policy: str

    @property
    def own(self) -> bool:
        """Whether the run itself goes by the method."""
        return self.bank.run(self.run).policy == self.policy

    @property
    def trace(self) -> StepTrace:
        """The step looked at. Raises `InputError` when the run has no such step."""
        return self.bank.trace(self.run, self.step)

    def method(self) -> Policy[Any]:
        """The method under those of the step's settings that it knows. Raises `SettingsError`."""
        settings = settings_that_fit(self.policy, self.bank.settings(self.run, self.step))
        return make_policy(self.policy, settings.model_dump())

    def before(self) -> Any:
        """A copy of the state with which the step began; None where the method keeps none."""
        return learned_before(self.bank, self.run, self.step, self.policy)

    def after(self) -> Any:
        """A copy of the state in which the step left the method; None where it keeps none."""
        return learned_before(self.bank, self.run, self.step + 1, self.policy)

    def lesson(self) -> Lesson:
        """The step as the method learns from it, with the reward that stands now."""
        return lesson_of(self.bank, self.trace)

    def traces(self, on_progress: Progress | None = None, cancelled: Cancelled | None = None) -> Iterator[StepTrace]:
        """Every finished step of the run up to `step`. Ends early once `cancelled()` is true."""
        first = self.bank.run(self.run).first_step
        for start in range(first, self.step + 1, READ_AT_ONCE):
            for trace in self.bank.traces(self.run, (start, min(self.step, start + READ_AT_ONCE - 1))):
                if cancelled is not None and cancelled():
                    return
                if on_progress is not None:
                    on_progress(trace.step - first + 1, self.step - first + 1)
                yield trace

    def steps(
        self, on_progress: Progress | None = None, cancelled: Cancelled | None = None
    ) -> Iterator[tuple[StepTrace, Any]]:
        """Every finished step of the run up to `step` with the state at its end, which changes in place.

        Ends early once `cancelled()` is true.
        """
        first, ended = self.bank.run(self.run).first_step, None
        for trace, state in learned_steps(self.bank, self.run, self.policy):
            if ended is not None:
                yield ended, state
            if trace.step > self.step or (cancelled is not None and cancelled()):
                return
            if on_progress is not None:
                on_progress(trace.step - first + 1, self.step - first + 1)
            ended = trace
        if ended is not None:
            yield ended, state


def lesson_of(bank: MemoryBank, trace: StepTrace) -> Lesson:
    """A finished step as any method learns from it, with the reward that stands now."""
    reward = effective_reward(bank.active_rewards(trace.run, trace.step, trace.id), trace.settings)
    outcome = outcome_now(make_policy(trace.policy, trace.settings), trace, reward)
    return Lesson(trace, reward, outcome, bank.embedding, bank.memory)
