"""Two agents at one help desk, as the plain JSON that the page Race draws.

    {total, window, floor, shifts: [step], topics: [topic],
     sides: [{name, run, label, error, outcomes: a letter a message ("1" right, "0" wrong, "-" not judged),
              memories: [[id, label, topic: place | null, kind, q, visits, given]]}]}

`kind` says what a memory is worth now: "right" and "wrong" by the rules of the house as they are for the next message,
"failure" where it shows no team to pass the message to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memrl_core.agent.follows import actions_in
from memrl_core.agent.twins import labels, shifts_of
from memrl_core.analysis.decision.labels import memory_label
from memrl_core.bank import MemoryBank
from memrl_core.environments import make_environment
from memrl_core.environments.helpdesk import MESSAGES, Helpdesk, topics
from memrl_core.numerals import percent, signed
from memrl_core.records import Memory, Utility

WINDOW, LAST = 40, 80
"""Messages of the moving share, and of the share at the end."""
_LETTERS = {"success": "1", "failure": "0"}


def race_data(
    bank: MemoryBank, runs: Sequence[str], errors: Sequence[str] = ("", ""), total: int = 0
) -> dict[str, Any]:
    """What there is of two runs of one help desk by now; `errors` says what has stopped each."""
    info = bank.run(runs[0])
    world = make_environment(info.environment, **info.environment_options)
    assert isinstance(world, Helpdesk)
    named = labels(bank, runs[0], runs[1])
    sides = []
    for name, run, label, error in zip(("left", "right"), runs, named, errors, strict=True):
        outcomes = "".join(_LETTERS.get(row.outcome, "-") for row in bank.steps.rows(run))
        known = bank.utilities(run)
        here = [memory for memory in bank.memories(run) if memory.id in known]
        rows = [_memory(memory, known[memory.id], run, world, len(outcomes) + 1) for memory in here]
        sides.append({"name": name, "run": run, "label": label, "error": error, "outcomes": outcomes, "memories": rows})
    bank.write.flush()  # A step of a batch is read before it is written; nothing is shown that a crash could take back.
    teams = len({world.right_team(topic, 1) for topic in MESSAGES})
    return {
        "total": max(total, *(len(side["outcomes"]) for side in sides)),
        "window": WINDOW,
        "floor": 1 / teams,
        "shifts": list(shifts_of(bank, runs[0])),
        "topics": list(MESSAGES),
        "sides": sides,
    }


def race_sentence(data: Mapping[str, Any]) -> str:
    """Who got how many right of the messages that both have answered, of all and of the last ones; "" before any."""
    one, other = data["sides"]
    both = min(len(one["outcomes"]), len(other["outcomes"]))
    if not both:
        return ""
    right = np.array([[letter == "1" for letter in side["outcomes"][:both]] for side in (one, other)])
    parts = [_shares(right, one["label"], other["label"], f"Of {both:,} messages" if both > 1 else "Of 1 message")]
    if both > LAST:
        parts.append(_shares(right[:, -LAST:], one["label"], other["label"], f"Of the last {LAST}"))
    return " ".join(parts)


def _shares(right: np.ndarray, one: str, other: str, of: str) -> str:
    first, second = right.mean(axis=1)
    return (
        f"{of}, {one} has {percent(float(first), 0)} right and {other} {percent(float(second), 0)} "
        f"({signed(100 * float(second - first), 0)} points)."
    )


def _memory(memory: Memory, known: Utility, run: str, world: Helpdesk, at_step: int) -> list[Any]:
    topic = topics().get(memory.intent, "")
    shown = actions_in(memory.experience)[0]
    kind = "failure"
    if shown and topic:
        kind = "right" if shown[0] == world.right_team(topic, at_step) else "wrong"
    index = list(MESSAGES).index(topic) if topic else None
    label = memory_label(memory.id, run)
    return [memory.id, label, index, kind, round(known.q, 4), known.visits, memory.step == 0]
