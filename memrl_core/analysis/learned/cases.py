"""What Memento has learned of its cases: how well its predictions went, and the past uses behind a case's value.

Memento notes the uses of cases under every read, so a run is also watched here by another read than its own.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from memrl_core.analysis.learned.watching import Progress, Watching, lesson_of
from memrl_core.analysis.rates import effective_count, wilson
from memrl_core.bank import MemoryBank
from memrl_core.models.base import Cancelled
from memrl_core.policies import make_policy, settings_that_fit
from memrl_core.policies.methods.memento import Cases, MementoSettings, Read, calibration, kernel_of, loss_history
from memrl_core.records import StepTrace
from memrl_core.retrieval import exact_similarity

NAME = "memento"
READ_AT_ONCE = 100


@dataclass(frozen=True, slots=True, eq=False)
class CaseHistory:
    """What Memento has learned of a run under `settings`: before the step looked at, and after it.

    `steps` names the step to which each of the states known after it belongs.
    """

    settings: MementoSettings
    before: Cases
    after: Cases
    steps: tuple[int, ...]


def case_history(
    watching: Watching, read: Read, on_progress: Progress | None = None, cancelled: Cancelled | None = None
) -> CaseHistory | None:
    """What Memento with this read has learned by watching a run; None when it was cancelled. Raises `SettingsError`."""
    bank, run = watching.bank, watching.run
    first, cases = bank.run(run).first_step, Cases()
    before, steps = cases, list[int]()
    for trace in _behind(bank, run, watching.step):
        if cancelled is not None and cancelled():
            return None
        if trace.run == run and trace.step == watching.step:
            before = copy.deepcopy(cases)
        settings = _settings(bank, trace, read)
        make_policy(NAME, settings.model_dump()).learn(cases, lesson_of(bank, trace))
        steps += [trace.step] * (len(cases.states) - len(steps))
        if on_progress is not None:
            on_progress(max(0, trace.step - first + 1), watching.step - first + 1)
    return CaseHistory(_settings(bank, watching.trace, read), before, cases, tuple(steps))


def losses(history: CaseHistory) -> pd.DataFrame:
    """A row for each task that trained the network: step, labelled rows, loss of its batch before and after."""
    rows = [(loss.step, loss.rows, loss.before, loss.after) for loss in loss_history(history.after)]
    return pd.DataFrame(rows, columns=["step", "rows", "before", "after"])


def case_calibration(history: CaseHistory) -> pd.DataFrame:
    """Predictions, each made before its outcome was known, a row a bin that is not empty.

    Columns: low, high, p (mean), n, success (share), and its 95 % Wilson interval success_low … success_high, in which
    the uses of one step, which share its outcome, count as one.
    """
    rows = []
    for one in calibration(history.after):
        ends = wilson(one.succeeded, effective_count(one.states))
        rows.append((one.low, one.high, one.predicted, one.count, one.succeeded, *ends))
    return pd.DataFrame(rows, columns=["low", "high", "p", "n", "success", "success_low", "success_high"])


def used_cases(history: CaseHistory) -> dict[str, int]:
    """How often each case was used before the step, the most used first."""
    ids = list(history.before.numbers)
    counts = Counter(ids[number] for number in history.before.uses.rows["case"].tolist())
    return dict(counts.most_common())


def kernel_weights(history: CaseHistory, trace: StepTrace, memory_id: str) -> pd.DataFrame:
    """A row for each use of a case before a step: its step, outcome (1, 0), cosine of the two tasks, weight and share.

    Weight is k(s, s′) and share its part of all weights; Q_EC is the sum of share × outcome. Empty where the embedding
    of the step's intent is not known.
    """
    _, uses = history.before.of([memory_id])
    if trace.embed is None or not len(uses):
        return pd.DataFrame(columns=["step", "outcome", "similarity", "weight", "share"])
    asked = np.asarray(trace.embed.embedding, dtype=np.float32)
    similarity = exact_similarity(history.before.states.rows[uses["state"]], asked)
    weight = kernel_of(similarity, history.settings.kernel, history.settings.bandwidth)
    return pd.DataFrame(
        {
            "step": [history.steps[state] for state in uses["state"]],
            "outcome": uses["outcome"],
            "similarity": similarity,
            "weight": weight,
            "share": weight / (weight.sum() or 1),
        }
    )


def _behind(bank: MemoryBank, run: str, step: int) -> Iterator[StepTrace]:
    """The finished steps up to `step`, also those of the run that this one started from, if they taught it."""
    info = bank.run(run)
    if info.base is not None and (bank.run(info.base).policy == NAME or info.policy != NAME):
        yield from _behind(bank, info.base, info.base_step)
    for start in range(info.first_step, step + 1, READ_AT_ONCE):
        yield from bank.traces(run, (start, min(step, start + READ_AT_ONCE - 1)))


def _settings(bank: MemoryBank, trace: StepTrace, read: Read) -> MementoSettings:
    known = settings_that_fit(NAME, bank.settings(trace.run, trace.step))
    return MementoSettings.of({**known.model_dump(), "read": read})
