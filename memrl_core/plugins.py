"""The policies and environments that can be had here, by name, and texts of foreign code that can be shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from memrl_core.errors import MemRLError

LONGEST = 200_000
"""Characters of a text that a model reads; of a longer one the middle is left out."""

Kind = TypeVar("Kind")


class Breach(Exception):
    """What a plug-in gave breaks its contract; the text says how."""


class Registry(Generic[Kind]):
    """The classes of one kind by name: the program's own, then those of packages with an entry point in `group`.

    `own` names the module and the class of each of the program's. `guard` gives the class of a package with its hooks
    guarded, and raises `Breach` where it cannot be used. Whatever cannot be had raises `unusable`.
    """

    def __init__(
        self,
        word: str,
        group: str,
        own: Mapping[str, str],
        guard: Callable[[str, Any], type[Kind]],
        unusable: type[MemRLError],
    ) -> None:
        self.word, self.own = word, own
        self._guard, self._unusable = guard, unusable
        self.foreign = cache(lambda: {point.name: point for point in entry_points(group=group)})
        self.loaded = cache(self._load)

    def names(self) -> tuple[str, ...]:
        """Every name, the program's own first: no package takes one of these."""
        return (*self.own, *(name for name in self.foreign() if name not in self.own))

    def usable(self) -> tuple[str, ...]:
        """Of these names, the ones whose class can be had."""
        return tuple(name for name in self.names() if name in self.own or self._is_usable(name))

    def get(self, name: str) -> type[Kind]:
        """The class of that name."""
        if name in self.own:
            module, _, found = self.own[name].partition(":")
            own: type[Kind] = getattr(import_module(module), found)
            return own
        if name in self.foreign():
            return self.loaded(name)
        raise self._unusable(
            f"There is no {self.word} “{name[:80]}”. Nothing was changed. Known: {', '.join(self.names())}."
        )

    def _is_usable(self, name: str) -> bool:
        try:
            self.loaded(name)
        except MemRLError:
            return False
        return True

    def _load(self, name: str) -> type[Kind]:
        remedy = "Nothing was started; correct or remove the package."
        try:
            return self._guard(name, self.foreign()[name].load())
        except KeyboardInterrupt:
            raise
        except MemRLError as error:
            raise self._unusable(str(error)) from error
        except BaseException as error:
            why = (
                f"breaks the contract: {error}"
                if isinstance(error, Breach)
                else f"cannot be loaded ({words_of(error)})"
            )
            raise self._unusable(f"The {self.word} “{name[:80]}” of another package {why}. {remedy}") from error


def storable(text: str, longest: int = LONGEST) -> str:
    """`text` without NUL and halves of surrogate pairs, which cannot be stored, and without its middle if too long."""
    if len(text) > longest:
        mark = f"\n… {len(text) - longest:,} characters and more were left out here …\n"
        half = max(0, longest - len(mark)) // 2
        text = text[:half] + mark[: longest - 2 * half] + text[len(text) - half :]
    return text.encode("utf-8", "ignore").decode().replace("\0", "")


def words_of(error: BaseException) -> str:
    """A failure of foreign code, for the inside of a sentence."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return storable(": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))[:240])
    try:
        message = str(error)
    except Exception:
        message = "it does not say why"
    return storable(f"{type(error).__name__}: {message[:200]}", 240)
