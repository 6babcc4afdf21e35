"""One step's question put to every method: what each would have put before the model, and why. Nothing is stored.

On the *same pool* only phase B differs. With *its own recall* each method also asks memory in its own way. Each has
learned what it would have by watching the run up to this step; no model is asked, so methods that ask one go by their
templates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from memrl_core.agent.asking import templates, view_before
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError, MemRLError
from memrl_core.models.base import Cancelled
from memrl_core.policies import make_policy, settings_that_fit
from memrl_core.policies.base import PolicySpec
from memrl_core.prompting import YOUR_TASK
from memrl_core.records import Decision, RecallRecord, StepTrace

SHARED = ("k1", "k2", "delta", "reward_success", "reward_failure", "human_rewards", "several_raters")
"""The settings that all methods are given alike: how much they may recall and give, and what rewards mean."""
NOT_ASKED = "No model was asked here: its template stands in the place of its answer."


@dataclass(frozen=True, slots=True)
class OnThisPool:
    """What one method makes of a step: both phases and the text that the model would read before its task.

    `problem` says why there is none; then recall and decision are None.
    """

    spec: PolicySpec
    recall: RecallRecord | None
    decision: Decision | None
    given: str
    notes: tuple[str, ...] = ()
    problem: str = ""


def on_this_pool(
    bank: MemoryBank,
    trace: StepTrace,
    policies: Sequence[str],
    own_recall: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
    cancelled: Cancelled | None = None,
) -> list[OnThisPool] | None:
    """What each of `policies` would select in a step, under those of the step's settings that it knows.

    With `own_recall` each also recalls for itself. None when `cancelled()` turned true. Raises `InputError` for a step
    whose intent's embedding or pool is not known.
    """
    if trace.embed is None or trace.recall is None or trace.decision is None:
        raise InputError("This step was recorded without its intent's embedding or its pool. Choose another step.")
    if own_recall and trace.embed.decided_by:
        raise InputError("This step was decided before the bank's vectors were made anew. Choose a later step.")
    found = []
    for done, name in enumerate(policies, start=1):
        if cancelled is not None and cancelled():
            return None
        found.append(_asked(bank, trace, name, own_recall))
        if on_progress is not None:
            on_progress(done, len(policies))
    return found


def _asked(bank: MemoryBank, trace: StepTrace, name: str, own_recall: bool) -> OnThisPool:
    assert trace.recall is not None and trace.decision is not None and trace.embed is not None
    settings = trace.settings if name == trace.policy else {k: trace.settings[k] for k in SHARED if k in trace.settings}
    policy = make_policy(name, settings_that_fit(name, settings).model_dump())
    try:
        view = view_before(bank, trace, name)
        assert view.asked is not None
        recalled = policy.recall(view.asked.embedding, view) if own_recall else replace(trace.recall, left_out=())
        notes: tuple[str, ...] = ()
        if "model on read" in policy.spec.needs:
            notes = (NOT_ASKED,)
            view = replace(view, asked=replace(view.asked, answers=policy.consult(recalled, view, templates)))
        decision = policy.select(recalled, view, trace.decision.seed)
        chosen = [bank.memory(memory_id) for memory_id in decision.selected]
        messages, _ = policy.render(chosen, "", trace.task.intent, "", view)
    except MemRLError as error:
        return OnThisPool(policy.spec, None, None, "", problem=str(error))
    given = messages[-1].content.rpartition(YOUR_TASK)[0].strip()
    if decision.note:
        notes = (*notes, decision.note)
    return OnThisPool(policy.spec, recalled, decision, given, notes)
