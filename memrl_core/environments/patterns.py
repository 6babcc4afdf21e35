"""Searching a text for a regular expression that may be catastrophic."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from memrl_core.environments.child import Borrowed, ChildFailed
from memrl_core.errors import EnvironmentFailed

CHILD = "memrl_core.environments.pattern_child"
SECONDS = 1.0
"""Processor time that a search may take, so that a busy machine judges alike."""

STARTING = 60.0
SLACK = 9.0
"""Seconds of the clock beyond `SECONDS`, for compiling too, after which its process is ended."""


@dataclass(frozen=True, slots=True)
class Search:
    """What became of a search: `found`, or why it was `stopped`, or why the pattern is none (`fault`)."""

    found: bool = False
    stopped: str = ""
    fault: str = ""


def search(pattern: str, text: str) -> Search:
    """Look for `pattern`, as the library `regex` reads it, anywhere in `text`.

    A search of more than `SECONDS`, or of too much memory, is stopped. Raises `EnvironmentFailed` when the process for
    it cannot be started.
    """
    with closing(Borrowed(CHILD)) as child:
        try:
            if not child.running:
                child.ask({"pattern": "", "text": "", "seconds": SECONDS}, STARTING)
        except ChildFailed as error:
            raise EnvironmentFailed(
                f"No pattern can be searched for ({error}). Nothing was judged; try again."
            ) from None
        try:
            answer = child.ask({"pattern": pattern, "text": text, "seconds": SECONDS}, SECONDS + SLACK)
        except ChildFailed as error:
            return Search(stopped=str(error))
    return Search(bool(answer.get("found")), str(answer.get("stopped", "")), str(answer.get("fault", "")))
