"""From the page Tasks to a step judged by a real database, and a file of one's own, in a real browser."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from memrl_core.environments import ENVIRONMENTS, environment_class
from tests.browser.conftest import RunningApp
from tests.browser.test_story import choose, settled, violations


def test_every_environment_has_its_page(page: Page, app: RunningApp) -> None:
    # An engine that has not run here yet takes its time to tell its tasks.
    page.set_default_timeout(120_000)
    page.goto(f"{app.url}/tasks")
    settled(page)
    for name in ENVIRONMENTS:
        title = environment_class(name).spec.title
        page.get_by_role("radio", name=title, exact=True).click()
        expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
        settled(page)
        assert re.search(rf"environment={name}\b", page.url)
    page.goto(f"{app.url}/tasks?environment=sql")
    settled(page)
    expect(page.locator(".st-key-tasks_prompt")).to_contain_text("CREATE TABLE")
    assert violations(page) == []


def test_a_run_on_sql_shows_what_was_expected_what_came_and_why(page: Page, app: RunningApp) -> None:
    page.goto(f"{app.url}/tasks?environment=sql&set=sql-heldout")
    settled(page)
    page.get_by_role("button", name="Start a run on this set").click()
    choose(page, "simulated model (no language model)", "on-sql")
    page.locator(".st-key-start_run button").click()
    page.wait_for_url(re.compile(r"/step\?.*bank=on-sql"))
    page.locator(".st-key-finish button").click()
    expect(page.locator(".st-key-step button")).to_contain_text("next task", timeout=30_000)
    settled(page)
    page.locator("[data-phase='5']").click()
    judgement = page.locator(".st-key-judgement")
    expect(judgement).to_contain_text("SELECT")
    expect(judgement).to_contain_text("Why.")
