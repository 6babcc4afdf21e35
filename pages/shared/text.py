"""Untrusted text on its way to the screen, answers of models among it, and failures said in their own sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import streamlit as st
from streamlit.runtime.scriptrunner import RerunException

from memrl_core.bank import MemoryBank
from memrl_core.environments import environment_class
from memrl_core.errors import MemRLError
from memrl_core.records import StepTrace, Turn

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!|~<>$:&^=])")
_LINKED = re.compile(r"(?i)(?<=https:)(?=//)|(?<=http:)(?=//)|(?<=ftp:)(?=//)|(?<=www)(?=\.)|(?<=@)(?=\w)")
# Names between colons, which Streamlit draws as icons, and the signs that it draws as arrows and dashes.
_DRAWN = re.compile(r"(?i):(?=[a-z+-][\w+/-]*:)|(?<!\S)[<>~-](?=(?:->|[->=])(?!\S))")
# Control characters, and what would turn the direction of the words that come after.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
WORD_JOINER = "\u2060"


def literal(text: str) -> str:
    """`text` in one line, with everything escaped that Markdown, LaTeX or Streamlit's own marks would act on.

    Addresses, icons and arrows are not escaped by Markdown's own means: an invisible joiner keeps them what they are.
    """
    line = _UNSEEN.sub("", " ".join(text.split()))
    return _SPECIAL.sub(r"\\\1", _LINKED.sub(WORD_JOINER, _DRAWN.sub(rf"\g<0>{WORD_JOINER}", line)))


@contextmanager
def errors_shown() -> Iterator[None]:
    """Leaves the block at a failure and says what it was."""
    try:
        yield
    except MemRLError as error:
        st.error(literal(str(error)), icon=":material/error:")


@contextmanager
def failure_kept() -> Iterator[None]:
    """Leaves the block at a failure, which is said when the page is drawn again: for callbacks."""
    try:
        yield
    except MemRLError as error:
        st.session_state["failure"] = str(error)


@contextmanager
def failure_said() -> Iterator[None]:
    """Says above the block what was kept, once; again where the block is cut short, which nobody may have seen."""
    failure = st.session_state.pop("failure", None)
    if failure is not None:
        st.error(literal(failure), icon=":material/error:")
    try:
        yield
    except RerunException:
        if failure is not None:
            st.session_state.setdefault("failure", failure)
        raise


def in_badge(text: str) -> str:
    """`text` for `st.badge`, which escapes brackets itself."""
    return literal(text).replace("\\[", "[").replace("\\]", "]")


def minute(moment: str) -> str:
    """A moment (ISO 8601 in UTC) to the minute."""
    return f"{moment[:16].replace('T', ' ')} UTC"


def verbatim(text: str, height: int | Literal["content"] = "content") -> None:
    """Show `text` as it is, letter for letter, in a block that wraps, scrolls and can be copied."""
    st.code(text, language=None, wrap_lines=True, height=height)


_FENCE = re.compile(r"(?ms)^(```|~~~)[ ]*([\w+-]*)[^\n]*\n(.*?)(?:^\1[ ]*$|\Z)")
_IN_CODE = re.compile(r"(`[^`\n]+`)")
_ACTS = re.compile(r"([\[\]<$:!&\\])")
_LANGUAGES = frozenset(
    {"bash", "c", "cpp", "css", "go", "html", "java", "javascript", "json", "python", "r", "rust", "sql", "yaml"}
)


def formatted(text: str) -> None:
    """Show `text` as the Markdown that it is: headings, lists, emphasis, tables, code. Nothing of it acts.

    Links, images, HTML, formulas and Streamlit's own marks stay letters.
    """
    at = 0
    for fence in _FENCE.finditer(text):
        _prose(text[at : fence.start()])
        st.code(fence[3].rstrip("\n"), language=fence[2] if fence[2] in _LANGUAGES else None, wrap_lines=True)
        at = fence.end()
    _prose(text[at:])


def _prose(text: str) -> None:
    if text.strip():
        st.markdown("".join(part if part.startswith("`") else harmless(part) for part in _IN_CODE.split(text)))


def harmless(text: str) -> str:
    """`text` as Markdown in which emphasis, lists, headings and tables are drawn and nothing else is."""
    kept = "\n".join(_UNSEEN.sub("", line) for line in text.split("\n"))
    return _ACTS.sub(r"\\\1", _LINKED.sub(WORD_JOINER, _DRAWN.sub(rf"\g<0>{WORD_JOINER}", kept)))


SQL, PROSE = ("sql", "lifelong_db"), ("conversation",)


def answer(bank: MemoryBank, trace: StepTrace) -> None:
    """All that the model said, with what the environment said in between; never the environment's verdict."""
    if trace.generate is None or not trace.generate.turns:
        st.caption("This step was recorded without its answer.")
        return
    turns, environment = trace.generate.turns, bank.run(trace.run).environment
    if environment in PROSE or environment in SQL:
        for turn in turns:
            said(environment, turn.reply.text or "(nothing)")
            if environment in SQL:
                verbatim(_observed(trace, turn))
    else:
        verbatim("\n".join(line for turn in turns for line in _lines(trace, turn)))
    if turns[-1].reply.stopped:
        st.caption("The answer was stopped by a person.")


def said(environment: str, text: str) -> None:
    """Draw one reply of the model as what it is in an environment."""
    if environment in PROSE:
        formatted(text)
    elif environment in SQL:
        st.code(text, language="sql", wrap_lines=True)
    else:
        verbatim(text)


def _observed(trace: StepTrace, turn: Turn) -> str:
    """What the environment said to a turn; of the last one, what happened, without the words of its verdict.

    Where an episode has one turn only, all that is said to it is the verdict.
    """
    assert trace.generate is not None
    if turn is not trace.generate.turns[-1]:
        return turn.observation
    verdict = trace.reward.verdict if trace.reward else ""
    if verdict and turn.observation.endswith(verdict):
        return turn.observation.removesuffix(verdict)
    return _SAYS_HOW_IT_ENDED.sub("", turn.observation) if _has_turns(trace.task.environment) else ""


_SAYS_HOW_IT_ENDED = re.compile(r"(?m)^\s*\*\*\*.*\*\*\*\s*$|^.*\b(?:score|won|lost)\b.*$", re.IGNORECASE)


def _has_turns(environment: str) -> bool:
    try:
        return getattr(environment_class(environment), "max_turns", 2) > 1
    except MemRLError:
        return False


def _lines(trace: StepTrace, turn: Turn) -> list[str]:
    # Only the first line: environments repeat in every turn what can be done next.
    observed = _observed(trace, turn).strip().splitlines()[:1]
    return [turn.reply.text or "(nothing)", *(f"    ⤷ {line}" for line in observed)]
