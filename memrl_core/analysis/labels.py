"""Short names for memories on screens and in figures."""

from __future__ import annotations


def memory_label(memory_id: str, run: str) -> str:
    """ "#17" for memory 17 of `run`, the whole id for memories that came from another run."""
    number = memory_id.removeprefix(f"{run}-")
    return f"#{int(number)}" if number != memory_id and number.isdecimal() else memory_id
