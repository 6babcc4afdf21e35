"""What a finished step shows of its episode: the states that were met, the memories that were told, how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memrl_core.prompting import first_observation
from memrl_core.records import StepTrace, Turn


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the agent saw, without what memory added to it, and the turn in which it answered."""

    observation: str
    turn: Turn


def exchanges(trace: StepTrace) -> tuple[Exchange, ...]:
    """The exchanges of the episode in order, without an answer that was stopped.

    The first observation is empty where the prompt is laid out otherwise than here.
    """
    if trace.generate is None:
        return ()
    turns = [turn for turn in trace.generate.turns if not turn.reply.stopped]
    begin = first_observation(trace.generate.messages, trace.task.intent)
    seen = [begin, *(turn.observation for turn in turns)]
    return tuple(Exchange(observation, turn) for observation, turn in zip(seen, turns, strict=False))


def memories_told(trace: StepTrace) -> tuple[str, ...]:
    """The memories that stood before the model in any turn, each once."""
    turns = trace.generate.turns if trace.generate is not None else ()
    decisions = [trace.decision, *(turn.recalled.decision for turn in turns if turn.recalled is not None)]
    return tuple(dict.fromkeys(i for decision in decisions if decision is not None for i in decision.selected))


def verdict_of(reward: float, settings: Mapping[str, Any]) -> float:
    """A step's reward as a verdict in [0, 1]: r− is 0, r+ is 1, what lies beyond is cut off."""
    low, high = float(settings.get("reward_failure", -1.0)), float(settings.get("reward_success", 1.0))
    return min(1.0, max(0.0, (reward - low) / (high - low)))
