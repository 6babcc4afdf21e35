"""The quantities of `theory` as a run shows them, to be laid over its curves, and where its assumptions break.

Source of the curves: arXiv 2601.03192 v2, equations 12 to 19. The paper's assumptions are rewards that come from one
distribution, one mean reward a memory, and every memory updated again and again.

In the long run the variance of q is α/(2 − α) times that of the rewards (equations 13 and 18).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.sparse import csr_array
from scipy.stats import chi2

from memrl_core.analysis.compare.comparison import ENOUGH_TASKS
from memrl_core.analysis.memory.exposure import starvation
from memrl_core.analysis.memory.relations import neighbourhoods, opposed
from memrl_core.analysis.memory.uses import uses
from memrl_core.analysis.run.rates import Floats, percentiles, resampled
from memrl_core.analysis.run.theory import half_life, mean_q, variance_q
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.numerals import signed
from memrl_core.records import MISSED, Outcome, Reason, UtilityPoint
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
    time and are in none of the numbers. `late` and `half_life` are None without enough visits. `selection` says
    what the first reward was of memories that got more visits than usual, and of the others; "" without both kinds.
    """

    run: str
    alpha: float
    groups: tuple[Group, ...]
    left_out: int
    late: LateVariance | None
    half_life: MeasuredHalfLife | None
    selection: str


def measured(bank: MemoryBank, run: str) -> Practice:
    """What can be laid over the curves of theory. Raises `UnknownRun`, `InputError` for a run of another policy."""
    alpha = memrl_settings(bank, run).alpha
    known = known_histories(bank, run)
    histories = {i: points for i, points in known.items() if all(_moved_by(alpha, point) for point in points)}
    frame = history_points(bank, histories)
    groups = [_group(outcome, members, alpha) for outcome, members in frame.groupby("outcome", sort=True)]
    return Practice(
        run=run,
        alpha=alpha,
        groups=tuple(group for group in groups if group is not None),
        left_out=len(known) - len(histories),
        late=_late(list(histories.values()), alpha),
        half_life=_half_life(frame, alpha),
        selection=_selection(frame),
    )


def memrl_settings(bank: MemoryBank, run: str) -> MemRLSettings:
    """The settings of a run of MemRL. Raises `InputError` for another policy: its q, if any, do not move by α."""
    policy = bank.run(run).policy
    if policy != "memrl":
        raise InputError(
            f"The run {run} is one of the policy {policy[:80]}: its values do not move by q ← q + α (R − q), which the "
            "theory is about. Choose a run of MemRL."
        )
    return MemRLSettings.of(bank.settings(run))


def known_histories(bank: MemoryBank, run: str) -> dict[str, list[UtilityPoint]]:
    """Of every memory that the run ever knew: leaving out what it forgot would be one more selection."""
    found = {memory_id: bank.history(run, memory_id) for memory_id in bank.memory_ids()}
    return {memory_id: points for memory_id, points in found.items() if points}


def _moved_by(alpha: float, point: UtilityPoint) -> bool:
    if point.reward is None or point.before is None:
        return True
    return abs(point.before + alpha * (point.reward - point.before) - point.after) <= SLACK


def history_points(bank: MemoryBank, histories: Mapping[str, Sequence[UtilityPoint]]) -> pd.DataFrame:
    """One row an entry of a history: `t` updates so far, q after it, its reward, and the memory's mean reward `own`."""
    frame = pd.DataFrame(
        [
            (memory_id, bank.memory(memory_id).outcome, t, point.step, point.after, point.reward)
            for memory_id, points in histories.items()
            for t, point in enumerate(points)
        ],
        columns=["memory_id", "outcome", "t", "step", "q", "reward"],
    ).astype({"reward": float, "q": float})
    return frame.assign(own=frame.groupby("memory_id")["reward"].transform("mean"))


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
    wide = frame.assign(off=frame["q"] - frame["own"]).pivot(index="memory_id", columns="t", values="off")
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


