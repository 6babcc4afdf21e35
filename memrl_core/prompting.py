"""How a prompt is laid out: two labelled blocks of memories, then the task.

The layout `block` is plain text, the same for every environment and model, and what a trace records:

    ## Memories that worked (follow)

    [memory r1-0017]
    Task: put a hot egg on the counter
    Steps that worked:
    > take egg from fridge
    > heat egg with stove

    ## Memories that failed (caution)

    [memory r1-0009]
    Task: put a hot potato on the counter
    What went wrong: the microwave tripped.
    Avoid:
    > heat potato with microwave
    Try instead:
    > heat potato with stove

    ## Your task

    Task: put a hot apple on the counter
    <the environment's observation>

Lines that start with "> " are answers or actions; an observation offers choices as lines that start with "- " under
the line "You can:". Everything after a memory's header up to the next header is that memory's experience, verbatim.

What is recalled within an episode stands in the same blocks, without a task of its own, in the observation before its
choices. A memory may also give advice for the very state that is described beside it:

    [memory r1-0004-2]
    Task: put a hot egg on the counter
    Encouraged: value 0.67 after 3 tries
    > heat egg with stove
    Discouraged: value 0.00
    > heat egg with microwave

Small language models follow a memory only where it looks like what is asked of them. Two other layouts say the same so:
`transcript` puts each memory's actions under its task, failures first, then the new task with what has been done so
far, and what is asked for is the next line; `turns` makes of each memory a conversation that has taken place. A model
that is bound to a list by a schema reads and writes actions as JSON strings, any other as lines that start with "> ".
The environment's instructions stand in every prompt. In a transcript, what a failure avoids is left out or stands there
in words, by the option `failures`, and with memories the list of choices stands in the prompt or in the schema alone,
by the option `choices`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from memrl_core.records import GenerateRecord, Memory, MemorySpan, Message, Turn

Layout = Literal["block", "transcript", "turns"]
Choices = Literal["schema", "prompt"]
Best = Literal["first", "last"]
Seen = Literal["latest", "all"]
Failures = Literal["named", "unnamed"]
USUAL: Mapping[str, str] = {"choices": "schema", "best": "first", "seen": "latest", "failures": "unnamed"}
"""How a transcript is laid out where nobody chose."""

FOLLOW = "## Memories that worked (follow)"
CAUTION = "## Memories that failed (caution)"
UNRATED = "## Memories nobody has judged yet"
YOUR_TASK = "## Your task"
MEMORY_HEADER = "[memory {id}]"
TASK_LINE = "Task: "
STEPS_THAT_WORKED = "Steps that worked:"
WHAT_WENT_WRONG = "What went wrong: "
AVOID = "Avoid:"
TRY_INSTEAD = "Try instead:"
ENCOURAGED = "Encouraged:"
DISCOURAGED = "Discouraged:"
ANSWER_MARK = "> "
CHOICES = "You can:"
CHOICE_MARK = "- "
CONTINUE = "Continue the list of actions."
"""What stood in place of the instructions in steps that were recorded without the option `choices`."""
TRIED = "Already tried here: "
UNNAMED = "…"
"""What stands for an action that led to a failure, where failures are not named."""
NEXT = "Next."
"""What stands for the observations of a memory's actions, which memories do not keep."""

_HEADER_BEGINS = MEMORY_HEADER.partition("{")[0]
_BLOCKS = (("success", FOLLOW), ("failure", CAUTION), ("unrated", UNRATED))


def first_messages(
    instructions: str, memories: Sequence[Memory], intent: str, observation: str
) -> tuple[tuple[Message, ...], tuple[MemorySpan, ...]]:
    """The system and the first user message of an episode, and where in them each memory stands.

    `memories` come in the order of the decision; the order is kept within each block.
    """
    text, spans = memory_blocks(memories)
    text += f"{YOUR_TASK}\n\n{TASK_LINE}{intent}\n{observation}"
    return (Message("system", instructions), Message("user", text)), spans


def first_observation(messages: Sequence[Message], intent: str) -> str:
    """The observation with which the first user message ends; empty for messages that are laid out otherwise."""
    content = next((message.content for message in messages if message.role == "user"), "")
    _, found, observation = content.rpartition(f"{YOUR_TASK}\n\n{TASK_LINE}{intent}\n")
    return observation if found else ""


def memory_blocks(memories: Sequence[Memory]) -> tuple[str, tuple[MemorySpan, ...]]:
    """The labelled blocks alone, each memory followed by an empty line, and where each stands in a message number 1."""
    text = ""
    spans: list[MemorySpan] = []
    for outcome, title in _BLOCKS:
        members = [memory for memory in memories if memory.outcome == outcome]
        if not members:
            continue
        text += title + "\n\n"
        for memory in members:
            start = len(text)
            text += MEMORY_HEADER.format(id=memory.id) + "\n" + memory.experience.strip()
            spans.append(MemorySpan(memory.id, 1, start, len(text)))
            text += "\n\n"
    return text, tuple(spans)


