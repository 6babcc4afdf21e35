"""An Ollama elsewhere: a person agrees to the host before anything is sent there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from streamlit.testing.v1 import AppTest

from memrl_core.agent.preferences import load_preferences
from tests.ollama.server import OllamaServer
from tests.pages.screen import Visit, page_text
from tests.pages.test_login import login as login


@pytest.fixture
def server() -> Iterator[OllamaServer]:
    with OllamaServer() as running:
        yield running


def elsewhere(server: OllamaServer) -> str:
    """The loopback address in a spelling that is not known as this machine."""
    return f"http://127.1:{server.server_port}"


def ask_for(app: AppTest, address: str) -> None:
    app.text_input(key="ollama_address").set_value(address).run()
    app.button(key="ollama_save").click().run()


@pytest.mark.slow
def test_nothing_is_sent_to_another_machine_before_a_person_agrees(visit: Visit, server: OllamaServer) -> None:
    app = visit("home")
    ask_for(app, elsewhere(server))
    assert f"**127\\.1\\:{server.server_port}** is not" in page_text(app)
    assert "prompts" in page_text(app) and "not encrypted" in page_text(app)
    assert server.requests == [] and load_preferences().ollama_address == "http://127.0.0.1:9"
    app.button(key="confirm_address").click().run()
    assert load_preferences().ollama_address == elsewhere(server)
    assert server.asked("/api/tags") and "is running at" in page_text(app)


def test_an_openai_compatible_server_is_chosen_as_ollama_is(
    visit: Visit, server: OllamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    app = visit("home")
    assert not any("OPENAI_API_KEY" in caption.value for caption in app.caption)
    here = f"{server.address}/v1"
    app.text_input(key="openai_address").set_value(here).run()
    app.button(key="ollama_save").click().run()
    chosen = load_preferences()
    assert (chosen.openai_address, chosen.ollama_address) == (here, "http://127.0.0.1:9")
    assert any("OPENAI_API_KEY" in caption.value and "9/v1 alone" in caption.value for caption in app.caption)
    app.text_input(key="openai_address").set_value(f"{elsewhere(server)}/v1").run()
    app.button(key="ollama_save").click().run()
    assert f"**127\\.1\\:{server.server_port}** is not" in page_text(app)
    assert load_preferences().openai_address == here


def test_this_machine_needs_no_agreement(visit: Visit, server: OllamaServer) -> None:
    ask_for(visit("home"), server.address)
    assert server.asked("/api/tags") and load_preferences().ollama_address == server.address


def test_a_link_names_no_address(visit: Visit, server: OllamaServer) -> None:
    visit("home", ollama_address=elsewhere(server), OLLAMA_HOST=elsewhere(server), address=elsewhere(server))
    assert server.requests == [] and load_preferences().ollama_address == "http://127.0.0.1:9"


def test_with_a_login_no_visitor_chooses_the_address(
    visit: Visit, login: Callable[..., None], server: OllamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    login(is_logged_in=True, email="ann@example.org")
    app = visit("home")
    (field,) = [field for field in app.text_input if field.label == "Ollama's address"]
    assert field.disabled
    # Whoever writes their own client can still send what their browser does not let them type.
    field.proto.disabled = False
    field.set_value(server.address).run()
    app.number_input(key="ollama_timeout").set_value(90.0).run()
    app.button(key="ollama_save").click().run()
    assert server.requests == [] and load_preferences().ollama_address == "http://127.0.0.1:9"
    assert load_preferences().timeout == 90.0
    monkeypatch.setenv("OLLAMA_HOST", server.address)
    assert load_preferences().ollama_address == server.address
