"""Short names for memories on screens and in figures."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"(\d+)((?:-\d+)?(?:\.\d+)?)")


def memory_label(memory_id: str, run: str) -> str:
    """ "#17" for memory 17 of `run`, "#17.2" for its second wording, "#17-2" for a second memory of the same step.

    Memories from another run have their whole ids.
    """
    number = _NUMBER.fullmatch(memory_id.removeprefix(f"{run}-")) if memory_id.startswith(f"{run}-") else None
    return f"#{int(number[1])}{number[2]}" if number else memory_id
