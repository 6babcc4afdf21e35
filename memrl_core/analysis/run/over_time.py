"""What was forgotten, transferred, and answered without memory in the course of a run, and how its q are spread.

arXiv 2601.03192 divides what was lost by the failures of the epoch (v2) or by the previous successes (v1). "Previous"
means the last attempt here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from memrl_core.analysis.run.metrics import RATED, rate
from memrl_core.bank import MemoryBank


def losses(attempts: pd.DataFrame) -> pd.DataFrame:
    """A row for each failed attempt at a task that an earlier one had solved, in the order of steps.

    Columns: task, epoch, `failed_step`, `solved_step` (of the latest success), and the memories that were given to the
    model then and not now (`left`), now and not then (`entered`); both are None where a step recorded no decision.
    `attempts` is that of `exposure.attempts`.
    """
    rated = _rated(attempts)
    won = rated["outcome"] == "success"
    solved = rated["step"].where(won).groupby(rated["task"]).ffill()
    selected = dict(zip(attempts["step"], attempts["selected"], strict=True))
    rows = []
    for attempt, solved_step in zip(
        rated[~won & solved.notna()].itertuples(), solved[~won & solved.notna()], strict=True
    ):
        then, now = selected[int(solved_step)], attempt.selected
        left = entered = None
        if then is not None and now is not None:
            left, entered = tuple(i for i in then if i not in now), tuple(i for i in now if i not in then)
        rows.append((attempt.task, attempt.epoch, attempt.step, int(solved_step), left, entered))
    return pd.DataFrame(rows, columns=["task", "epoch", "failed_step", "solved_step", "left", "entered"])


def forgetting(attempts: pd.DataFrame) -> pd.DataFrame:
    """A row per epoch of its rated attempts: how many failed; how many followed a success, and failed of these.

    Columns: epoch, attempts, failures, solved_last, lost_last, and the shares lost_last / failures (`of_failures`, v2)
    and lost_last / solved_last (`of_solved`, v1), nan where there is nothing to divide by.
    """
    rated = _rated(attempts)
    won = rated["outcome"] == "success"
    last = won.groupby(rated["task"]).shift(fill_value=False).astype(bool)
    each = pd.DataFrame({"attempts": True, "failures": ~won, "solved_last": last, "lost_last": last & ~won})
    table = each.groupby(rated["epoch"]).sum().reset_index()
    lost = table["lost_last"]
    return table.assign(of_failures=lost / table["failures"], of_solved=lost / table["solved_last"])


def _rated(attempts: pd.DataFrame) -> pd.DataFrame:
    return attempts[attempts["outcome"].isin(RATED)].sort_values("step")


TRANSFER = (
    "epoch", "origin", "uses", "share", "similarity", "steps", "rated", "successes", "success", "low", "high",
)  # fmt: skip
ORIGINS = ("same task", "another task", "unknown")


def transfer(bank: MemoryBank, run: str, uses: pd.DataFrame) -> pd.DataFrame:
    """One row per epoch and origin that occurred (n, 11); `uses` are the run's (see `exposure.uses`).

    `uses` counts memories given to the model, `share` is their part of the epoch's, and `similarity` the mean cosine of
    the memory's intent to the task's. The outcome belongs to the step, so `steps`, `rated`, `successes` and `success`
    with its 95 % Wilson interval `low` … `high` count each step once: as "same task" when any of its memories came from
    it, else as "another task" when any came from there. A memory without a task has the origin "unknown".
    """
    chosen = uses[uses["selected"]]
    came_from = chosen["memory_id"].map({i: bank.memory(i).task for i in chosen["memory_id"].unique()})
    origin = np.where(came_from == "", ORIGINS[2], np.where(came_from == chosen["task"], ORIGINS[0], ORIGINS[1]))
    chosen = chosen.assign(origin=pd.Categorical(origin, ORIGINS, ordered=True))
    of_step = chosen.sort_values("origin", kind="stable").drop_duplicates("step")
    rows = []
    for (epoch, kind), members in chosen.groupby(["epoch", "origin"], observed=True):
        steps = of_step[(of_step["epoch"] == epoch) & (of_step["origin"] == kind)]
        won = rate(steps["outcome"])
        share = len(members) / int((chosen["epoch"] == epoch).sum())
        similarity = float(members["similarity"].mean())
        counts = len(members), share, similarity, len(steps)
        rows.append((epoch, kind, *counts, won.n, won.successes, won.share, won.low, won.high))
    return pd.DataFrame(rows, columns=list(TRANSFER))


Q_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
Q_BY_EPOCH = (
    "run", "epoch", "step", "memories", "not zero", "positive", "negative", "never recalled", "never updated", "mean",
    "least", *(f"q{round(100 * quantile):02d}" for quantile in Q_QUANTILES), "greatest",
)  # fmt: skip


def q_by_epoch(bank: MemoryBank, run: str, uses: pd.DataFrame) -> pd.DataFrame:
    """One row per epoch: how the q of the memories that the run knew at its end were spread then; see `Q_BY_EPOCH`.

    `uses` are the run's (`exposure.uses`). `not zero`, `positive`, `negative`, `never recalled` (in no pool so far) and
    `never updated` are shares of the memories. What people said of a step since counts at that step. A run without
    memories has no row.

    Of a run whose q all came with an imported checkpoint only their end is known: it has one row, with epoch 0 and
    without `never recalled`. Where the bank holds other checkpoints of the same memories there is a row for each, the
    one with the fewest updates first, numbered from 1; `run` names it.
    """
    histories = bank.histories(run)
    first = bank.run(run).first_step
    if all(point.step < first for points in histories.values() for point in points):
        return _by_checkpoint(bank, run)
    ends = pd.DataFrame(
        {"epoch": [row.epoch for row in bank.steps.rows(run)], "step": [row.step for row in bank.steps.rows(run)]}
    )
    first_pool = uses.groupby("memory_id")["step"].min()
    found = []
    for epoch, end in ends.groupby("epoch")["step"].max().sort_values().items():
        until = {memory: [point for point in points if point.step <= end] for memory, points in histories.items()}
        last = {memory: points[-1] for memory, points in until.items() if points}
        if last:
            unseen = first_pool.reindex(list(last)).fillna(np.inf) > end
            q, visits = ([getattr(point, name) for point in last.values()] for name in ("after", "visits"))
            found.append((run, epoch, end, *_spread(q, visits, float(unseen.mean()))))
    return pd.DataFrame(found, columns=Q_BY_EPOCH)


def _by_checkpoint(bank: MemoryBank, run: str) -> pd.DataFrame:
    mine, environment = bank.utilities(run), bank.run(run).environment
    alike = {run: mine}
    for info in bank.runs():
        if info.id == run or info.base is not None or info.environment != environment:
            continue
        known = bank.utilities(info.id)
        points = (point for points in bank.histories(info.id).values() for point in points)
        if known.keys() & mine.keys() and all(point.step < info.first_step for point in points):
            alike[info.id] = known
    ordered = sorted(alike.items(), key=lambda one: sum(utility.visits for utility in one[1].values()))
    rows = []
    for number, (name, known) in enumerate(ordered, start=1):
        q, visits = ([getattr(utility, value) for utility in known.values()] for value in ("q", "visits"))
        rows.append((name, number if len(ordered) > 1 else 0, 0, *_spread(q, visits, np.nan)))
    return pd.DataFrame(rows if mine else [], columns=Q_BY_EPOCH)


def _spread(q: Sequence[float], visits: Sequence[int], unseen: float) -> tuple[float, ...]:
    """The columns of `Q_BY_EPOCH` from `memories` on."""
    of = np.array(q)
    shares = ((of != 0).mean(), (of > 0).mean(), (of < 0).mean(), unseen, np.mean(np.array(visits) == 0))
    return (len(of), *map(float, (*shares, of.mean(), of.min(), *np.quantile(of, Q_QUANTILES), of.max())))
