"""The memories of a run as a table: what a person searches and filters."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pandas as pd

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.decision.moment import Moment
from memrl_core.records import Memory

COLUMNS = ("memory", "id", "intent", "outcome", "q", "uses", "step", "similarity", "task", "experience")


def catalogue(moment: Moment, memories: Mapping[str, Memory]) -> pd.DataFrame:
    """One row a memory, newest first; `similarity` to the step's intent where phase A reports it (n, 10)."""
    near = moment.similarities
    rows = [
        (
            memory_label(i, moment.run.id),
            i,
            m.intent,
            m.outcome,
            known.q,
            known.visits,
            m.step,
            near.get(i),
            m.task,
            m.experience,
        )
        for i, known in moment.utilities.items()
        for m in (memories[i],)
    ]
    return pd.DataFrame(reversed(rows), columns=list(COLUMNS))


def matching(
    rows: pd.DataFrame, words: str = "", outcomes: Collection[str] = (), q: tuple[float, float] | None = None
) -> pd.DataFrame:
    """The rows whose intent or experience holds every word (in any case), of these outcomes (all when empty), with
    `q` between the limits, both included."""
    text = (rows["intent"] + "\n" + rows["experience"]).str.casefold() if len(rows) else pd.Series(dtype=str)
    keep = pd.Series(True, index=rows.index)
    for word in words.casefold().split():
        keep &= text.str.contains(word, regex=False)
    if outcomes:
        keep &= rows["outcome"].isin(outcomes)
    if q is not None:
        keep &= rows["q"].between(*q)
    return rows[keep]
