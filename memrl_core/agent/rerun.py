"""A finished step answered again, with other memories or with another prompt: same task, nothing stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import factorial
from typing import Literal

from memrl_core.agent import NO_VECTOR, step_seed
from memrl_core.agent.asking import Asking, view_before
from memrl_core.agent.turns import Embed, ended, no_answer, recalled_for, take_turn, with_turn
from memrl_core.bank import MemoryBank
from memrl_core.embedders.base import Vectors
from memrl_core.environments.base import Environment
from memrl_core.errors import InputError
from memrl_core.models.base import Cancelled, LanguageModel, ModelOptions, OnText, Progress, never, unheard
from memrl_core.policies import make_policy
from memrl_core.policies.base import outcome_judged
from memrl_core.records import GenerateRecord, Message, Outcome, Phase, StepTrace
from memrl_core.retrieval.view import Asked, MemoryView

Method = Literal["leave-one-out", "Shapley"]
MOST_RERUNS = 32


@dataclass(frozen=True, slots=True)
class Credit:
    """Each memory's `shares` in the reward `reached` with all of them."""

    method: Method
    shares: Mapping[str, float]
    reached: float

    def rewards(self, low: float, high: float) -> dict[str, float]:
        """Each memory's own reward on the scale of q, r− … r+.

        A share lies between −(r+ − r−) and r+ − r−, so half of it from the middle: what made no difference gets the
        middle, what turned failure into success r+.
        """
        return {memory_id: (low + high) / 2 + share / 2 for memory_id, share in self.shares.items()}


def cost(method: Method, memories: int) -> int:
    """How many answers a method needs of the model."""
    return memories + 1 if method == "leave-one-out" else 2**memories


