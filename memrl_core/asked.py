"""What a step saw when memory was asked, with everything a policy decides by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.learned import learned_before
from memrl_core.prompting import first_observation
from memrl_core.records import Phase, StepTrace
from memrl_core.view import Asked, MemoryView

Said = dict[str, Any]


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
        said=said_in(trace),
    )


def said_in(trace: StepTrace) -> Said:
    """What the model said when the policy consulted it before selecting, by purpose; None for no usable answer."""
    return {one.purpose: one.filled for one in trace.consulted if one.phase is Phase.SELECT}


def view_before(bank: MemoryBank, trace: StepTrace, policy: str = "") -> MemoryView:
    """What the run saw when a finished step began, with what its policy, or another, had learned by then."""
    return replace(
        bank.as_of(trace.run, trace.step - 1),
        asked=asked_by(trace) if trace.embed is not None else None,
        learned=learned_before(bank, trace.run, trace.step, policy),
    )
