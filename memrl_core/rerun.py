"""A finished step answered again with other memories in the prompt: same task, same seed, nothing stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from memrl_core.agent import NO_VECTOR, step_seed
from memrl_core.asked import view_before
from memrl_core.asking import Asking
from memrl_core.bank import MemoryBank
from memrl_core.embedders.base import Vectors
from memrl_core.environments.base import Environment
from memrl_core.errors import InputError
from memrl_core.models.base import Cancelled, LanguageModel, ModelOptions, OnText
from memrl_core.policies import make_policy
from memrl_core.policies.base import Policy, outcome_judged
from memrl_core.records import Consulted, GenerateRecord, Outcome, Phase, StepTrace, TurnRecall
from memrl_core.turns import Embed, ended, recalled_for, take_turn, with_turn
from memrl_core.view import Asked, MemoryView


@dataclass(frozen=True, slots=True)
class Rerun:
    """What happened with `memories` in the prompt, in their order.

    `reward` is on the policy's scale; None when the environment gives none or the answer was stopped. `consulted` is
    what the policy asked the model within the episode.
    """

    memories: tuple[str, ...]
    generate: GenerateRecord
    verdict: str
    reward: float | None
    outcome: Outcome
    consulted: tuple[Consulted, ...] = ()

    @property
    def answer(self) -> str:
        """All that the model said, a turn a line."""
        return "\n".join(turn.reply.text for turn in self.generate.turns)

    @property
    def stopped(self) -> bool:
        """Whether a person cut the answer short."""
        return self.generate.turns[-1].reply.stopped


class Rerunner:
    """Answers one finished step again. Raises `InputError` for a step without a prompt.

    With `policy`, the prompt and what is recalled within the episode follow its rules, on the `view` that it saw; else
    the step's own. `embed` makes the vectors for what is recalled within an episode.
    """

    def __init__(
        self,
        bank: MemoryBank,
        trace: StepTrace,
        model: LanguageModel,
        environment: Environment,
        policy: Policy[Any] | None = None,
        view: MemoryView | None = None,
        embed: Embed | None = None,
        must_hold: Callable[[], None] | None = None,
    ) -> None:
        if trace.decision is None or trace.generate is None:
            raise InputError("This step was recorded without its prompt, so it cannot be answered again.")
        self._bank, self._trace, self._model, self._environment = bank, trace, model, environment
        self._policy = policy or make_policy(trace.policy, trace.settings)
        self._view = view
        self._embed = embed
        self._must_hold = must_hold
        self.memories = trace.decision.selected
        self.rewarded = environment.reward_source == "environment"

    def rerun(
        self, memories: Sequence[str], on_text: OnText | None = None, cancelled: Cancelled | None = None
    ) -> Rerun:
        """The answer with these memories in the prompt.

        Raises `ModelError` when the model cannot be had, and `InputError` when the policy recalls within the episode
        and there is no `embed`.
        """
        if self._must_hold is not None:
            self._must_hold()
        trace, world = self._trace, self._environment
        assert trace.decision is not None and trace.generate is not None
        observation = world.reset(trace.task, seed=trace.decision.seed, at_step=trace.step)
        view = self._view or view_before(self._bank, trace)
        told = [self._bank.memory(memory_id) for memory_id in memories]
        messages, spans = self._policy.render(told, world.instructions, trace.task.intent, observation, view)
        record = GenerateRecord(
            self._model.name, self._model.simulated, trace.generate.options, messages, spans, turns=()
        )
        ask = Asking(
            self._model, ModelOptions.model_validate(record.options), Phase.GENERATE, on_text=None, cancelled=cancelled
        )
        while not record.turns or not ended(record.turns[-1]):
            recalled = self._recalled(len(record.turns), observation, view, ask) if record.turns else None
            turn, info = take_turn(self._model, world, record, on_text, cancelled, recalled, selected=memories)
            record, observation = with_turn(record, turn), turn.observation
        last = record.turns[-1]
        judged = self.rewarded and not last.reply.stopped and info.get("success", True) is not None
        reward = self._policy.reward_of(last.reward) if judged else None
        return Rerun(
            tuple(memory_id for memory_id in memories if memory_id not in record.turns[0].left_out),
            record,
            str(info.get("verdict", "")),
            reward,
            outcome_judged(self._policy, reward, info.get("success")),
            tuple(ask.asked),
        )

    def _recalled(self, turn: int, observation: str, view: MemoryView, ask: Asking) -> TurnRecall | None:
        """Both phases before a later turn, where the policy asks for them."""
        task = self._trace.task
        assert self._trace.decision is not None
        begin = view.asked.embedding if view.asked is not None else NO_VECTOR
        asked = Asked(
            begin,
            task=task.id,
            intent=task.intent,
            observation=observation,
            turn=turn,
            step=self._trace.step,
        )
        seed = step_seed(self._trace.decision.seed, turn)
        return recalled_for(self._policy, asked, view, self._embed or _no_embedder, ask, seed)


def _no_embedder(texts: Sequence[str]) -> Vectors:
    raise InputError("This method recalls within an episode, which needs an embedder. Nothing was answered.")
