"""How memories relate to each other (parents, used together, copies) and to the intents they served; q on the map; and
all memories of a run as a table, with what some of them have in common.

One reward goes to all memories of a prompt (arXiv 2601.03192, section on limitations), so a memory that always comes
along with a good one earns credit that may not be its own. Nothing here proves what caused a success.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import false_discovery_control, hypergeom

from memrl_core.analysis.decision.labels import FUNCTION_WORDS, memory_label
from memrl_core.analysis.decision.moment import Moment
from memrl_core.analysis.memory.exposure import starvation
from memrl_core.analysis.run.metrics import Rate, rate
from memrl_core.bank import MemoryBank
from memrl_core.bank.storage.layouts import Point
from memrl_core.errors import InputError
from memrl_core.policies.base import FLOAT32_SLACK
from memrl_core.records import Memory
from memrl_core.retrieval.view import MemoryView


@dataclass(frozen=True, slots=True)
class Partner:
    """Steps that used a memory, by whether this partner was used beside it."""

    partner: str
    beside: Rate
    apart: Rate


def with_and_without(uses: pd.DataFrame, memory_id: str) -> tuple[Rate, Rate]:
    """How the steps ended in whose pool a memory was: those that also gave it to the model, and those that did not."""
    mine = uses[uses["memory_id"] == memory_id]
    return rate(mine.loc[mine["selected"], "outcome"]), rate(mine.loc[~mine["selected"], "outcome"])


def partners(uses: pd.DataFrame, memory_id: str) -> list[Partner]:
    """How a memory did beside each partner and without it, the most frequent partner first."""
    chosen = uses[uses["selected"]]
    outcome = chosen[chosen["memory_id"] == memory_id].set_index("step")["outcome"]
    others = chosen[chosen["step"].isin(outcome.index) & (chosen["memory_id"] != memory_id)]
    found = []
    for partner, steps in others.groupby("memory_id", sort=False)["step"]:
        beside = outcome.index.isin(steps)
        found.append((len(steps), Partner(str(partner), rate(outcome[beside]), rate(outcome[~beside]))))
    return [partner for _, partner in sorted(found, key=lambda pair: (-pair[0], pair[1].partner))]


NO_GATE = 1.0


def copies(view: MemoryView, uses: pd.DataFrame, threshold: float) -> pd.DataFrame:
    """One row per memory whose intent has a near-duplicate, group by group (n, 8), the largest group first.

    A `group`, counted from 1, is joined by intents of at least the threshold's cosine; two ends of a chain may be less
    alike. `pools` and `uses` count the steps that had the memory in their pool or prompt, `crowded_pools` and
    `crowded_uses` those with at least two of its group. Within a group the most used stands first. `uses` are the run's
    (see `exposure.uses`).
    """
    groups = starvation(view, uses, threshold=threshold, delta=NO_GATE).duplicates
    grouped = [(number, memory_id) for number, group in enumerate(groups, start=1) for memory_id in group]
    found = pd.DataFrame(grouped, columns=["group", "memory_id"])
    rows = np.array([view.position(memory_id) for memory_id in found["memory_id"]], dtype=np.int64)
    seen = uses.merge(found, on="memory_id")
    found = found.assign(q=view.q[rows], visits=view.visits[rows])
    for name, part in (("pools", seen), ("uses", seen[seen["selected"].astype(bool)])):
        crowded = part.groupby(["group", "step"]).size() > 1
        found[name] = found["memory_id"].map(part["memory_id"].value_counts()).fillna(0).astype(int)
        found[f"crowded_{name}"] = found["group"].map(crowded.groupby("group").sum()).fillna(0).astype(int)
    order = {"by": ["group", "uses", "visits"], "ascending": [True, False, False]}
    return found.sort_values(**order, kind="stable", ignore_index=True)


def skipped_by(view: MemoryView, threshold: float) -> tuple[str, ...]:
    """The memories that `duplicates = "skip"` had not written, oldest first.

    These are the ones with the outcome and the words of an older memory whose intent is at least `threshold` similar.
    """
    kept: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    skipped = []
    for row in view.positions().tolist():
        memory = view.memories[view.ids[row]]
        equals = kept.setdefault((memory.outcome, tuple(memory.experience.split())), [])
        if equals and (view.embeddings[np.array(equals)] @ view.embeddings[row]).max() >= threshold - FLOAT32_SLACK:
            skipped.append(memory.id)
        else:
            equals.append(row)
    return tuple(skipped)


@dataclass(frozen=True, slots=True)
class Lineage:
    """One memory between its ancestors and its descendants.

    Level 1 of `ancestors` (the first entry) holds its parents, level 2 theirs, and so on; `descendants` likewise. Each
    memory stands once, on the level of the shortest way to it, oldest first. `links` are all (parent, child) among
    them; `missing` are parents that are named and not there.
    """

    ancestors: tuple[tuple[str, ...], ...]
    descendants: tuple[tuple[str, ...], ...]
    links: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]


def lineage(memories: Iterable[Memory], memory_id: str) -> Lineage:
    """The lineage of a memory among `memories` (`bank.memories()`, oldest first); imported circles are walked once.

    Raises `InputError` when the memory is not among them.
    """
    parents = {memory.id: tuple(dict.fromkeys(memory.parents)) for memory in memories}
    if memory_id not in parents:
        raise InputError(f"The memory {memory_id[:80]} is not among those looked at, so its lineage is not known.")
    age = {known: number for number, known in enumerate(parents)}
    children: dict[str, list[str]] = {}
    for child, named in parents.items():
        for parent in named:
            children.setdefault(parent, []).append(child)
    above, below = _levels(memory_id, parents, age), _levels(memory_id, children, age)
    family = [i for level in (*reversed(above), (memory_id,), *below) for i in level]
    inside = set(family)
    links = [(p, child) for child in dict.fromkeys(family) for p in parents[child] if p in inside]
    ends = [memory_id, *(i for level in above for i in level)]
    missing = dict.fromkeys(p for i in ends for p in parents[i] if p not in parents)
    return Lineage(above, below, tuple(links), tuple(missing))


def _levels(start: str, next_to: Mapping[str, Sequence[str]], age: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
    """Breadth first from `start`, which is on no level itself, even where a circle leads back to it."""
    seen, levels, level = {start}, [], [start]
    while level:
        found = {i for one in level for i in next_to.get(one, ()) if i in age} - seen
        seen |= found
        level = sorted(found, key=lambda i: age[i])
        if level:
            levels.append(tuple(level))
    return tuple(levels)


FARTHEST = 0.5
"""Cosine distance below which intents count as one neighbourhood (average linkage)."""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Intents near to one another that a memory was used for.

    `intent` is the most central of them; `similarity` the mean cosine of them to the memory; `mean_reward` is None when
    none of the uses was rated.
    """

    intent: str
    uses: int
    similarity: float
    mean_reward: float | None
    successes: int
    rated: int
    steps: tuple[int, ...]


