"""What came is not what was used: which memories of a prompt an answer used, and how often each memory is of use.

Who says so is kept apart: a person; else *follows*, where the actions of answer and memories can be compared. The words
that a memory shares with the answer are a hint and count for nothing.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from memrl_core.agent.follows import memory_texts
from memrl_core.analysis.decision.labels import FUNCTION_WORDS
from memrl_core.analysis.memory.exposure import uses as pools
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.judgements import Use
from memrl_core.records import StepTrace


class UseCounts(NamedTuple):
    """In how many steps a memory was in the pool, selected, used by the answer, and used in a step that succeeded.

    `used` and `helpful` are None where of no step with it in the prompt it is known what the answer made of it.
    """

    surfaced: int
    selected: int
    used: int | None = None
    helpful: int | None = None


def settled_uses(said: Iterable[Use]) -> dict[tuple[int, str], bool]:
    """Whether an answer used a memory, by step and memory, as most people say; a tie counts as not used.

    What the answer contradicts it did not use.
    """
    votes: dict[tuple[int, str], list[bool]] = defaultdict(list)
    for use in said:
        votes[use.step, use.memory_id].append(use.used == "used")
    return {place: 2 * sum(given) > len(given) for place, given in votes.items()}


def use_counts(bank: MemoryBank, run: str, last: int | None = None) -> dict[str, UseCounts]:
    """How far each memory of a run came, in all finished steps or in those up to `last`. Raises `UnknownRun`."""
    settled = settled_uses(bank.judgements.uses(run))
    followed = {trace.step: trace.follows.memories for trace in bank.each_trace(run) if trace.follows is not None}
    surfaced, selected, known, used, helpful = (Counter[str]() for _ in range(5))
    frame = pools(bank, run)
    columns = (frame[name].tolist() for name in ("step", "memory_id", "selected", "outcome"))
    for step, memory_id, chosen, outcome in zip(*columns, strict=True):
        if last is not None and step > last:
            continue
        surfaced[memory_id] += 1
        if not chosen:
            continue
        selected[memory_id] += 1
        of_step = followed.get(step)
        is_used = settled.get((step, memory_id), None if of_step is None else memory_id in of_step)
        if is_used is None:
            continue
        known[memory_id] += 1
        used[memory_id] += is_used
        helpful[memory_id] += is_used and outcome == "success"
    return {
        one: UseCounts(count, selected[one], used[one], helpful[one]) if known[one] else UseCounts(count, selected[one])
        for one, count in surfaced.items()
    }


def used_in_steps(bank: MemoryBank, run: str, followed: Mapping[int, tuple[str, ...] | None]) -> dict[int, int | None]:
    """Of how many memories the answer of a step made use, by step; `followed` says what each answer follows.

    None where nobody says and *follows* is not known.
    """
    said: dict[int, dict[str, bool]] = defaultdict(dict)
    for (step, memory_id), is_used in settled_uses(bank.judgements.uses(run)).items():
        said[step][memory_id] = is_used
    found: dict[int, int | None] = {}
    for step, follows in followed.items():
        known = {**dict.fromkeys(follows or (), True), **said.get(step, {})}
        found[step] = sum(known.values()) if known or follows is not None else None
    return found


def words_shared(trace: StepTrace) -> dict[str, tuple[int, int]]:
    """Of the words of each memory in the prompt that neither the task nor another memory has, how many the answer has.

    By memory (shared, words); without those of which no word is its own. It is a hint: who says the same may not have
    read it.
    """
    if trace.generate is None or not trace.generate.turns:
        return {}
    texts = {memory_id: _words(text) for memory_id, text in memory_texts(trace.generate).items()}
    answer = _words(" ".join(turn.reply.text for turn in trace.generate.turns))
    held = Counter(word for words in texts.values() for word in words)
    task = _words(trace.task.intent)
    own = {memory_id: {word for word in words - task if held[word] == 1} for memory_id, words in texts.items()}
    return {memory_id: (len(words & answer), len(words)) for memory_id, words in own.items() if words}


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w{3,}", text.casefold())) - FUNCTION_WORDS
