"""Short names for memories and models on screens and in figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NUMBER = re.compile(r"(\d+)((?:-\d+)?(?:\.\d+)?)")
_GIVEN = re.compile(r"[a-z]+-\d{3}")
_MARKS = re.compile(r"<|%(?={)")
LONGEST_FACT = 80
WORD_JOINER = "\u2060"


def memory_label(memory_id: str, run: str) -> str:
    """ "#17" for memory 17 of `run`, "#17.2" for its second wording, "#17-2" for a second memory of the same
    step, and "given-031" for one that the run was given at its start.

    Memories from another run have their whole ids. Those come from files, too, and Plotly reads a small HTML and fields
    of templates in every text: an invisible joiner keeps such marks what they are.
    """
    number = _NUMBER.fullmatch(memory_id.removeprefix(f"{run}-")) if memory_id.startswith(f"{run}-") else None
    if memory_id.startswith(f"{run}-") and _GIVEN.fullmatch(memory_id, len(run) + 1):
        return memory_id[len(run) + 1 :]
    return f"#{int(number[1])}{number[2]}" if number else _MARKS.sub(rf"\g<0>{WORD_JOINER}", memory_id)


def weights_label(facts: Mapping[str, Any]) -> str:
    """What a run's server or file told of its model, in one line of foreign text; empty when it told nothing."""
    known = {name: str(value)[:LONGEST_FACT] for name, value in facts.items()}
    context, parameters = facts.get("context"), facts.get("parameters")
    if isinstance(parameters, int):
        known["parameters"] = f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.0f}M"
    parts = (
        known.get("parameters", ""),
        known.get("quantisation", ""),
        f"window {context:,} tokens" if isinstance(context, int) else "",
        f"digest {known['digest'][:12]}" if "digest" in known else "",
        known.get("server", ""),
    )
    return " · ".join(part for part in parts if part)
