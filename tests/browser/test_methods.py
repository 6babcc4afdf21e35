"""From a step to what other methods would have done with it, and to methods side by side, in a real browser."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from memrl_core.policies import POLICIES
from tests.browser.conftest import RunningApp
from tests.browser.test_story import drawn_stage, part, settled, violations


def test_a_step_leads_to_what_every_method_would_have_chosen_and_to_the_cards(page: Page, app: RunningApp) -> None:
    page.goto(f"{app.url}/step?bank=demo&run=household&step=29")
    drawn_stage(page)
    settled(page)
    part(page, "SELECT").locator("summary").click()
    page.get_by_text("What would other methods have put before the model?").click()
    page.wait_for_url(re.compile(r"/methods\?.*show=On(%20|\+)this"))
    expect(page.get_by_text(re.compile(rf"^{len(POLICIES)} methods, \d+ different choices"))).to_be_visible(
        timeout=60_000
    )
    settled(page)
    expect(page.locator(".st-key-methods_on_pool .plot-container")).to_be_visible()
    assert violations(page) == []
    page.get_by_role("radio", name="Cards").click()
    settled(page)
    expect(page.locator(".st-key-card_memp")).to_contain_text("MemP")
    expect(page.locator("[class*='st-key-card_']")).to_have_count(len(POLICIES))
    assert violations(page) == []
    page.reload()
    settled(page)
    expect(page.locator(".st-key-card_memp")).to_be_visible()