def neighbourhoods(bank: MemoryBank, run: str, memory_id: str, uses: pd.DataFrame) -> list[Neighbourhood]:
    """The neighbourhoods of the intents that `memory_id` was given to the model for, most used first."""
    mine = uses[(uses["memory_id"] == memory_id) & uses["selected"]].drop_duplicates("step").set_index("step")
    if mine.empty:
        return []
    table = bank.steps.table(run, ["step", "embedding"])
    vectors = dict(zip(table["step"].to_pylist(), table["embedding"].to_numpy(), strict=True))
    steps = [int(step) for step in mine.index if vectors.get(int(step)) is not None]
    if not steps:
        return []
    matrix = np.stack([np.asarray(vectors[step], dtype=np.float64) for step in steps])
    labels = np.zeros(len(steps), dtype=int)
    if len(steps) > 1:
        from sklearn.cluster import AgglomerativeClustering  # Its import takes longer than most pages.

        grouping = AgglomerativeClustering(
            n_clusters=None, metric="cosine", linkage="average", distance_threshold=FARTHEST
        )
        labels = grouping.fit_predict(matrix)
    found = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        centre = matrix[members].mean(axis=0)
        central = steps[int(members[int((matrix[members] @ centre).argmax())])]
        rows = mine.loc[[steps[int(position)] for position in members]]
        rewards = rows["reward"].dropna()
        found.append(
            Neighbourhood(
                intent=bank.trace(run, central).task.intent,
                uses=len(members),
                similarity=float(rows["similarity"].mean()),
                mean_reward=float(rewards.mean()) if len(rewards) else None,
                successes=int((rows["outcome"] == "success").sum()),
                rated=int(rows["outcome"].isin(["success", "failure"]).sum()),
                steps=tuple(int(step) for step in rows.index),
            )
        )
    return sorted(found, key=lambda n: (-n.uses, n.steps))


def opposed(found: list[Neighbourhood], middle: float) -> bool:
    """Whether the rewards of two neighbourhoods lie on different sides of the middle: one q then hides both."""
    means = [n.mean_reward for n in found if n.mean_reward is not None]
    return bool(means) and min(means) < middle < max(means)


