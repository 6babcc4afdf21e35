"""What a run has achieved, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memrl_core.records import StepTrace


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """One epoch of a run.

    `successes` of `steps` ended well; `solved` tasks have ended well at least once so far (cumulative success, CSR);
    `with_memory` steps had at least one memory in the prompt; `reranked` is in how many of those utility changed which
    memories were selected, against similarity alone; `moved` is the mean size of the q changes. Of the `choices`
    answers that had to come from a list, `valid` did.
    """

    epoch: int
    steps: int
    successes: int
    solved: int
    tasks: int
    with_memory: int
    reranked: int
    mean_reward: float | None
    moved: float | None
    seconds: float
    choices: int
    valid: int


def by_epoch(traces: Iterable[StepTrace]) -> list[EpochSummary]:
    """One summary an epoch, from whole traces in the order of their steps."""
    epochs: dict[int, list[StepTrace]] = {}
    for trace in traces:
        epochs.setdefault(trace.epoch, []).append(trace)
    solved: set[str] = set()
    seen: set[str] = set()
    summaries = []
    for epoch, members in sorted(epochs.items()):
        rewards = [t.reward.reward for t in members if t.reward and t.reward.reward is not None]
        moves = [abs(c.after - c.before) for t in members if t.update for c in t.update.of_q]
        won = [t for t in members if t.reward and t.reward.outcome == "success"]
        solved |= {t.task.id for t in won}
        seen |= {t.task.id for t in members}
        summaries.append(
            EpochSummary(
                epoch=epoch,
                steps=len(members),
                successes=len(won),
                solved=len(solved),
                tasks=len(seen),
                with_memory=sum(bool(t.decision and t.decision.selected) for t in members),
                reranked=sum(utility_changed_selection(t) for t in members),
                mean_reward=sum(rewards) / len(rewards) if rewards else None,
                moved=sum(moves) / len(moves) if moves else None,
                seconds=sum(sum(t.seconds.values()) for t in members),
                choices=sum(valid_answers(t)[1] for t in members),
                valid=sum(valid_answers(t)[0] for t in members),
            )
        )
    return summaries


def valid_answers(trace: StepTrace) -> tuple[int, int]:
    """How many answers of a step were on the list offered, and how many had to be."""
    offered = [turn.reply.offered for turn in trace.generate.turns] if trace.generate else []
    return offered.count(True), len(offered) - offered.count(None)


def utility_changed_selection(trace: StepTrace) -> bool:
    """Whether phase B selected another set than the same number of the most similar memories in the pool."""
    if trace.decision is None or trace.recall is None or trace.decision.mode == "fallback":
        return False
    nearest = {seen.memory_id for seen in trace.recall.pool[: len(trace.decision.selected)]}
    return set(trace.decision.selected) != nearest