def _selection(frame: pd.DataFrame) -> str:
    first = frame[frame["t"] == 1].set_index("memory_id")["reward"]
    visits = frame.groupby("memory_id")["t"].max().loc[first.index]
    usual = float(visits.median()) if len(visits) else 0.0
    kept, others = first[visits > usual], first[visits <= usual]
    if kept.empty or others.empty:
        return ""
    return (
        f"The {len(kept):,} memories with more than {usual:g} visits began with a reward of "
        f"{signed(float(kept.mean()))} on average, the {len(others):,} others with {signed(float(others.mean()))}. "
        "Visits go by age, similarity and q: those that reach many are no random sample, which the theory takes them "
        "for."
    )


SAME = "The mean reward of a memory stays the same"
ONE_KIND = "A memory serves one kind of intents"
AGAIN = "Every memory is visited again and again"
ALIKE = "Equal memories are used alike"

ENOUGH = 5
"""Memories below which nothing is said about an assumption."""
USES_EACH = 3
MOST_USED = 30
SHUFFLES = 500
CHANCE = 0.05
DIGITS = 6


@dataclass(frozen=True, slots=True)
class Break:
    """Whether one assumption of the theory `holds` in a run (None: too little to tell), with the `numbers` behind."""

    name: str
    holds: bool | None
    sentence: str
    numbers: Mapping[str, float]


def breaks(bank: MemoryBank, run: str, shifts: Sequence[int]) -> tuple[Break, ...]:
    """The assumptions of the theory held against a run; `shifts` are the steps from which on the world was another.

    Raises `UnknownRun`, `InputError` for a run of another policy.
    """
    settings = memrl_settings(bank, run)
    tasks = {row.step: row.task for row in bank.step_rows(run)}
    moves = _own_moves(bank, run)
    moves = moves[moves["step"].isin(tasks)]
    steps = sorted(set(shifts))
    edges = [0, *steps, max([*tasks, *steps], default=0) + 1]
    used = uses(bank, run)
    return (
        *(_shifting(moves, tasks, edges[at : at + 3], settings.alpha) for at in range(len(steps))),
        *(() if steps else (Break(SAME, None, "No step is known at which the world changed.", {}),)),
        _mixed(bank, run, used, settings.q_midpoint),
        _revisited(moves, sorted(tasks), settings.q_midpoint),
        _starved(bank, run, used, settings),
    )


def _own_moves(bank: MemoryBank, run: str) -> pd.DataFrame:
    """The moves that this run made itself, not those that it took over from the run it is based on."""
    info, histories = bank.run(run), known_histories(bank, run)
    if info.base is not None:
        for memory_id, points in histories.items():
            taken = len(bank.history(info.base, memory_id, info.base_step))
            histories[memory_id] = points[max(taken - 1, 0) :]
    frame = history_points(bank, histories)
    return frame[frame["t"] > 0]


