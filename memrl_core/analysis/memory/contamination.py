"""How much of q is company: every memory in a prompt gets the whole reward, also the one that made no difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import pandas as pd

from memrl_core.agent.rerun import Rerunner, credit
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.models.base import Cancelled
from memrl_core.policies import update_rule
from memrl_core.records import StepTrace, Utility


@dataclass(frozen=True, slots=True, eq=False)
class Contamination:
    """`memories` has a row for each memory whose q was ever moved: memory_id, visits, q, earned, company = q − earned.

    `share` is Σ|company| / (Σ|company| + Σ|earned|), the part of the run's q that is company; None where all q are 0.
    `steps` were answered again.
    """

    memories: pd.DataFrame
    share: float | None
    steps: int


def contamination(
    bank: MemoryBank,
    run: str,
    rerunner: Callable[[StepTrace], Rerunner],
    on_progress: Callable[[int, int], None] | None = None,
    cancelled: Cancelled | None = None,
) -> Contamination | None:
    """q as credited beside q as earned, by leave-one-out shares in every rewarded step; None when it was cancelled.

    Every step with memories in its prompt is answered again with each of them left out: k2 + 1 answers a step. A memory
    earns its own reward (`agent.rerun.Credit.rewards`), and the run's own rule moves its q by it. Nothing is stored.
    `rerunner` makes what answers a step again. Raises `InputError` where people give the rewards.
    """
    shared = [trace for trace in bank.traces(run) if trace.decision is not None and trace.decision.selected]
    rewards: dict[tuple[int, str], float] = {}
    for done, trace in enumerate(shared):
        if on_progress is not None:
            on_progress(done, len(shared))
        if trace.generate is None or bank.effective_reward(run, trace.step) is None:
            continue
        again = rerunner(trace)
        if not again.rewarded:
            raise InputError("Here people give the rewards, so an answer that nobody has seen has none.")
        answer = partial(again.rerun, cancelled=cancelled)
        found = credit("leave-one-out", again.memories, answer, cancelled=cancelled)
        if found is None:
            return None
        low, high = (float(trace.settings[name]) for name in ("reward_failure", "reward_success"))
        rewards |= {(trace.step, memory_id): value for memory_id, value in found.rewards(low, high).items()}
    return _meter(bank, run, rewards, len(shared))


def _meter(bank: MemoryBank, run: str, rewards: Mapping[tuple[int, str], float], steps: int) -> Contamination:
    rule, rows = update_rule(bank.run(run).policy), []
    for memory_id, points in bank.histories(run).items():
        first, *moves = points
        if not any(point.reward is not None for point in moves):
            continue
        earned = Utility(first.after, first.visits)
        for point in moves:
            if point.reward is None:
                earned = Utility(point.after, point.visits)
                continue
            own = rewards.get((point.step, memory_id), point.reward)
            earned = Utility(rule(earned, own, bank.settings(run, point.step)), point.visits)
        rows.append((memory_id, points[-1].visits, points[-1].after, earned.q, points[-1].after - earned.q))
    table = pd.DataFrame(rows, columns=["memory_id", "visits", "q", "earned", "company"])
    company, own = table["company"].abs().sum(), table["earned"].abs().sum()
    share = float(company / (company + own)) if company + own > 0 else None
    order = table["company"].abs().sort_values(ascending=False, kind="stable").index
    return Contamination(table.loc[order].reset_index(drop=True), share, steps)
