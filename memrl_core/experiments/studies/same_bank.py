"""Several methods choose from one bank: each step of a run decided and answered again by each of them.

Whoever made the run, at every step each method sees the very memories and q that the run had then, and what it would
itself have learned by watching the run so far. It selects, and the model answers again with its selection: same task,
same luck. Nothing is stored, so this compares how methods choose, not what they would have written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from memrl_core.agent import NO_VECTOR
from memrl_core.agent.asking import Asking
from memrl_core.agent.rerun import Rerunner
from memrl_core.analysis.run.consultations import cost_of
from memrl_core.bank import MemoryBank
from memrl_core.embedders.base import Embedder
from memrl_core.environments.base import Environment
from memrl_core.experiments.studies.study import Stopped
from memrl_core.learning import effective_reward
from memrl_core.models.base import Cancelled, LanguageModel, ModelOptions
from memrl_core.policies import make_policy, settings_that_fit
from memrl_core.policies.base import Lesson, Policy, outcome_now
from memrl_core.records import Phase, StepTrace
from memrl_core.retrieval.view import Asked, MemoryView


class SameBank:
    """The finished steps of a run, for methods to choose again. Steps without a prompt are passed over."""

    def __init__(
        self, bank: MemoryBank, run: str, model: LanguageModel, embedder: Embedder, environment: Environment
    ) -> None:
        self.bank, self.run = bank, run
        self.model, self.embedder, self.environment = model, embedder, environment
        self._traces = {trace.step: trace for trace in bank.traces(run)}
        self.steps = tuple(step for step, trace in self._traces.items() if trace.decision and trace.generate)

    def choose(
        self,
        policy: Policy[Any],
        *,
        steps: Collection[int] | None = None,
        on_answer: Callable[[], None] | None = None,
        cancelled: Cancelled | None = None,
    ) -> pd.DataFrame:
        """A row for each of `steps` (None: all) with what `policy` selects and what the model makes of it.

        Columns: `policy`, `badge`, `stage`, `epoch`, `step`, `task`, `family`, `success`; `recorded`, whether the run
        itself solved the step; `used`, the ids selected; `overlap`, memories in both selections as a share of those in
        either (1 where both are empty); the cost (`analysis.cost`); and its `model_seconds`.

        The policy learns from every step of the run, and of the runs that this one began from, whether it is answered
        or not. `on_answer` hears of every answer. Raises `Stopped` within a step when `cancelled()` turns true, and
        what a model or the policy raises.
        """
        watcher = _Watcher(self, policy, cancelled or (lambda: False))
        watcher.catch_up(self.run)
        wanted = set(self.steps if steps is None else steps).intersection(self.steps)
        rows = []
        for step, view in self.bank.walk(self.run):
            if step in wanted:
                rows.append(watcher.answer(self._traces[step], view))
                if on_answer is not None:
                    on_answer()
            if step in self._traces:
                watcher.learn(self._traces[step])
        return pd.DataFrame(rows)


class _Watcher:
    """A policy that watches a run, with what it has learned so far."""

    def __init__(self, same: SameBank, policy: Policy[Any], stop: Cancelled) -> None:
        self._same, self._bank, self._policy, self._stop = same, same.bank, policy, stop
        self._state = policy.start(())

    def catch_up(self, run: str) -> None:
        """Learn from what the run began with."""
        info = self._bank.run(run)
        if info.base is None or self._state is None:
            return
        self.catch_up(info.base)
        for trace in self._bank.traces(info.base, (self._bank.run(info.base).first_step, info.base_step)):
            self.learn(trace)

    def learn(self, trace: StepTrace) -> None:
        """Learn from a step as it stands now. Raises `Stopped`."""
        if self._stop():
            raise Stopped
        if self._state is None:
            return
        reward = effective_reward(self._bank.active_rewards(trace.run, trace.step, trace.id), trace.settings)
        made_by = make_policy(trace.policy, settings_that_fit(trace.policy, trace.settings).model_dump())
        lesson = Lesson(trace, reward, outcome_now(made_by, trace, reward), self._bank.embedding, self._bank.memory)
        self._policy.learn(self._state, lesson)
        self._policy.remember(self._state, lesson)

    def answer(self, trace: StepTrace, view: MemoryView) -> dict[str, Any]:
        """The row of a step answered with what the policy selects."""
        assert trace.decision is not None and trace.generate is not None
        if self._stop():
            raise Stopped
        same, policy, task = self._same, self._policy, trace.task
        observation = same.environment.reset(task, seed=trace.decision.seed, at_step=trace.step)
        asked = Asked(
            NO_VECTOR,
            task=task.id,
            intent=task.intent,
            observation=observation,
            step=trace.step,
            seed=trace.decision.seed,
        )
        asked = replace(asked, embedding=same.embedder.embed([policy.key(asked)])[0])
        view = replace(view, asked=asked, learned=self._state)
        recalled = policy.recall(asked.embedding, view)
        options = ModelOptions.model_validate(trace.generate.options)
        ask = Asking(same.model, options, Phase.SELECT, cancelled=self._stop)
        view = replace(view, asked=replace(asked, answers=policy.consult(recalled, view, ask)))
        decision = policy.select(recalled, view, trace.decision.seed)
        rerunner = Rerunner(
            self._bank, trace, same.model, same.environment, policy=policy, view=view, embed=same.embedder.embed
        )
        again = rerunner.rerun(decision.selected, cancelled=self._stop)
        if again.stopped or self._stop():
            raise Stopped
        cost = cost_of(again.generate.turns, (*ask.asked, *again.consulted))
        return {
            "policy": policy.spec.name,
            "badge": policy.spec.variant,
            "stage": 1,
            "epoch": trace.epoch,
            "step": trace.step,
            "task": task.id,
            "family": task.family,
            "success": _solved(again.outcome),
            "recorded": _solved(trace.reward.outcome if trace.reward is not None else "unrated"),
            "used": list(decision.selected),
            "overlap": _overlap(decision.selected, trace.decision.selected),
            "prompt_tokens": cost.prompt_tokens,
            "answer_tokens": cost.answer_tokens,
            "calls": cost.calls,
            "consulted": cost.consulted,
            "unparsed": cost.unparsed,
            "model_seconds": cost.seconds,
        }


def _solved(outcome: str) -> bool | None:
    return None if outcome == "unrated" else outcome == "success"


def _overlap(one: Sequence[str], other: Sequence[str]) -> float:
    both, either = set(one) & set(other), set(one) | set(other)
    return len(both) / len(either) if either else 1.0