def _shifting(moves: pd.DataFrame, tasks: Mapping[int, str], edges: Sequence[int], alpha: float) -> Break:
    """Rewards of the memories used on both sides of a shift; the interval draws whole tasks anew."""
    start, shift, end = edges
    near = moves[(moves["step"] >= start) & (moves["step"] < end)]
    earlier = near["step"] < shift
    both = sorted(set(near[earlier]["memory_id"]) & set(near[~earlier]["memory_id"]))
    near = near[near["memory_id"].isin(both)]
    drawn = {task: row for row, task in enumerate(sorted({tasks[step] for step in near["step"]}))}
    if len(both) < ENOUGH or len(drawn) < ENOUGH_TASKS:
        few = (
            f"{len(both):,} memories were used on both sides of it, on {len(drawn):,} tasks; {ENOUGH} memories and "
            f"{ENOUGH_TASKS} tasks are needed."
        )
        return Break(SAME, None, f"Step {shift}: {few}", {})
    sides = [near[near["step"] < shift], near[near["step"] >= shift]]
    rows = {memory_id: row for row, memory_id in enumerate(both)}
    numbered = [
        side.assign(memory=side["memory_id"].map(rows), task=side["step"].map(tasks).map(drawn)) for side in sides
    ]
    low, high = percentiles(resampled(len(drawn), lambda counts: _change(numbered, len(both), counts)))
    before, after = (side.groupby("memory_id")["reward"].mean() for side in sides)
    at_shift, at_end = (side.groupby("memory_id")["q"].last() for side in sides)
    updates = sides[1].groupby("memory_id").size()
    expected = float(np.mean([mean_q(updates[i], alpha, after[i], at_shift[i]) for i in both]))
    numbers = {
        "shift": shift,
        "memories": len(both),
        "before": float(before.mean()),
        "after": float(after.mean()),
        "low": float(low),
        "high": float(high),
        "q_at_shift": float(at_shift.mean()),
        "q_at_end": float(at_end.mean()),
        "updates": float(updates.mean()),
        "expected": expected,
    }
    sentence = (
        f"Step {shift}: the {len(both):,} memories used on both sides earned {signed(numbers['before'])} before it and "
        f"{signed(numbers['after'])} after it (95 % of the change: {signed(float(low))} to {signed(float(high))}). "
        f"Their q stood at {signed(numbers['q_at_shift'])} then and at {signed(numbers['q_at_end'])} after "
        f"{numbers['updates']:.1f} more updates each, where theory expects {signed(expected)}; the half-life is "
        f"{float(half_life(alpha)):.3f} updates."
    )
    return Break(SAME, bool(low <= SLACK and high >= -SLACK), sentence, numbers)


def _change(sides: Sequence[pd.DataFrame], memories: int, counts: Floats) -> Floats:
    """Mean over memories of the reward after less before, of tasks drawn `counts` (b, tasks) times: (b,)."""
    means = []
    with np.errstate(invalid="ignore"):
        for side in sides:
            n = len(side)
            of_memory = csr_array((np.ones(n), (side["memory"], np.arange(n))), shape=(memories, n))
            drawn = counts[:, side["task"]].T
            means.append((of_memory @ (drawn * side["reward"].to_numpy()[:, None])) / (of_memory @ drawn))
        change = means[1] - means[0]
        seen = ~np.isnan(change)
        mean: Floats = np.where(seen, change, 0.0).sum(axis=0) / seen.sum(axis=0)
    return mean


def _mixed(bank: MemoryBank, run: str, used: pd.DataFrame, middle: float) -> Break:
    """Memories that are good for one neighbourhood of intents and bad for another, against shuffled rewards."""
    rated = used[used["selected"] & used["reward"].notna()]
    rng, asked, mixed, by_chance = np.random.default_rng(0), 0, 0, np.zeros(SHUFFLES)
    for memory_id in rated["memory_id"].value_counts().index[:MOST_USED]:
        found = [n for n in neighbourhoods(bank, run, memory_id, rated) if n.uses >= USES_EACH]
        if len(found) < 2:
            continue
        own = rated[rated["memory_id"] == memory_id].set_index("step")["reward"]
        sizes = np.array([n.uses for n in found])
        rewards = own.loc[[step for n in found for step in n.steps]].to_numpy()
        shuffled = rng.permuted(np.tile(rewards, (SHUFFLES, 1)), axis=1)
        means = np.add.reduceat(shuffled, np.cumsum(sizes) - sizes, axis=1) / sizes
        by_chance += (means.min(axis=1) < middle) & (means.max(axis=1) > middle)
        asked, mixed = asked + 1, mixed + opposed(found, middle)
    numbers = {"asked": asked, "mixed": mixed, "by_chance": float(by_chance.mean())}
    if asked < ENOUGH:
        few = f"{asked} memories served two kinds of intents, each {USES_EACH} times or more; {ENOUGH} are needed."
        return Break(ONE_KIND, None, few, numbers)
    sentence = (
        f"Of {asked} memories that served two kinds of intents, {mixed} earned more than {signed(middle)} for one and "
        f"less for another, where chance alone would give {by_chance.mean():.1f}: q is then a mean that fits neither."
    )
    return Break(ONE_KIND, bool((by_chance >= mixed).mean() >= CHANCE), sentence, numbers)


