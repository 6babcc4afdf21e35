"""Where the theory of one q breaks in a run: its assumptions, held against the ledger.

arXiv 2601.03192 v2 assumes rewards from one distribution, one mean reward a memory, and every memory updated again and
again; that equal memories are used alike is what its selection has to do for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from memrl_core.analysis.compare.comparison import ENOUGH_TASKS
from memrl_core.analysis.memory.exposure import starvation
from memrl_core.analysis.memory.neighbourhoods import neighbourhoods, opposed
from memrl_core.analysis.memory.uses import uses
from memrl_core.analysis.run.practice import history_points, known_histories, memrl_settings
from memrl_core.analysis.run.rates import Floats, percentiles, resampled
from memrl_core.analysis.run.theory import half_life, mean_q
from memrl_core.bank import MemoryBank
from memrl_core.numerals import signed
from memrl_core.records import MISSED, Reason
from memrl_core.settings import MemRLSettings

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
SLACK = 1e-9
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
