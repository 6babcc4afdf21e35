"""One language model on several hosts: the next that is free answers, and one that fails is passed over.

Processes that work together share a folder, with a note for each host that is passed over. How many
answers are under way at a host is counted by locks in the home folder, which end with the process that holds them: all
runs and experiments of a machine keep to the limit together.
"""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from memrl_core.errors import EmptyAnswer, ModelError, ModelInterrupted, NotBound, PromptTooLong, ServerDown, one_line
from memrl_core.models.base import Cancelled, LanguageModel, ModelOptions, OnText
from memrl_core.records import Message, Reply
from memrl_core.settings import home

MOST_AT_ONCE = 64
LOOK = 0.02
"""Seconds between two looks for a host that has become free."""
TELL = 0.2
"""Seconds between two looks for a host that has been passed over."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """The `addresses` at which a model is asked, at most `per_host` answers at once at each from this machine.

    `folder` is that of the run or experiment: a host that is passed over stays so within it. The key of
    OpenAI-compatible servers goes to `trusted` hosts alone: those that a person has named for this very command.
    """

    addresses: tuple[str, ...]
    per_host: int
    folder: Path
    trusted: bool

    def alive(self) -> list[str]:
        """The addresses that are not passed over, in their order."""
        return [address for address in self.addresses if not self._note(address).exists()]

    def pass_over(self, address: str, why: str) -> None:
        """Ask `address` no more; the first sentence of the first reason that is given is kept."""
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / f"{uuid.uuid4().hex}.draft"
        draft.write_text(f"{why.partition('. ')[0].removesuffix('.')}.", encoding="utf-8")
        if self._note(address).exists():
            draft.unlink()
        else:
            draft.replace(self._note(address))

    def passed_over(self) -> dict[str, str]:
        """The addresses that are asked no more, each with its reason."""
        notes = {address: self._note(address) for address in self.addresses}
        return {address: note.read_text(encoding="utf-8") for address, note in notes.items() if note.exists()}

    @contextmanager
    def reporting(self, report: Callable[[str], None]) -> Iterator[None]:
        """Within it, `report` gets a sentence for each host that is passed over, once."""
        known = set(self.passed_over())

        def look() -> None:
            for address, why in self.passed_over().items():
                if address not in known:
                    known.add(address)
                    report(f"The host {address} is passed over from now on: {why}")

        with repeated(look, TELL):
            yield

    def nobody(self, model: str) -> ServerDown:
        """What to raise where all hosts are passed over."""
        why = " ".join(f"{address}: {why}" for address, why in self.passed_over().items())
        return ServerDown(
            f"None of the hosts of {one_line(model)} answers any more. Every finished step is kept; start one of them "
            f"and go on. {why}"
        )

    @contextmanager
    def free(self, but: Sequence[str], first: str, cancelled: Cancelled | None) -> Iterator[str]:
        """An address with room for one more answer, which is held meanwhile: none of `but`, and `first` where it has.

        "" when `cancelled()` turns true while there is none, or when no host is left.
        """
        while not (cancelled is not None and cancelled()):
            left = sorted(set(self.alive()) - set(but), key=lambda one: (one != first, self.addresses.index(one)))
            # One more at a host that answers already is for when none is idle.
            for number in range(self.per_host):
                for address in left:
                    lock = FileLock(self._lock(address, number))
                    try:
                        lock.acquire(timeout=0)
                    except Timeout:
                        continue
                    try:
                        yield address
                    finally:
                        lock.release()
                    return
            if not left:
                break
            time.sleep(LOOK)
        yield ""

    def _note(self, address: str) -> Path:
        return self.folder / f"{_file_name(address)}.txt"

    def _lock(self, address: str, number: int) -> Path:
        folder = home() / "hosts"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{_file_name(address)}-{number}.lock"


@contextmanager
def repeated(look: Callable[[], object], every: float) -> Iterator[None]:
    """Within it, a thread calls `look` each `every` seconds, and once more at the end."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(every):
            look()

    watcher = threading.Thread(target=watch, daemon=True, name="watcher")
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        look()


class HostedModel:
    """One model by the address that serves it (a `LanguageModel`): a call that fails at one is repeated at another.

    `ask` looks whether the model can be asked at an address, and raises `ModelError` where not.
    """

    simulated = False

    def __init__(self, models: Mapping[str, LanguageModel], hosts: Hosts, ask: Callable[[str], Any]) -> None:
        self._models, self._hosts, self._ask = models, hosts, ask
        self._last = hosts.addresses[0]
        self.name = models[self._last].name

    @property
    def binds(self) -> bool:
        """Whether every host that is asked holds answers to a schema."""
        return all(self._models[address].binds for address in self._hosts.alive())

    def chat(
        self,
        messages: Sequence[Message],
        options: ModelOptions,
        on_text: OnText | None = None,
        cancelled: Cancelled | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Answer `messages` (see `LanguageModel`); `Reply.host` is who did.

        A host that refuses, is silent or does not answer after an answer broke off is passed over from now on. Raises
        `ServerDown` when no host is left, and `ModelInterrupted` when the answer broke off at all that are.
        """
        failed: dict[str, ModelInterrupted] = {}
        while True:
            with self._hosts.free([*failed], self._last, cancelled) as address:
                if not address:
                    break
                self._last = address
                try:
                    reply = self._models[address].chat(messages, options, on_text, cancelled, schema)
                    return replace(reply, host=address)
                except (NotBound, EmptyAnswer, PromptTooLong):
                    raise
                except ModelInterrupted as error:
                    failed[address] = error
                    self._look_at(address)
                except ModelError as error:
                    self._hosts.pass_over(address, str(error))
        if cancelled is not None and cancelled():
            return Reply("", stopped=True)
        if not self._hosts.alive():
            raise self._hosts.nobody(self.name)
        raise [*failed.values()][-1]

    def _look_at(self, address: str) -> None:
        try:
            self._ask(address)
        except ModelError as error:
            self._hosts.pass_over(address, str(error))


def _file_name(address: str) -> str:
    return hashlib.sha256(address.encode()).hexdigest()[:16]
