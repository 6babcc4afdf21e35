"""What came of tasks that were met again and again: how much is solved, kept, lost, won back and carried over.

A *success grid* is (epochs, tasks) float64: 1 solved, 0 failed, nan not attempted or not rated. Where two definitions
are in use, both are here and the docstring says whose each is. A share of nothing is nan.

Intervals are Wilson's for counts, else percentiles of redrawn tasks. Whole tasks are drawn anew (Efron, 1979), not
steps: the epochs of one task hang together, and the steps of several runs on it stay paired.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy  # Its parts are loaded where they are first used.

from memrl_core.errors import InputError
from memrl_core.retrieval import Floats

RESAMPLES = 2000
LEVEL = 0.95
AT_ONCE = 100
RATED = ("success", "failure")
SLACK = 1e-9
"""How far a mean may fall short of a bound, or two values may differ, by rounding alone."""

# --- intervals --------------------------------------------------------------------------------------------------------


def resampled(tasks: int, statistic: Callable[[Floats], Floats]) -> Floats:
    """A statistic on `RESAMPLES` draws of `tasks` tasks with replacement: (RESAMPLES, ...).

    `statistic` maps how often each task was drawn (b, tasks) to values (b, ...).
    """
    rng = np.random.default_rng(0)
    blocks = []
    for _ in range(RESAMPLES // AT_ONCE):
        drawn = rng.integers(tasks, size=(AT_ONCE, tasks)) + np.arange(AT_ONCE)[:, None] * tasks
        counts = np.bincount(drawn.ravel(), minlength=AT_ONCE * tasks).reshape(AT_ONCE, tasks)
        blocks.append(statistic(counts.astype(np.float64)))
    return np.concatenate(blocks)


def percentiles(values: Floats) -> Floats:
    """The ends of the middle `LEVEL` of draws (n, ...) as (2, ...); draws without a value (nan) are left out.

    nan where no draw has a value.
    """
    tail = (1 - LEVEL) / 2
    flat = values.reshape(len(values), -1)
    ends = np.full((2, flat.shape[1]), np.nan)
    for column in range(flat.shape[1]):
        known = flat[~np.isnan(flat[:, column]), column]
        if known.size:
            ends[:, column] = np.quantile(known, (tail, 1 - tail))
    return ends.reshape(2, *values.shape[1:])


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, or a difference of means, with the ends of its 95 % interval; nan where there is nothing to say."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether there is a value."""
        return not np.isnan(self.value)


UNKNOWN = Estimate(*[float("nan")] * 3)


@dataclass(frozen=True, slots=True)
class Rate:
    """`successes` of `n`; `low` … `high` is the 95 % Wilson interval of the share. All three are None when n is 0."""

    successes: int
    n: int
    share: float | None
    low: float | None
    high: float | None


def rate(outcomes: Iterable[str]) -> Rate:
    """The share of successes among the rated outcomes; what was not rated does not count."""
    rated = [outcome == "success" for outcome in outcomes if outcome in RATED]
    successes, n = sum(rated), len(rated)
    if n == 0:
        return Rate(0, 0, None, None, None)
    interval = scipy.stats.binomtest(successes, n).proportion_ci(LEVEL, method="wilson")
    return Rate(successes, n, successes / n, float(interval.low), float(interval.high))


def wilson(share: float, clusters: npt.ArrayLike) -> tuple[float, float]:
    """The 95 % Wilson interval of the share of successes of uses in these clusters (n,), n > 0.

    The memories of one step share its outcome, so the uses of one step are one cluster: together they stand for
    (Σ nᵢ)² / Σ nᵢ² independent outcomes (Kish 1965).
    """
    sizes = np.unique(np.asarray(clusters), return_counts=True)[1]
    z = float(scipy.stats.norm.ppf((1 + LEVEL) / 2))
    low, high = score_interval(share, float(sizes.sum() ** 2 / (sizes**2).sum()), z)
    return float(low), float(high)


def score_interval(share: npt.ArrayLike, n: npt.ArrayLike, z: float) -> tuple[Floats, Floats]:
    """Wilson's interval (1927) of shares (...) of n (...) outcomes, `z` standard errors to either side."""
    share, n = np.asarray(share, dtype=np.float64), np.asarray(n, dtype=np.float64)
    middle, half = share + z**2 / (2 * n), z * np.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    return np.maximum(0.0, (middle - half) / (1 + z**2 / n)), np.minimum(1.0, (middle + half) / (1 + z**2 / n))


