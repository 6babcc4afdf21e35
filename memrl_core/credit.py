"""Who earned the reward? Shares of the memories in a prompt, from answering again without some of them.

Leave-one-out is the difference reward r(all) − r(all without m); Shapley's value is the mean of what m adds over all
orders in which the prompt could have been filled (Shapley 1953, exact over all subsets).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import factorial
from typing import Literal

from memrl_core.errors import InputError
from memrl_core.models.base import Cancelled
from memrl_core.rerun import Rerun

Method = Literal["leave-one-out", "Shapley"]
MOST_RERUNS = 32


@dataclass(frozen=True, slots=True)
class Credit:
    """Each memory's `shares` in the reward `reached` with all of them; `reruns` by the set that was in the prompt."""

    method: Method
    shares: Mapping[str, float]
    reached: float
    reruns: Mapping[frozenset[str], Rerun]

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
    on_progress: Callable[[int, int], None] | None = None,
    cancelled: Cancelled | None = None,
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
    found: dict[frozenset[str], Rerun] = {}
    for done, chosen in enumerate(subsets(method, memories)):
        if on_progress is not None:
            on_progress(done, needed)
        again = answered(chosen)
        if again.stopped or (cancelled is not None and cancelled()):
            return None
        if again.reward is None:
            raise InputError("The environment gives no reward of its own here, so there is nothing to share.")
        found[frozenset(chosen)] = again
    worth = {chosen: again.reward or 0.0 for chosen, again in found.items()}
    everyone = frozenset(memories)
    if method == "leave-one-out":
        shares = {m: worth[everyone] - worth[everyone - {m}] for m in memories}
    else:
        shares = {m: _shapley(m, everyone, worth) for m in memories}
    return Credit(method, shares, worth[everyone], found)


def _shapley(memory: str, everyone: frozenset[str], worth: Mapping[frozenset[str], float]) -> float:
    n = len(everyone)
    return sum(
        factorial(len(others)) * factorial(n - len(others) - 1) / factorial(n) * (worth[others | {memory}] - value)
        for others, value in worth.items()
        if memory not in others
    )
