"""Other sites that are open in the same browser: whose pages may talk to the app on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from memrl_core.cli.main import app_file
from tests.browser.conftest import RunningApp

ACCEPTED, REFUSED = 101, 403
BY_STREAMLIT = f"streamlit run {app_file()} --server.headless true --server.port {{}}"


def answer(app: RunningApp, host: str, origin: str) -> int:
    """What a browser is told that goes to `host`, which leads here, for a page of `origin`."""
    port = urlsplit(app.url).port
    headers = {
        "Host": host.format(port=port),
        "Origin": origin.format(port=port),
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    with httpx.stream("GET", f"{app.url}/_stcore/stream", headers=headers, timeout=30) as response:
        return response.status_code


@pytest.mark.slow
def test_streamlit_in_any_folder_refuses_them_as_well(serve: Callable[..., RunningApp], tmp_path: Path) -> None:
    app = serve(BY_STREAMLIT, tmp_path)
    assert answer(app, "127.0.0.1:{port}", "http://127.0.0.1:{port}") == ACCEPTED
    assert answer(app, "127.0.0.1:{port}", "https://other.example") == REFUSED
    assert answer(app, "other.example:{port}", "http://other.example:{port}") == REFUSED