def seed_interval(values: Floats) -> tuple[Floats, Floats]:
    """The 95 % interval (low, high) of the mean over seeds, (seeds, ...) -> (...) each, by drawing seeds anew.

    Percentile bootstrap (Efron 1979), 2,000 draws with a fixed seed. nan where fewer than two seeds have a value; with
    fewer than about ten it is somewhat too narrow.
    """
    known = ~np.isnan(values)
    if len(values) < 2:
        nothing = np.full(values.shape[1:], np.nan)
        return nothing, nothing
    filled = np.where(known, values, 0.0)

    def mean(drawn: Floats) -> Floats:
        return _share(np.tensordot(drawn, filled, 1), np.tensordot(drawn, known.astype(np.float64), 1))

    low, high = np.where(known.sum(axis=0) < 2, np.nan, percentiles(resampled(len(values), mean)))
    return low, high


def paired_interval(one: Floats, other: Floats) -> tuple[Floats, Floats]:
    """The `seed_interval` of `one` - `other`, (seeds, ...) each with the same seeds in the same order.

    Narrower than two separate intervals, because what a seed does to both cancels. Raises `InputError` when the shapes
    differ.
    """
    if one.shape != other.shape:
        raise InputError(
            "A paired difference needs the same seeds and steps on both sides. Leave out what only one has."
        )
    return seed_interval(one - other)


# --- the grid of tasks and epochs -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class OutcomeGrid:
    """The success grid of a run, `success` (epochs, tasks), with the names of its rows and columns."""

    tasks: tuple[str, ...]
    epochs: tuple[int, ...]
    success: Floats


def outcome_grid(attempts: Iterable[tuple[str, int, str]]) -> OutcomeGrid:
    """The grid of (task, epoch, outcome) in the order of steps; tasks stand in the order of their first attempt.

    Of several attempts at a task in one epoch the last rated one counts. `uses.attempts` has the outcomes as they are
    rated now, `Steps.rows` as the steps ended.
    """
    tried = list(attempts)
    tasks = {task: column for column, task in enumerate(dict.fromkeys(task for task, _, _ in tried))}
    epochs = {epoch: row for row, epoch in enumerate(sorted({epoch for _, epoch, _ in tried}))}
    success = np.full((len(epochs), len(tasks)), np.nan)
    for task, epoch, outcome in tried:
        if outcome in RATED:
            success[epochs[epoch], tasks[task]] = outcome == "success"
    return OutcomeGrid(tuple(tasks), tuple(epochs), success)


def epoch_accuracy(success: Floats) -> Floats:
    """SR: the share of an epoch's rated tasks that were solved, (E,) (arXiv 2601.03192, table 1, "last epoch")."""
    return _share((success == 1).sum(axis=1), (~np.isnan(success)).sum(axis=1))


def cumulative_success(success: Floats) -> Floats:
    """CSR: the share of tasks solved at least once so far, (E,) (arXiv 2601.03192, table 1).

    Of all tasks that are rated anywhere in the grid, so it never falls. It grows by luck alone: hold it against
    `pass_at_k` of an agent without memory.
    """
    return _share(np.logical_or.accumulate(success == 1, axis=0).sum(axis=1), _tasks(success))


def solved_before_failing_now(success: Floats) -> Floats:
    """The share of tasks that an earlier epoch solved and this one fails, (E,), of the same tasks as CSR (own measure).

    When every task is rated in every epoch it is CSR - SR, the gap between the curves of arXiv 2601.03192, figure 4.
    """
    return _share((task_states(success) == TaskState.FORGOTTEN).sum(axis=1), _tasks(success))


def forgetting_rate(success: Floats, of: Literal["failures", "solved"] = "failures") -> Floats:
    """FR: tasks solved before that fail now, (E,), divided by what arXiv 2601.03192 divides by (section on forgetting).

    `of="failures"`: all failures of the epoch (v2). `of="solved"`: the tasks rated now that were solved before (v1).
    Neither says what "before" is: here it is the last rated attempt.
    """
    before = _last_before(success) == 1
    failed = success == 0
    whole = failed if of == "failures" else before & ~np.isnan(success)
    return _share((before & failed).sum(axis=1), whole.sum(axis=1))


