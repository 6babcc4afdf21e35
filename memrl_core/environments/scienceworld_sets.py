"""The sets of ScienceWorld's tasks: listed by the engine itself, once, and kept in the folder of banks."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from itertools import groupby, zip_longest
from operator import itemgetter
from pathlib import Path

from memrl_core.environments.tasks import load_tasks
from memrl_core.errors import InputError
from memrl_core.records import Task
from memrl_core.settings import home

Listed = tuple[str, int, str]
"""A type of task, one of its variations, and the engine's description of it."""

_DIGITS = 8


def tasks_of(name: str, listing: Callable[[], Sequence[Listed]]) -> list[Task]:
    """The tasks of a set; the engine is asked for its `listing` (sorted by type) where no sound file holds them yet.

    A file is named after the package's version and a digest of its content, by which a damaged one is known. Raises
    what `listing` raises.
    """
    begins = f"{name}-{version('scienceworld')}-"
    for path in sorted(_folder().glob(f"{begins}*.jsonl")):
        with suppress(InputError, OSError):
            if path.stem.removeprefix(begins) == _digest(path.read_bytes()):
                return load_tasks(path)
    tasks = _in_turns(listing())
    with suppress(OSError):  # Without a file they are listed again next time.
        _keep(begins, "".join(json.dumps(asdict(task)) + "\n" for task in tasks).encode())
    return tasks


def _in_turns(listed: Sequence[Listed]) -> list[Task]:
    """The first variation of every type, then the second, and so on."""
    types = [list(of_type) for _, of_type in groupby(listed, key=itemgetter(0))]
    return [_task(*one) for nth in zip_longest(*types) for one in nth if one is not None]


def _task(kind: str, variation: int, description: str) -> Task:
    intent = " ".join(description.split())
    return Task(
        f"scienceworld-{kind}-{variation}", intent, "scienceworld", kind, {"task": kind, "variation": variation}
    )


def _folder() -> Path:
    return home() / "cache"


def _keep(begins: str, content: bytes) -> None:
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{secrets.token_hex(6)}.draft"
    try:
        draft.write_bytes(content)
        draft.replace(folder / f"{begins}{_digest(content)}.jsonl")
    finally:
        draft.unlink(missing_ok=True)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
