"""Tasks: JSONL files, one task per line, and sets of tasks by name.

A set comes with the program, is made by its environment, or is kept by a person. A kept set is a file in the folder
`tasks` of the home folder, named after the file it came from and a digest of its tasks: the same name always stands for
the same tasks, and a damaged file is known by its digest.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re
import secrets
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from memrl_core.environments import environment_class, environment_names, make_environment, why_unusable
from memrl_core.errors import InputError
from memrl_core.plugins import words_of
from memrl_core.records import Task
from memrl_core.settings import home

OTHER_KINDS = (
    (b"PK\x03\x04", "is a zip or an Excel file", "save the table as “CSV UTF-8”"),
    (b"PAR1", "is a Parquet file", "write its table as CSV"),
    (codecs.BOM_UTF16_LE, "is written in UTF-16", "save it as UTF-8"),
    (codecs.BOM_UTF16_BE, "is written in UTF-16", "save it as UTF-8"),
)
"""Bytes by which a file begins, what it is then, and what to do."""
LONG_RUN = 4
"""Bytes beyond ASCII behind one another: a word of a language that Windows-1252 cannot write."""
_WORD, _BEYOND_ASCII = re.compile(rb"[\x80-\xffA-Za-z]+"), re.compile(rb"[\x80-\xff]+")
LONGEST_INTENT = 20_000
LONGEST_STEM = 40
_TASK = TypeAdapter(Task)


class Reported(NamedTuple):
    """A line or an entry of a file that cannot be used: where it stands, and why."""

    where: str
    reason: str


def not_utf8(raw: bytes) -> Reported | None:
    """Where the first byte stands that is no UTF-8, and how its word reads in the encoding that it probably is."""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        word = next(found for found in _WORD.finditer(raw) if found.end() > error.start)
        beyond = max(map(len, _BEYOND_ASCII.findall(word[0])))
        read = word[0].decode("cp1252", "replace")[:40]
        if beyond >= LONG_RUN or "\ufffd" in read:
            probably = "perhaps Windows-1251, Shift JIS, GB 18030 or a code page of DOS"
        else:
            probably = f"probably Windows-1252 (cp1252), in which it reads “{read}”"
        why = f"Not UTF-8 at the byte 0x{raw[error.start]:02X}: {probably}. Save the file as UTF-8."
        line = raw[: error.start].count(b"\n") + 1
        return Reported(f"line {line}", why)
    return None


class Noted(NamedTuple):
    """What is worth knowing of an entry that can be used."""

    where: str
    sentence: str


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file of tasks for one environment ("" when none of its tasks can be used); `name` is the file's stem."""

    name: str
    environment: str
    accepted: tuple[Task, ...]
    reported: tuple[Reported, ...]
    notes: tuple[Noted, ...] = ()


def check_intent(text: str) -> str:
    """`text` without control characters; raises `InputError` when nothing is left or it is too long."""
    kept = text.strip() if text.isprintable() else _without_control_characters(text).strip()
    if not any(character.isalnum() for character in kept):
        raise InputError("The task is empty. Type what the agent should do; nothing was started.")
    if len(kept) > LONGEST_INTENT:
        raise InputError(
            f"The task has {len(kept):,} characters; at most {LONGEST_INTENT:,} fit. Shorten it; nothing was started."
        )
    return kept


def _without_control_characters(text: str) -> str:
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Cs"))


def stem_of(name: str) -> str:
    """What the name of a file gives to the names of its tasks and of its set; itself for what is such a stem."""
    return re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII)[:LONGEST_STEM].strip("-.") or "tasks"