def subsets(method: Method, memories: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The prompts to be answered, each in the order of the decision; the whole one first."""
    sizes = range(len(memories), -1, -1) if method == "Shapley" else range(len(memories), len(memories) - 2, -1)
    return [chosen for size in sizes if size >= 0 for chosen in combinations(memories, size)]


def credit(
    method: Method,
    memories: tuple[str, ...],
    answered: Callable[[tuple[str, ...]], Rerun],
    on_progress: Progress = unheard,
    cancelled: Cancelled = never,
) -> Credit | None:
    """Shares by answering again; None when it was cancelled. `on_progress` gets answers done and answers needed.

    Raises `InputError` without a memory, when more than `MOST_RERUNS` answers would be needed, or when the environment
    gives no reward.
    """
    if not memories:
        raise InputError("No memory was in this prompt, so there is nothing to share the reward among.")
    needed = cost(method, len(memories))
    if needed > MOST_RERUNS:
        raise InputError(
            f"{method} of {len(memories)} memories needs {needed} answers; at most {MOST_RERUNS} are made."
        )
    worth: dict[frozenset[str], float] = {}
    for done, chosen in enumerate(subsets(method, memories)):
        on_progress(done, needed)
        again = answered(chosen)
        if again.stopped or cancelled():
            return None
        if again.reward is None:
            raise InputError("The environment gives no reward of its own here, so there is nothing to share.")
        worth[frozenset(chosen)] = again.reward
    everyone = frozenset(memories)
    if method == "leave-one-out":
        shares = {m: worth[everyone] - worth[everyone - {m}] for m in memories}
    else:
        shares = {m: _shapley(m, everyone, worth) for m in memories}
    return Credit(method, shares, worth[everyone])


def _shapley(memory: str, everyone: frozenset[str], worth: Mapping[frozenset[str], float]) -> float:
    n = len(everyone)
    return sum(
        factorial(len(others)) * factorial(n - len(others) - 1) / factorial(n) * (worth[others | {memory}] - value)
        for others, value in worth.items()
        if memory not in others
    )


@dataclass(frozen=True, slots=True)
class Rerun:
    """What came of it. `reward` is on the policy's scale; None where there was none or the answer was stopped."""

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
    """Answers one finished step again. Raises `InputError` for a step without a prompt.

    `embed` makes the vectors for what is recalled within an episode.
    """

    def __init__(
        self,
        bank: MemoryBank,
        trace: StepTrace,
        model: LanguageModel,
        environment: Environment,
        embed: Embed | None = None,
        must_hold: Callable[[], None] | None = None,
    ) -> None:
        if trace.decision is None or trace.generate is None:
            raise InputError("This step was recorded without its prompt, so it cannot be answered again.")
        self._bank, self._trace, self._model, self._environment = bank, trace, model, environment
        self._policy = make_policy(trace.policy, trace.settings)
        self._recorded = replace(trace.generate, model=model.name, simulated=model.simulated, turns=())
        self._seed = trace.decision.seed
        self._embed = embed
        self._must_hold = must_hold
        self.memories = trace.decision.selected
        self.rewarded = environment.reward_source == "environment"

    def rerun(self, memories: Sequence[str], cancelled: Cancelled | None = None) -> Rerun:
        """The answer with these memories in the prompt.

        Raises `ModelError` when the model cannot be had, and `InputError` when the policy recalls within the episode
        and there is no `embed`.
        """
        view, observation = self._begun()
        read = [self._bank.memory(memory_id) for memory_id in memories]
        messages, spans = self._policy.render(
            read, self._environment.instructions, self._trace.task.intent, observation, view
        )
        record = replace(self._recorded, messages=messages, spans=spans)
        return self._played(record, memories, view, observation, None, cancelled)

    def rerun_prompt(
        self,
        messages: Sequence[Message],
        temperature: float,
        seed: int,
        on_text: OnText | None = None,
        cancelled: Cancelled | None = None,
        on_turn: Callable[[GenerateRecord], None] | None = None,
    ) -> Rerun:
        """The answer to `messages` in the place of the recorded ones, with this temperature and seed.

        `on_turn` gets the record after each turn. Where memories stand in an edited prompt is not known, so none is
        left out where it does not fit. Raises as `rerun`.
        """
        view, observation = self._begun()
        options = {**self._recorded.options, "temperature": temperature, "seed": seed}
        record = replace(self._recorded, options=options)
        if tuple(messages) != record.messages:
            record = replace(record, messages=tuple(messages), spans=())
        return self._played(record, self.memories, view, observation, on_text, cancelled, on_turn)

    def _begun(self) -> tuple[MemoryView, str]:
        """What the step recalled from, and what its world says first."""
        if self._must_hold is not None:
            self._must_hold()
        trace = self._trace
        observation = self._environment.reset(trace.task, seed=self._seed, at_step=trace.step)
        return view_before(self._bank, trace), observation

    def _played(
        self,
        record: GenerateRecord,
        memories: Sequence[str],
        view: MemoryView,
        observation: str,
        on_text: OnText | None,
        cancelled: Cancelled | None,
        on_turn: Callable[[GenerateRecord], None] | None = None,
    ) -> Rerun:
        """The episode that begins with the prompt in `record`."""
        world, task = self._environment, self._trace.task
        begin = view.asked.embedding if view.asked is not None else NO_VECTOR
        ask = Asking(
            self._model, ModelOptions.model_validate(record.options), Phase.GENERATE, on_text=None, cancelled=cancelled
        )
        begun = time.perf_counter()
        while not record.turns or not ended(record.turns[-1]):
            recalled = None
            if turn_number := len(record.turns):
                asked = Asked(begin, task.id, task.intent, observation, turn_number, self._trace.step)
                seed = step_seed(self._seed, turn_number)
                recalled = recalled_for(self._policy, asked, view, self._embed or _no_embedder, ask, seed)
            turn, info = take_turn(self._model, world, record, on_text, cancelled, recalled, selected=memories)
            record, observation = with_turn(record, turn), turn.observation
            if on_turn is not None:
                on_turn(record)
        last = record.turns[-1]
        whole = record.answered and not last.reply.stopped
        judged = self.rewarded and whole and info.get("success", True) is not None
        reward = self._policy.reward_of(last.reward) if judged else None
        return Rerun(
            record,
            str(info.get("verdict", "")) if record.answered else no_answer(record.turns, time.perf_counter() - begun),
            reward,
            outcome_judged(self._policy, reward, info.get("success")),
        )


def _no_embedder(texts: Sequence[str]) -> Vectors:
    raise InputError("This method recalls within an episode, which needs an embedder. Nothing was answered.")
