"""Advice from a state's actions, as Rememberer puts it before the model (arXiv 2306.07929, its `agent_protos.py`)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from memrl_core.policies.rememberer_table import State
from memrl_core.prompting import ANSWER_MARK, CHOICES, DISCOURAGED, ENCOURAGED, TASK_LINE, offered
from memrl_core.records import Memory
from memrl_core.view import Asked

SEEN = "Seen: "
DONE_HERE = "Done here:"


@dataclass(frozen=True, slots=True)
class Advice:
    """Actions to take or to leave, under `heading`; `tries` is 0 where the value was `invented` or several share it."""

    heading: str
    actions: tuple[str, ...]
    value: float
    tries: int = 0
    invented: bool = False

    @property
    def text(self) -> str:
        """The advice as lines of a prompt; what is invented is called so."""
        remark = f"{'invented, ' if self.invented else ''}value {self.value:.2f}"
        tried = f" after {self.tries} {'try' if self.tries == 1 else 'tries'}" if self.tries else ""
        lines = "".join(f"\n{ANSWER_MARK}{action}" for action in self.actions)
        return f"{self.heading} {remark}{tried}{lines}"


def advice_on(state: State, rng: np.random.Generator, invents: bool) -> tuple[Advice, ...]:
    """What a state's actions say: the best is encouraged, those with q = 0 are discouraged.

    With `invents`, a random choice of the state's observation takes the place of a best action without value, with a
    value in (0, 0.5), and of a worst action whose value is above 0, with the value 0. Without choices nothing is
    invented. What is encouraged is never discouraged as well.
    """
    choices = offered(state.observation) if invents else []
    actions = sorted(state.actions.values(), key=lambda action: -action.q)
    if not actions:
        return ()
    best, worst = actions[0], actions[-1]
    advice = []
    if best.q > 0 or not invents:
        advice.append(Advice(ENCOURAGED, (best.text,), best.q, best.visits))
    elif choices:
        advice.append(Advice(ENCOURAGED, (_drawn(choices, rng),), float(rng.random()) / 2, invented=True))
    encouraged = {action for one in advice for action in one.actions}
    if worst.q <= 0:
        without = tuple(a.text for a in actions if a.q == 0 and a.text not in encouraged)
        if without:
            advice.append(Advice(DISCOURAGED, without, 0.0))
    elif not invents and worst.text not in encouraged:
        advice.append(Advice(DISCOURAGED, (worst.text,), worst.q, worst.visits))
    elif others := [choice for choice in choices if choice not in encouraged]:
        advice.append(Advice(DISCOURAGED, (_drawn(others, rng),), 0.0, invented=True))
    return tuple(advice)


def advice_for(state: State, asked: Asked | None, invents: bool) -> tuple[Advice, ...]:
    """`advice_on` with what is random drawn by the state, the step and the turn that ask."""
    # The prompt is drawn up without a seed, and must be drawn up alike when the step is looked at again.
    drawn = hashlib.sha256(f"{state.task}\n{state.observation}".encode()).digest()
    moment = (asked.step, asked.turn) if asked is not None else (0, 0)
    return advice_on(state, np.random.default_rng([*moment, int.from_bytes(drawn[:8], "big")]), invents)


def advising(memory: Memory, state: State, asked: Asked | None, invents: bool) -> Memory:
    """A memory as an exemplar: its state, and the advice on it, among the memories to follow."""
    advice = [one.text for one in advice_for(state, asked, invents)]
    text = "\n".join([*_described(state.task, state.observation), *advice])
    return replace(memory, experience=text, outcome="success")


def invented_note(exemplars: Sequence[Sequence[Advice]]) -> str:
    """The invented ones among each exemplar's advice, in words; empty where nothing is invented."""
    told = [
        f"{one.heading.lower()} “{one.actions[0]}”, value {one.value:.2f} (exemplar {place})"
        for place, advice in enumerate(exemplars, start=1)
        for one in advice
        if one.invented
    ]
    return f"Invented advice, learned from nothing: {'; '.join(told)}." if told else ""


def record_text(task: str, observation: str, action: str) -> str:
    """A state and the first thing that was done in it, as the text of its memory."""
    return "\n".join([*_described(task, observation), DONE_HERE, ANSWER_MARK + " ".join(action.split())])


def _described(task: str, observation: str) -> list[str]:
    told, found, _ = observation.rpartition(CHOICES)
    seen = " ".join((told if found else observation).split())
    return [TASK_LINE + task, *([SEEN + seen] if seen else [])]


def _drawn(choices: Sequence[str], rng: np.random.Generator) -> str:
    return choices[int(rng.integers(len(choices)))]