def without(
    messages: Sequence[Message], spans: Sequence[MemorySpan], left_out: Collection[str]
) -> tuple[tuple[Message, ...], tuple[MemorySpan, ...]]:
    """The messages without the memories `left_out`, nor the headings of blocks that then hold none, and the spans."""
    content = [message.content for message in messages]
    kept: list[MemorySpan] = []
    for span in sorted(spans, key=lambda span: span.start, reverse=True):
        if span.memory_id not in left_out:
            kept.append(span)
            continue
        before, after = content[span.message][: span.start], content[span.message][span.end :].removeprefix("\n\n")
        if not after or after.startswith("## "):
            before = next((before.removesuffix(h) for _, t in _BLOCKS if before.endswith(h := f"{t}\n\n")), before)
        shift = len(content[span.message]) - len(before + after)
        content[span.message] = before + after
        kept = [
            replace(one, start=one.start - shift, end=one.end - shift) if one.message == span.message else one
            for one in kept
        ]
    changed = zip(messages, content, strict=True)
    order = {span.memory_id: position for position, span in enumerate(spans)}
    return tuple(replace(message, content=text) for message, text in changed), tuple(
        sorted(kept, key=lambda span: order[span.memory_id])
    )


def messages_sent(
    record: GenerateRecord, turn: int, recalled: str = "", bound: bool | None = None, left_out: Collection[str] = ()
) -> tuple[Message, ...]:
    """What turn number `turn` (from 0) sends (see `sent`)."""
    return sent(record, turn, recalled, bound, left_out)[0]


def sent(
    record: GenerateRecord, turn: int, recalled: str = "", bound: bool | None = None, left_out: Collection[str] = ()
) -> tuple[tuple[Message, ...], tuple[MemorySpan, ...]]:
    """What turn number `turn` (from 0) sends, in the layout of the record's options, and where each memory stands.

    For a turn that has taken place, what memory added, whether the model was bound and which memories were left out are
    the record's; for the next one they are `recalled`, `bound` and `left_out`. A memory that is sent as several
    messages has a span in each.
    """
    if turn < len(record.turns):
        then = record.turns[turn]
        recalled, bound, left_out = then.recalled.text if then.recalled else "", then.reply.bound, then.left_out
    if left_out:
        messages, spans = without(record.messages, record.spans, left_out)
        record = replace(record, messages=messages, spans=spans)
    before = record.turns[:turn]
    layout: Layout = record.options.get("layout") or "block"
    asked = next((n for n, message in enumerate(record.messages) if message.role == "user"), None)
    if layout == "block" or asked is None:
        return conversation_so_far(record.messages, before, recalled), record.spans
    content, _, mine = record.messages[asked].content.rpartition(f"{YOUR_TASK}\n\n")
    line, _, observation = mine.partition("\n")
    added, memories = _split(content)
    write = json.dumps if bound else ANSWER_MARK.__add__
    first = list(record.messages[:asked])
    spans_sent: list[MemorySpan] = []
    if layout == "turns":
        for memory_id, memory in memories:
            for message in _as_turns(memory, bool(bound)):
                spans_sent.append(MemorySpan(memory_id, len(first), 0, len(message.content)))
                first.append(message)
        task = Message("user", f"{added}{line}\n{observation}")
        conversation = conversation_so_far((*first, task), before, recalled, json.dumps if bound else str)
        return conversation, tuple(spans_sent)
    choices = record.options.get("choices")
    latest = with_recalled(before[-1].observation, recalled) if before else observation
    if bound and memories and choices != "prompt":
        latest = _without_choices(latest)
        if choices is None:
            first = [Message("system", CONTINUE)]
    done = [write(turn.reply.text) for turn in before]
    here = [latest, *done]
    if record.options.get("seen") == "all":
        observations = [observation, *(turn.observation for turn in before)]
        here = [part for pair in zip(map(_without_choices, observations), done, strict=False) for part in pair]
        here.append(latest)
    # What stands next to the task is followed first.
    if record.options.get("best") == "last":
        memories.reverse()
    text = added
    for memory_id, memory in sorted(memories, key=lambda one: WHAT_WENT_WRONG not in one[1]):
        start = len(text)
        text += _as_transcript(memory, bool(bound), record.options.get("failures") != "unnamed")
        spans_sent.append(MemorySpan(memory_id, len(first), start, len(text)))
        text += "\n\n"
    text += "".join(f"{part}\n" for part in (line, *here))
    return (*first, Message("user", text)), tuple(spans_sent)


