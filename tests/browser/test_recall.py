"""Labels of recall by keys, in a real browser."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from memrl_core.bank import MemoryBank
from tests.browser.conftest import RunningApp
from tests.browser.test_story import settled


def test_keys_grade_the_memories_of_a_step_one_after_the_other(page: Page, app: RunningApp) -> None:
    page.goto(f"{app.url}/recall?bank=demo&run=household&step=20&recall_view=Label")
    expect(page.locator(".st-key-label_card")).to_be_visible()
    settled(page)
    first = page.locator(".st-key-label_card").inner_text()
    for key in "20":
        page.keyboard.press(key)
        settled(page)
    assert page.locator(".st-key-label_card").inner_text() != first
    page.keyboard.press("x")
    settled(page)

    def labels() -> list[tuple[str, int | None]]:
        with MemoryBank.open(str(app.home / "banks" / "demo")) as bank:
            return [(one.memory_id, one.grade) for one in bank.judgements.standing("household", 20)]

    assert [grade for _, grade in labels()] == [2, 0, 0] and labels()[-1][0] == ""
    for left in (2, 1, 0):
        page.keyboard.press("u")
        settled(page)
        assert len(labels()) == left
    assert app.complaints == []
