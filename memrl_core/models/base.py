"""What the agent needs of a language model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memrl_core.errors import SettingsError
from memrl_core.prompting import Best, Choices, Failures, Layout, Seen
from memrl_core.records import Message, Reply
from memrl_core.settings import sentence_of

OnText = Callable[[str], None]
Progress = Callable[[int, int], None]
"""Hears how much is done, and of how much."""
Cancelled = Callable[[], bool]


def unheard(done: int, total: int) -> None:
    """The progress of work that nobody watches."""


def never() -> bool:
    """Whether work is to stop that nobody cancels."""
    return False


CHARACTERS_PER_TOKEN = 32
"""More than any token is long: only a server that ignores the limit in tokens meets the one in characters."""


KEEP_ALIVE = "15m"
"""How long a server keeps a model loaded: long enough to look at one step before the next is asked for."""


AGAIN_TEMPERATURE = 0.5


_HALVES = re.compile("[\ud800-\udfff]")


class ModelOptions(BaseModel):
    """Options of a generation, under Ollama's names, and how long an answer is waited for.

    Where nobody chose, `num_predict` is what the environment's answers need, and `first_token` and `between_tokens` are
    the patience that is set for the machine.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    seed: int = Field(0, ge=0, title="Seed")
    temperature: float = Field(
        0.0, ge=0, le=2, title="Temperature", description="0: the likeliest word each time. Higher: more chance."
    )
    top_p: float | None = Field(
        None,
        gt=0,
        le=1,
        title="Top p",
        description="Only the likeliest words are drawn from that have this probability together. Where nobody chose: "
        "the model's own.",
    )
    num_ctx: int = Field(
        8192,
        ge=512,
        le=1_048_576,
        title="Context window (tokens)",
        description="How much of prompt and answer the model sees at once. A larger one needs more memory.",
    )
    num_predict: int = Field(
        512,
        ge=1,
        le=32_768,
        title="Limit of an answer (tokens)",
        description="An answer is cut there, and the step says so. Thinking counts.",
    )
    stop: str | None = Field(
        None,
        min_length=1,
        max_length=80,
        title="Stop at",
        description=r"An answer ends before this text; \n is the end of a line. Where nobody chose: the end of a line, "
        "where one line of a list is wanted and the model cannot be bound to it.",
    )
    layout: Layout | None = Field(
        None,
        title="Layout of memories",
        description="block: one labelled text. transcript: each memory as its task and actions, the very form that is "
        "asked for. turns: as earlier exchanges of the chat. Where nobody chose: transcript for a language model that "
        "chooses from a list, else block.",
    )
    choices: Choices | None = Field(
        None,
        title="List of choices",
        description="Where a schema binds the model to a list and memories are laid out as a transcript. schema: only "
        "the schema holds it. prompt: it stands in the prompt as well. Where nobody chose: schema.",
    )
    best: Best | None = Field(
        None,
        title="Best memory",
        description="Where the memory that the policy ranks first stands in a transcript: first, or last, next to the "
        "task. Failures stand before the others in either case. Where nobody chose: first.",
    )
    seen: Seen | None = Field(
        None,
        title="Observations",
        description="In a transcript with several turns. latest: the latest observation, then the actions so far. all: "
        "each action after what was seen before it. Where nobody chose: latest.",
    )
    failures: Failures | None = Field(
        None,
        title="Failures",
        description="In a transcript. named: a failure says which actions to avoid. unnamed: it only says what went "
        "wrong, because small models do whatever action they read. Where nobody chose: unnamed.",
    )
    think: bool = Field(
        False,
        title="Think first",
        description="For models that can. Their thinking is kept beside the answer and never read as one. It counts to "
        "the limit, which is 1,024 tokens higher then where nobody chose.",
    )
    keep_alive: str = Field(
        KEEP_ALIVE,
        pattern=r"^(-1|\d+(\.\d+)?(ms|s|m|h)?)$",
        max_length=20,
        title="Keep the model loaded",
        description="How long Ollama keeps it after an answer, such as 30s, 15m or 2h; -1: always.",
    )
    num_thread: int | None = Field(
        None,
        ge=1,
        le=1024,
        title="Threads",
        description="Of the processor. On a machine that is busy, one is often many times faster than two.",
    )
    first_token: float | None = Field(
        None, gt=0, le=3600, title="Time to the first token (s)", description="Loading the model counts."
    )
    between_tokens: float | None = Field(None, gt=0, le=3600, title="Time between tokens (s)", description="Silence.")
    in_all: float = Field(
        600.0, gt=0, le=86_400, title="Time of an answer (s)", description="What has arrived by then is the answer."
    )

    @property
    def most_characters(self) -> int:
        """The limit of an answer for a server that ignores the one in tokens."""
        return CHARACTERS_PER_TOKEN * self.num_predict

    def again(self, attempt: int, after_nothing: bool = False) -> ModelOptions:
        """These options for attempt number `attempt` (0 is the first) at an answer: each has a seed of its own.

        At temperature 0 a seed changes nothing, so what was answered with nothing is asked for at another one.
        """
        if attempt == 0 and not after_nothing:
            return self
        warmer = {"temperature": AGAIN_TEMPERATURE} if after_nothing and self.temperature == 0 else {}
        return self.model_copy(update={"seed": (self.seed + attempt * 1_000_003) % 2**31, **warmer})

    @property
    def stops(self) -> list[str]:
        """The texts at which an answer ends."""
        return [self.stop.replace(r"\n", "\n")] if self.stop else []


