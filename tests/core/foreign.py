"""Policies as another package would offer them, under names that the program then knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from memrl_core import policies


@dataclass
class EntryPoint:
    """What `importlib.metadata` finds of a package: a name, and a class behind it or the failure to load one."""

    name: str
    behind: Any

    def load(self) -> Any:
        if isinstance(self.behind, BaseException):
            raise self.behind
        return self.behind


@contextmanager
def installed(monkeypatch: pytest.MonkeyPatch, **found: Any) -> Iterator[Mapping[str, EntryPoint]]:
    """Within it, the policies of `found` are offered by other packages."""
    points = {name: EntryPoint(name, behind) for name, behind in found.items()}
    policies._loaded.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(policies, "_foreign", lambda: points)
        yield points
    policies._loaded.cache_clear()
