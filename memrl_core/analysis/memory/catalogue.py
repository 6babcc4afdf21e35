"""The memories of a run as a table: what a person searches and filters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control, hypergeom

from memrl_core.analysis.decision.labels import FUNCTION_WORDS, memory_label
from memrl_core.analysis.decision.moment import Moment
from memrl_core.records import Memory

COLUMNS = ("memory", "id", "intent", "outcome", "q", "uses", "step", "similarity", "task", "experience")


def catalogue(moment: Moment, memories: Mapping[str, Memory]) -> pd.DataFrame:
    """One row a memory, newest first; `similarity` to the step's intent where phase A reports it (n, 10)."""
    recall = None if moment.trace is None else moment.trace.recall
    near = {} if recall is None else {one.memory_id: one.similarity for one in (*recall.pool, *recall.left_out)}
    rows = []
    for i, known in moment.utilities.items():
        m, label = memories[i], memory_label(i, moment.run.id)
        rows.append((label, i, m.intent, m.outcome, known.q, known.visits, m.step, near.get(i), m.task, m.experience))
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


WORDS, CHANCE = 10, 0.05
"""Of the words that some memories have in common, as many are named, with this rate of false discoveries."""


@dataclass(frozen=True, slots=True)
class Common:
    """What some memories of a run have in common.

    `families`, `outcomes` and `runs` (in which they were written) count them, the most frequent first. `q` is the
    least, the median and the greatest. `words` are those that clearly more of their intents hold than of the others',
    by how much more: (word, share of these, share of the others). Clearly: by Fisher's exact test, with one word in
    twenty named by chance (Benjamini and Hochberg). Function words are left out.
    """

    families: Mapping[str, int]
    outcomes: Mapping[str, int]
    runs: Mapping[str, int]
    q: tuple[float, float, float]
    words: tuple[tuple[str, float, float], ...]


def in_common(
    chosen: Sequence[Memory], others: Sequence[Memory], q: Collection[float], families: Sequence[str]
) -> Common:
    """What at least one chosen memory has in common with the rest chosen, beside the `others` of its run.

    `q` and `families` are those of the chosen ones.
    """
    here, elsewhere = _holding(chosen), _holding(others)
    words = [word for word in here if word not in FUNCTION_WORDS]
    held = np.array([[here[word], elsewhere[word]] for word in words], dtype=np.int64).reshape(-1, 2)
    everyone = len(chosen) + len(others)
    by_chance = hypergeom.sf(held[:, 0] - 1, everyone, held.sum(axis=1), len(chosen))
    clear = false_discovery_control(by_chance) < CHANCE if words else ()
    more = [
        (word, count / len(chosen), rest / len(others))
        for word, (count, rest), is_clear in zip(words, held.tolist(), clear, strict=True)
        if is_clear
    ]
    more.sort(key=lambda one: (one[2] - one[1], one[0]))
    return Common(
        _counted(families),
        _counted(memory.outcome for memory in chosen),
        _counted(memory.run for memory in chosen),
        (min(q), median(q), max(q)),
        tuple(more[:WORDS]),
    )


def _holding(memories: Iterable[Memory]) -> Counter[str]:
    """Of each word how many intents hold it."""
    return Counter(word for memory in memories for word in set(re.findall(r"\w+", memory.intent.casefold())))


def _counted(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items(), key=lambda one: (-one[1], one[0])))