THINKING = 1024
"""Tokens that are added to an environment's limit of an answer for what is thought before it."""
SLOW = 5.0
"""Tokens a second below which a model counts as slow: nobody reads slower."""
LONG_ENOUGH = 8
"""Tokens of an answer from which its speed can be measured."""

CHOSEN = tuple(name for name in ModelOptions.model_fields if name != "seed")
"""The options that a run can be given; the seed of an answer is that of its step."""


def checked_options(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The options `chosen` for a run, as they are stored. Raises `SettingsError` for another name or value."""
    if unknown := sorted(set(chosen) - set(CHOSEN)):
        raise SettingsError(
            f"Settings were not changed. There is no model option “{unknown[0][:80]}”; allowed: {', '.join(CHOSEN)}."
        )
    try:
        return ModelOptions.model_validate(dict(chosen)).model_dump(include=set(chosen))
    except ValidationError as error:
        raise SettingsError(sentence_of(error, ModelOptions)) from None


def slow(tokens: int | None, seconds: float | None, options: ModelOptions) -> tuple[str, ...]:
    """A remark on an answer of so many tokens that were written in so many seconds: a remedy, if it was slow."""
    if not tokens or not seconds or tokens < LONG_ENOUGH or tokens / seconds >= SLOW:
        return ()
    remedy = "a smaller model" if options.num_thread == 1 else "the model option num_thread=1"
    return (f"fewer than {SLOW:g} tokens a second: try {remedy}",)


def whole_characters(text: str) -> tuple[str, int]:
    """`text` as Unicode can write it, and how many half characters (surrogates) had to be replaced by U+FFFD.

    Two halves that came apart are put together first: a model's token may end in the middle of a character.
    """
    joined = (
        text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass") if not text.isascii() else text
    )
    return _HALVES.subn("\ufffd", joined)


def without_thinking(text: str) -> tuple[str, str]:
    """`text` in two: what a model thought, where it wrote that between the usual tags before its answer, and the rest.

    Thinking that was cut has no end, and no answer after it.
    """
    begun = text.lstrip().startswith("<think>")
    thought, found, answer = text.partition("</think>")
    if not begun and not found:
        return "", text
    return thought.replace("<think>", "", 1).strip(), answer.lstrip()


def fewest_tokens(messages: Sequence[Message]) -> int:
    """No fewer tokens than `messages` have: one a word. Most tokenizers make one and a half of it."""
    return sum(len(message.content.split()) for message in messages)


def tells_no_room(refusal: str) -> bool:
    """True if the words with which a server refuses a prompt mean that it does not fit into the context window."""
    return re.search(r"context (length|size|window)|context_length", refusal, re.IGNORECASE) is not None


class LanguageModel(Protocol):
    """A frozen chat model.

    `name` identifies it in traces; `simulated` is True when no language model is behind it. `binds` is True when
    `chat` holds an answer to a JSON schema, and False as soon as it turned out that its server does not.
    """

    name: str
    simulated: bool

    @property
    def binds(self) -> bool: ...

    def chat(
        self,
        messages: Sequence[Message],
        options: ModelOptions,
        on_text: OnText | None = None,
        cancelled: Cancelled | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Answer `messages`, by a JSON schema where one is given. `on_text` receives each piece of text as it arrives;
        when `cancelled()` turns true the generation is stopped and the reply holds the partial text with
        `stopped=True`.

        Raises `ModelError` (see `memrl_core.errors`), among them `NotBound` when the server refuses the schema, and
        `PromptTooLong` where the prompt does not fit, of which nothing is ever cut without a word.
        """
        ...
