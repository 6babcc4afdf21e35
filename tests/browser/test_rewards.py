"""Rating by keyboard, by several people at once, and with a connection that breaks: in a real browser."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from memrl_core.analysis.people.rating_queue import LONGEST_WAIT, TOO_SOON
from memrl_core.bank import MemoryBank
from memrl_core.records import EventKind, LedgerEvent
from tests.browser.conftest import RunningApp
from tests.browser.test_story import settled

OUTPUT = "[class*='st-key-output_']"


def ratings_of(home: Path, rater: str) -> list[LedgerEvent]:
    """What the ledger on disk says this person gave, in order."""
    bank = MemoryBank.open(str(home / "banks" / "demo"))
    return [e for e in bank.events() if e.kind is EventKind.REWARD_GIVEN and e.rater == rater]


READ = 1000 * TOO_SOON * (1 + LONGEST_WAIT) + 100
GLANCED = 1000 * TOO_SOON + 50
"""Milliseconds after which a key counts, for the longest output and for none."""


def output(page: Page) -> str:
    """Which output is on the screen."""
    return page.locator(OUTPUT).first.evaluate("e => [...e.classList].find(c => c.startsWith('st-key-output_'))")


def go_by(page: Page, name: str) -> None:
    expect(page.locator("body[data-keys]")).to_have_count(1)
    field = page.locator(".st-key-rewards_name input")
    field.fill(name)
    field.press("Enter")
    settled(page)


def press(page: Page, key: str) -> None:
    """Press a key as somebody does who has read the output, and wait for the next one."""
    page.wait_for_timeout(READ if key.isdigit() else GLANCED)
    before = output(page)
    page.keyboard.press(key)
    expect(page.locator(f".{before}")).to_have_count(0)


@pytest.fixture
def queue(page: Page, app: RunningApp) -> Page:
    page.goto(f"{app.url}/rewards?bank=demo")
    expect(page.locator(OUTPUT)).to_be_visible()
    settled(page)
    return page


def test_a_key_that_is_held_rates_one_output(queue: Page, app: RunningApp) -> None:
    go_by(queue, "Holder")
    queue.wait_for_timeout(READ)
    before = output(queue)
    queue.keyboard.down("1")
    expect(queue.locator(f".{before}")).to_have_count(0)
    queue.wait_for_timeout(600)
    for _ in range(6):
        queue.keyboard.down("1")
    queue.keyboard.up("1")
    settled(queue)
    assert len(ratings_of(app.home, "Holder")) == 1


@pytest.mark.parametrize("width", [1024, 1440])
def test_the_bar_of_the_queue_ends_before_the_button_of_the_keys(queue: Page, width: int) -> None:
    queue.set_viewport_size({"width": width, "height": 768})
    progress = queue.locator(".st-key-queue_moves > *").last.bounding_box()
    keys = queue.locator(".st-key-keys_button").bounding_box()
    assert progress and keys and progress["x"] + progress["width"] + 8 < keys["x"]


def test_two_people_see_each_others_rewards(queue: Page, app: RunningApp, browser: Browser) -> None:
    other = browser.new_context(viewport={"width": 1024, "height": 768}).new_page()
    other.goto(f"{app.url}/rewards?bank=demo&show=all")
    expect(other.locator(OUTPUT)).to_be_visible()
    go_by(other, "Bo")
    go_by(queue, "Cy")
    press(queue, "1")
    given = time.monotonic()
    expect(other.get_by_text("Cy at")).to_be_visible()
    # Looked at every 1.5 seconds; the rest is what a busy machine adds.
    assert time.monotonic() - given < 5
    other.context.close()


def test_a_reward_given_while_the_connection_is_lost_is_not_lost_silently(queue: Page, app: RunningApp) -> None:
    go_by(queue, "Offline")
    queue.wait_for_timeout(READ)
    before = output(queue)
    queue.context.set_offline(True)
    queue.keyboard.press("1")
    queue.wait_for_timeout(1000)
    assert ratings_of(app.home, "Offline") == []
    assert output(queue) == before, "the screen went on although nothing was saved"
    queue.context.set_offline(False)
    queue.wait_for_timeout(3000)
    settled(queue)
    # Whether the click survived or not, the screen says what the ledger says.
    assert len(ratings_of(app.home, "Offline")) == (output(queue) != before)
    if output(queue) == before:
        press(queue, "1")
    assert len(ratings_of(app.home, "Offline")) == 1


def test_a_nameless_person_is_held_up_by_other_browsers_only(queue: Page, app: RunningApp, browser: Browser) -> None:
    bad = queue.locator("[class*='st-key-rate_1_'] button").first
    expect(bad).to_be_enabled()
    tab = queue.context.new_page()
    for again in (tab, queue):  # A second tab of the same browser, and the first one loaded anew.
        again.goto(f"{app.url}/rewards?bank=demo")
        expect(again.locator("[class*='st-key-rate_1_'] button").first).to_be_enabled()
    tab.close()
    other = browser.new_context().new_page()
    other.goto(f"{app.url}/rewards?bank=demo")
    expect(other.locator("[class*='st-key-rate_1_'] button").first).to_be_disabled()
    other.context.close()
    queue.wait_for_timeout(1000)
    queue.reload()
    expect(bad).to_be_enabled()
