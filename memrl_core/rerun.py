"""A finished step answered again with other memories in the prompt: same task, same seed, nothing stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from memrl_core.asked import view_before
from memrl_core.bank import MemoryBank
from memrl_core.environments.base import Environment
from memrl_core.errors import InputError
from memrl_core.models.base import Cancelled, LanguageModel, OnText
from memrl_core.policies import make_policy
from memrl_core.records import GenerateRecord, Outcome, StepTrace
from memrl_core.turns import ended, take_turn


@dataclass(frozen=True, slots=True)
class Rerun:
    """What happened with `memories` in the prompt, in their order.

    `reward` is on the policy's scale; None when the environment gives none or the answer was stopped.
    """

    memories: tuple[str, ...]
    generate: GenerateRecord
    verdict: str
    reward: float | None
    outcome: Outcome

    @property
    def answer(self) -> str:
        """All that the model said, a turn a line."""
        return "\n".join(turn.reply.text for turn in self.generate.turns)

    @property
    def stopped(self) -> bool:
        """Whether a person cut the answer short."""
        return self.generate.turns[-1].reply.stopped


class Rerunner:
    """Answers one finished step again. Raises `InputError` for a step without a prompt."""

    def __init__(self, bank: MemoryBank, trace: StepTrace, model: LanguageModel, environment: Environment) -> None:
        if trace.decision is None or trace.generate is None:
            raise InputError("This step was recorded without its prompt, so it cannot be answered again.")
        self._bank, self._trace, self._model, self._environment = bank, trace, model, environment
        self._policy = make_policy(trace.policy, trace.settings)
        self.memories = trace.decision.selected
        self.rewarded = environment.reward_source == "environment"

    def rerun(
        self, memories: Sequence[str], on_text: OnText | None = None, cancelled: Cancelled | None = None
    ) -> Rerun:
        """The answer with these memories in the prompt. Raises `ModelError` when the model cannot be had."""
        trace, world = self._trace, self._environment
        assert trace.decision is not None and trace.generate is not None
        observation = world.reset(trace.task, seed=trace.decision.seed, at_step=trace.step)
        told = [self._bank.memory(memory_id) for memory_id in memories]
        messages, spans = self._policy.render(
            told, world.instructions, trace.task.intent, observation, view_before(self._bank, trace)
        )
        record = GenerateRecord(
            self._model.name, self._model.simulated, trace.generate.options, messages, spans, turns=()
        )
        while not record.turns or not ended(record.turns[-1]):
            turn, info = take_turn(self._model, world, record, on_text, cancelled)
            record = replace(record, turns=(*record.turns, turn))
        last = record.turns[-1]
        reward = self._policy.reward_of(last.reward) if self.rewarded and not last.reply.stopped else None
        return Rerun(tuple(memories), record, str(info.get("verdict", "")), reward, self._policy.outcome_of(reward))
