"""Foreign text on its way into a figure: Plotly reads a small HTML, so nothing of it may get through."""

from __future__ import annotations

import html
import unicodedata
from functools import lru_cache


@lru_cache(maxsize=65_536)
def plain(text: str, longest: int = 60) -> str:
    """`one_line` of `text`, escaped for Plotly."""
    return html.escape(one_line(text, longest), quote=False)


def one_line(text: str, longest: int = 60) -> str:
    """`text` in one line of at most `longest` characters, without control or direction marks; not escaped."""
    kept = "".join(" " if unicodedata.category(character)[0] in "CZ" else character for character in text)
    line = " ".join(kept.split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"
