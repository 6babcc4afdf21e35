"""What memory is asked in a step, and what a policy asks the model for its own ends: forms, recorded filled or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from memrl_core.agent.learned_state import learned_before
from memrl_core.bank import MemoryBank
from memrl_core.errors import EmptyAnswer, InputError, NotBound, PromptTooLong
from memrl_core.models.base import Cancelled, LanguageModel, ModelOptions, OnText
from memrl_core.policies.base import Form, Question
from memrl_core.prompting import first_observation
from memrl_core.records import Consulted, Message, Phase, Reply, StepTrace
from memrl_core.retrieval.view import Asked, MemoryView

Answers = dict[str, Any]


def asked_by(trace: StepTrace) -> Asked:
    """What a finished step asked memory for at its beginning. Raises `InputError` when its embedding is not known."""
    if trace.embed is None:
        raise InputError("This step was recorded without the embedding of its intent. Nothing was decided again.")
    return Asked(
        np.asarray(trace.embed.embedding, dtype=np.float32),
        task=trace.task.id,
        intent=trace.task.intent,
        observation=first_observation(trace.generate.messages, trace.task.intent) if trace.generate else "",
        step=trace.step,
        seed=trace.decision.seed if trace.decision is not None else 0,
        answers=answers_in(trace),
    )


def answers_in(trace: StepTrace) -> Answers:
    """What the model said when the policy consulted it before selecting, by purpose; None for no usable answer."""
    return {one.purpose: one.filled for one in trace.consulted if one.phase is Phase.SELECT}


def view_before(bank: MemoryBank, trace: StepTrace, policy: str = "") -> MemoryView:
    """What a finished step recalled from, with what its policy, or another, had learned by then."""
    until = bank.steps.seen_until(trace.run, trace.step, trace.epoch)
    return replace(
        bank.view(trace.run, until),
        asked=asked_by(trace) if trace.embed is not None else None,
        learned=learned_before(bank, trace.run, until + 1, policy),
    )


FORM_LIMIT = 2048
"""Tokens of a filled-in form: some hold a line for each of twenty memories."""


class Asking:
    """Asks one model in one phase of a step (an `Ask`); `asked` holds what was asked so far.

    A simulated model has no words of its own: the policy's template answers and is recorded as such.
    """

    def __init__(
        self,
        model: LanguageModel,
        options: ModelOptions,
        phase: Phase,
        on_text: OnText | None = None,
        cancelled: Cancelled | None = None,
    ) -> None:
        self.asked: list[Consulted] = []
        self._model, self._options, self._phase = model, options, phase
        self._on_text, self._cancelled = on_text, cancelled

    def __call__(self, question: Question[Form]) -> Form | None:
        """The form as filled in; None when the reply is empty or does not fit it. Raises `ModelError`."""
        messages = (Message("system", question.request), Message("user", question.message))
        if self._model.simulated:
            filled = question.template.model_dump(mode="json")
            self.asked.append(Consulted(question.purpose, self._phase, messages, "", filled, simulated=True))
            return question.template.model_copy(deep=True)
        schema = question.form.model_json_schema()
        reply = self._reply(messages, schema)
        form = None if reply.stopped else _read(question.form.model_validate_json, reply.text)
        self.asked.append(
            Consulted(
                question.purpose,
                self._phase,
                messages,
                reply.text,
                None if form is None else form.model_dump(mode="json"),
                simulated=False,
                prompt_tokens=reply.prompt_tokens,
                answer_tokens=reply.answer_tokens,
                seconds=reply.seconds,
                cut=reply.cut,
                notes=reply.notes,
            )
        )
        return form

    def _reply(self, messages: Sequence[Message], schema: Mapping[str, Any] | None) -> Reply:
        # A form that is cut is no answer, and a policy's forms have nothing to do with how an answer ends.
        options = self._options.model_copy(update={"num_predict": FORM_LIMIT, "stop": None})
        try:
            return self._model.chat(messages, options, self._on_text, self._cancelled, schema=schema)
        except NotBound:
            reply = self._reply(messages, None)
            return replace(reply, notes=(*reply.notes, "not held to the form: the server refused the schema"))
        except EmptyAnswer:
            return Reply("")
        except PromptTooLong as error:
            return Reply("", cut=f"{error.room}, before anything was asked")


def templates(question: Question[Form]) -> Form:
    """The policy's own answer to its question, where no model shall be asked (an `Ask`)."""
    return question.template.model_copy(deep=True)


def _read(read: Callable[[str], Form], text: str) -> Form | None:
    # A model that is not held to a form puts words around it.
    for part in (text, text[text.find("{") : text.rfind("}") + 1]):
        with suppress(ValidationError):
            return read(part)
    return None
