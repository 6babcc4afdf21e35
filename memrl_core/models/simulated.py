"""The embedded default in a language model's place: answers by analogy, from the messages alone.

It reads the memories in the prompt (layout: `memrl_core.prompting`), takes the highest-placed one that can be applied,
aligns its task with the new one word by word and carries its answer over with the differing words replaced. Without one
it guesses among what the prompt offers, sooner what shares words with the task. Memories in the newest message come
before those of the first; what they encourage or discourage is about that message alone. It knows nothing of any
environment, bank or utility.

Below are models that answer like it, but read the memories in only some of the steps: with them, the question what a
memory is worth to another model can be asked where no language model is installed.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

import numpy as np

from memrl_core.errors import InputError
from memrl_core.models.base import Cancelled, ModelOptions, OnText
from memrl_core.prompting import (
    ANSWER_MARK,
    AVOID,
    CAUTION,
    CHOICES,
    DISCOURAGED,
    ENCOURAGED,
    FOLLOW,
    TASK_LINE,
    TRY_INSTEAD,
    UNRATED,
    WHAT_WENT_WRONG,
    YOUR_TASK,
)
from memrl_core.prompting import offered as offered
from memrl_core.records import Message, Reply

RELEVANCE = 3.0
"""How much likelier a guess becomes with each word that it shares with the task."""

NO_IDEA = "I am a simulated model and no memory shows me how to answer this: "
_WORD = re.compile(r"\w+")
_OWN_TASK = re.compile(rf"^{TASK_LINE}", re.MULTILINE)
_HEADER = re.compile(r"^\[memory [^\]\n]*\]$", re.MULTILINE)
Lines = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Experience:
    """One memory of a prompt: the lines of its answer, those to avoid, and its advice for the state described there."""

    intent: str
    lines: Lines
    avoid: Lines
    encouraged: Lines
    discouraged: Lines

    def carried_over(self, intent: str) -> _Experience:
        """The same in the words of another intent."""
        replaced = _replaced(self.intent, intent)
        parts = (self.lines, self.avoid, self.encouraged, self.discouraged)
        return _Experience(intent, *(_carried_over(lines, replaced) for lines in parts))


class SimulatedModel:
    """Answers by analogy to the memories in the prompt (a `LanguageModel`); temperature changes nothing."""

    name = "simulated"
    simulated = True
    binds = False

    def chat(
        self,
        messages: Sequence[Message],
        options: ModelOptions,
        on_text: OnText | None = None,
        cancelled: Cancelled | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Answer with one of the offered lines, or with the carried-over text where nothing is offered."""
        begun = time.perf_counter()
        messages = self._read(messages, options.seed)
        answer = _answer(_in_blocks(messages), options.seed)
        written, stopped = "", False
        for piece in re.findall(r"\s*\S+\s*$|\s*\S+", answer):
            if cancelled is not None and cancelled():
                stopped = True
                break
            written += piece
            if on_text is not None:
                on_text(piece)
        read = sum(len(message.content.split()) for message in messages)
        return Reply(written, stopped, read, len(written.split()), time.perf_counter() - begun)

    def _read(self, messages: Sequence[Message], seed: int) -> Sequence[Message]:
        """What of the messages it takes note of."""
        return messages


def next_line(plans: Sequence[Sequence[str]], done: Sequence[str], choices: Sequence[str]) -> str | None:
    """What the first plan that can be applied says to do after what was `done`; None when none can be.

    A plan's lines that are not among `choices` are passed over.
    """
    for lines in plans:
        position = 0
        for action in done:
            if action in lines[position:]:
                position = lines.index(action, position) + 1
        following = next((line for line in lines[position:] if line in choices), None)
        if following is not None:
            return following
    return None


def _in_blocks(messages: Sequence[Message]) -> Sequence[Message]:
    """The same messages in the layout `block`, from whichever of the layouts they are in.

    Only the layout `block` shows whether a memory is of a success or unrated.
    """
    begins = [n for n, m in enumerate(messages) if m.role == "user" and _OWN_TASK.search(m.content)]
    if not begins or any(YOUR_TASK in messages[n].content for n in begins):
        return messages
    memories: list[str] = []
    done: list[Message] = []
    for first, following in zip(begins, [*begins[1:], None], strict=True):
        *earlier, mine = _OWN_TASK.split(messages[first].content)[1:]
        memories += [TASK_LINE + text.strip() for text in earlier]
        written = messages[first + 1 : following]
        if following is not None:
            lines = [ANSWER_MARK + m.content for m in written if m.role == "assistant"]
            memories.append("\n".join([TASK_LINE + mine.strip(), *lines]))
    task = "\n".join(line for line in mine.splitlines() if not line.startswith(ANSWER_MARK))
    done = [
        Message("assistant", line[len(ANSWER_MARK) :]) for line in mine.splitlines() if line.startswith(ANSWER_MARK)
    ]
    shown = ""
    for heading, cautions in ((FOLLOW, False), (CAUTION, True)):
        found = [text for text in memories if (WHAT_WENT_WRONG in text) is cautions]
        shown += "".join(f"{heading}\n\n[memory {n}]\n{text}\n\n" for n, text in enumerate(found))
    own = Message("user", f"{shown}{YOUR_TASK}\n\n{TASK_LINE}{task}")
    # In a transcript what was done stands above the newest choices, so both belong to the one message.
    return [*messages[: begins[0]], own, *(m for m in done), *([own] if done else []), *written]


