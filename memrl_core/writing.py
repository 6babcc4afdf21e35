"""WRITE: what an episode becomes as the text of an experience.

The environment lays out what was done. A real model adds its own words (arXiv 2601.03192, prompts of section 1.4 in our
wording): a strategy after a success, a reflection after a failure. The simulated model has no words of its own, so its
memories are the environment's layout alone.
"""

from __future__ import annotations

from memrl_core.environments.base import Environment
from memrl_core.errors import EmptyAnswer, PromptTooLong
from memrl_core.models.base import THINKING, Cancelled, LanguageModel, ModelOptions, OnText
from memrl_core.records import Message, StepTrace

STRATEGY_REQUEST = (
    "You turn a solved task into a strategy that helps with similar tasks. Read the task and what was done. "
    "Answer with three to five short steps in general terms, without names that only this task has."
)
REFLECTION_REQUEST = (
    "You turn a failed attempt into a lesson. Read the task and what was done. Answer with three short lines: "
    "the root cause, the pattern to avoid, and what to do instead."
)
REFLECTION_TEMPERATURE = 0.3
WORDS_LIMIT = 200
"""Tokens of a strategy or a reflection: five short steps take half of it."""


def write_experience(
    model: LanguageModel,
    environment: Environment,
    trace: StepTrace,
    on_text: OnText | None = None,
    cancelled: Cancelled | None = None,
    in_own_words: bool = True,
    attempt: int = 0,
) -> str:
    """The experience of the step in `trace`. Raises `ModelError` when the model fails; it can be asked again.

    Without `in_own_words` no model is asked; `attempt` counts from 0 how often it has failed. When the person cancels,
    the words that had arrived are kept.
    """
    assert trace.generate is not None and trace.reward is not None
    outcome = trace.reward.outcome
    layout = environment.distil(trace.task, trace.generate.turns, outcome)
    if model.simulated or outcome == "unrated" or not (in_own_words and environment.own_words):
        return layout
    request = STRATEGY_REQUEST if outcome == "success" else REFLECTION_REQUEST
    limit = WORDS_LIMIT + (THINKING if trace.generate.options.get("think") else 0)
    # Where an action ends, such as at the end of a line, is not where several lines end.
    options = ModelOptions.model_validate({**trace.generate.options, "num_predict": limit, "stop": None}).again(attempt)
    if outcome == "failure":
        options = options.model_copy(update={"temperature": REFLECTION_TEMPERATURE})
    told = f"{layout}\n\nHow it ended: {trace.reward.verdict}"
    try:
        reply = model.chat([Message("system", request), Message("user", told)], options, on_text, cancelled)
    except (EmptyAnswer, PromptTooLong):
        return layout
    cut = f" (cut at {reply.cut})" if reply.cut else ""
    return f"{layout}\n\nIn the words of {model.name}{cut}:\n{reply.text.strip()}"
