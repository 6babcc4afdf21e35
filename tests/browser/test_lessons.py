"""Lessons in a real browser: walked with right and wrong predictions, by keys, and before a class."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from memrl_core.lessons.shelf import load_shelf
from tests.browser.conftest import RunningApp
from tests.browser.test_story import settled, violations

TRIPLET, SIMILARITY, REWARD = "01-a-memory-is-a-triplet", "02-similarity-alone-fails", "03-a-reward-moves-q"
SHIFT = "06-the-world-shifts"


def show(page: Page, app: RunningApp, lesson: str, at: str = "claim", presenter: bool = False) -> None:
    page.goto(f"{app.url}/lessons?lesson={lesson}&page={at}{'&presenter=1' if presenter else ''}")
    on(page, at)


def on(page: Page, at: str) -> None:
    page.wait_for_url(re.compile(rf"page={at}\b"))
    expect(page.locator(".st-key-lesson_strip")).to_be_visible()
    settled(page)


def press(page: Page, key: str) -> None:
    page.locator(f".st-key-{key} button").click()
    settled(page)


def predict(page: Page, choice: int) -> None:
    press(page, f"prediction_{choice}")
    expect(page.get_by_text("Kept. You can change it")).to_be_visible()


def turn(page: Page, at: str) -> None:
    page.keyboard.press("ArrowRight")
    on(page, at)


def pick(page: Page, memory: str) -> None:
    box = page.locator(".st-key-lesson_memory input")
    box.click()
    box.fill(memory)
    page.get_by_role("option", name=memory).first.click()
    settled(page)


def test_a_lesson_with_a_wrong_prediction_says_why_and_opens_all_the_same(page: Page, app: RunningApp) -> None:
    show(page, app, SIMILARITY, "reveal")
    expect(page.get_by_text("Still missing")).to_be_visible()
    press(page, "go_predict")
    predict(page, 4)
    turn(page, "do")
    slider = page.get_by_role("slider")
    slider.focus()
    for _ in range(60):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_test_id("stSliderThumbValue")).to_have_text("0.60")
    settled(page)
    assert "page=do" in page.url, "an arrow key on a slider turned the page"
    page.locator(".st-key-lesson_strip").get_by_role("button", name="4 Reveal").click()
    on(page, "reveal")
    expect(page.get_by_text("It came out differently")).to_be_visible()
    expect(page.get_by_text("Nothing in similarity speaks against them")).to_be_visible()


def test_memories_are_looked_at_and_compared(page: Page, app: RunningApp) -> None:
    show(page, app, TRIPLET, "predict")
    predict(page, 3)
    turn(page, "do")
    for uses in ("Uses rewarded 5 ", "Uses rewarded 0 "):
        pick(page, uses)
    page.locator(".st-key-lesson_strip").get_by_role("button", name="4 Reveal").click()
    on(page, "reveal")
    expect(page.get_by_text("You predicted it.")).to_be_visible()


def test_two_agents_play_and_the_world_shifts(page: Page, app: RunningApp) -> None:
    show(page, app, SHIFT, "predict")
    predict(page, 1)
    turn(page, "do")
    press(page, "start_twins")
    for epoch in range(1, 13):
        page.get_by_role("button", name=f"Play epoch {epoch} of 12").click()
        if epoch == 8:
            page.locator(".st-key-shift button").click()
    expect(page.get_by_text("Both agents have played all 12 epochs.")).to_be_visible()
    settled(page)
    turn(page, "reveal")
    expect(page.get_by_text("It came out differently")).to_be_visible()
    expect(page.locator(".js-plotly-plot").first).to_be_visible()


def test_a_class_sees_large_type_no_menu_and_nothing_that_moves(page: Page, app: RunningApp) -> None:
    show(page, app, "07-a-failure-worth-remembering")
    size = "parseFloat(getComputedStyle(document.querySelector('.stMarkdown p')).fontSize)"
    before = page.evaluate(size)
    page.emulate_media(reduced_motion="reduce")
    press(page, "present")
    page.wait_for_url(re.compile("presenter=1"))
    assert page.evaluate(size) > 1.3 * before
    expect(page.get_by_test_id("stHeader")).to_be_hidden()
    assert page.evaluate("getComputedStyle(document.querySelector('button')).transitionDuration") in ("0s", "")
    turn(page, "predict")
    assert "presenter=1" in page.url
    page.keyboard.press("ArrowLeft")
    on(page, "claim")
    press(page, "present")
    expect(page.get_by_test_id("stHeader")).to_be_visible()


SCROLLED = "document.querySelector('[data-testid=stMain]').scrollTop"


@pytest.mark.slow
@pytest.mark.parametrize("key", list(load_shelf().lessons))
def test_every_page_of_a_lesson_opens_at_its_top(page: Page, app: RunningApp, key: str) -> None:
    page.set_viewport_size({"width": 1000, "height": 320})
    show(page, app, key, "predict")
    predict(page, 1)
    for at in ("do", "predict", "claim", "predict", "do"):
        page.evaluate(f"{SCROLLED} = 1e6")
        page.locator(f".st-key-page_{at} button").dispatch_event("click")
        on(page, at)
        assert page.evaluate(SCROLLED) == 0
    if page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight") > 400:
        page.mouse.move(500, 200)
        page.mouse.wheel(0, 60)
        page.wait_for_function(f"{SCROLLED} > 0")
        settled(page)
        assert page.evaluate(SCROLLED) > 0, "a page that was not turned was scrolled"


def test_another_browser_sees_none_of_it_and_another_tab_sees_all(
    browser: Browser, page: Page, app: RunningApp
) -> None:
    show(page, app, REWARD, "predict")
    predict(page, 2)
    with browser.new_context() as other:
        stranger = other.new_page()
        # Two tabs of one browser, both opened before it had an id.
        tab = other.new_page()
        tab.goto(app.url)
        settled(tab)
        show(stranger, app, REWARD, "predict")
        expect(stranger.get_by_text("Kept. You can change it")).to_have_count(0)
        predict(stranger, 1)
        tab.get_by_role("link", name="Lessons").click()
        expect(tab.get_by_text("1 of 5 pages seen")).to_be_visible()
    page.reload()
    on(page, "predict")
    expect(page.locator(".st-key-prediction_2")).to_contain_text("radio_button_checked")


@pytest.mark.parametrize("where", ["", f"?lesson={REWARD}&page=do"])
def test_no_page_is_inaccessible_or_too_wide(page: Page, app: RunningApp, where: str) -> None:
    if where:
        show(page, app, REWARD, "predict")
        predict(page, 2)
    page.goto(f"{app.url}/lessons{where}")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        expect(page.get_by_role("button").first).to_be_visible()
        settled(page)
        page.wait_for_timeout(500)
        assert violations(page) == [], scheme
    page.set_viewport_size({"width": 1024, "height": 768})
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
