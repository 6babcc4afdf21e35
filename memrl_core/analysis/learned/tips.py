"""EMPO²'s tips: how new the states of a run were, and how its tips rank by score and by similarity."""

from __future__ import annotations

import numpy as np
import pandas as pd

from memrl_core.analysis.learned.deciding import recollections
from memrl_core.analysis.learned.watching import Progress, Watching
from memrl_core.models.base import Cancelled
from memrl_core.records import Decision
from memrl_core.retrieval import score_order


def novelty(
    watching: Watching, on_progress: Progress | None = None, cancelled: Cancelled | None = None
) -> pd.DataFrame:
    """A row for each time that memory was asked: step, turn, tips found (n, at most k2), and novelty 1 / (n + 1).

    Raises `SettingsError`.
    """
    rows = []
    for trace in watching.traces(on_progress, cancelled):
        for one in recollections(watching, trace):
            found = min(len(one.recall.pool), one.decision.k2)
            rows.append((trace.step, one.turn, found, 1 / (found + 1)))
    return pd.DataFrame(rows, columns=["step", "turn", "tips", "novelty"])


def tips_in_order(decision: Decision) -> pd.DataFrame:
    """A row for each tip of a pool, in the order of the stored scores: memory, score, similarity, both ranks, given.

    Ties of the score go to the more similar.
    """
    pool = [candidate for candidate in decision.candidates if candidate.rank_select is not None]
    score = np.array([next(t.raw for t in c.terms if t.name == "score") for c in pool], dtype=np.float64)
    similarity = np.array([candidate.similarity for candidate in pool], dtype=np.float64)
    age = np.array([candidate.rank_recall for candidate in pool], dtype=np.int64)
    frame = pd.DataFrame(
        {
            "memory": [candidate.memory_id for candidate in pool],
            "score": score,
            "similarity": similarity,
            "by score": _ranks(score_order(score, similarity, age)),
            "by similarity": _ranks(score_order(similarity, similarity, age)),
            "given": [candidate.selected for candidate in pool],
        }
    )
    return frame.sort_values("by score", ignore_index=True)


def _ranks(order: np.ndarray) -> np.ndarray:
    """The place of each member, from 1, of positions (n,) in their order."""
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(1, len(order) + 1)
    return ranks
