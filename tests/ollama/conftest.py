"""The loopback server, one for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ollama.server import OllamaServer


@pytest.fixture
def server() -> Iterator[OllamaServer]:
    with OllamaServer() as running:
        yield running


@pytest.fixture
def nobody() -> str:
    """An address at which nothing listens."""
    with OllamaServer() as gone:
        return gone.address
