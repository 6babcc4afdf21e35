"""What the model said in a step, drawn as what it is: Markdown, SQL, or letter for letter."""

from __future__ import annotations

import streamlit as st

from memrl_core.bank import MemoryBank
from memrl_core.records import StepTrace, Turn
from pages.shared.text import formatted, verbatim

SQL, PROSE = ("sql", "lifelong_db"), ("conversation",)


def answer(bank: MemoryBank, trace: StepTrace) -> None:
    """All that the model said, with what the environment said in between; never the environment's verdict."""
    if trace.generate is None or not trace.generate.turns:
        st.caption("This step was recorded without its answer.")
        return
    turns, environment = trace.generate.turns, bank.run(trace.run).environment
    if environment in PROSE or environment in SQL:
        for turn in turns:
            said(environment, turn.reply.text or "(nothing)")
            if environment in SQL:
                verbatim(_observed(trace, turn))
    else:
        verbatim("\n".join(line for turn in turns for line in _lines(trace, turn)))
    if turns[-1].reply.stopped:
        st.caption("The answer was stopped by a person.")


def said(environment: str, text: str) -> None:
    """Draw one reply of the model as what it is in an environment."""
    if environment in PROSE:
        formatted(text)
    elif environment in SQL:
        st.code(text, language="sql", wrap_lines=True)
    else:
        verbatim(text)


def _observed(trace: StepTrace, turn: Turn) -> str:
    """What the environment said to a turn; of the last one, what comes before its verdict, if that can be told."""
    assert trace.generate is not None
    if turn is not trace.generate.turns[-1]:
        return turn.observation
    verdict = trace.reward.verdict if trace.reward else ""
    return turn.observation.removesuffix(verdict) if verdict and turn.observation.endswith(verdict) else ""


def _lines(trace: StepTrace, turn: Turn) -> list[str]:
    # Only the first line: environments repeat in every turn what can be done next.
    observed = _observed(trace, turn).strip().splitlines()[:1]
    return [turn.reply.text or "(nothing)", *(f"    ⤷ {line}" for line in observed)]
