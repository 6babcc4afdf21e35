"""How a prompt is laid out: two labelled blocks of memories, then the task.

The layout is plain text, the same for every environment and model:

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
"""

from __future__ import annotations

from collections.abc import Sequence

from memrl_core.records import Memory, MemorySpan, Message, Turn

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
    told = next((message.content for message in messages if message.role == "user"), "")
    _, found, observation = told.rpartition(f"{YOUR_TASK}\n\n{TASK_LINE}{intent}\n")
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


def conversation_so_far(messages: Sequence[Message], turns: Sequence[Turn], recalled: str = "") -> tuple[Message, ...]:
    """What the next turn sends: the first messages, then each earlier reply and what the environment said to it.

    An observation ends with what memory added before the turn that follows it; `recalled` is that of the next turn.
    """
    sent = list(messages)
    following = [*(turn.recalled.text if turn.recalled else "" for turn in turns[1:]), recalled]
    for turn, added in zip(turns, following, strict=False):
        sent.append(Message("assistant", turn.reply.text))
        sent.append(Message("user", with_recalled(turn.observation, added)))
    return tuple(sent)


def with_recalled(observation: str, recalled: str) -> str:
    """An observation with what memory adds to it: before the choices, which stay the end of the message."""
    if not recalled:
        return observation
    told, found, choices = observation.rpartition(CHOICES)
    return f"{told}{recalled}\n\n{found}{choices}" if found else f"{observation}\n\n{recalled}"


def offered(message: str) -> list[str]:
    """The choices in the last list of a message; empty when it offers none."""
    _, found, listed = message.rpartition(CHOICES)
    if not found:
        return []
    return [line.removeprefix(CHOICE_MARK) for line in listed.splitlines() if line.startswith(CHOICE_MARK)]
