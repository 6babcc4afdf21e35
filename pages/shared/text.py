"""Untrusted text on its way to the screen."""

from __future__ import annotations

import re

import streamlit as st

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!|~<>$:&^=])")


def literal(text: str) -> str:
    """`text` in one line, with everything escaped that Markdown, LaTeX or Streamlit's colour marks would act on."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def verbatim(text: str) -> None:
    """Show `text` as it is, letter for letter, in a block that wraps and can be copied."""
    st.code(text, language=None, wrap_lines=True)
