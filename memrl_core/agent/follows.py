"""Which memories of the prompt an answer follows: those that show the actions that the model took.

A single action is compared exactly. Of an episode with several, the longest run that it has in common with a memory
counts, in which words of the own task are alike: *heat egg with stove* in “heat the egg” is what *heat potato with
stove* is in “heat the potato”. What a memory says to avoid is not what it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from memrl_core.prompting import ANSWER_MARK, AVOID, DISCOURAGED, TASK_LINE
from memrl_core.records import Follows, GenerateRecord, Judgement, Task

ENOUGH = 2
"""So many actions in a row make a script followed, or all of one that has fewer."""
ITS_OWN = "…"
"""What stands for a word of an action that is a word of its task."""


def follows_of(task: Task, record: GenerateRecord | None, judgement: Judgement | None = None) -> Follows | None:
    """What the answer in `record` follows; None where it cannot be known.

    That is so before there is an answer, where the answer is free text, and where no memory of the prompt shows an
    action, unless the prompt holds no memory. Whether the right answer was at hand needs the environment's `judgement`.
    """
    if record is None or not record.turns or any(turn.reply.offered is None for turn in record.turns):
        return None
    shown = {memory_id: actions_in(text) for memory_id, text in memory_texts(record).items()}
    if shown and not any(actions for actions, _, _ in shown.values()):
        return None
    taken = [turn.reply.text for turn in record.turns if turn.reply.offered]
    followed = tuple(m for m, (actions, _, about) in shown.items() if _follows(taken, task.intent, actions, about))
    if judgement is None or not judgement.expected or len(record.turns) > 1:
        return Follows(followed)
    at_hand = any(judgement.expected in actions for actions, _, _ in shown.values())
    return Follows(followed, at_hand, at_hand and taken == [judgement.expected])


def memory_texts(record: GenerateRecord) -> dict[str, str]:
    """The text of each memory that the first turn sent, by id, in the order of the decision."""
    texts: dict[str, str] = {}
    for span in record.spans:
        part = record.messages[span.message].content[span.start : span.end]
        texts[span.memory_id] = f"{texts[span.memory_id]}\n{part}" if span.memory_id in texts else part
    return texts


def actions_in(text: str) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """The actions that a memory shows as ones to take, those that it says to avoid, in order, and its task."""
    shown, to_avoid, task, avoided = list[str](), list[str](), "", False
    for line in text.splitlines():
        if line.startswith(ANSWER_MARK):
            (to_avoid if avoided else shown).append(line.removeprefix(ANSWER_MARK))
            continue
        avoided = line == AVOID or line.startswith(DISCOURAGED)
        task = task or (line.removeprefix(TASK_LINE) if line.startswith(TASK_LINE) else "")
    return tuple(shown), tuple(to_avoid), task


def _follows(taken: Sequence[str], intent: str, shown: Sequence[str], task: str) -> bool:
    if len(taken) <= 1:
        return bool(taken) and taken[0] in shown
    mine, theirs = _without_own_words(taken, intent), _without_own_words(shown, task)
    run = SequenceMatcher(None, mine, theirs, autojunk=False).find_longest_match().size
    return run >= min(ENOUGH, len(theirs)) > 0


def _without_own_words(actions: Sequence[str], task: str) -> list[tuple[str, ...]]:
    """The words of each action; in the place of those that are words of its task, its verb excepted, a mark."""
    own = set(task.casefold().split())
    return [
        (verb, *(ITS_OWN if word.casefold() in own else word for word in words))
        for verb, *words in (action.split() for action in actions if action.strip())
    ]
