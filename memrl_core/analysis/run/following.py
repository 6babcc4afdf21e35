"""How far recalls get: recalled, selected, followed by the answer, right; and whether a model follows at all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from memrl_core.agent.follows import actions_in, memory_texts
from memrl_core.bank import MemoryBank
from memrl_core.environments import environment_title
from memrl_core.environments.tasks import sample_data_path
from memrl_core.models.base import Cancelled, Progress, never, unheard
from memrl_core.numerals import percent
from memrl_core.policies import outcome_of
from memrl_core.prompting import offered
from memrl_core.records import StepTrace

if TYPE_CHECKING:
    import pandas as pd

ENOUGH = 30
"""Steps from which on it is said that a model does not follow its memories."""
FOLLOWS = "follows.json"
"""The file of `sample_data` with what was measured of models; `record_follows.py` beside it writes it."""
LATEST = 60
"""Steps of a run in which that is looked for: who does not follow now may have followed another prompt."""
NORMAL_95 = 1.645
"""One-sided."""
LEAST_CHANCE = 0.05
"""The chance that an answer on a list takes what a memory shows without reading it, where the list has none of that."""
IGNORES = (
    "This model does not follow its memories; utilities learn noise: {}. Try a larger model, another layout or the "
    "model option choices=prompt (`memrl layouts` compares them), or the setting credit=followed."
)


@dataclass(frozen=True, slots=True)
class FollowCounts:
    """Of how many steps whose memories show an action, and of which it is known, the answer follows a memory; of those
    of which it is known what was right, in how many it was at hand, and in how many of these it was taken.

    `by_chance` is in how many an answer that reads no memory follows one, and `variance` that of this number.
    """

    steps: int
    followed: int
    judged: int
    at_hand: int
    taken: int
    by_chance: float
    variance: float

    @property
    def sentence(self) -> str:
        """The counts in words; "" where nothing is known."""
        if not self.steps:
            return ""
        right = f", right one at hand {self.at_hand:,} of {self.judged:,}, taken {self.taken:,}" if self.judged else ""
        return f"answer from a memory {self.followed:,} of {self.steps:,}{right}"

    @property
    def warning(self) -> str:
        """That the model does not follow its memories, with what to try; "" where it does, or too few steps tell.

        It does not where it follows no more often than at most one in twenty models would that read no memory. Where
        nobody knows how often these would, in tasks of several turns, it does not where it never follows.
        """
        most = self.by_chance + NORMAL_95 * math.sqrt(self.variance)
        if self.steps < ENOUGH or self.followed > most:
            return ""
        chance = f", where {self.by_chance:.0f} would by chance" if self.by_chance else ""
        return IGNORES.format(f"answer from a memory {self.followed:,} of {self.steps:,}{chance}")


@dataclass(frozen=True, slots=True)
class MeasuredFollows:
    """How often the model whose weights have this `digest` followed its memories in an experiment in `environment`.

    The counts are those of `FollowCounts`. `k2` lists how many memories a prompt held at most, `options` has the
    model's, of which some lay out the prompt, and `embedder` is what found the memories.
    """

    digest: str
    model: str
    environment: str
    steps: int
    followed: int
    judged: int
    at_hand: int
    taken: int
    k2: tuple[int, ...]
    embedder: str
    options: Mapping[str, Any]

    @property
    def sentence(self) -> str:
        """The share that followed a memory with its n, and how often the right one was taken of when it was at hand."""
        met = "messages" if self.environment == "helpdesk" else "tasks"
        share = f"{percent(self.followed / self.steps, 0)} of {environment_title(self.environment).lower()} {met}"
        right = f"; right one taken {self.taken:,} of {self.at_hand:,}" if self.at_hand else ""
        return f"follows memories in {share} (n = {self.steps:,}){right}"


def measured_follows(digest: str | None = None) -> list[MeasuredFollows]:
    """What was measured of the weights with this digest; of all weights where none is asked for."""
    found = TypeAdapter(list[MeasuredFollows]).validate_json((sample_data_path() / FOLLOWS).read_bytes())
    return [one for one in found if digest is None or one.digest == digest]


def follow_counts(traces: Iterable[StepTrace]) -> FollowCounts:
    """How often the answers of `traces` follow their memories."""
    steps = followed = judged = at_hand = taken = 0
    by_chance = variance = 0.0
    for trace in traces:
        found = trace.follows
        if found is None or trace.decision is None or not trace.decision.selected:
            continue
        steps, followed = steps + 1, followed + bool(found.memories)
        judged, at_hand = judged + (found.at_hand is not None), at_hand + bool(found.at_hand)
        taken += bool(found.taken)
        chance = _chance(trace)
        by_chance, variance = by_chance + chance, variance + chance * (1 - chance)
    return FollowCounts(steps, followed, judged, at_hand, taken, by_chance, variance)


def latest_follows(bank: MemoryBank, run: str, last: int) -> FollowCounts:
    """The same of the last steps of a run, of which `last` is the newest."""
    return follow_counts(bank.traces(run, (max(1, last - LATEST + 1), last)))


def _chance(trace: StepTrace) -> float:
    """How probable it is that an answer drawn from what was offered is one that a memory of the prompt shows; 0 where
    that cannot be counted.
    """
    assert trace.generate is not None
    choices = set(offered(trace.generate.messages[-1].content)) if trace.generate.messages else set()
    if len(trace.turns) > 1 or not choices:
        return 0.0
    shown = {action for text in memory_texts(trace.generate).values() for action in actions_in(text)[0]}
    return max(LEAST_CHANCE, len(shown & choices) / len(choices))


def funnel(bank: MemoryBank, run: str, on_progress: Progress = unheard, cancelled: Cancelled = never) -> pd.DataFrame:
    """How many steps of a run came how far (4, 3): `stage`, `steps`, and of how many of the stage before it is known.

    A step is recalled where phase A found a memory, selected where one was in the prompt, followed where the answer
    takes what one of these shows, and right where that answer is a success as rewards count now. Raises `UnknownRun`.
    """
    import pandas as pd  # `memrl run` reads this module, and needs no table.

    total = bank.next_step(run) - bank.run(run).first_step
    stages = ("recalled", "selected", "followed", "right")
    steps, known = dict.fromkeys(stages, 0), dict.fromkeys(stages, 0)
    for number, trace in enumerate(bank.each_trace(run), start=1):
        if cancelled():
            break
        for stage, came in zip(stages, _came(bank, trace), strict=False):
            known[stage] += 1
            steps[stage] += came
            if not came:
                break
        on_progress(number, total)
    return pd.DataFrame({"stage": stages, "steps": list(steps.values()), "of": list(known.values())})


def _came(bank: MemoryBank, trace: StepTrace) -> Iterator[bool]:
    """Whether a step came to each stage of the funnel, as far as that is known; only what came to one can come on."""
    yield trace.recall is not None and bool(trace.recall.pool)
    yield trace.decision is not None and bool(trace.decision.selected)
    if trace.follows is None:
        return
    yield bool(trace.follows.memories)
    reward = bank.ratings.effective(trace.run, trace.step)
    if reward is not None:
        yield outcome_of(trace.policy, trace.settings, reward) == "success"
