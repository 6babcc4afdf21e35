"""All lessons there are: those that come with the program, and a person's own, which may replace them by name.

A translation is a set of files with the same names in the person's folder: each replaces the lesson of its name, and
`words.toml` the words of the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memrl_core.agent import workspace
from memrl_core.bank import MemoryBank
from memrl_core.bank.places import copy_bank
from memrl_core.environments.tasks import sample_data_path
from memrl_core.errors import BankMissing, InputError
from memrl_core.lessons.lesson import Lesson, read_lesson
from memrl_core.lessons.words import Words, read_words

BANK = "lessons"
RECORDED = ("household", "household-demo")
"""The run of the recording, and its tasks."""
WORDS = "words"


@dataclass(frozen=True, slots=True)
class Shelf:
    """The lessons by key (the file's name without its ending), in the order of their keys, and the page's words.

    `troubles` has a sentence for each file that could not be used.
    """

    lessons: Mapping[str, Lesson[Any]]
    words: Words
    troubles: tuple[str, ...]


def shipped_folder() -> Path:
    """Where the lessons that come with the program lie."""
    return sample_data_path() / "lessons"


def own_folder() -> Path:
    """Where a person's own lessons lie."""
    return workspace.home() / "lessons"


def load_shelf() -> Shelf:
    """Everything that can be read; a file that cannot leaves the others, and the one it would replace, as they are.

    Raises `InputError` when this installation came without the words of the page.
    """
    words = read_words(shipped_folder() / f"{WORDS}.toml")
    lessons: dict[str, Lesson[Any]] = {}
    troubles = []
    for folder in (shipped_folder(), own_folder()):
        for path in sorted(folder.glob("*.toml")):
            try:
                if path.stem != WORDS:
                    lessons[path.stem] = read_lesson(path)
                elif folder == own_folder():
                    words = read_words(path)
            except InputError as error:
                troubles.append(str(error))
    return Shelf(dict(sorted(lessons.items())), words, tuple(troubles))


def lessons_bank() -> Path:
    """The bank the lessons look at: a copy of the run recorded for them; made when it is not there.

    Raises `BankMissing` when this installation came without the recording.
    """
    source, target = sample_data_path() / "lessons_bank", workspace.banks_folder() / BANK
    if not target.exists():
        if not source.is_dir():
            raise BankMissing(
                "The run of the lessons is not part of this installation, so there is nothing for them to show."
            )
        copy_bank(source, target)
    return target


def must_be_recorded(bank: MemoryBank) -> None:
    """Raise `InputError` unless the bank that stands where the lessons' own should has the recorded run."""
    if not any((info.id, info.tasks) == RECORDED for info in bank.runs()):
        raise InputError(
            f"The lessons keep a bank of their own named “{BANK}”, and another one has that name on this machine. "
            "Nothing was changed; delete it, or give it another name, on the page Bank."
        )
