"""Foreign text in Markdown: nothing in it may act."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pages.shared.text import WORD_JOINER, literal

EVIL = (
    "<b>x</b> <script>alert(1)</script> **stars** _under_ [a](http://b.test) ![i](x) `code` # head > quote ~~no~~",
    "https://evil.test www.evil.test a@evil.test ftp://evil.test",
    "$x^2$ :red[text] :material/home: &lt;i&gt; 1. item - item | a | b | \\* ***",
)


def inline_kinds(markdown: str) -> set[str]:
    parser = MarkdownIt("commonmark", {"linkify": False}).enable("strikethrough")
    return {child.type for block in parser.parse(markdown) for child in block.children or ()}


@pytest.mark.parametrize("text", EVIL)
def test_markup_stays_letters(text: str) -> None:
    assert inline_kinds(literal(text)) <= {"text", "text_special"}
    assert not any(sign in literal(text) for sign in ("http://", "https://", "ftp://", "www.", "@e"))


@given(st.text(max_size=80))
def test_no_text_becomes_anything_but_text(text: str) -> None:
    assert inline_kinds(literal(text)) <= {"text", "text_special"}


def test_what_is_read_is_what_was_written() -> None:
    parser = MarkdownIt("commonmark")
    for text in EVIL:
        shown = "".join(c.content for block in parser.parse(literal(text)) for c in block.children or ())
        assert shown.replace(WORD_JOINER, "") == " ".join(text.split())