def load_tasks(path: Path) -> list[Task]:
    """The tasks of a JSONL file with the keys id, intent, environment and optionally family and data.

    Raises `InputError` with the number of the first line that cannot be used.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The tasks in {path.name} cannot be read ({type(error).__name__}). Check the file.") from None
    tasks: list[Task] = []
    for number, line in enumerate(lines, start=1):
        try:
            tasks += [_TASK.validate_json(line)] if line.strip() else []
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path.name}, line {number} is no task ({words_of(error)}).") from None
    if not tasks:
        raise InputError(f"{path.name} holds no task.")
    return tasks


def sample_data_path() -> Path:
    """The folder `sample_data`: beside the core in a checkout, in `memrl_inspector` when installed."""
    root = Path(__file__).resolve().parents[2]
    checkout = root / "sample_data"
    return checkout if checkout.is_dir() else root / "memrl_inspector" / "sample_data"


def sample_tasks(name: str) -> list[Task]:
    """One of the sets in `sample_data/tasks`; raises `InputError` with the names there are."""
    folder = sample_data_path() / "tasks"
    names = sorted(path.stem for path in folder.glob("*.jsonl"))
    if name not in names:
        raise InputError(f"There is no set of tasks “{name}”. Known: {', '.join(names)}.")
    return load_tasks(folder / f"{name}.jsonl")


# --- sets of tasks by name --------------------------------------------------------------------------------------------

_DIGITS = 8
_NAME = re.compile(r"\w[\w.-]{0,39}-[0-9a-f]{8}", re.ASCII)
_SUFFIX = ".jsonl"


@dataclass(frozen=True, slots=True)
class KeptSet:
    """A set that a person keeps, and its number of tasks."""

    name: str
    environment: str
    tasks: int


def keep(checked: CheckedFile) -> str:
    """Store the accepted tasks, whole or not at all, and return the name of their set; the same tasks are stored once.

    Raises `InputError` when there are none, and when the place cannot be written.
    """
    if not checked.accepted:
        raise InputError(
            f"No task of {checked.name[:80]} can be used. Nothing was kept; correct the file and try again."
        )
    content = b"".join(json.dumps(asdict(task)).encode() + b"\n" for task in checked.accepted)
    name = f"{stem_of(checked.name)}-{_digest(content)}"
    target = _path(name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_file() or target.read_bytes() != content:
            write_whole(target, content)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise InputError(
            f"The tasks of {checked.name[:80]} could not be kept ({why}). Nothing was changed; make "
            f"{target.parent} writable, or name another folder by MEMRL_HOME."
        ) from None
    return name


def kept_sets() -> tuple[KeptSet, ...]:
    """The sets kept here, by name; damaged ones are left out and listed by `damaged_sets`."""
    return _listed()[0]


def damaged_sets() -> tuple[Reported, ...]:
    """What is in the folder of kept sets and cannot be used, and why."""
    return _listed()[1]


def drop(name: str) -> None:
    """Forget a kept set: runs on it stay as they are, and can go on once the file is loaded again.

    Raises `InputError` when there is no such set, and when the place cannot be written.
    """
    try:
        _path(name).unlink()
    except FileNotFoundError:
        raise InputError(f"No set “{name[:80]}” is kept here. Nothing was dropped.") from None
    except OSError as error:
        raise InputError(f"The set {name} could not be dropped ({error.strerror}). It is still there.") from None


def tasks_of_set(name: str) -> list[Task]:
    """The tasks of a set, in order.

    Raises `InputError` with the names there are for one that is not here or is damaged, and `EnvironmentFailed` when
    an environment that makes its tasks cannot.
    """
    if name in _bundled():
        return sample_tasks(name)
    if _NAME.fullmatch(name):
        path = _path(name)
        return [_kept_task(path, line) for line in _content(path).splitlines()]
    for environment in environment_names():
        if name in _own_sets(environment):
            return environment_class(environment).make_tasks(name)
    known = [one for environment in environment_names() for one in _own_sets(environment)]
    known += [one.name for one in kept_sets()]
    raise InputError(f"There is no set of tasks “{name[:80]}”. Known: {', '.join(known)}.")


def set_names(environment: str) -> tuple[str, ...]:
    """The sets of an environment: its own, then those kept here. Raises `InputError` for an unknown environment."""
    own = environment_class(environment).sets
    return (*own, *(one.name for one in kept_sets() if one.environment == environment))


def task_count(name: str) -> int | None:
    """How many tasks a set has; None for one that its environment makes when it is asked for."""
    made_here = name in _bundled() or _NAME.fullmatch(name)
    return len(tasks_of_set(name)) if made_here else None


def _own_sets(environment: str) -> tuple[str, ...]:
    with suppress(InputError):  # Of another package, which cannot be loaded.
        return environment_class(environment).sets
    return ()


def _bundled() -> set[str]:
    return {path.stem for path in (sample_data_path() / "tasks").glob(f"*{_SUFFIX}")}


def _path(name: str) -> Path:
    """Where a kept set lies. Raises `InputError` for what is no name of one, such as a path."""
    if not _NAME.fullmatch(name):
        raise InputError(f"“{name[:80]}” is no name of a kept set. Nothing was changed.")
    return home() / "tasks" / f"{name}{_SUFFIX}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def write_whole(target: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    draft = target.with_name(f".{secrets.token_hex(6)}.draft")
    try:
        with draft.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _listed() -> tuple[tuple[KeptSet, ...], tuple[Reported, ...]]:
    kept: list[KeptSet] = []
    damaged: list[Reported] = []
    for path in sorted((home() / "tasks").glob(f"*{_SUFFIX}")):
        try:
            now = path.stat()
            kept.append(_summary(path, now.st_mtime_ns, now.st_size))
        except (InputError, OSError) as error:
            damaged.append(Reported(path.stem, str(error)))
    return tuple(kept), tuple(damaged)


# Forms ask for the sets at every rerun, and a file is only known to be whole once all of it was read.
@lru_cache(maxsize=256)
def _summary(path: Path, changed: int, size: int) -> KeptSet:
    """What is in a kept file that was `changed` at that time (ns) and has that `size`. Raises `InputError`."""
    content = _content(path)
    first = _kept_task(path, content.partition(b"\n")[0])
    return KeptSet(path.stem, first.environment, content.count(b"\n"))


def _kept_task(path: Path, line: bytes) -> Task:
    try:
        return _TASK.validate_json(line)
    except ValueError:  # Of a file that was made to look like a kept one.
        raise InputError(f"The set {path.stem} is none that was kept here. Remove it: {path}") from None


def _content(path: Path) -> bytes:
    """A kept file as it was written. Raises `InputError` when it is not that any more."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(
            f"The set “{path.stem}” was made of a file and is not kept here. Load the file again, named "
            f"{path.stem[: -_DIGITS - 1]}.jsonl (or .json) as it was then: the same tasks under that name are this set."
        ) from None
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise InputError(f"The kept set {path.stem[:80]} cannot be read ({why}). Load its file again.") from None
    if not _NAME.fullmatch(path.stem) or path.stem[-_DIGITS:] != _digest(content):
        raise InputError(f"The kept set {path.stem[:80]} is damaged: it is not what was kept. Load its file again.")
    return content


