"""Texts of foreign origin, made fit to be stored and told."""

from __future__ import annotations

LONGEST = 200_000
"""Characters of a text that a model reads; of a longer one the middle is left out."""


def storable(text: str, longest: int = LONGEST) -> str:
    """`text` without NUL and halves of surrogate pairs, which cannot be stored, and without its middle if too long."""
    if len(text) > longest:
        mark = f"\n… {len(text) - longest:,} characters and more were left out here …\n"
        half = max(0, longest - len(mark)) // 2
        text = text[:half] + mark[: longest - 2 * half] + text[len(text) - half :]
    return text.encode("utf-8", "ignore").decode().replace("\0", "")


def words_of(error: BaseException) -> str:
    """A failure of foreign code, for the inside of a sentence."""
    try:
        said = str(error)
    except Exception:
        said = "it does not say why"
    return storable(f"{type(error).__name__}: {said[:200]}", 240)
