"""Several memory methods on the same tasks: what each achieves, what it gains over no memory, forgets and costs.

A frame of steps has a row per step and arm: `arm`, `policy`, `badge`, `seed`, `stage`, `epoch`, `task`, `success`
(True, False, or nothing where unrated), and the cost (`calls`, `consulted`, `unparsed`, `prompt_tokens`,
`answer_tokens`, and, where it was measured, `model_seconds`). Arms of equal seed met the same tasks with the same luck,
in the same order, so they are compared in pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from memrl_core.analysis.run.metrics import (
    UNKNOWN,
    Estimate,
    cumulative_success,
    forgetting_rate,
    outcome_grid,
    pass_at_k,
    percentiles,
    resampled,
    seed_interval,
)
from memrl_core.retrieval import Floats

NO_MEMORY = "none"
"""The policy of the arm without memory."""


@dataclass(frozen=True, slots=True)
class MethodRow:
    """One arm of a comparison, whose rules are the `badge`'s (`PolicySpec.variant`).

    `success` is the share of tasks solved in the last epoch; `csr` the share solved at least once by then, and
    `pass_at` that of the arm without memory with as many tries. `gain` is `success` minus that of the arm without
    memory, and `against` minus that of the reference. `lost_of_failures` and `lost_of_solved` are the forgetting rates
    A and B (`metrics.forgetting_rate`), means over the epochs after the first. `memories` is how many there are at the
    end. `tokens`, `calls` and `consulted` are means a task; `unparsed` is the share of the method's own questions whose
    answer could not be read. `seconds` are the model's, a mean a task. What does not apply is nan.
    """

    arm: str
    policy: str
    badge: str
    success: Estimate
    gain: Estimate
    against: Estimate
    tokens: float
    calls: float
    consulted: float
    unparsed: float
    csr: Estimate = UNKNOWN
    pass_at: Estimate = UNKNOWN
    lost_of_failures: Estimate = UNKNOWN
    lost_of_solved: Estimate = UNKNOWN
    memories: float = float("nan")
    seconds: float = float("nan")


@dataclass(frozen=True, slots=True, eq=False)
class MethodCurve:
    """The share of tasks solved at least once by the end of each epoch, (E,) each: mean over seeds and its interval."""

    arm: str
    badge: str
    value: Floats
    low: Floats
    high: Floats


def method_rows(steps: pd.DataFrame, without: str = "", reference: str = "") -> list[MethodRow]:
    """A row for each arm of a frame of steps in which each arm kept a bank of its own, in its order.

    `without` names the arm without memory and `reference` the arm that the others are compared with; "" for none.
    """
    arms: dict[str, pd.DataFrame] = dict(iter(steps.groupby("arm", sort=False)))
    last = {arm: _solved(part[part["epoch"] == part["epoch"].max()]) for arm, part in arms.items()}
    passed = _over_seeds([_passed(grid)[-1] for grid in _grids(arms.get(without, steps[:0]))])
    rows = []
    for arm, part in arms.items():
        grids = _grids(part)
        rates = [_forgotten(cell) for _, cell in part.groupby("seed")]
        rows.append(
            MethodRow(
                arm,
                str(part["policy"].iloc[0]),
                str(part["badge"].iloc[0]),
                success=_over_seeds(last[arm].groupby("seed").mean().to_list()),
                csr=_over_seeds([cumulative_success(grid)[-1] for grid in grids]),
                pass_at=passed,
                gain=_gain(last, arm, without),
                against=_gain(last, arm, reference),
                lost_of_failures=_over_seeds([of_failures for of_failures, _ in rates]),
                lost_of_solved=_over_seeds([of_solved for _, of_solved in rates]),
                memories=float(part.sort_values("step").groupby("seed")["memories_after"].last().mean()),
                **_cost(part),
            )
        )
    return rows


def method_curves(steps: pd.DataFrame) -> list[MethodCurve]:
    """CSR by epoch of each arm, in the frame's order."""
    return [
        _curve(arm, str(part["badge"].iloc[0]), [cumulative_success(grid) for grid in _grids(part)])
        for arm, part in steps.groupby("arm", sort=False)
    ]


def luck_curve(steps: pd.DataFrame, without: str) -> MethodCurve | None:
    """Pass@e by epoch of the arm `without` memory: what that many tries give by luck alone; None when it is missing."""
    part = steps[steps["arm"] == without]
    if part.empty:
        return None
    return _curve(without, str(part["badge"].iloc[0]), [_passed(grid) for grid in _grids(part)])