def _answer(messages: Sequence[Message], seed: int) -> str:
    asked = [message.content for message in messages if message.role == "user"]
    intent, begun = _carried(asked[0] if asked else "")
    newest = begun if len(asked) < 2 else tuple(e.carried_over(intent) for e in _experiences(asked[-1]))
    known = newest if len(asked) < 2 else (*newest, *begun)
    choices = offered(asked[-1] if asked else "")
    if not choices:
        answers = [*(one.encouraged for one in newest), *(one.lines for one in known)]
        return next(("\n".join(lines) for lines in answers if lines), NO_IDEA + intent)
    encouraged = next((line for one in newest for line in one.encouraged if line in choices), None)
    if encouraged is not None:
        return encouraged
    discouraged = {line for one in newest for line in one.discouraged}
    done = [message.content.strip() for message in messages if message.role == "assistant"]
    following = next_line([one.lines for one in known], done, [c for c in choices if c not in discouraged])
    if following is not None:
        return following
    avoided = discouraged.union(*(one.avoid for one in known))
    open_choices = [c for c in choices if c not in done and c not in avoided]
    open_choices = open_choices or [c for c in choices if c not in avoided] or choices
    # Ids of memories hold the name of a run, which says nothing and must not decide anything.
    text = "\n".join(_HEADER.sub("", message.content) for message in messages)
    digest = hashlib.sha256(f"{seed}\n{text}".encode()).digest()
    wanted = set(_WORD.findall(intent.lower()))
    weights = np.array([RELEVANCE ** len(wanted & set(_WORD.findall(c.lower()))) for c in open_choices])
    rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    return open_choices[int(rng.choice(len(open_choices), p=weights / weights.sum()))]


# Every turn of an episode begins with the same prompt.
@lru_cache(maxsize=16)
def _carried(prompt: str) -> tuple[str, tuple[_Experience, ...]]:
    """The new intent, and each experience above the task in its words."""
    shown, _, mine = prompt.rpartition(YOUR_TASK)
    intent = _task_of(mine or prompt)
    return intent, tuple(known.carried_over(intent) for known in _experiences(shown))


def _experiences(shown: str) -> list[_Experience]:
    """The experiences that can be carried over: to follow, then cautions, then unrated ones."""
    blocks = {FOLLOW: "", CAUTION: "", UNRATED: ""}
    current = ""
    for line in shown.splitlines():
        if line in blocks:
            current = line
        elif current:
            blocks[current] += line + "\n"
    found = (_experience(body, kind) for kind, text in blocks.items() for body in _HEADER.split(text)[1:])
    return [one for one in found if one.lines or one.avoid or one.encouraged or one.discouraged]


def _experience(body: str, kind: str) -> _Experience:
    section = ""
    found: dict[str, list[str]] = {"lines": [], "avoid": [], "encouraged": [], "discouraged": []}
    for line in body.splitlines():
        if not line.startswith(ANSWER_MARK):
            section = line.strip() or section
            continue
        text = line.removeprefix(ANSWER_MARK).strip()
        if section.startswith(ENCOURAGED):
            found["encouraged"].append(text)
        elif section.startswith(DISCOURAGED):
            found["discouraged"].append(text)
        elif section == AVOID:
            found["avoid"].append(text)
        elif kind != CAUTION or section == TRY_INSTEAD:
            found["lines"].append(text)
    return _Experience(_task_of(body), **{name: tuple(lines) for name, lines in found.items()})


def _task_of(text: str) -> str:
    return next((line.removeprefix(TASK_LINE).strip() for line in text.splitlines() if line.startswith(TASK_LINE)), "")


def _replaced(old: str, new: str) -> Mapping[str, str]:
    """The words of `old` that `new` has others for, and those."""
    before, after = _WORD.findall(old.lower()), _WORD.findall(new.lower())
    replaced: dict[str, str] = {}
    for tag, a, b, c, d in SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes():
        if tag == "replace" and b - a == d - c:
            replaced.update({x: y for x, y in zip(before[a:b], after[c:d], strict=True) if x not in after})
    return replaced


def _carried_over(lines: Sequence[str], replaced: Mapping[str, str]) -> tuple[str, ...]:
    """`lines` with the words of the old task replaced by those of the new."""
    if not replaced:
        return tuple(lines)
    return tuple(_WORD.sub(lambda word: replaced.get(word.group().lower(), word.group()), line) for line in lines)


NAME = re.compile(r"simulated-(\d{1,3})")


class SimulatedReader(SimulatedModel):
    """The simulated model, which reads the memories in `percent` of the steps, as each step's seed decides.

    In the others it answers as if there were none (a `LanguageModel`).
    """

    def __init__(self, percent: int) -> None:
        if not 0 <= percent <= 100:
            raise InputError(
                f"A simulated model reads the memories in 0 to 100 % of the steps; {percent} was asked for."
            )
        self.name = f"simulated-{percent}"
        self._percent = percent

    def _read(self, messages: Sequence[Message], seed: int) -> Sequence[Message]:
        reads = np.random.default_rng(seed).random() * 100 < self._percent
        return messages if reads else _without_memories(messages)


def _without_memories(messages: Sequence[Message]) -> list[Message]:
    return [
        replace(message, content=_bare(message.content)) if message.role == "user" else message for message in messages
    ]


def _bare(content: str) -> str:
    """A message without the memories in it: those before the task, or those put under a later observation."""
    if YOUR_TASK in content:
        return content[content.rfind(YOUR_TASK) :]
    begins = [at for heading in (FOLLOW, CAUTION, UNRATED) if (at := content.find(heading)) >= 0]
    if not begins:
        return content
    _, found, choices = content.rpartition(CHOICES)
    return content[: min(begins)] + found + choices if found else content[: min(begins)]