def _revisited(moves: pd.DataFrame, steps: Sequence[int], middle: float) -> Break:
    """Memories with a failure in the first half of the run, and whether any reward came to them in the second."""
    half = (steps[0] + steps[-1]) / 2 if steps else 0.0
    early, late = moves[moves["step"] <= half], set(moves[moves["step"] > half]["memory_id"])
    failed = set(early[early["reward"] < middle]["memory_id"])
    others = set(early["memory_id"]) - failed
    left, others_left = len(failed - late), len(others - late)
    numbers = {"failed": len(failed), "failed_left": left, "others": len(others), "others_left": others_left}
    if len(failed) < ENOUGH:
        few = f"{len(failed):,} memories had a failure in the first half of the run; {ENOUGH} are needed."
        return Break(AGAIN, None, few, numbers)
    sentence = (
        f"Of {len(failed):,} memories with a failure in the first half of the run, {left} got no reward in the second; "
        f"of {len(others):,} without one, {others_left}. The q of a memory that is not visited stays as wrong as it is."
    )
    return Break(AGAIN, left == 0, sentence, numbers)


def _starved(bank: MemoryBank, run: str, used: pd.DataFrame, settings: MemRLSettings) -> Break:
    """Memories never given to the model, and how many of them lost to an equal one only because it was older."""
    found = starvation(bank.view(run), used, threshold=settings.duplicate_threshold, delta=settings.delta)
    never = {*found.never_recalled, *found.never_selected}
    age = {memory_id: number for number, memory_id in enumerate(bank.memory_ids())}
    lost = _lost_ties(bank, run, age)
    twins = {i for group in found.duplicates for i in group if age[i] > min(age[other] for other in group)}
    losers = never & set(lost)
    numbers = {"never": len(never), "ties": len(lost), "lost_ties": len(losers), "newer_twins": len(never & twins)}
    if used.empty:
        return Break(ALIKE, None, "No memory has been recalled yet.", numbers)
    sentence = (
        f"At least {len(lost):,} times a memory lost its place in the pool or the prompt to an older one that was "
        f"equal in all that counted there; {len(losers):,} of the {len(never):,} memories never given to the model "
        f"lost so, and {len(never & twins):,} of these {len(never):,} are near-duplicates (cosine "
        f"{settings.duplicate_threshold:g} or more) of an older one."
    )
    return Break(ALIKE, not losers, sentence, numbers)


def _lost_ties(bank: MemoryBank, run: str, age: Mapping[str, int]) -> list[str]:
    """The memories that missed the pool by a tie in similarity, or the prompt by one in q as well, once a time.

    Of those that missed the pool a trace holds the nearest only, so there may have been more.
    """
    seen = bank.candidate_table(run, ["step", "memory_id", "similarity", "q", "selected", "reason"]).to_pandas()
    seen["age"] = seen["memory_id"].map(age)
    seen[["similarity", "q"]] = seen[["similarity", "q"]].round(DIGITS)
    lost = []
    for place, keys, missed in (
        (~seen["reason"].isin(MISSED), ["step", "similarity"], seen["reason"] == Reason.BEYOND_K1.value),
        (seen["selected"].astype(bool), ["step", "similarity", "q"], seen["reason"] == Reason.BEYOND_K2.value),
    ):
        oldest = seen.assign(age=seen["age"].where(place)).groupby(keys)["age"].transform("min")
        lost += seen[missed & (seen["age"] > oldest)]["memory_id"].tolist()
    return lost
