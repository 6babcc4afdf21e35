"""What is logged says where something failed, and nothing of what was asked, answered or remembered."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from memrl_core.background import Work
from memrl_core.errors import ModelInterrupted
from memrl_core.live import LiveRun
from memrl_core.logs import CONTENTS
from memrl_core.models.simulated import SimulatedModel
from tests.builders import an_agent

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


def test_what_failed_is_told_by_kind_and_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked(tmp_path / "bank", Quoting(RuntimeError))
    assert "a step failed in an unexpected way" in caplog.text
    assert "RuntimeError" in caplog.text and "test_logs.py, line" in caplog.text and "in chat" in caplog.text


def test_who_asks_for_contents_gets_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONTENTS, "1")
    asked(tmp_path / "bank", Quoting(RuntimeError))
    assert SECRET in caplog.text


def test_an_error_behind_an_error_is_told_without_its_words_too(caplog: pytest.LogCaptureFixture) -> None:
    def fail(report: Any, cancelled: Any) -> None:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise ValueError(SECRET) from error

    Work(fail).wait()
    assert "ValueError" in caplog.text and "because of\nKeyError" in caplog.text and SECRET not in caplog.text
