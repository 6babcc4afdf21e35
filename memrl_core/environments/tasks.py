"""Lists of tasks: JSONL files, one task a line, and the sets that come with the program."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path
from typing import NamedTuple

from memrl_core.environments import ENVIRONMENTS
from memrl_core.errors import InputError
from memrl_core.records import Task

LONGEST_INTENT = 20_000
LONGEST_STEM = 40


class Reported(NamedTuple):
    """A line or an entry of a file that cannot be used: where it stands, and why."""

    where: str
    reason: str


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
    tasks: dict[str, Task] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        task = _task(line, f"{path.name}, line {number}")
        if task.id in tasks:
            raise InputError(f"{path.name}, line {number}: the id “{task.id}” stands twice. Give each task its own.")
        tasks[task.id] = task
    if not tasks:
        raise InputError(f"{path.name} holds no task.")
    return list(tasks.values())


def _task(line: str, where: str) -> Task:
    try:
        row = json.loads(line)
        values = {"id": row["id"], "intent": row["intent"], "environment": row["environment"]}
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON ({error.msg}).") from None
    except RecursionError:
        raise InputError(f"{where}: it is nested too deeply.") from None
    except ValueError:  # Of `int`, for thousands of digits.
        raise InputError(f"{where}: it holds a number with too many digits.") from None
    except (KeyError, TypeError) as error:
        raise InputError(f"{where}: a task is an object with id, intent and environment; missing: {error}.") from None
    if not all(isinstance(value, str) for value in values.values()):
        raise InputError(f"{where}: id, intent and environment are texts.")
    if values["environment"] not in ENVIRONMENTS:
        raise InputError(f"{where}: there is no environment “{values['environment']}”.")
    family, data = row.get("family", ""), row.get("data", {})
    if not isinstance(family, str) or not isinstance(data, dict):
        raise InputError(f"{where}: family is a text and data an object.")
    try:
        intent = check_intent(values["intent"])
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return Task(values["id"], intent, values["environment"], family, data)


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
