"""Measures of a grid of outcomes by their definitions, task by task in plain Python; None is not attempted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import sqrt

from scipy.stats import norm

Grid = Sequence[Sequence[bool | None]]
NAN = float("nan")


def past(grid: Grid, epoch: int, task: int) -> list[bool]:
    """The rated outcomes of a task before an epoch, oldest first."""
    return [row[task] for row in grid[:epoch] if row[task] is not None]


def state(grid: Grid, epoch: int, task: int) -> str:
    """What the epoch made of the task, in words."""
    now, before = grid[epoch][task], past(grid, epoch, task)
    if now is None:
        return "not attempted"
    if not now:
        return "forgotten" if True in before else "never"
    if True not in before:
        return "newly solved"
    return "kept" if before[-1] else "recovered"


def accuracy(grid: Grid, epoch: int) -> float:
    rated = [won for won in grid[epoch] if won is not None]
    return sum(rated) / len(rated) if rated else NAN


def rated_tasks(grid: Grid) -> list[int]:
    return [task for task in range(len(grid[0])) if any(row[task] is not None for row in grid)]


def cumulative(grid: Grid, epoch: int) -> float:
    tasks = rated_tasks(grid)
    return sum(any(row[task] for row in grid[: epoch + 1]) for task in tasks) / len(tasks) if tasks else NAN


def failing_after_success(grid: Grid, epoch: int) -> float:
    tasks = rated_tasks(grid)
    return sum(state(grid, epoch, task) == "forgotten" for task in tasks) / len(tasks) if tasks else NAN


def hit_by_k(won: Sequence[bool], k: int) -> float:
    """The share of all choices of k samples that hold a success."""
    draws = list(combinations(won, k))
    return sum(any(draw) for draw in draws) / len(draws)


def back_after(success: Sequence[float | None], shift_at: int, window: int, tolerance: float) -> int | None:
    """Steps after the shift until a window is as good as the one before it; steps count from 1."""
    steps = dict(enumerate(success, start=1))

    def mean(first: int) -> float | None:
        rated = [steps[step] for step in range(first, first + window) if steps[step] is not None]
        return sum(rated) / len(rated) if rated else None

    before = mean(shift_at - window)
    for last in range(shift_at + window - 1, len(success) + 1):
        recent = mean(last - window + 1)
        if recent is not None and recent > before - tolerance - 1e-9:
            return last - shift_at + 1
    return None


def pearson(x: Sequence[float], y: Sequence[float]) -> float:
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    both = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return both / sqrt(sum((a - mean_x) ** 2 for a in x) * sum((b - mean_y) ** 2 for b in y))


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs."""
    return [1 + sum(b < a for b in values) + (sum(b == a for b in values) - 1) / 2 for a in values]


def wilson(share: float, n: float) -> tuple[float, float]:
    """The 95 % interval of a share of n (Wilson 1927)."""
    z = norm.ppf(0.975)
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return middle - half, middle + half
