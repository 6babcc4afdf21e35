"""Ctrl-C as a wish to stop after the step under way."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Self


class CtrlC:
    """Within it the first Ctrl-C is noted instead of raised; the second ends the program."""

    def __init__(self) -> None:
        self.pressed = False

    def asked(self) -> bool:
        """Whether it was pressed."""
        return self.pressed

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *failure: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
