"""Other sites that are open in the same browser: whose pages may talk to the app on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from memrl_core.cli import app_file
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


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}", "localhost:9000"])
def test_the_app_talks_to_its_own_pages(app: RunningApp, host: str) -> None:
    assert answer(app, host, f"http://{host}") == ACCEPTED


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:{port}", "https://other.example"),
        ("127.0.0.1:{port}", "http://127.0.0.1.other.example:{port}"),
        ("127.0.0.1:{port}", "null"),
        # A name that its owner lets lead here.
        ("other.example:{port}", "http://other.example:{port}"),
        ("localhost.other.example:{port}", "http://localhost.other.example:{port}"),
    ],
)
def test_no_page_of_another_site_talks_to_the_app(app: RunningApp, host: str, origin: str) -> None:
    assert answer(app, host, origin) == REFUSED


def test_no_page_of_another_site_reads_or_sends_a_file(app: RunningApp) -> None:
    foreign = {"Origin": "https://other.example"}
    with httpx.Client(base_url=app.url, headers=foreign) as client:
        assert "access-control-allow-origin" not in client.get("/_stcore/health").headers
        sent = client.put("/_stcore/upload_file/session/file", files={"file": b"x"})
    assert sent.status_code == REFUSED


@pytest.mark.slow
def test_streamlit_in_any_folder_refuses_them_as_well(serve: Callable[..., RunningApp], tmp_path: Path) -> None:
    app = serve(BY_STREAMLIT, tmp_path)
    assert answer(app, "127.0.0.1:{port}", "http://127.0.0.1:{port}") == ACCEPTED
    assert answer(app, "127.0.0.1:{port}", "https://other.example") == REFUSED
    assert answer(app, "other.example:{port}", "http://other.example:{port}") == REFUSED
