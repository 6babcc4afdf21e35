"""What RMM's reranker has learned: how large its matrices have grown, by which citations, and how it ranks a pool."""

from __future__ import annotations

import numpy as np
import pandas as pd

from memrl_core.analysis.learned.watching import Progress, Watching
from memrl_core.models.base import Cancelled
from memrl_core.policies.methods.rmm_reranker import CITATIONS, NORMS, Ranks, ranks
from memrl_core.policies.ranking import gumbel_top
from memrl_core.records import Decision, StepTrace


def adapter_norms(
    watching: Watching, on_progress: Progress | None = None, cancelled: Cancelled | None = None
) -> pd.DataFrame:
    """A row for each step that taught the adapters something: step, lessons so far, ‖W_q‖ and ‖W_m‖ after it."""
    method, rows, known = watching.method(), [], 0
    for trace, state in watching.steps(on_progress, cancelled):
        if state.lessons > known:
            known = state.lessons
            values = method.values(state)
            rows.append((trace.step, known, *(values[name] for name in NORMS)))
    return pd.DataFrame(rows, columns=["step", "lessons", *NORMS])


def citations(
    watching: Watching, on_progress: Progress | None = None, cancelled: Cancelled | None = None
) -> pd.DataFrame:
    """A row for each memory of each prompt whose citations were asked for: step, place in the prompt, memory, cited.

    `cited` is None where the reply could not be read, which counts as no feedback.
    """
    rows = [
        (trace.step, place, memory_id, None if said is None else memory_id in said)
        for trace in watching.traces(on_progress, cancelled)
        for said in _cited(trace)
        for place, memory_id in enumerate(trace.decision.selected if trace.decision else (), start=1)
    ]
    return pd.DataFrame(rows, columns=["step", "place", "memory", "cited"]).astype({"cited": object})


def drawn_again(decision: Decision, seed: int) -> tuple[Ranks, ...]:
    """The ranks of a decision's pool if another seed had drawn the noise, with the same scores; in their new order."""
    before = ranks(decision)
    scores = {c.memory_id: c.terms[0].contribution for c in decision.candidates if c.rank_select is not None}
    order, _ = gumbel_top(
        np.array([scores[one.memory_id] for one in before], dtype=np.float64), len(before), np.random.default_rng(seed)
    )
    return tuple(
        Ranks(before[place].memory_id, before[place].recalled, before[place].adapted, rank)
        for rank, place in enumerate(order, start=1)
    )


def _cited(trace: StepTrace) -> list[set[str] | None]:
    """What was cited, once for each time that the model was asked in a step; None for an unreadable reply."""
    asked = [one.filled for one in trace.consulted if one.purpose == CITATIONS]
    return [None if filled is None else set(map(str, filled["cited"])) for filled in asked]
