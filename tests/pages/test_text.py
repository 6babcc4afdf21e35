"""Foreign text in Markdown: nothing in it may act."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from streamlit.testing.v1 import AppTest

from memrl_core.records import GenerateRecord, Reply, RewardRecord, StepTrace, Task, Turn
from pages.shared.text import WORD_JOINER, _lines, harmless, literal

EVIL = (
    "<b>x</b> <script>alert(1)</script> **stars** _under_ [a](http://b.test) ![i](x) `code` # head > quote ~~no~~",
    "https://evil.test www.evil.test a@evil.test ftp://evil.test",
    "$x^2$ :red[text] :material/home: &lt;i&gt; 1. item - item | a | b | \\* ***",
)
OF_STREAMLIT = (":material/skull: :tada: :+1: :red[a] :violet-badge[b]", "-> <- -- <-> >= <= ~=")
# What Streamlit's own Markdown makes an icon, an emoji, an arrow or a dash of.
DRAWN = re.compile(r":[a-z+-][\w+/-]*:|(?<!\S)(<-|->|<->|--|>=|<=|~=)(?!\S)")


def inline_kinds(markdown: str) -> set[str]:
    parser = MarkdownIt("commonmark", {"linkify": False}).enable("strikethrough")
    return {child.type for block in parser.parse(markdown) for child in block.children or ()}


@given(st.text(max_size=80) | st.text(alphabet="ab:-+/<>~= ", max_size=30))
def test_no_text_becomes_anything_but_text(text: str) -> None:
    assert inline_kinds(literal(text)) <= {"text", "text_special"}
    assert not DRAWN.search(literal(text).replace("\\", ""))


@pytest.mark.parametrize("text", [*EVIL, *OF_STREAMLIT])
def test_markup_icons_colours_and_arrows_stay_letters_and_what_is_read_is_what_was_written(text: str) -> None:
    assert inline_kinds(literal(text)) <= {"text", "text_special"}
    assert not any(sign in literal(text) for sign in ("http://", "https://", "ftp://", "www.", "@e"))
    assert not DRAWN.search(literal(text).replace("\\", ""))
    read = "".join(c.content for block in MarkdownIt("commonmark").parse(literal(text)) for c in block.children or ())
    assert read.replace(WORD_JOINER, "") == " ".join(text.split())


@pytest.mark.parametrize("unseen", ["\x00", "\x07", "\x1b", "\x7f", "\x9b", "\u202e", "\u2066", "\u2069"])
def test_controls_and_marks_that_turn_the_direction_are_left_out(unseen: str) -> None:
    assert literal(f"a{unseen}b") == "ab"


PROSE = {"text", "text_special", "softbreak", "hardbreak", "em_open", "em_close", "strong_open", "strong_close",
         "code_inline", "s_open", "s_close"}  # fmt: skip


@pytest.mark.parametrize("text", [*EVIL, "[a]: javascript:alert(1)\n\n[a]", "<img src=x onerror=alert(1)>", "\\[a](b)"])
def test_in_formatted_prose_emphasis_is_drawn_and_nothing_acts(text: str) -> None:
    parser = MarkdownIt("commonmark").enable("strikethrough")
    blocks = parser.parse(harmless(text))
    assert {child.type for block in blocks for child in block.children or ()} <= PROSE
    assert not {block.type for block in blocks} & {"html_block"}
    assert not any(sign in harmless(text) for sign in ("http://", "https://", "ftp://", "www.", "@e"))
    assert "strong_open" in {c.type for b in parser.parse(harmless("a **b** c")) for c in b.children or ()}


def _cut_short() -> None:
    import streamlit as st

    from pages.shared.text import failure_said

    with failure_said():
        if st.session_state.pop("comes_right_behind", False):
            st.rerun()


def test_a_failure_is_said_again_where_the_page_was_cut_short_and_once_where_not() -> None:
    app = AppTest.from_function(_cut_short)
    app.session_state["failure"] = "Nothing was run."
    app.session_state["comes_right_behind"] = True
    app.run()
    assert [error.value for error in app.error] == [literal("Nothing was run.")]
    assert not app.run().error


def _replies() -> None:
    from pages.shared.text import said

    said("sql", "SELECT id, name FROM pan")
    said("conversation", "# Pans\n\nA **big** one:\n```python\nprint(1)\n```\n<img src=x>")
    said("household", "take **pan** from counter")


def test_a_reply_is_drawn_as_what_it_is() -> None:
    app = AppTest.from_function(_replies, default_timeout=60).run()
    assert [(block.language, block.value) for block in app.code] == [
        ("sql", "SELECT id, name FROM pan"), ("python", "print(1)"), ("plaintext", "take **pan** from counter"),
    ]  # fmt: skip
    prose = [text.value for text in app.markdown]
    assert prose[0].startswith("# Pans") and "**big**" in prose[0] and prose[1].strip() == "\\<img src=x>"


@pytest.mark.parametrize(
    ("environment", "observation", "verdict", "shown"),
    [
        ("household", "You put the radio on the counter.", "Failed: not done after 10 turns.", True),
        ("household", "The stove fails and the egg is ruined.", "Failed: The stove fails and the egg is ruined.", True),
        ("textworld", "*** You won! ***\nYou eat the meal.", "Solved.", True),
        ("helpdesk", "Blue sent it back.", "Failed: Blue sent it back.", False),
        ("of another package", "It is done.", "Solved.", False),
    ],
)
def test_a_rater_sees_what_happened_last_and_no_word_of_the_verdict(
    environment: str, observation: str, verdict: str, shown: bool
) -> None:
    turn = Turn(Reply("act"), observation, 0.0, True, False)
    task = Task("t", "do it", environment, "")
    reward = RewardRecord(-1.0, "environment", "failure", verdict, "", "", ())
    trace = StepTrace("i", "r", 1, 1, task, "memrl", {}, "", generate=GenerateRecord("m", True, {}, (), (), (turn,)))
    lines = "\n".join(_lines(replace(trace, reward=reward), turn))
    last = observation.splitlines()[-1]
    assert (last in lines) is shown and "won" not in lines and verdict not in lines.splitlines()