def arm_without_memory(steps: pd.DataFrame, k2: Mapping[str, int]) -> str:
    """The arm that puts no memory into the prompt: the policy `NO_MEMORY`, else one with k2 = 0; "" for none."""
    policies: dict[str, str] = dict(zip(steps["arm"], steps["policy"], strict=True))
    found = [arm for arm, policy in policies.items() if policy == NO_MEMORY]
    return (found or [arm for arm in policies if k2.get(arm) == 0] or [""])[0]


def paired_by_task(differences: Sequence[Floats]) -> Estimate:
    """The mean of paired differences, an array (tasks,) for each seed, with its interval.

    Seeds are drawn anew, and the tasks of each drawn seed as well, because each seed has tasks of its own: the interval
    covers other luck and other tasks, as far as few seeds show it. With one seed it covers other tasks alone.
    """
    known = [found[~np.isnan(found)] for found in differences]
    known = [found for found in known if found.size]
    if not known:
        return UNKNOWN
    rng = np.random.default_rng(1)

    def means(seeds: Floats) -> Floats:
        above, below = np.zeros(len(seeds)), np.zeros(len(seeds))
        for position, found in enumerate(known):
            drawn = seeds[:, position].astype(np.int64) * found.size
            above += rng.multinomial(drawn, np.full(found.size, 1 / found.size)) @ found
            below += drawn
        return above / below

    every = np.concatenate(known)
    low, high = percentiles(resampled(len(known), means)) if every.size > 1 else (np.nan, np.nan)
    return Estimate(float(every.mean()), float(low), float(high))


def _grids(part: pd.DataFrame) -> list[Floats]:
    """The success grid of each seed, (epochs, tasks)."""
    return [_grid(cell) for _, cell in part.groupby("seed")]


def _grid(cell: pd.DataFrame) -> Floats:
    outcomes = ["unrated" if pd.isna(won) else "success" if won else "failure" for won in cell["success"]]
    return outcome_grid(zip(cell["task"], cell["epoch"], outcomes, strict=True)).success


def _solved(part: pd.DataFrame) -> pd.Series:
    """Success as a number by seed and step."""
    return part.set_index(["seed", "step"])["success"].astype(np.float64)


def _gain(solved: Mapping[str, pd.Series], arm: str, other: str) -> Estimate:
    if other not in solved or arm == other:
        return UNKNOWN
    difference = (solved[arm] - solved[other]).dropna()
    return paired_by_task([of_seed.to_numpy() for _, of_seed in difference.groupby("seed")])


def _passed(success: Floats) -> Floats:
    """Pass@k by epoch (E,): for each task k is how often it was tried by then, and all its tries are the samples."""
    tried = ~np.isnan(success)
    known = tried.any(axis=0)
    samples, won = tried.sum(axis=0)[known], (success == 1).sum(axis=0)[known]
    passed = []
    for so_far in tried.cumsum(axis=0)[:, known]:
        each = [pass_at_k([c], [n], k) if k else 0.0 for c, n, k in zip(won, samples, so_far.tolist(), strict=True)]
        passed.append(float(np.mean(each)) if each else float("nan"))
    return np.array(passed)


def _forgotten(cell: pd.DataFrame) -> tuple[float, float]:
    """Forgetting rates A and B of a seed: means over the epochs after the first of each stage."""
    grids = [_grid(stage) for _, stage in cell.groupby("stage")]
    found = [
        np.concatenate([forgetting_rate(grid, of="failures")[1:] for grid in grids]),
        np.concatenate([forgetting_rate(grid, of="solved")[1:] for grid in grids]),
    ]
    of_failures, of_solved = (float(np.nanmean(rates)) if (~np.isnan(rates)).any() else np.nan for rates in found)
    return of_failures, of_solved


def _over_seeds(values: Sequence[float]) -> Estimate:
    given = np.array(values, dtype=np.float64)
    if not given.size or np.isnan(given).all():
        return UNKNOWN
    low, high = seed_interval(given)
    return Estimate(float(np.nanmean(given)), float(low), float(high))


def _curve(arm: str, badge: str, curves: Sequence[Floats]) -> MethodCurve:
    every = np.stack(curves)
    low, high = seed_interval(every)
    return MethodCurve(arm, badge, every.mean(axis=0), low, high)


def _cost(part: pd.DataFrame) -> dict[str, Any]:
    consulted = float(part["consulted"].sum())
    return {
        "tokens": float((part["prompt_tokens"] + part["answer_tokens"]).mean()),
        "calls": float(part["calls"].mean()),
        "consulted": float(part["consulted"].mean()),
        "unparsed": float(part["unparsed"].sum()) / consulted if consulted else float("nan"),
        "seconds": float(part["model_seconds"].mean()) if "model_seconds" in part else float("nan"),
    }
