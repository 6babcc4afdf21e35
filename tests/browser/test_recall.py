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


def test_a_key_labels_the_memory_whose_card_is_open_in_pool_and_map(page: Page, app: RunningApp) -> None:
    def labels() -> list[int | None]:
        with MemoryBank.open(str(app.home / "banks" / "demo")) as bank:
            return [one.grade for one in bank.judgements.standing("household", 12)]

    page.goto(f"{app.url}/step?bank=demo&run=household&step=12")
    settled(page)
    expect(page.locator(".stage-host[data-drawn]")).to_be_visible()
    page.keyboard.press("l")
    expect(page.locator(".stage-notice")).to_contain_text("L labels the memory whose card is open")
    page.locator(".stage-row").first.click()
    said = page.locator(".stage-label .stage-caption")
    for shown, stored in (("you: relevant", [2]), ("you: irrelevant", [0])):
        page.keyboard.press("l")
        expect(said).to_have_text(shown)
        assert labels() == stored
    page.get_by_title("Undo your label of this memory").click()
    expect(said).to_have_text("you: relevant")
    page.get_by_role("button", name="used", exact=True).click()
    expect(page.locator("[data-use=used]")).to_have_attribute("aria-pressed", "true")
    for pressed in ("ignored", "contradicted"):
        page.keyboard.press("a")
        expect(page.locator(f"[data-use={pressed}]")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("a")
    expect(page.locator(".stage-use [aria-pressed=true]")).to_have_count(0)
    # A reason that is typed goes with the next label.
    page.keyboard.press("e")
    page.keyboard.type("another object")
    page.keyboard.press("Enter")
    page.keyboard.press("l")
    expect(page.locator(".stage-label")).to_contain_text("“another object”")
    assert labels() == [0]
    page.get_by_title("Undo your label of this memory").click()
    expect(said).to_have_text("you: relevant")
    # One outside the pool is found on the map.
    with MemoryBank.open(str(app.home / "banks" / "demo")) as bank:
        seen = {one.memory_id for one in bank.trace("household", 12).decision.candidates}  # type: ignore[union-attr]
        outside = next(m.id for m in bank.memories() if m.id not in seen and 0 < m.step < 12)
    page.goto(f"{app.url}/step?bank=demo&run=household&step=12&memory={outside}")
    settled(page)
    expect(page.locator("[data-label='2']")).to_have_text("should have come")
    page.keyboard.press("l")
    expect(said).to_have_text("you: relevant")
    expect(page.locator(".stage-card .stage-why")).to_contain_text("Lost b")
    assert labels() == [2, 2] and app.complaints == []


def test_a_bar_of_the_funnel_opens_its_steps(page: Page, app: RunningApp) -> None:
    page.goto(f"{app.url}/recall?bank=demo&run=household&recall_derived=true")
    settled(page)
    bars = page.locator(".st-key-recall_funnel .point path")
    bars.first.click(force=True)
    expect(page.locator(".st-key-recall_stage [aria-checked=true]")).to_contain_text("labelled")
    assert app.complaints == []
