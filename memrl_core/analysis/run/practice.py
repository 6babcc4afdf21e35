"""The quantities of `theory` as a run shows them, to be laid over its curves.

Source of the curves: arXiv 2601.03192 v2, equations 12 to 19. In the long run the variance of q is α/(2 − α) times that
of the rewards (equations 13 and 18).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import chi2

from memrl_core.analysis.run.theory import half_life, mean_q, variance_q
from memrl_core.bank import MemoryBank
from memrl_core.records import Outcome, UtilityPoint
from memrl_core.settings import MemRLSettings

UPPER = 0.975


@dataclass(frozen=True, slots=True)
class Fluctuation:
    """The variance of q over its last `n` moves, with its 95 % interval, beside the `limit` of theory."""

    n: int
    variance: float
    low: float
    high: float
    limit: float

    @property
    def agrees(self) -> bool:
        """Whether theory lies within what was measured."""
        return self.low <= self.limit <= self.high


def fluctuation(points: Sequence[UtilityPoint], alpha: float) -> Fluctuation | None:
    """How much q moves about once its start is forgotten, against the long-run variance of theory (eq. 13).

    The moves of the first two windows are left out: less than 2 % of the start is then left. Neighbouring q are
    correlated by 1 − α, so they count as fewer: the variance of n of them has the freedom of
    n (1 − (1 − α)²)/(1 + (1 − α)²). None when that leaves less than two.
    """
    moves = [p for p in points if p.reward is not None]
    window = (2 - alpha) / alpha
    late = np.array([p.after for p in moves[math.ceil(2 * window) :]], dtype=np.float64)
    n, kept = len(late), (1 - alpha) ** 2
    freedom = n * (1 - kept) / (1 + kept) - 1
    if freedom < 1 or n <= window:
        return None
    variance = float(late.var()) / (1 - window / n)
    low, high = (freedom * variance / float(chi2.ppf(p, freedom)) for p in (UPPER, 1 - UPPER))
    rewards = np.array([p.reward for p in moves], dtype=np.float64)
    return Fluctuation(n, variance, low, high, alpha / (2 - alpha) * float(rewards.var(ddof=1)))


SLACK = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The memories written with one outcome.

    `by_visit` has a row for every number of visits `t` from 0: `n` memories that had so many, their mean `q`, its `sd`
    and standard error `se` (nan for one memory), and what `theory` expects for the mean of all their rewards, with
    `theory_sd`. `se` takes memories as independent; those that shared a prompt shared its reward, so the true error is
    larger.
    """

    outcome: Outcome
    by_visit: pd.DataFrame


@dataclass(frozen=True, slots=True)
class LateVariance:
    """Of `memories` with enough visits, the median `ratio` of the late variance of q to its limit in theory.

    For `agreeing` of them the limit lies within the 95 % interval of what was measured.
    """

    memories: int
    ratio: float
    agreeing: int


@dataclass(frozen=True, slots=True)
class MeasuredHalfLife:
    """Updates until q of `memories` was half as far from their mean rewards as at their writing; `expected` of α."""

    memories: int
    updates: float
    expected: float


@dataclass(frozen=True, slots=True, eq=False)
class Practice:
    """What a run's ledger says about the curves of theory at its `alpha`.

    `groups` has the outcomes of which a memory was rewarded. `left_out` memories moved by another step size at some
    time and are in none of the numbers. `late` and `half_life` are None without enough visits.
    """

    alpha: float
    groups: tuple[Group, ...]
    left_out: int = 0
    late: LateVariance | None = None
    half_life: MeasuredHalfLife | None = None


def measured(bank: MemoryBank, run: str) -> Practice:
    """What can be laid over the curves of theory, of a run of MemRL. Raises `UnknownRun`."""
    alpha = MemRLSettings.of(bank.settings(run)).alpha
    # Also of memories that the run forgot: to leave them out would be one more selection.
    known = {i: points for i in bank.memory_ids() if (points := bank.history(run, i))}
    histories = {i: points for i, points in known.items() if all(_moved_by(alpha, point) for point in points)}
    frame = pd.DataFrame(
        [
            (memory_id, bank.memory(memory_id).outcome, t, point.after, point.reward)
            for memory_id, points in histories.items()
            for t, point in enumerate(points)
        ],
        columns=["memory_id", "outcome", "t", "q", "reward"],
    ).astype({"reward": float, "q": float})
    groups = [_group(outcome, members, alpha) for outcome, members in frame.groupby("outcome", sort=True)]
    return Practice(
        alpha,
        tuple(group for group in groups if group is not None),
        len(known) - len(histories),
        _late(list(histories.values()), alpha),
        _half_life(frame, alpha),
    )


def _moved_by(alpha: float, point: UtilityPoint) -> bool:
    if point.reward is None or point.before is None:
        return True
    return abs(point.before + alpha * (point.reward - point.before) - point.after) <= SLACK


def _group(outcome: Outcome, members: pd.DataFrame, alpha: float) -> Group | None:
    rewards = members["reward"].dropna()
    if rewards.empty:
        return None
    beta, sigma = float(rewards.mean()), float(rewards.std(ddof=1)) if len(rewards) > 1 else 0.0
    by_visit = members.groupby("t")["q"].agg(n="size", q="mean", sd="std").reset_index()
    q0 = float(by_visit["q"].iloc[0])
    by_visit["se"] = by_visit["sd"] / np.sqrt(by_visit["n"])
    by_visit["theory"] = mean_q(by_visit["t"], alpha, beta, q0)
    by_visit["theory_sd"] = np.sqrt(variance_q(by_visit["t"], alpha, sigma))
    return Group(outcome, by_visit)


def _late(histories: Sequence[Sequence[UtilityPoint]], alpha: float) -> LateVariance | None:
    found = [f for points in histories if (f := fluctuation(points, alpha)) is not None and f.limit > 0]
    if not found:
        return None
    ratio = float(np.median([f.variance / f.limit for f in found]))
    return LateVariance(len(found), ratio, sum(f.agrees for f in found))


def _half_life(frame: pd.DataFrame, alpha: float) -> MeasuredHalfLife | None:
    """Of the memories with at least two half-lives of visits, so that the same ones are averaged all the way.

    The distance keeps its sign, positive on the side of q0: for rewards in any order it then shrinks by (1 − α)^t on
    average, while its size would stop at the noise.
    """
    expected = float(half_life(alpha))
    last = max(1, math.ceil(2 * expected))
    own = frame.groupby("memory_id")["reward"].transform("mean")
    wide = frame.assign(off=frame["q"] - own).pivot(index="memory_id", columns="t", values="off")
    if last not in wide.columns:
        return None
    far = wide.loc[wide[last].notna(), list(range(last + 1))].to_numpy()
    away = (far * np.sign(far[:, :1])).mean(axis=0)
    halved = np.flatnonzero(away <= away[0] / 2)
    if away[0] <= SLACK or not len(halved):
        return None
    t = int(halved[0])
    above, below, half = float(away[t - 1]), float(away[t]), float(away[0]) / 2
    part = math.log(above / half) / math.log(above / below) if below > 0 else (above - half) / (above - below)
    return MeasuredHalfLife(len(far), t - 1 + part, expected)
