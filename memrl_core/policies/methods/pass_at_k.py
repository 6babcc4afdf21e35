"""Pass@k: tries without memory, with a flag for each task that was solved. The control arm for every retry.

Follows the card of pass@k (retry) among the metrics and the `passk` baseline of arXiv 2601.03192: the share of tasks
solved within k tries by luck alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from memrl_core.policies.base import Lesson
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
    spec = replace(
        NoMemory.spec,
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
        update="Until a task is solved each judged try of it counts one; the first success sets its flag. No q moves.",
        cannot="Its tries never get better: what rises with k is luck, and it never falls.",
        carries_over="Nothing: memories of another policy stay in the bank and are not read, and their tasks count as "
        "untried.",
        feedback=("episode reward", "human"),
        needs=("episode reward",),
        learns="counts",
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
        moved = {f"tries of {task}": before}
        if lesson.outcome == "success":
            state.solved.add(task)
            moved[f"solved {task}"] = 0
        return tuple(
            ValueChange("", n, n + 1.0, now, lesson.reward, 0.0, "parameters", name, f"{name}: {n} + 1 = {n + 1}")
            for name, n in moved.items()
        )

    def values(self, state: Tries) -> Mapping[str, float]:
        """The tries of each task up to its first success, and 1 for each task that is solved."""
        tries = {f"tries of {task}": float(n) for task, n in state.tries.items()}
        return tries | {f"solved {task}": 1.0 for task in state.solved}


def _which_try(view: MemoryView) -> str:
    state, task = view.learned, view.asked.task if view.asked is not None else ""
    if not isinstance(state, Tries) or task not in state.tries:
        return f"{WHY}; no try of this task before"
    tried = state.tries[task]
    if task in state.solved:
        return f"{WHY}; the task was solved at try {tried}, so this try does not count"
    solved = f"{state.solved_within(tried)} of {len(state.tries)} tasks"
    return f"{WHY}; try {tried + 1} of this task. pass@{tried} so far: {solved}"
