"""Recall against success: when does better retrieval not help the answer?

Recall is here of what could be in the prompt: of k2 places, or of the memories that should come where these are fewer.
It is an association, not an effect: an easy task may have both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memrl_core.analysis.memory.exposure import attempts
from memrl_core.analysis.recall.queries import Query
from memrl_core.analysis.run.metrics import RATED, UNKNOWN, Estimate, percentiles, resampled
from memrl_core.bank import MemoryBank
from memrl_core.numerals import counted, percent
from memrl_core.retrieval import Floats


@dataclass(frozen=True, slots=True)
class Group:
    """Labelled steps of one family, or, where no families are known, of one recall: means over `steps`."""

    name: str
    steps: int
    recall: float
    success: float


@dataclass(frozen=True, slots=True)
class AgainstSuccess:
    """Rated steps with something that should come. `better` and `worse` count steps by recall, at least the mean or
    below it, with their successes; `difference` is that of their shares of success, its interval over tasks.

    `full` and `none` are the steps with all in the prompt that could be, and with nothing of it: (steps, successes).
    """

    groups: tuple[Group, ...]
    better: tuple[int, int]
    worse: tuple[int, int]
    difference: Estimate
    full: tuple[int, int]
    none: tuple[int, int]

    @property
    def sentences(self) -> tuple[str, ...]:
        """What follows, in words; none where fewer than two steps are rated."""
        (n, won), (m, won_less) = self.better, self.worse
        if n + m < 2:
            return ()
        said = []
        if not n or not m or np.isnan(self.difference.low):
            said.append(f"All {n + m:,} steps have the same recall, or one task: nothing can be compared.")
        else:
            one, low, high = (100 * end for end in (self.difference.value, self.difference.low, self.difference.high))
            shares = f"{percent(won / n, 0)} of {n:,} steps beside {percent(won_less / m, 0)} of {m:,}"
            points = f"{shares}, {one:+.0f} points ({low:+.0f} to {high:+.0f})".replace("-", "−")
            if low > 0:
                said.append(f"Where more of what should come is in the prompt, more answers succeed: {points}.")
            elif high < 0:
                said.append(f"Where more of what should come is in the prompt, fewer answers succeed: {points}.")
            else:
                said.append(f"No effect of better recall on the answers shows, it may be chance: {points}.")
        if self.full[0]:
            failed = self.full[0] - self.full[1]
            said.append(
                f"Of {counted(self.full[0], 'step')} with all that could be in the prompt, {failed:,} failed: recall "
                "was not the limit there."
            )
        if self.none[0]:
            said.append(f"Of {counted(self.none[0], 'step')} with none of it, {self.none[1]:,} succeeded without it.")
        return tuple(said)


def against_success(bank: MemoryBank, run: str, queries: Sequence[Query]) -> AgainstSuccess:
    """What recall in the prompt has to do with success in a run, by rewards as they count now. Raises `UnknownRun`."""
    frame = attempts(bank, run)
    outcomes = dict(zip(frame["step"].tolist(), frame["outcome"].tolist(), strict=True))
    asked = [one for one in queries if one.judged.relevant and outcomes.get(one.step) in RATED]
    recall = np.array([_recall(one) for one in asked], dtype=np.float64)
    won = np.array([outcomes[one.step] == "success" for one in asked], dtype=np.float64)
    is_better = recall >= (recall.mean() if len(recall) else 0.0) - 1e-9

    def won_of(which: np.ndarray) -> tuple[int, int]:
        return int(which.sum()), int(won[which].sum())

    return AgainstSuccess(
        _groups(asked, recall, won),
        won_of(is_better),
        won_of(~is_better),
        _difference([one.task for one in asked], is_better.astype(np.float64), won),
        won_of(recall >= 1 - 1e-9),
        won_of(recall <= 1e-9),
    )


def _recall(query: Query) -> float:
    places = min(int(query.settings.get("k2", 3)), len(query.judged.relevant))
    return min(1.0, sum(one in query.judged.relevant for one in query.given) / max(places, 1))


def _groups(asked: Sequence[Query], recall: Floats, won: Floats) -> tuple[Group, ...]:
    by_family = len({one.family for one in asked} - {""}) > 1
    rows: Mapping[str, list[int]] = defaultdict(list)
    for row, one in enumerate(asked):
        rows[(one.family or "no family") if by_family else f"recall {recall[row]:.2f}"].append(row)
    return tuple(
        Group(name, len(at), float(recall[at].mean()), float(won[at].mean())) for name, at in sorted(rows.items())
    )


def _difference(tasks: Sequence[str], better: Floats, won: Floats) -> Estimate:
    """Success of the better minus that of the others, drawing tasks anew: attempts at one task are alike."""
    names = sorted(set(tasks))
    if not 0 < better.sum() < len(tasks):
        return UNKNOWN
    sums = np.zeros((len(names), 4))
    for name, is_better, success in zip(tasks, better, won, strict=True):
        sums[names.index(name)] += (is_better, is_better * success, 1 - is_better, (1 - is_better) * success)

    def difference(counts: Floats) -> Floats:
        n, won_of_n, m, won_of_m = (counts @ sums).T
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = won_of_n / n - won_of_m / m
        return found

    value = float(difference(np.ones((1, len(names))))[0])
    if len(names) < 2:
        return Estimate(value, float("nan"), float("nan"))
    low, high = percentiles(resampled(len(names), difference))
    return Estimate(value, float(low), float(high))
