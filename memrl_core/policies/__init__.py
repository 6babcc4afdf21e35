"""Memory methods by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memrl_core.errors import SettingsError
from memrl_core.policies.base import Policy
from memrl_core.policies.memrl import MemRL
from memrl_core.settings import MemRLSettings

POLICIES = ("memrl",)


def make_policy(name: str, settings: Mapping[str, Any]) -> Policy:
    """The policy `name` under `settings`; raises `SettingsError` for an unknown name or a value out of range."""
    if name not in POLICIES:
        raise SettingsError(f"There is no policy “{name}”. Known: {', '.join(POLICIES)}.")
    return MemRL(MemRLSettings.of(settings))
