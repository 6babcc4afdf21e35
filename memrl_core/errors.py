"""Every failure a person can act on, as one tree.

MemRLError
├── SettingsError            a value outside its range, or two values that contradict each other
├── InputError               a task, intent or file that cannot be used
│   └── NoVector             a text that the embedder makes no vector of, whenever it is asked
├── BankError                the memory on disk
│   ├── BankMissing          nothing is there
│   ├── BankUnreachable      the store it lies in does not answer, or does not let this program in
│   ├── NotABank             something else is there
│   ├── BankDamaged          it is a bank, but a part cannot be read
│   ├── BankTooNew           written by a newer version of this program
│   ├── BankReadOnly         the place cannot be written
│   ├── BankMisplaced        the file system there lacks what a bank needs
│   ├── BankFull             the disk had no room for an append
│   ├── EmbedderMismatch     its vectors were made by another embedder
│   ├── UnknownRun           no such run in this bank
│   ├── RunMoved             another process advanced this run
│   └── NotAllowed           the person's role in this bank does not cover it
├── ModelError               the language model or the embedder
│   ├── ServerDown           no server at the address
│   │   └── OllamaDown       it should be Ollama
│   ├── ModelMissing         the server has no such model
│   ├── ModelChanged         other weights answer under the name of a run's model
│   ├── ModelSlow            no answer within the timeout
│   ├── ModelInterrupted     the connection or the server failed in the middle
│   ├── PromptTooLong        the prompt does not fit into the context window
│   ├── EmptyAnswer          the model answered nothing
│   └── NotBound             the server does not hold answers to a schema
├── EnvironmentFailed        a world that cannot be started here, that stopped, or that broke its contract
├── PolicyFailed             a policy of another package raised, or broke its contract
└── StepError                a phase was asked for that cannot run now

`str(error)` is the sentence a page or a terminal shows: what happened, what was kept, what to do next.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable


class MemRLError(Exception):
    """Base of every failure that is shown to a person as its own sentence."""


class SettingsError(MemRLError):
    """A value outside its range, or two values that contradict each other."""


class InputError(MemRLError):
    """A task, an intent or a file that cannot be used as it is."""


class NoVector(InputError):
    """The embedder never makes a vector of a text, though it does of others: its task can be skipped."""


class BankError(MemRLError):
    """The memory on disk cannot do what was asked."""


class BankMissing(BankError):
    """Nothing is stored at the given place."""


class BankUnreachable(BankError):
    """The store it lies in does not answer, does not let this program in, or its address cannot be used."""


class NotABank(BankError):
    """Something is stored at the given place, but it is not a bank."""


class BankDamaged(BankError):
    """A part of the bank cannot be read."""


class BankTooNew(BankError):
    """The bank was written by a newer version of this program."""


class BankReadOnly(BankError):
    """The place cannot be written to."""


class BankMisplaced(BankError):
    """The place can be written, but its file system lacks what a bank needs."""


class BankFull(BankError):
    """The disk had no room for an append."""


class EmbedderMismatch(BankError):
    """The vectors of the bank were made by another embedder."""


class UnknownRun(BankError):
    """The bank holds no run of that name."""


class RunMoved(BankError):
    """Another process has advanced this run since it was read."""


class NotAllowed(BankError):
    """A person asked for something that their role in this bank does not cover."""


class ModelError(MemRLError):
    """The language model or the embedder could not answer."""


class ServerDown(ModelError):
    """No server answers at the address."""


class OllamaDown(ServerDown):
    """No Ollama server answers at the address."""


class ModelMissing(ModelError):
    """The Ollama server does not have the model."""


class ModelChanged(ModelError):
    """Under the name of a run's model other weights answer than those that the run began with."""


class ModelSlow(ModelError):
    """Nothing arrived within the timeout."""


class ModelInterrupted(ModelError):
    """The connection or the server failed in the middle of an answer; `partial` holds what had arrived, `left_out` the
    memories that the prompt had no room for."""

    def __init__(self, sentence: str, partial: str = "") -> None:
        super().__init__(sentence)
        self.partial = partial
        self.left_out: tuple[str, ...] = ()


class PromptTooLong(ModelError):
    """The prompt does not fit into the context window of `window` tokens, None where the server does not tell.

    Nothing was answered. `room` is the window in words.
    """

    def __init__(self, model: str, window: int | None = None) -> None:
        self.window = window
        self.room = "the context window" + (f" of {window:,} tokens" if window else "")
        super().__init__(
            f"The prompt does not fit into {self.room} that {model} has. Nothing was answered; give a new run a larger "
            "one (num_ctx) among its model options, or fewer memories."
        )


class EmptyAnswer(ModelError):
    """The model finished without saying anything; `cut` is the limit that ended it, "" when none did, `thinking` what
    it wrote instead of an answer."""

    def __init__(self, sentence: str, cut: str = "", thinking: str = "") -> None:
        super().__init__(sentence)
        self.cut, self.thinking = cut, thinking


class NotBound(ModelError):
    """The server does not hold an answer to the schema that it was given; it can be asked without one."""


class EnvironmentFailed(MemRLError):
    """A world cannot be started on this machine, stopped in the middle, or broke its contract."""


class PolicyFailed(MemRLError):
    """A policy of another package raised, or broke its contract."""


class StepError(MemRLError):
    """A phase was asked for that cannot run now."""


# --- foreign text, for the inside of a sentence -----------------------------------------------------------------------

LONGEST_QUOTE = 240
_TURNING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
NAMED = 5


def printable(text: str) -> str:
    """The text with a space for each character that could move a cursor or break a line."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else " " for sign in text)


def one_line(text: str, longest: int = LONGEST_QUOTE) -> str:
    """The text in one line of at most `longest` characters, without control or direction marks."""
    line = " ".join("".join(" " if unicodedata.category(sign)[0] in "CZ" else sign for sign in text).split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


def in_order(text: str) -> str:
    """`text` without the signs that turn its letters round: “gnp.exe” is not to be read as “exe.png”."""
    return _TURNING.sub("", text)


def what_happened(error: Exception) -> str:
    """The sentence of a failure without its end, which says what was kept and what to do."""
    return str(error).rpartition(". ")[0] or str(error).rstrip(".")


def few(things: Iterable[object]) -> str:
    """The first few of many."""
    listed = [str(thing) for thing in things]
    more = f" and {len(listed) - NAMED:,} more" if len(listed) > NAMED else ""
    return ", ".join(listed[:NAMED]) + more
