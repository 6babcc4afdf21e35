"""Logs without contents of prompts, answers and memories, which errors quote; `MEMRL_LOG_CONTENTS=1` lets them in."""

from __future__ import annotations

import logging
import os
import traceback

CONTENTS = "MEMRL_LOG_CONTENTS"


def logger(name: str) -> logging.Logger:
    """The logger of this name, whose tracebacks say where something failed and not what the error said."""
    found = logging.getLogger(name)
    found.addFilter(without_contents)
    return found


def loggable(error: BaseException) -> str:
    """What a line of a log may say of an error: its kind, and what it said when contents are asked for."""
    kind = type(error).__name__
    return f"{kind}: {error}" if os.environ.get(CONTENTS) == "1" else kind


def without_contents(record: logging.LogRecord) -> bool:
    """A filter of `logging`: what was raised and where takes the place of a traceback with its messages."""
    if os.environ.get(CONTENTS) == "1" or not record.exc_info:
        return True
    raised = record.exc_info[1]
    record.exc_info = record.exc_text = None
    if raised is not None:
        record.msg, record.args = f"{record.getMessage()}\n{_where(raised)}", ()
    return True


def _where(raised: BaseException) -> str:
    lines = [f"{type(raised).__name__} (set {CONTENTS}=1 to log what it said), raised at"]
    lines += [
        f"  {frame.filename}, line {frame.lineno}, in {frame.name}"
        for frame in traceback.extract_tb(raised.__traceback__, limit=-30)
    ]
    cause = raised.__cause__ or (None if raised.__suppress_context__ else raised.__context__)
    return "\n".join([*lines, *([] if cause is None else ["because of", _where(cause)])])
