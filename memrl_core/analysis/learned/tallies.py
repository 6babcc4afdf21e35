"""What is only counted: the operations that a model chose, and the tries that tasks took."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from memrl_core.analysis.learned.watching import Progress, Watching
from memrl_core.models.base import Cancelled
from memrl_core.policies.methods.memory_r1_ops import UNUSABLE
from memrl_core.policies.methods.pass_at_k import Tries

OPERATIONS = ("ADD", "UPDATE", "DELETE", "NOOP", UNUSABLE)


def operations_by_epoch(
    watching: Watching, on_progress: Progress | None = None, cancelled: Cancelled | None = None
) -> pd.DataFrame:
    """A row an epoch: how often each of `OPERATIONS` was done in its steps; the last are replies of no use."""
    counts: dict[int, Counter[str]] = {}
    for trace in watching.traces(on_progress, cancelled):
        told = counts.setdefault(trace.epoch, Counter())
        for one in trace.write.operations if trace.write is not None else ():
            told[UNUSABLE if one.op == "NOOP" and one.why.startswith(UNUSABLE) else one.op] += 1
    rows = [(epoch, *(told[name] for name in OPERATIONS)) for epoch, told in sorted(counts.items())]
    return pd.DataFrame(rows, columns=["epoch", *OPERATIONS])


def solved_within(tries: Tries) -> pd.DataFrame:
    """A row for each k up to the most tries: k, tasks solved within k tries, tasks whose k tries are over, share.

    `share` (pass@k) is of all tasks tried. It is too low where k tries are not over for all of them: an unsolved task
    may be solved at a try that has not come yet.
    """
    tasks, rows = len(tries.tries), []
    waiting = [n for task, n in tries.tries.items() if task not in tries.solved]
    for k in range(1, max(tries.tries.values(), default=0) + 1):
        solved, over = tries.solved_within(k), len(tries.solved) + sum(n >= k for n in waiting)
        rows.append((k, solved, over, tasks, solved / tasks))
    return pd.DataFrame(rows, columns=["k", "solved", "over", "tasks", "share"])