class TaskState(IntEnum):
    """What an epoch made of a task, given all its rated attempts before (own division)."""

    NOT_ATTEMPTED = 0  # or attempted and not rated
    NEWLY_SOLVED = 1  # the first success
    KEPT = 2  # solved now and in the last attempt
    FORGOTTEN = 3  # fails now, and some attempt before solved it
    RECOVERED = 4  # solved now, not in the last attempt, but in one before it
    NEVER = 5  # fails, as ever before


def task_states(success: Floats) -> npt.NDArray[np.int8]:
    """The `TaskState` of every task in every epoch, (E, tasks)."""
    earlier, last = np.zeros(success.shape, dtype=bool), _last_before(success)
    earlier[1:] = np.logical_or.accumulate(success == 1, axis=0)[:-1]
    failed = np.where(earlier, TaskState.FORGOTTEN, TaskState.NEVER)
    again = np.where(last == 1, TaskState.KEPT, TaskState.RECOVERED)
    solved = np.where(earlier, again, TaskState.NEWLY_SOLVED)
    return np.select([success == 0, success == 1], [failed, solved], TaskState.NOT_ATTEMPTED).astype(np.int8)


def chance_fell(success: Floats, chance: Floats) -> npt.NDArray[np.bool_]:
    """Where a task's true chance is lower than when it was last solved, (E, tasks): forgetting without luck (own).

    `chance` (E, tasks) is the true chance that what was answered works, nan where nobody knows it: there nothing fell.
    """
    fell, at_success = np.zeros(success.shape, dtype=bool), np.full(success.shape[1:], np.nan)
    for row, (solved, now) in enumerate(zip(success == 1, chance, strict=True)):
        fell[row] = now < at_success - 1e-9
        at_success = np.where(solved, now, at_success)
    return fell


def failures_by_luck(success: Floats) -> float:
    """How many failures would come after a task's first success if its outcomes had come in any order.

    Of f failures and s successes each failure stands before all successes with the chance 1 / (s + 1), so that
    f · s / (s + 1) come after one: what an agent gives that neither learns nor forgets.
    """
    solved, failed = (success == 1).sum(axis=0), (success == 0).sum(axis=0)
    return float((failed * solved / (solved + 1)).sum())


def pass_at_k(successes: Iterable[int], samples: Iterable[int], k: int) -> float:
    """pass@k: the chance that k of a task's n samples hold a success, 1 - C(n - c, k)/C(n, k), averaged over tasks.

    `successes` c and `samples` n are (tasks,). The unbiased estimator of Chen et al. 2021 (arXiv 2107.03374, section
    2.1): for samples that are independent of each other, so for an agent without memory. nan without tasks. Raises
    `InputError` where a task has fewer than k samples.
    """
    chances = []
    for solved, tried in zip(successes, samples, strict=True):
        if not (0 <= solved <= tried and 1 <= k <= tried):
            raise InputError(
                f"pass@{k} needs at least {max(k, 1)} samples of each task; one has {solved} successes in {tried}. "
                "Choose a smaller k of at least 1."
            )
        chances.append(1 - math.comb(int(tried) - int(solved), k) / math.comb(int(tried), k))
    return _mean(np.array(chances))


# --- a stream of task sets --------------------------------------------------------------------------------------------


def average_accuracy(accuracy: Floats) -> float:
    """ACC: the mean accuracy on all task sets at the end (Lopez-Paz & Ranzato 2017 (GEM), section 2).

    `accuracy` is R (T, T): row i, column j is the accuracy on set j after learning sets 1 … i, memory frozen.
    """
    return _mean(_square(accuracy)[-1])


def backward_transfer(accuracy: Floats) -> float:
    """BWT: the mean over earlier sets j < T of R[T, j] - R[j, j] (Lopez-Paz & Ranzato 2017 (GEM), section 2).

    Below 0 where learning later sets cost earlier ones. `accuracy` as in `average_accuracy`; nan for one set.
    """
    table = _square(accuracy)
    return _mean((table[-1] - table.diagonal())[:-1])


def forward_transfer(accuracy: Floats, baseline: Floats) -> float:
    """FWT: the mean over sets j > 1 of R[j - 1, j] - b[j] (Lopez-Paz & Ranzato 2017 (GEM), section 2).

    `baseline` b (T,) is the accuracy without memory. `accuracy` as in `average_accuracy`; nan for one set.
    """
    table = _square(accuracy)
    if baseline.shape != (len(table),):
        raise InputError(f"Forward transfer over {len(table):,} task sets needs as many accuracies without memory.")
    return _mean(table.diagonal(1) - baseline[1:])


