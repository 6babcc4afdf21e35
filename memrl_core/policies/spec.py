"""What a method is, in words and declarations: shown wherever its decisions are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Variant = Literal["paper", "code", "adapted"]
Feedback = Literal["episode reward", "step reward", "citation", "human"]
Learns = Literal["nothing", "q", "success rate", "actions", "kernel", "network", "matrices", "text", "counts"]
Need = Literal["episode reward", "step reward", "next state", "citations", "model on write", "model on read"]


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """One method as it is offered here.

    `variant` says whose rules these are; `deviations` says in plain words where they differ from the source, and is
    never empty for "adapted". The texts from `idea` to `cannot` are the method's card, a sentence or two each. `needs`
    is what it must be given, `feedback` what it learns from, `learns` where that is kept: only where it is "q" or
    "success rate" are memories credited with rewards, so that their q and visits move. `carries_over` says what it can
    use of a memory that another policy wrote.
    """

    name: str
    title: str
    citation: str
    variant: Variant
    deviations: tuple[str, ...]
    idea: str
    record: str
    when: str
    recall: str
    select: str
    update: str
    write: str
    forget: str
    cannot: str
    carries_over: str
    learns: Learns
    feedback: tuple[Feedback, ...] = ("episode reward", "human")
    needs: tuple[Need, ...] = ()
    variants: tuple[Variant, ...] = ("paper",)

    @property
    def keeps_q(self) -> bool:
        """Whether a memory's q is moved by rewards."""
        return self.learns in ("q", "success rate")