def conversation_so_far(
    messages: Sequence[Message], turns: Sequence[Turn], recalled: str = "", write: Callable[[str], str] = str
) -> tuple[Message, ...]:
    """The first messages, then each earlier reply, as `write` puts it, and what the environment said to it.

    An observation ends with what memory added before the turn that follows it; `recalled` is that of the next turn.
    """
    sent = list(messages)
    following = [*(turn.recalled.text if turn.recalled else "" for turn in turns[1:]), recalled]
    for turn, added in zip(turns, following, strict=False):
        sent.append(Message("assistant", write(turn.reply.text)))
        sent.append(Message("user", with_recalled(turn.observation, added)))
    return tuple(sent)


def _split(content: str) -> tuple[str, list[tuple[str, str]]]:
    """What stands before the blocks of memories, and the id and text of each memory in them."""
    headings = {title for _, title in _BLOCKS}
    before: list[str] = []
    memories: list[tuple[str, list[str]]] = []
    within = False
    for line in content.splitlines():
        if line in headings:
            within = True
        elif within and line.startswith(_HEADER_BEGINS) and line.endswith("]"):
            memories.append((line.removeprefix(_HEADER_BEGINS).removesuffix("]"), []))
        elif within and memories:
            memories[-1][1].append(line)
        else:
            before.append(line)
    return "".join(f"{line}\n" for line in before if line), [(i, "\n".join(lines).strip()) for i, lines in memories]


def _as_transcript(memory: str, bound: bool, named: bool) -> str:
    """A memory as the very form that is asked for: its task, what went wrong if anything did, and its actions.

    What is to be avoided stands there in words, or not at all where it is not `named`: whatever looks like an answer is
    done by a small model.
    """
    kept: list[str] = []
    to_avoid: list[str] = []
    avoided = False
    for line in memory.splitlines():
        is_action = line.startswith(ANSWER_MARK)
        avoided = line == AVOID or (avoided and is_action)
        if avoided:
            to_avoid += [line.removeprefix(ANSWER_MARK)] if is_action else []
            if not named or (bound and not is_action):
                continue
        action = line.removeprefix(ANSWER_MARK)
        if bound and is_action:
            kept.append(f"{AVOID} {action}" if avoided else json.dumps(action))
        elif line != STEPS_THAT_WORKED:
            kept.append(line)
    if not named:
        kept = [_without_names(line, to_avoid) if line.startswith(WHAT_WENT_WRONG) else line for line in kept]
    return "\n".join(kept)


def _without_names(line: str, actions: Sequence[str]) -> str:
    for action in sorted(actions, key=len, reverse=True):
        line = re.sub(rf"(?<!\w){re.escape(action)}(?!\w)", UNNAMED, line)
    return line


def _as_turns(memory: str, bound: bool) -> list[Message]:
    """A memory as an exchange: its task and what else it says, answered by its actions one after the other."""
    lines = [line for line in memory.splitlines() if line != STEPS_THAT_WORKED]
    actions, avoided, content = [], False, []
    for line in lines:
        avoided = line == AVOID or (avoided and line.startswith(ANSWER_MARK))
        if line.startswith(ANSWER_MARK) and not avoided:
            actions.append(line.removeprefix(ANSWER_MARK))
        else:
            content.append(line)
    if not actions:
        return [Message("user", memory)]
    sent = [Message("user", "\n".join(content))]
    for number, action in enumerate(actions):
        sent += [Message("user", NEXT)] if number else []
        sent.append(Message("assistant", json.dumps(action) if bound else action))
    return sent


def with_recalled(observation: str, recalled: str) -> str:
    """An observation with what memory adds to it: before the choices, which stay the end of the message."""
    if not recalled:
        return observation
    content, found, choices = observation.rpartition(CHOICES)
    return f"{content}{recalled}\n\n{found}{choices}" if found else f"{observation}\n\n{recalled}"


def with_tried(observation: str, actions: Sequence[str]) -> str:
    """An observation with the actions that were tried before in the state that it describes."""
    return with_recalled(observation, TRIED + "; ".join(" ".join(action.split()) for action in actions))


def without_tried(observation: str) -> str:
    """The observation as the world gave it (see `with_tried`)."""
    content, found, marked = observation.rpartition(f"\n{TRIED}")
    if not found:
        return observation.partition("\n\n")[2] if observation.startswith(TRIED) else observation
    _, blank, choices = marked.partition("\n\n")
    return content + "\n" + choices if blank else content.removesuffix("\n")


def _without_choices(observation: str) -> str:
    """An observation without the list of choices that it ends with."""
    return observation.rpartition(CHOICES)[0].rstrip("\n") if offered(observation) else observation


def offered(message: str) -> list[str]:
    """The choices in the last list of a message; empty when it offers none."""
    _, found, listed = message.rpartition(CHOICES)
    if not found:
        return []
    return [line.removeprefix(CHOICE_MARK) for line in listed.splitlines() if line.startswith(CHOICE_MARK)]
