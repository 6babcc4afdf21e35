"""What a method is, in words and declarations: shown wherever its decisions are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Variant = Literal["paper", "code", "adapted"]
Feedback = Literal["episode reward", "step reward", "citation", "human"]
Learns = Literal["nothing", "q", "success rate", "actions", "kernel", "network", "matrices", "text", "counts"]
Need = Literal["episode reward", "step reward", "next state", "citations", "model on write", "model on read"]

BADGES: Mapping[Variant, str] = {
    "paper": "Every rule is the paper's.",
    "code": "Every rule is the paper's or its released code's, and where they differ at least one is the code's.",
    "adapted": "At least one rule is ours or a part of the method is missing: no figure of its paper can be expected.",
}
"""When a method is called *paper*, *official code* (`code`) or *adapted*, under the settings in force."""
RULES = (
    "Rules are: when memory is asked, what one record holds, which memories are recalled and selected and by which "
    "key, what a reward moves, and what is written, linked and forgotten. Not rules, but named as deviations: the "
    "wording of prompts, the embedder, values of settings, what the source leaves open, and what stands in for a "
    "language model."
)
"""What `BADGES` go by."""


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """One method as it is offered here.

    `variant` says whose rules these are, by `BADGES`; `deviations` says in plain words where they differ from the
    source, and is never empty for "adapted". The texts from `idea` to `cannot` are the method's card, a sentence or two
    each. `needs` is what it must be given, `feedback` what it learns from, `learns` where that is kept: only where it
    is "q" or "success rate" are memories credited with rewards, so that their q and visits move. `carries_over` says
    what it can use of a memory that another policy wrote.
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
