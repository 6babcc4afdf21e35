"""Regular expressions of foreign origin, in a process of its own: one search a question, bounded in time and memory."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

import regex

from memrl_core.environments.child import serve
from memrl_core.environments.databases.sandbox_child import confine

_FAULTS = (regex.error, ValueError, TypeError, OverflowError, RecursionError, IndexError, KeyError)
_confined = cache(confine)


def answer(question: Mapping[str, Any]) -> Mapping[str, Any]:
    """Whether `pattern` is `found` in `text`; else why it is no pattern (`fault`) or why the search was `stopped`."""
    _confined()
    try:
        pattern = regex.compile(question["pattern"])
    except MemoryError:
        return {"fault": "it needs too much memory"}
    except _FAULTS as error:
        return {"fault": str(error)[:200] or type(error).__name__}
    try:
        return {"found": pattern.search(question["text"], timeout=question["seconds"]) is not None}
    except TimeoutError:
        return {"stopped": f"it took longer than {question['seconds']:g} s"}
    except MemoryError:
        return {"stopped": "it needed too much memory"}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    serve(answer)