# --- sets by whose world measures what an agent gains -----------------------------------------------------------------


def named_tasks(name: str, count: int = 0) -> list[Task]:
    """The first `count` tasks (0: all) of a set such as "household-train" or "household-train:heat,cool".

    What stands behind the colon is a family, or several with commas between them. Raises `InputError` for a set or
    family that does not exist, and where only people can judge: nothing could be measured there.
    """
    from memrl_core.environments.own_tasks.environment import left_to_people

    set_name, _, listed = name.partition(":")
    tasks = tasks_of_set(set_name.strip())
    there = list(dict.fromkeys(task.family for task in tasks))
    # The name of one family may hold commas.
    families = [family for family in there if family and family.strip() == listed.strip()]
    families = families or [family.strip() for family in listed.split(",") if family.strip()]
    if unknown := [family for family in families if family not in there]:
        raise InputError(f"The set {set_name} has no family “{unknown[0][:80]}”. Known: {', '.join(there)}.")
    for environment in dict.fromkeys(task.environment for task in tasks):
        if make_environment(environment).reward_source != "environment":
            raise InputError(f"In {environment} only a person gives rewards. Choose a set that is judged by its world.")
    chosen = [task for task in tasks if not families or task.family in families]
    if all(map(left_to_people, chosen)):
        raise InputError(
            f"The tasks of {name[:80]} have no reference, so only people can judge them, and nothing can be measured. "
            "Nothing was run; give them references, or choose another set."
        )
    return chosen[: count or len(chosen)]


def environment_of(name: str) -> str:
    """The environment that a set of tasks is for. Raises as `named_tasks`."""
    return named_tasks(name, 1)[0].environment


def judged_sets() -> list[str]:
    """The sets whose world gives rewards and can be used on this machine, in the order of the environments."""
    judged = [
        name
        for name in environment_names()
        if not why_unusable(name) and environment_class(name).reward_source == "environment"
    ]
    return [one for name in judged for one in set_names(name)]


def first_sets(wanted: Sequence[str] = ()) -> tuple[dict[str, str], dict[str, str]]:
    """The first set of each environment whose world gives rewards, and for those left out, the sentence of why.

    `wanted` are environments (all when left out). Raises `InputError` for an unknown one.
    """
    sets: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in wanted or environment_names():
        if why := why_unusable(name):
            if wanted:
                raise InputError(why)
            left_out[name] = why
            continue
        found = environment_class(name)
        if found.reward_source != "environment":
            left_out[name] = "only a person gives rewards there"
        elif not found.sets:
            left_out[name] = "it has no tasks of its own"
        else:
            sets[name] = found.sets[0]
    return sets, left_out
