"""Policies as another package would offer them, under names that the program then knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from pydantic import Field

from memrl_core import policies
from memrl_core.plugins import Registry
from memrl_core.policies.base import Policy
from memrl_core.policies.methods.rag import Rag
from memrl_core.policies.ranking import TermColumn, ranked
from memrl_core.records import Decision, RecallRecord, Utility
from memrl_core.retrieval.view import MemoryView
from memrl_core.settings import PolicySettings


class NewestSettings(PolicySettings):
    """One setting of its own."""

    delta: float = Field(-1.0, ge=-1, le=1, title="δ")
    share: float = Field(0.5, gt=0, le=1, title="Share", description="How far q goes towards a reward.")


class Newest(Policy[NewestSettings]):
    """The newest memories first, with a q of its own."""

    spec = replace(Rag.spec, name="newest", title="Newest first", learns="q")
    Settings = NewestSettings

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        age = np.array([view.position(member.memory_id) for member in recalled.pool], dtype=np.float64)
        return ranked(recalled, view, [TermColumn("newness", age)], k2=self.settings.k2, seed=seed)

    @staticmethod
    def rule(believed: Utility, reward: float, settings: Mapping[str, Any]) -> float:
        return believed.q + settings["share"] * (reward - believed.q)


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
def installed(
    monkeypatch: pytest.MonkeyPatch, registry: Registry[Any] = policies.REGISTRY, /, **found: Any
) -> Iterator[Mapping[str, EntryPoint]]:
    """Within it, the policies of `found` are offered by other packages, or what else `registry` is of."""
    points = {name: EntryPoint(name, behind) for name, behind in found.items()}
    registry.loaded.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(registry, "foreign", lambda: points)
        yield points
    registry.loaded.cache_clear()
