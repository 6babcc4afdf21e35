"""A login by OpenID Connect: nothing is shown before it, and rewards bear its name after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import BrowserContext, expect

from tests.browser.conftest import RunningApp, watched_page
from tests.browser.identity_provider import CLIENT, identity_provider
from tests.browser.test_rewards import OUTPUT, press, ratings_of
from tests.browser.test_story import settled


def test_people_log_in_and_rate_under_the_name_of_their_login(
    serve: Callable[..., RunningApp], context: BrowserContext, tmp_path: Path
) -> None:
    secrets = tmp_path / ".streamlit" / "secrets.toml"
    secrets.parent.mkdir()
    with identity_provider({"email": "ada@example.org", "name": "Ada"}) as provider:
        secrets.write_text(
            '[auth]\nredirect_uri = "http://127.0.0.1:{port}/oauth2callback"\n'
            f'cookie_secret = "{"long and random " * 4}"\nclient_id = "{CLIENT}"\nclient_secret = "told to nobody"\n'
            f'server_metadata_url = "{provider}/.well-known/openid-configuration"\n'
        )
        app = serve(HOME=str(tmp_path))
        pages = watched_page(context, app)
        page = next(pages)
        page.goto(f"{app.url}/rewards?bank=demo")
        login = page.get_by_role("button", name="Log in")
        expect(login).to_be_visible()
        assert page.locator(OUTPUT).count() == 0
        assert not (app.home / "banks").exists()
        login.click()
        expect(page.get_by_role("link", name="Rewards")).to_be_visible()
        page.goto(f"{app.url}/rewards?bank=demo")
        expect(page.locator(OUTPUT)).to_be_visible()
        settled(page)
        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        press(page, "1")
        assert [event.value for event in ratings_of(app.home, "ada@example.org")] == [-1.0]
        next(pages, None)
