"""What is logged says where something failed, and nothing of what was asked, answered or remembered."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memrl_core.agent.live import LiveRun
from memrl_core.errors import ModelInterrupted
from memrl_core.logs import CONTENTS
from memrl_core.models.simulated import SimulatedModel
from pages.shared.work import Work
from tests.builders import an_agent
from tests.core.test_no_code_from_data import SOURCES

SECRET = "the patient's name is Ada"


class Quoting(SimulatedModel):
    """Fails, and quotes the prompt as it does."""

    def __init__(self, kind: type[Exception]) -> None:
        super().__init__()
        self.kind = kind

    def chat(self, messages: Any, *given: Any, **more: Any) -> Any:
        raise self.kind(" ".join(message.content for message in messages))


def asked(path: Path, model: Any) -> LiveRun:
    live = LiveRun(an_agent(path, model, environment="conversation"), [])
    live.begin(SECRET)
    live.finish()
    live.wait()
    return live


@pytest.mark.parametrize("kind", [ModelInterrupted, RuntimeError, KeyError])
def test_no_log_holds_what_was_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: type[Exception]) -> None:
    caplog.set_level(logging.DEBUG)
    for model in (SimulatedModel(), Quoting(kind)):
        live = asked(tmp_path / type(model).__name__, model)
    assert live.error is not None
    assert SECRET not in caplog.text and not any(SECRET in str(vars(record)) for record in caplog.records)


def test_what_failed_is_reported_by_kind_and_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked(tmp_path / "bank", Quoting(RuntimeError))
    assert "unexpected way" in caplog.text
    assert "RuntimeError" in caplog.text and "test_logs.py, line" in caplog.text and "in chat" in caplog.text


def test_who_asks_for_contents_gets_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONTENTS, "1")
    asked(tmp_path / "bank", Quoting(RuntimeError))
    assert SECRET in caplog.text


def test_an_error_behind_an_error_is_reported_without_its_words_too(caplog: pytest.LogCaptureFixture) -> None:
    def fail(report: Any, cancelled: Any) -> None:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise ValueError(SECRET) from error

    Work(fail).wait()
    assert "ValueError" in caplog.text and "because of\nKeyError" in caplog.text and SECRET not in caplog.text


# --- the sources ------------------------------------------------------------------------------------------------------

MAKES_A_LOGGER = {"getLogger", "get_logger", "getChild"}
LEVELS = {"debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log"}


def told_otherwise(tree: ast.AST) -> Iterator[str]:
    """What in a source makes a logger that would tell everything, or hands what an error said to any logger."""
    for node in ast.walk(tree):
        names = [node.attr] if isinstance(node, ast.Attribute) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
        yield from (name for name in names if name in MAKES_A_LOGGER)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _speaks(node.func, "logging"):
            yield ast.unparse(node)
        if isinstance(node, ast.ExceptHandler):
            yield from _quoting(node)


def _speaks(called: ast.Attribute, *names: str) -> bool:
    return called.attr in LEVELS and (not names or ast.unparse(called.value) in names)


def _quoting(handler: ast.ExceptHandler) -> Iterator[str]:
    """The lines of a log in a handler that hold its error otherwise than as its kind or as `loggable` gives it."""
    held = {handler.name or "", "sys.exc_info()", "traceback.format_exc()"}
    for node in ast.walk(handler):
        if isinstance(node, ast.Assign) and _holds(node.value, held):
            held |= {ast.unparse(target) for target in node.targets}
    for node in ast.walk(handler):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not _speaks(node.func):
            continue
        if ast.unparse(node.func.value).split(".")[0] not in ("st", "parser") and any(
            _holds(argument, held) for argument in node.args
        ):
            yield ast.unparse(node)


def _holds(node: ast.AST, held: set[str]) -> bool:
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("loggable", "type"):
        return False
    return ast.unparse(node) in held or any(_holds(child, held) for child in ast.iter_child_nodes(node))


@pytest.mark.parametrize(
    "source",
    [
        "log = logging.getLogger(__name__)",
        "from logging import getLogger",
        "logging.warning('a step failed')",
        "try: go()\nexcept OSError as error: log.warning('put off: %s', error)",
        "try: go()\nexcept OSError as error: log.warning(f'put off: {error}')",
        "try: go()\nexcept OSError as error:\n  said = str(error) if near else ''\n  log.info('put off: %s', said)",
        "try: go()\nexcept OSError: log.error(traceback.format_exc())",
    ],
)
def test_each_way_to_log_what_an_error_said_would_be_found(source: str) -> None:
    assert list(told_otherwise(ast.parse(source)))


def test_nothing_is_logged_but_through_the_loggers_that_leave_contents_out() -> None:
    for path in (path for path in SOURCES if path.name != "logs.py"):
        assert list(told_otherwise(ast.parse(path.read_text(encoding="utf-8")))) == [], path
