"""What a reward given now would change of the selections after its step; and the button of one choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import streamlit as st

from memrl_core.analysis.people.reward_effect import Choices, Differing, compiled, differing
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Supposed
from memrl_core.learning.scales import Option
from memrl_core.records import StepTrace
from pages.shared.work import Work

ICONS = {"Bad": ":material/thumb_down:", "Good": ":material/thumb_up:", "stars": ":material/star:"}


def later_selections(bank: MemoryBank, trace: StepTrace, ends: Mapping[str, Supposed], blind: bool = False) -> None:
    """How many of the selections after a step each of some rewards for it would have changed."""
    after = bank.next_step(trace.run) - 1 - trace.step
    if not after:
        st.caption("No step came after this one, so no later selection could differ.")
        return
    choices = choices_of(bank, trace.run, "Counting the later selections that hang on this reward …")
    if choices is None:
        return
    whole = bank.histories(trace.run)
    then = {name: {**whole, **supposed.histories} for name, supposed in ends.items()}
    if blind:
        (first, one), (second, two) = list(then.items())[:2]
        between = differing(choices, one, two)
        st.caption(f"Between {first} and {second}, {_steps_words(between, after)} differ. They are never rewritten.")
    else:
        parts = [f"{name}: {_steps_words(differing(choices, whole, other), after)}" for name, other in then.items()]
        st.caption(f"Would have been others: {' · '.join(parts)}. They are marked, not rewritten.")


def _steps_words(steps: list[Differing], after: int) -> str:
    listed = ", ".join(str(differing.step) for differing in steps[:6]) + (" …" if len(steps) > 6 else "")
    return f"{len(steps):,} of {after} later selections" + (f" (step {listed})" if steps else "")


def option_button(
    option: Option,
    step_id: str,
    chosen: bool,
    give: Callable[..., Any],
    args: tuple[Any, ...],
    width: Literal["stretch", "content"] = "stretch",
    **look: Any,
) -> None:
    """The button of one choice; its key means the same on every scale."""
    st.button(
        option.label,
        icon=ICONS.get(option.label, ICONS.get(str(option.given["scale"]))),
        shortcut=str(option.key),
        # With the step in its name, a button that is hit twice cannot reach the next step.
        key=f"rate_{option.key}_{step_id}",
        type="primary" if chosen else "secondary",
        on_click=give,
        args=args,
        width=width,
        **look,
    )


CHOSEN = ("scale", "thumb", "grade", "stars", "marks", "choice", "other")


KEPT = "later_choices"


def choices_of(bank: MemoryBank, run: str, waiting: str = "") -> Choices | None:
    """The run's selections; None until they are there, with what is `waiting` for them in their place.

    Of a run that goes on, only the new steps are read.
    """
    known: dict[str, tuple[str, Work[Choices]]] = st.session_state.setdefault(KEPT, {})
    asked = f"{bank.handle}·{bank.next_step(run)}"
    at, work = known.get(run, ("", None))
    if work is None or (at != asked and not work.busy):
        before = work.result if work is not None and at.startswith(bank.handle) else None
        work = Work(lambda report, cancelled: compiled(bank, run, None, before, report, cancelled))
        known[run] = asked, work
    if work.result is None and waiting:
        _waiting(work, waiting)
    return work.result


@st.fragment(run_every=0.5)
def _waiting(work: Work[Choices], sentence: str) -> None:
    if work.result is not None:
        st.rerun()
    st.caption(sentence)