# --- after a change of the world --------------------------------------------------------------------------------------


def adaptation_time(success: Floats, shift_at: int, window: int, tolerance: float) -> int | None:
    """How many steps after a shift success is back where it was; None when it never is (own measure).

    `success` (steps,) begins at step 1, and `shift_at` is the first step of the changed world, as in the household. The
    answer is the least n >= `window` such that the mean of steps shift_at + n - window … shift_at + n - 1, all after
    the shift, is at least the mean of the `window` steps before it less `tolerance`. Doing better than before counts
    as being back. Steps that are not rated (nan) are left out of a mean; a window without a rated step is never back.

    Raises `InputError` when fewer than `window` steps lie before the shift, or none of them is rated.
    """
    before = success[max(0, shift_at - 1 - window) : max(0, shift_at - 1)]
    if window < 1 or len(before) < window or np.isnan(before).all():
        raise InputError(
            f"There are no {window} steps with a rating before the shift at step {shift_at}. "
            "Choose a smaller window of at least 1, or a later shift."
        )
    goal = np.nanmean(before) - tolerance - SLACK
    after = success[shift_at - 1 :]
    for n in range(window, len(after) + 1):
        recent = after[n - window : n]
        if not np.isnan(recent).all() and np.nanmean(recent) >= goal:
            return n
    return None


# --- q against success ------------------------------------------------------------------------------------------------


def pearson(x: Floats, y: Floats) -> float | None:
    """Pearson's r of two samples (n,); None with fewer than three pairs, or where a side does not vary.

    It has no interval: the memories of one step share its outcome, so uses are not independent. Seeds are.
    """
    return None if _is_flat(x, y) else float(scipy.stats.pearsonr(x, y).statistic)


def spearman(x: Floats, y: Floats) -> float | None:
    """Spearman's r of two samples (n,); None as for `pearson`."""
    return None if _is_flat(x, y) else float(scipy.stats.spearmanr(x, y).statistic)


def binned_correlation(q: Floats, outcome: Floats, low: float, high: float, bins: int) -> float | None:
    """The r of bin means: q is cut into `bins` equal bins over [low, high], and mean q set against mean outcome.

    So does arXiv 2601.03192, figure 7: eight bins over [0.2, 1], r = 0.861. It says less than the r of single uses,
    because averaging takes away what varies within a bin. Pairs outside [low, high] or with a nan are left out.
    """
    if bins < 1 or not low < high:
        raise InputError("Bins need a lower end below the upper one, and there is at least one of them.")
    inside = ~np.isnan(outcome) & (q >= low) & (q <= high)
    bin_of = np.searchsorted(np.linspace(low, high, bins + 1)[1:-1], q[inside], side="right")
    counts = np.bincount(bin_of, minlength=bins)
    mean_q, mean_outcome = (_share(np.bincount(bin_of, side[inside], bins), counts) for side in (q, outcome))
    full = counts > 0
    return pearson(mean_q[full], mean_outcome[full])


# --- shared -----------------------------------------------------------------------------------------------------------


def _is_flat(x: Floats, y: Floats) -> bool:
    """Whether no correlation is defined: fewer than three pairs, or a side that does not vary."""
    return len(x) < 3 or bool(np.ptp(x) < SLACK or np.ptp(y) < SLACK)


def _tasks(success: Floats) -> int:
    return int((~np.isnan(success)).any(axis=0).sum())


def _last_before(success: Floats) -> Floats:
    """The task's last rated outcome before the epoch, (E, tasks); nan where there is none."""
    last = np.full(success.shape, np.nan)
    for epoch in range(1, len(success)):
        last[epoch] = np.where(np.isnan(success[epoch - 1]), last[epoch - 1], success[epoch - 1])
    return last


def _share(part: npt.NDArray[np.float64 | np.int64], whole: npt.NDArray[np.float64 | np.int64] | int) -> Floats:
    """part / whole, nan where whole is 0."""
    nothing = np.full(np.shape(part), np.nan)
    shares: Floats = np.divide(part, whole, out=nothing, where=np.asarray(whole) > 0)
    return shares


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else float("nan")


def _square(accuracy: Floats) -> Floats:
    if accuracy.ndim != 2 or not len(accuracy) or len(accuracy) != accuracy.shape[1]:
        raise InputError("Transfer between task sets is read from a square table: a row and a column per set.")
    return accuracy