@dataclass(frozen=True, slots=True, eq=False)
class Landscape:
    """q and visits of n memories at f moments.

    `positions` (n, 2) are frozen places on the map. Each of `steps` (f,), ascending, stands for the moment when that
    step had ended and the next had not begun; 0 is the start. `q` (f, n) is nan and `visits` (f, n) 0 before a memory
    was there.
    """

    ids: Sequence[str]
    labels: Sequence[str]
    positions: npt.NDArray[np.float64]
    steps: Sequence[int]
    q: npt.NDArray[np.float64]
    visits: npt.NDArray[np.int64]


def landscape(
    bank: MemoryBank, run: str, places: Mapping[str, Point], frames: int = 60, until: int | None = None
) -> Landscape:
    """The landscape of a run at `frames` moments evenly among all up to the end of step `until` (None: of the last).

    The first and the last are always among them; of one, it is the last. `places` has the place of every intent; a
    memory of another one is left out. Raises `UnknownRun`.
    """
    finished = [row.step for row in bank.steps.rows(run) if until is None or row.step <= until]
    last = finished[-1] if finished else 0
    steps = _evenly([*(step - 1 for step in finished), last], frames)
    known = bank.utilities(run, last)
    place_of = {memory_id: places.get(bank.memory(memory_id).intent) for memory_id in known}
    ids = [memory_id for memory_id, place in place_of.items() if place is not None]
    q = np.full((len(steps), len(ids)), np.nan)
    visits = np.zeros((len(steps), len(ids)), dtype=np.int64)
    row_of = {step: row for row, step in enumerate(steps[:-1])}
    for step, view in bank.walk(run) if len(steps) > 1 else ():
        row = row_of.get(step - 1)
        if row is None or not ids:
            continue
        at = np.array([view.position(memory_id) for memory_id in ids])
        there = np.ones(len(at), dtype=bool) if view.visible is None else view.visible[at]
        q[row, there], visits[row, there] = view.q[at][there], view.visits[at][there]
    # The walk ends where the last step began.
    q[-1] = [known[memory_id].q for memory_id in ids]
    visits[-1] = [known[memory_id].visits for memory_id in ids]
    return Landscape(
        ids=ids,
        labels=[memory_label(memory_id, run) for memory_id in ids],
        positions=np.array([place_of[memory_id] for memory_id in ids], dtype=np.float64).reshape(-1, 2),
        steps=steps,
        q=q,
        visits=visits,
    )


def _evenly(moments: Sequence[int], count: int) -> list[int]:
    chosen = np.linspace(len(moments) - 1, 0, min(count, len(moments))).round().astype(int)
    return [moments[position] for position in chosen[::-1]]


COLUMNS = ("memory", "id", "intent", "outcome", "q", "uses", "step", "similarity", "task", "experience")


def catalogue(moment: Moment, memories: Mapping[str, Memory]) -> pd.DataFrame:
    """One row per memory, newest first; `similarity` to the step's intent where phase A reports it (n, 10)."""
    recall = None if moment.trace is None else moment.trace.recall
    near = {} if recall is None else {one.memory_id: one.similarity for one in (*recall.pool, *recall.left_out)}
    rows = []
    for i, known in moment.utilities.items():
        m, label = memories[i], memory_label(i, moment.run.id)
        rows.append((label, i, m.intent, m.outcome, known.q, known.visits, m.step, near.get(i), m.task, m.experience))
    return pd.DataFrame(reversed(rows), columns=list(COLUMNS))


def matching(
    rows: pd.DataFrame,
    words: str = "",
    outcomes: Collection[str] = (),
    q: tuple[float, float] | None = None,
    about: Collection[str] = (),
) -> pd.DataFrame:
    """The rows whose intent or experience holds every word (in any case), of these outcomes (all when empty), with
    `q` between the limits, both included, of which all of `about` is known (see `known_of`)."""
    text = (rows["intent"] + "\n" + rows["experience"]).str.casefold() if len(rows) else pd.Series(dtype=str)
    keep = pd.Series(True, index=rows.index)
    for word in words.casefold().split():
        keep &= text.str.contains(word, regex=False)
    if outcomes:
        keep &= rows["outcome"].isin(outcomes)
    if q is not None:
        keep &= rows["q"].between(*q)
    if about:
        keep &= rows["metadata"].map(lambda known: set(about) <= set(known.split(KNOWN_APART)))
    return rows[keep]


KNOWN_APART = " · "


def known_of(metadata: Mapping[str, Any]) -> list[str]:
    """Metadata as one text per value, such as "user: 7"; of a list, one per member."""
    values = [(name, value if isinstance(value, list) else [value]) for name, value in metadata.items()]
    return [f"{name}: {one}".replace(KNOWN_APART, " ") for name, several in values for one in several]


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
