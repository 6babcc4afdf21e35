"""Who is let in: this machine without a login, everybody else only with one, under the name of the login."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.runtime.context import ContextProxy
from streamlit.testing.v1 import AppTest

from memrl_core.bank.people.roles import NEWCOMERS, Role
from tests.pages.screen import Stored, Visit, by_people, key_starting, page_text, plain, press

AUTH = {"auth": {"redirect_uri": "http://localhost/oauth2callback", "cookie_secret": "only a test"}}


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Visits that follow come to a server with a login, as this user."""
    begin = AppTest.__init__

    def as_user(**user: Any) -> None:
        def begun(self: AppTest, *given: Any, **more: Any) -> None:
            begin(self, *given, **more)
            self.secrets, self.user = dict(AUTH), user

        monkeypatch.setattr(AppTest, "__init__", begun)

    return as_user


@pytest.mark.parametrize("address", ["0.0.0.0", "", "192.168.1.7", "example.org"])
def test_strangers_are_shown_nothing_but_a_sentence_where_there_is_no_login(
    demo: Path, visit: Visit, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    known = st.get_option
    monkeypatch.setattr(st, "get_option", lambda name: address if name == "server.address" else known(name))
    app = visit("rewards", bank="demo")
    (error,) = app.error
    assert page_text(app) == error.value
    assert (address or "every address") in plain(app)
    assert not app.button and not app.dataframe


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "other.example:8501", "Origin": "http://other.example:8501"},
        {"Host": "localhost:8501", "Origin": "https://other.example"},
        {"Host": "127.0.0.1:8501", "Origin": "null"},
        {"Host": "localhost.other.example"},
    ],
)
def test_pages_of_other_sites_are_shown_nothing_whatever_streamlit_was_reported(
    demo: Path, visit: Visit, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    monkeypatch.setattr(ContextProxy, "headers", headers)
    app = visit("rewards", bank="demo")
    assert page_text(app) == app.error[0].value and not app.button and not app.dataframe


def test_this_machine_is_shown_the_app_by_any_of_its_names(
    demo: Path, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("localhost:8501", "127.0.0.1", "[::1]:8501"):
        monkeypatch.setattr(ContextProxy, "headers", {"Host": name, "Origin": f"http://{name}"})
        assert not visit("rewards", bank="demo").error


def test_with_a_login_everybody_is_asked_to_log_in_first(demo: Path, visit: Visit, login: Callable[..., None]) -> None:
    login(is_logged_in=False)
    for page in ("home", "rewards", "bank"):
        app = visit(page, bank="demo")
        assert "Log in" in plain(app)
        assert [button.key for button in app.button] == ["login"] and not app.dataframe


def test_a_reward_is_kept_under_the_name_of_the_login(
    bank: Stored, visit: Visit, login: Callable[..., None], ann: None
) -> None:
    bank.write.people.assign("cem@example.org", Role.RATE, "boss")
    bank.write.people.assign("boss", Role.MANAGE, "boss")
    bank.write.people.assign(NEWCOMERS, Role.LOOK, "boss")
    login(is_logged_in=True, email="cem@example.org", name="ann")
    app = visit("rewards", bank="demo", step="5")
    assert "cem@" in plain(app) and app.button(key="rewards_name_logout")
    assert not [field for field in app.text_input if field.key == "rewards_name"]
    press(app, "1")
    assert [event.rater for event in by_people(bank)][-1] == "cem@example.org"
    login(is_logged_in=True, sub="boss <b>x</b>", email="ann@example.org", email_verified=False)
    app = visit("rewards", bank="demo", step="6")
    assert "boss <b>x</b>" not in page_text(app) and "boss <b>x</b> may look" in plain(app)
    assert key_starting(app, "rate_1_").disabled


def test_with_a_login_the_address_may_be_any(
    demo: Path, visit: Visit, login: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = st.get_option
    monkeypatch.setattr(st, "get_option", lambda name: "0.0.0.0" if name == "server.address" else known(name))
    login(is_logged_in=True, email="cem@example.org")
    assert key_starting(visit("rewards", bank="demo"), "rate_1_")
