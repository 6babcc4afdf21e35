"""From a step to what other methods would have done with it, and to methods side by side, in a real browser."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from memrl_core.policies import POLICIES
from tests.browser.conftest import RunningApp
from tests.browser.test_story import drawn_stage, settled, violations

TOOLS = """(() => {
  const chart = document.querySelector(".st-key-methods_on_pool");
  const box = (one) => one.getBoundingClientRect(), tools = box(chart.querySelector(".modebar"));
  const over = ({ left, right, top, bottom }) =>
    left < tools.right && right > tools.left && top < tools.bottom && bottom > tools.top;
  const groups = [...chart.querySelectorAll(".modebar-group")].map((one) => getComputedStyle(one).backgroundColor);
  const button = chart.querySelector(".modebar-btn");
  return {
    ground: [...new Set(groups)],
    hidden: [...chart.querySelectorAll("text")].filter((one) => one.textContent && over(box(one))).length,
    seen: button.contains(document.elementFromPoint(box(button).left + 5, box(button).top + 5)),
  };
})()"""
"""The ground of a chart's tools, the labels that they hide, and whether they can be pressed."""


def test_a_step_leads_to_what_every_method_would_have_chosen_and_to_the_cards(page: Page, app: RunningApp) -> None:
    page.goto(f"{app.url}/step?bank=demo&run=household&step=29")
    drawn_stage(page)
    settled(page)
    page.locator("[data-phase='3']").click()
    page.get_by_text("What would other methods have put before the model?").click()
    page.wait_for_url(re.compile(r"/methods\?.*show=On(%20|\+)this"))
    expect(page.get_by_text(re.compile(rf"^{len(POLICIES)} methods, \d+ different choices"))).to_be_visible(
        timeout=60_000
    )
    settled(page)
    expect(page.locator(".st-key-methods_on_pool .plot-container")).to_be_visible()
    assert violations(page) == []
    page.locator(".st-key-methods_on_pool .nsewdrag").first.hover()
    assert page.evaluate(TOOLS) == {"ground": ["rgba(0, 0, 0, 0)"], "hidden": 0, "seen": True}
    page.get_by_role("radio", name="Cards").click()
    settled(page)
    expect(page.locator(".st-key-card_memp")).to_contain_text("MemP")
    expect(page.locator("[class*='st-key-card_']")).to_have_count(len(POLICIES))
    assert violations(page) == []
    page.reload()
    settled(page)
    expect(page.locator(".st-key-card_memp")).to_be_visible()
