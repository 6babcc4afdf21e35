"""Pass@k: tries without memory, with a flag for each task that was solved. The control arm for every retry.

Follows the card of pass@k (retry) among the metrics and the `passk` baseline of arXiv 2601.03192: the share of tasks
solved within k tries by luck alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memrl_core.policies.base import Lesson, PolicySpec
from memrl_core.policies.methods.none import NoMemory, nothing_selected
from memrl_core.records import Decision, Memory, RecallRecord, ValueChange
from memrl_core.retrieval.view import MemoryView

WHY = "this control arm reads no memory"


@dataclass(slots=True)
class Tries:
    """How often each task was tried, up to its first success, and which tasks are solved."""

    tries: dict[str, int] = field(default_factory=dict)
    solved: set[str] = field(default_factory=set)

    def solved_within(self, k: int) -> int:
        """How many tasks were solved within `k` tries."""
        return sum(self.tries[task] <= k for task in self.solved)


class PassAtK(NoMemory):
    """The same model tries again and again; only the first success of a task counts."""

    why = WHY
    spec = PolicySpec(
        name="pass_at_k",
        title="Pass@k",
        citation="control arm (arXiv 2601.03192, baseline passk)",
        variant="adapted",
        deviations=(
            "The baseline skips a task once it is solved. A run here goes through every task each epoch: a solved task "
            "is tried again, and only its first success counts. pass@k is the same; the share of an epoch's tasks that "
            "succeed, the calls and the tokens are those of a model that tries every task every time.",
            "A try that nobody has judged is not counted.",
        ),
        idea="The same model, without memory, tries each task k times. What a memory gains over epochs is fair only "
        "beside what luck gains in as many tries.",
        record="A flag for each task that was solved, and the number of tries it took.",
        when="Never.",
        recall="Nothing.",
        select="Nothing.",
        update="Until a task is solved each judged try of it counts one; the first success sets its flag. No q moves.",
        write="Nothing.",
        cannot="Its tries never get better: what rises with k is luck, and it never falls.",
        carries_over="Nothing: memories of another policy stay in the bank and are not read, and their tasks count as "
        "untried.",
        needs=("episode reward",),
        learns="counts",
        variants=("adapted",),
    )

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """Nothing; the note says which try this is and the pass@k of the tries before it."""
        return nothing_selected(recalled, view, seed, _which_try(view))

    def start(self, memories: Sequence[Memory]) -> Tries:
        """No task was tried."""
        return Tries()

    def learn(self, state: Tries, lesson: Lesson) -> tuple[ValueChange, ...]:
        """Count a try of a task that is not solved yet, and set its flag when it succeeds."""
        task = lesson.trace.task.id
        if lesson.reward is None or lesson.outcome == "unrated" or task in state.solved:
            return ()
        before = state.tries.get(task, 0)
        state.tries[task] = now = before + 1
        moved = {_tries_of(task): (before, now)}
        if lesson.outcome == "success":
            state.solved.add(task)
            moved[_solved(task)] = (0, 1)
        return tuple(
            ValueChange(
                "",
                float(old),
                float(new),
                now,
                lesson.reward,
                0.0,
                target="parameters",
                name=name,
                formula=f"{name}: {old} + 1 = {new}",
            )
            for name, (old, new) in moved.items()
        )

    def values(self, state: Tries) -> Mapping[str, float]:
        """The tries of each task up to its first success, and 1 for each task that is solved."""
        return {_tries_of(task): float(n) for task, n in state.tries.items()} | {
            _solved(task): 1.0 for task in state.solved
        }


def _tries_of(task: str) -> str:
    return f"tries of {task}"


def _solved(task: str) -> str:
    return f"solved {task}"


def _which_try(view: MemoryView) -> str:
    state = view.learned
    if view.asked is None or not isinstance(state, Tries):
        return WHY
    tried = state.tries.get(view.asked.task, 0)
    if view.asked.task in state.solved:
        return f"{WHY}; the task was solved at try {tried}, so this try does not count"
    if not tried:
        return f"{WHY}; first try of this task"
    return (
        f"{WHY}; try {tried + 1} of this task. pass@{tried} so far: {state.solved_within(tried)} of "
        f"{len(state.tries)} tasks"
    )
