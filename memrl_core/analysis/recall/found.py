"""Measures of retrieval over labelled queries, for phase A and phase B, each with its interval over queries.

hit@k, recall@k, precision@k, MRR and nDCG are computed by `ir_measures` on trec_eval's code: they are the field's own.
A memory that nobody labelled counts as irrelevant, as in TREC; `coverage` says how much of what was given is
labelled at all. Queries without a relevant memory have no ranking to measure: of those for which nothing should come,
`false_recall` is the share that got something past the gate, and `empty` is the share that came back empty though
something should have come.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy  # Its parts are loaded where they are first used.

from memrl_core.analysis.recall.grades import Judged
from memrl_core.analysis.recall.queries import Query
from memrl_core.analysis.run.metrics import LEVEL, Estimate, score_interval
from memrl_core.errors import InputError
from memrl_core.numerals import counted

Phase = Literal["A", "B"]
LEAST_COVERAGE = 0.5
"""Below this share of labelled memories among those given, a measure says so."""
RANKED = {"hit": "Success", "recall": "R", "precision": "P", "mrr": "RR", "ndcg": "nDCG"}
"""Our names to those of `ir_measures`."""
NEED_K = ("hit", "recall", "precision")
FLAT = 1e-12
"""A variance below this is that of equal values."""
ONE_QUERY = "one query: no interval"
PLAIN = ("false_recall", "empty", "coverage")
_NAME = re.compile(r"(hit|recall|precision|mrr|ndcg|false_recall|empty|coverage)(?:@([1-9]\d{0,3}))?(?:\.([ab]))?")


class Ranking(NamedTuple):
    """What phase A and phase B brought for one query, best first, with what is known of it."""

    pool: Sequence[str]
    selected: Sequence[str]
    judged: Judged


@dataclass(frozen=True, slots=True)
class Measure:
    """A mean over queries. `name` is as `measured` takes it; `queries` are those that it is a mean over.

    `share` is the mean with its 95 % interval, whose ends are nan with fewer than two queries; `notes` say what
    stands in the way of trusting it.
    """

    name: str
    phase: Phase
    share: Estimate
    queries: int
    notes: tuple[str, ...] = ()


def rankings(queries: Iterable[Query]) -> list[Ranking]:
    """What the queries brought, as they were recorded."""
    return [Ranking(query.pool, query.selected, query.judged) for query in queries]


def usual(k1: int, k2: int) -> list[str]:
    """The measures of a report, for a run with such a pool and prompt."""
    both = [f"hit@{k2}", "mrr", "ndcg"]
    names = [f"recall@{k1}", *both, *(f"{name}.b" for name in both), f"recall@{k2}.b", f"precision@{k2}"]
    return [*names, *PLAIN]


def measured(found: Sequence[Ranking], names: Sequence[str]) -> list[Measure]:
    """These measures of what came, in the order given.

    A name is `hit@k`, `recall@k`, `precision@k`, `mrr` or `ndcg`, perhaps with @k, and .a or .b for the phase (A where
    it is left out, B for precision); or `false_recall`, `empty` or `coverage`. Raises `InputError` for another one.
    """
    parsed = [_parsed(name) for name in names]
    covered = coverage(found)
    thin = len(covered) > 0 and float(covered.mean()) < LEAST_COVERAGE
    values = _values(found, parsed)
    made = []
    for index, ((kind, _, phase), name) in enumerate(zip(parsed, names, strict=True)):
        notes = []
        if len(values[index]) == 1:
            notes.append(ONE_QUERY)
        if kind in RANKED and len(values[index]) and thin:
            notes.append(f"only {covered.mean():.0%} of the memories given are labelled")
        if kind == "false_recall" and (torn := sum(one.judged.contradicts for one in found)):
            says = f"{counted(torn, 'step')}: the labels say that nothing should come, and that a memory should"
            notes.append(f"{says}; the memory counts")
        made.append(Measure(name, phase, mean_of(values[index]), len(values[index]), tuple(notes)))
    return made


def lacking(name: str) -> str:
    """What queries lack where a measure of this name is nan."""
    kind = _parsed(name)[0]
    if kind == "false_recall":
        return "no query says that nothing should come"
    return "nothing was selected" if kind == "coverage" else "no query has a memory that should come"


def notes_of(found: Sequence[Measure]) -> list[str]:
    """What stands in the way of trusting measures, each once; which of them have one query alone is named."""
    known = [one for one in found if one.queries]
    alone = [one.name.removesuffix(".b").replace("_", " ") for one in known if ONE_QUERY in one.notes]
    named = f" ({', '.join(dict.fromkeys(alone))})" if len(alone) < len(known) else ""
    notes = dict.fromkeys(note for one in known for note in one.notes)
    return [f"{note[0].upper()}{note[1:]}{named if note == ONE_QUERY else ''}." for note in notes]


def mean_of(values: npt.NDArray[np.float64]) -> Estimate:
    """The mean over queries (n,) of values from 0 to 1 with its 95 % interval; nan where there is none.

    It is Wilson's interval with the variance of the values in the place of that of a share, and Student's quantile: a
    mean of values with the variance s² is as certain as a share of m(1 − m) / s² · n outcomes. Where all are equal it
    is that of n outcomes: a few steps without a failure do not say that there is none. Drawing queries anew would say
    so, and contains the mean of all in fewer samples of five queries. Where one value is rare and far from others that
    are close together, the interval is too short: `tests/analysis/recall/test_recall.py` has how often.
    """
    n = len(values)
    if n < 2:
        return Estimate(float(values[0]) if n else float("nan"), float("nan"), float("nan"))
    mean, variance = float(values.mean()), float(values.var(ddof=1))
    as_share = mean * (1 - mean) * n / (n - 1)
    certain = n if variance < FLAT else n * as_share / variance
    low, high = score_interval(mean, certain, float(scipy.stats.t.ppf((1 + LEVEL) / 2, n - 1)))
    return Estimate(mean, float(low), float(high))


def _parsed(name: str) -> tuple[str, int | None, Phase]:
    match = _NAME.fullmatch(name.lower())
    kind = match[1] if match else ""
    k = int(match[2]) if match and match[2] else None
    if match is None or (k is None and kind in NEED_K) or (k and kind in PLAIN):
        raise InputError(
            f"“{name[:80]}” is no measure. Known: hit@k, recall@k, precision@k, mrr and ndcg (perhaps with @k), each "
            "perhaps with .a or .b for the phase; false_recall, empty, coverage."
        )
    usually = "b" if kind == "precision" else "a"
    return kind, k, "B" if (match[3] or usually) == "b" else "A"


def _values(found: Sequence[Ranking], parsed: Sequence[tuple[str, int | None, Phase]]) -> list[npt.NDArray[np.float64]]:
    """The values of measures for each query that they are about, (n,) each, in the order of the queries."""
    should = [one for one in found if one.judged.relevant or one.judged.nothing is False]
    plain: Mapping[str, Callable[[], npt.NDArray[np.float64]]] = {
        "coverage": lambda: coverage(found),
        "false_recall": lambda: np.array([float(bool(one.pool)) for one in found if one.judged.nothing]),
        "empty": lambda: np.array([float(not one.selected) for one in should]),
    }
    by_rank = {phase: _by_rank(found, parsed, phase) for phase in {phase for _, _, phase in parsed}}
    return [plain[kind]().astype(np.float64) if kind in plain else by_rank[phase][kind, k] for kind, k, phase in parsed]


def _by_rank(
    found: Sequence[Ranking], parsed: Sequence[tuple[str, int | None, Phase]], phase: Phase
) -> dict[tuple[str, int | None], npt.NDArray[np.float64]]:
    """The measures of one phase that `ir_measures` has, for the queries with a relevant memory (n,)."""
    import ir_measures

    wanted = {(kind, k) for kind, k, of in parsed if kind in RANKED and of == phase}
    asked = [one for one in found if one.judged.relevant]
    values = {key: np.zeros(len(asked)) for key in wanted}  # A query for which nothing came is in no run: it has 0.
    of_kind = {key: getattr(ir_measures, RANKED[key[0]]) for key in wanted}
    by_measure = {of_kind[key] if key[1] is None else of_kind[key] @ key[1]: key for key in wanted}
    qrels = {str(number): one.judged.relevant for number, one in enumerate(asked)}
    run = {
        str(number): {memory_id: -float(rank) for rank, memory_id in enumerate(came)}
        for number, one in enumerate(asked)
        if (came := one.pool if phase == "A" else one.selected)
    }
    for metric in ir_measures.iter_calc(list(by_measure), qrels, run) if run and wanted else ():
        values[by_measure[metric.measure]][int(metric.query_id)] = metric.value
    return values


def coverage(found: Sequence[Ranking]) -> npt.NDArray[np.float64]:
    """Of each query with something selected, the share of it that is labelled (n,)."""
    shares = [
        sum(memory_id in one.judged.grades for memory_id in one.selected) / len(one.selected)
        for one in found
        if one.selected
    ]
    return np.array(shares, dtype=np.float64)
