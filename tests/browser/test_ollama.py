"""The same clicks with a local Ollama, played by the loopback server; and what is shown when it is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from memrl_core.agent.runs import start_run
from memrl_core.bank import MemoryBank
from memrl_core.embedders.ollama import OllamaEmbedder
from tests.browser.conftest import RunningApp, free_port, watched_page
from tests.browser.test_story import STAGE, choose, drawn_stage, press_step, settled
from tests.ollama.server import OllamaServer


@pytest.fixture(scope="module")
def port() -> int:
    """Where the app of these tests looks for Ollama; each test has its own one there."""
    return free_port()


@pytest.fixture
def ollama(port: int) -> Iterator[OllamaServer]:
    with OllamaServer(port) as running:
        yield running


@pytest.fixture(scope="module")
def ollama_app(serve: Callable[..., RunningApp], port: int) -> RunningApp:
    return serve(OLLAMA_HOST=f"127.0.0.1:{port}")


@pytest.fixture
def ollama_page(context: BrowserContext, ollama_app: RunningApp, ollama: OllamaServer) -> Iterator[Page]:
    yield from watched_page(context, ollama_app)


def a_run_with_ollama(app: RunningApp, server: OllamaServer, name: str) -> str:
    """Make a bank with a run on the loopback server's models in the app's home; returns the way to it."""
    embedder = OllamaEmbedder("nomic-embed-text", address=server.address)
    with MemoryBank.create(str(app.home / "banks" / name), embedder.name, embedder.dimension) as bank:
        start_run(bank, environment="household", tasks="household-train", model="llama3.2", model_facts={}, run="r")
    return f"{app.url}/step?bank={name}&run=r"


def test_a_run_is_started_and_stepped_on_ollamas_models(ollama_page: Page, ollama_app: RunningApp) -> None:
    page = ollama_page
    page.goto(ollama_app.url)
    page.get_by_role("button", name="Start a live run").click()
    choose(page, "llama3.2", "local")
    page.get_by_text("Method, settings, seed").click()
    settled(page)
    chosen = page.locator(".st-key-new_run_embedder").get_by_role("combobox")
    # A list closes when the form around it scrolls.
    chosen.scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    chosen.click()
    page.get_by_role("option", name="nomic-embed-text", exact=True).click()
    settled(page)
    page.locator(".st-key-start_run button").click()
    page.locator(".st-key-finish button").click()
    expect(page.locator(".st-key-step button")).to_contain_text("next task")
    drawn_stage(page)
    # Beside the answer on the stage stands whose it is.
    expect(page.get_by_text("llama3.2").first).to_be_visible()
    expect(page.locator(".stage-write")).to_contain_text("#1")


def test_a_task_that_is_finished_shows_what_was_selected_and_every_turn_while_the_model_answers(
    ollama_page: Page, ollama_app: RunningApp, ollama: OllamaServer
) -> None:
    page = ollama_page
    ollama.faults.delay = 0.3
    page.goto(a_run_with_ollama(ollama_app, ollama, "turns"))
    page.locator(".st-key-finish button").click()
    drawn_stage(page)
    page.wait_for_function(f"{STAGE}.step.decision && {STAGE}.turnsShown > 1")
    expect(page.locator(".st-key-stop button")).to_be_visible()
    assert page.locator(".stage-observed").count() > 1
    page.locator(".st-key-stop button").click()
    expect(page.locator(".st-key-stop button")).to_be_hidden()


def test_a_stopped_answer_is_kept_and_marked(ollama_page: Page, ollama_app: RunningApp, ollama: OllamaServer) -> None:
    page = ollama_page
    ollama.faults.delay = 0.4
    ollama.faults.form = "one two three four five six seven eight nine ten eleven twelve " * 40
    page.goto(a_run_with_ollama(ollama_app, ollama, "stopped"))
    for _ in range(4):
        press_step(page)
    page.locator(".st-key-step button").click()
    expect(page.locator(".stage-answer")).to_contain_text("one")
    page.locator(".st-key-stop button").click()
    expect(page.locator(".stage-answer")).to_contain_text("stopped")
    assert ollama.left.wait(5)


def test_a_model_is_pulled_with_progress_and_can_then_be_chosen(ollama_page: Page, ollama_app: RunningApp) -> None:
    page = ollama_page
    page.goto(ollama_app.url)
    page.get_by_text("Models · choose, try, pull").click()
    page.locator(".st-key-pull_name input").fill("qwen3")
    page.locator(".st-key-pull_name input").press("Enter")
    settled(page)
    page.locator(".st-key-pull button").click()
    expect(page.get_by_text("qwen3 is there")).to_be_visible()
    page.get_by_role("button", name="Start a live run").click()
    page.locator(".st-key-new_run_model").get_by_role("combobox").click()
    expect(page.get_by_role("option", name="qwen3", exact=True)).to_be_visible()


def test_an_ollama_that_went_away_gets_a_banner_and_loses_nothing(
    context: BrowserContext, ollama_app: RunningApp, port: int
) -> None:
    with OllamaServer(port) as server:
        address = a_run_with_ollama(ollama_app, server, "left")
        opened = watched_page(context, ollama_app)
        page = next(opened)
        page.goto(address)
        press_step(page)
        press_step(page)
        drawn_stage(page)
    page.wait_for_timeout(5500)
    page.reload()
    expect(page.locator(".st-key-model_banner")).to_contain_text("Ollama is not running at")
    expect(page.locator(".st-key-model_banner")).to_contain_text("ollama serve")
    press_step(page)
    press_step(page)
    page.locator(".st-key-step button").click()
    expect(page.locator(".st-key-retry")).to_be_visible()
    expect(page.locator("[data-phase='3']")).not_to_have_attribute("data-state", "waiting")
    with pytest.raises(StopIteration):
        next(opened)
