"""What all tests share: how they are laid out on the processes that run them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

HERE = Path(__file__).parent

# A busy machine is no counterexample.
settings.register_profile("without deadline", deadline=None)
settings.load_profile("without deadline")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One browser at a time, because two on a small machine wait for each other; all other tests go file by file."""
    for item in items:
        part = item.path.relative_to(HERE)
        group = "browser" if part.parts[0] == "browser" else part.as_posix()
        item.add_marker(pytest.mark.xdist_group(group))
