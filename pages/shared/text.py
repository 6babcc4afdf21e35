"""Untrusted text on its way to the screen."""

from __future__ import annotations

import re

import streamlit as st

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!|~<>$:&^=])")


_LINKED = re.compile(r"(?i)(?<=https:)(?=//)|(?<=http:)(?=//)|(?<=ftp:)(?=//)|(?<=www)(?=\.)|(?<=@)(?=\w)")
WORD_JOINER = "\u2060"


def literal(text: str) -> str:
    """`text` in one line, with everything escaped that Markdown, LaTeX or Streamlit's colour marks would act on.

    Addresses are not escaped by Markdown's own means: an invisible joiner keeps them from becoming links.
    """
    return _SPECIAL.sub(r"\\\1", _LINKED.sub(WORD_JOINER, " ".join(text.split())))


def verbatim(text: str) -> None:
    """Show `text` as it is, letter for letter, in a block that wraps and can be copied."""
    st.code(text, language=None, wrap_lines=True)
