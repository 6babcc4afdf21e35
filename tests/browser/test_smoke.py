"""The main way through each screen, in a real browser: what `make test` looks at. The rest of this folder is slow."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser import test_lab as lab
from tests.browser import test_lessons as lessons
from tests.browser import test_rewards as rewards
from tests.browser.conftest import RunningApp
from tests.browser.test_other_sites import ACCEPTED, REFUSED, answer
from tests.browser.test_story import choose, drawer, drawn_stage, expect_memories, press_step, settled, violations
from tests.conftest import chromium

SCREENS = [
    "/",
    "/step?bank=demo&step=9&memory=household-0007",
    "/bank?bank=demo",
    pytest.param("/step?bank=demo", marks=pytest.mark.slow),
    pytest.param("/decision?bank=demo&step=29&ask=pair", marks=pytest.mark.slow),
    pytest.param("/compare?bank=demo&under=k2=1", marks=pytest.mark.slow),
]

ROOM = """() => {
  const page = document.querySelector("[data-testid=stMain]");
  const panel = document.querySelector(".st-key-drawer")?.getBoundingClientRect();
  const task = document.querySelector(".stage-task").getBoundingClientRect();
  return [page.scrollHeight - page.clientHeight, panel ? Math.max(0, task.right - panel.left) : 0];
}"""
"""How many pixels of the page have no room in the window, and of the task, answer and hand lie under what is open."""


def test_a_missing_chromium_is_one_sentence_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.fail.Exception, match="install Debian's package chromium") as failed:
        chromium()
    assert failed.value.pytrace is False, "no line of code stands around it"


@pytest.fixture(scope="module")
def app(serve: Callable[..., RunningApp]) -> RunningApp:
    """One app for this file, which nobody else has changed."""
    return serve()


def test_a_newcomer_steps_through_a_whole_task(page: Page, app: RunningApp) -> None:
    page.goto(app.url)
    page.locator(".st-key-play_demo button").click()
    # The recorded run plays from its reversal on, by itself.
    page.wait_for_url(re.compile(r"step=\d+"))
    stage = drawn_stage(page)
    first = int(stage.get_attribute("data-step") or 0)
    expect(stage).to_have_attribute("data-step", str(first + 1))
    page.wait_for_url(re.compile(rf"step={first + 1}(&|$)"))
    page.locator(".st-key-go_live button").click()
    drawn_stage(page)
    settled(page)
    expect_memories(page, "40")
    press_step(page)
    for _ in range(40):
        button = page.locator(".st-key-step button")
        if "next task" in button.inner_text():
            break
        press_step(page)
    assert page.evaluate(ROOM) == [0, 0], "one screen, without scrolling"
    for phase in (3, 4, 5, 6, 7):
        expect(drawer(page, phase)).to_contain_text("—")
        assert page.evaluate(ROOM) == [0, 0]
    page.keyboard.press("Escape")
    expect(page.locator(".st-key-drawer")).to_have_count(0)
    expect_memories(page, "41")
    # In a small window too, with the hand beside the answer.
    page.set_viewport_size({"width": 1024, "height": 768})
    page.wait_for_function(f"({ROOM})()[0] === 0")
    answer, hand = page.locator(".stage-answer").bounding_box(), page.get_by_test_id("hand").bounding_box()
    assert answer and hand and hand["x"] >= answer["x"] + answer["width"]
    assert max(answer["y"] + answer["height"], hand["y"] + hand["height"]) <= 768


def test_a_rating_survives_a_reload_and_can_be_undone(page: Page, app: RunningApp) -> None:
    page.goto(f"{app.url}/step?bank=demo&step=12")
    drawn_stage(page)
    settled(page)
    name, reward = page.locator(".stage-name"), page.get_by_test_id("hand")
    name.fill("ann")
    name.press("Enter")
    while not (app.home / "preferences.json").exists():
        page.wait_for_timeout(100)
    settled(page)
    # Digits that are typed into a field reward nothing.
    page.keyboard.press("e")
    page.keyboard.type("2 of 2, s u")
    page.keyboard.press("Enter")
    settled(page)
    expect(page.locator("[data-act=undo]")).to_be_disabled()
    page.keyboard.press("1")
    expect(reward).to_contain_text("you −1.000")
    page.reload()
    drawn_stage(page)
    settled(page)
    expect(reward).to_contain_text("you −1.000")
    expect(reward).to_contain_text("by ann: 2 of 2, s u")
    page.get_by_role("button", name="Undo your reward").click()
    expect(reward).not_to_contain_text("you −1.000")


def test_a_slider_moves_the_decision_and_the_link_remembers_it(page: Page, app: RunningApp) -> None:
    page.goto(f"{app.url}/decision?bank=demo&run=household&step=29")
    settled(page)
    slider = page.get_by_role("slider", name=re.compile("λ"))
    slider.press("End")
    settled(page)
    expect(page.get_by_text("what-if — not applied")).to_be_visible()
    page.wait_for_url(re.compile(r"weight=1\.0"))
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    settled(page)
    expect(page.get_by_text("what-if — not applied")).to_be_visible()
    expect(page.get_by_role("slider", name=re.compile("λ"))).to_have_value("1")


def test_a_row_of_the_table_of_steps_leads_to_its_step(page: Page, app: RunningApp) -> None:
    page.goto(f"{app.url}/steps?bank=demo&run=household&outcome=failure")
    table = page.get_by_test_id("stDataFrame")
    expect(table).to_be_visible()
    settled(page)
    assert violations(page) == []
    table.click(position={"x": 20, "y": 55})
    page.wait_for_url(re.compile(r"/step\?.*step=\d+(&|$)"))


@pytest.mark.slow
def test_the_bar_of_a_phone_reaches_from_the_bank_to_the_next_step(page: Page, app: RunningApp) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{app.url}/step?bank=demo&step=12")
    following = page.locator(".st-key-move_Next").bounding_box()
    page.set_viewport_size({"width": 1440, "height": 900})
    assert following and following["x"] + following["width"] <= 390


@pytest.mark.slow
def test_a_memory_is_ticked_read_beside_the_table_and_closed(page: Page, app: RunningApp) -> None:
    page.goto(f"{app.url}/bank?bank=demo")
    table, card = page.get_by_test_id("stDataFrame").first, page.locator(".st-key-memory_detail")
    settled(page)
    wide = table.bounding_box()
    assert wide and wide["width"] > 1300, "Without a card the table has the whole width."

    def tick() -> None:
        table.click(position={"x": 17, "y": 195})

    def close() -> None:
        card.get_by_role("button", name="Close").click()

    for closing in (close, tick):
        tick()
        expect(card).to_be_visible()
        assert (table.bounding_box() or wide)["width"] < wide["width"]
        closing()
        expect(card).to_have_count(0)
    tick()
    settled(page)
    name = card.get_by_role("heading").inner_text()
    page.get_by_role("textbox", name="Search").fill("pudding")
    page.keyboard.press("Enter")
    found = page.locator("strong", has_text=re.compile(r"^\d+ of \d+ memories$"))
    expect(found).not_to_have_text(re.compile(r"^(\d+) of \1 "))
    settled(page)
    expect(card.get_by_role("heading")).to_have_text(name)


def test_outputs_are_rated_by_keyboard_only(page: Page, app: RunningApp) -> None:
    page.goto(f"{app.url}/rewards?bank=demo")
    expect(page.locator(rewards.OUTPUT)).to_be_visible()
    settled(page)
    rewards.go_by(page, "Ada <b>x</b>")
    assert violations(page) == []
    # Digits that are typed into a field rate nothing.
    page.keyboard.press("e")
    page.keyboard.type("took 2 tries, 1 too many")
    page.keyboard.press("Enter")
    for key in "15115":
        rewards.press(page, key)
    expect(page.locator(".st-key-queue_moves")).to_contain_text("5 of")
    rated = rewards.ratings_of(app.home, "Ada <b>x</b>")
    assert [event.value for event in rated] == [-1.0 if key == "1" else 1.0 for key in "15115"]
    assert rated[0].reason == "took 2 tries, 1 too many"
    assert [event.step for event in rated] == list(range(rated[0].step, rated[0].step + 5))
    rewards.press(page, "u")
    expect(page.locator(".st-key-queue_moves")).to_contain_text("4 of")
    expect(page).to_have_url(re.compile(rf"\bstep={rated[-1].step}\b"))
    page.reload()
    expect(page.locator(rewards.OUTPUT)).to_be_visible()
    settled(page)
    expect(page.locator(".st-key-queue_undo button").first).to_be_enabled()
    assert f"step={rated[-1].step}" in page.url


@pytest.mark.slow
def test_a_lesson_with_the_right_prediction_is_walked_by_keys_and_kept_over_a_reload(
    page: Page, app: RunningApp
) -> None:
    root = lessons.opened(page, app, "03-alpha")
    hand = page.get_by_role("slider", name="alpha", exact=True)
    expect(hand).to_be_disabled()
    lessons.predict(page, 2)
    # What was predicted stands, and only now the hand may move.
    for choice in page.locator(".ls-choices button").all():
        expect(choice).to_be_disabled()
    hand.press("End")
    expect(page.locator(".ls-verdict")).to_contain_text("As you predicted.")
    expect(root).to_have_attribute("data-seeds", "40")
    page.reload()
    expect(page.locator(".ls-verdict")).to_contain_text("As you predicted.")
    page.locator("h1.ls-title").click()
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile("lesson=04-"))
    expect(page.locator(".ls-verdict")).to_be_empty()
    page.go_back()
    page.wait_for_url(re.compile("lesson=03-"))


@pytest.mark.slow
def test_the_keys_n_and_p_step_play_and_pause(page: Page, app: RunningApp) -> None:
    page.goto(lab.a_link(app, 3))
    lab.drawn(page, lab.MOVING)
    settled(page)
    page.keyboard.press("n")
    lab.until_step(page, 4)
    settled(page)
    page.keyboard.press("p")
    lab.until_step(page, 8)
    page.keyboard.press("p")
    expect(page.locator(".st-key-lab_play button")).to_be_visible()


def test_a_memory_full_of_markup_stays_text(page: Page, app: RunningApp) -> None:
    typed = "<img src=x onerror=alert(1)> <b>bold</b> **stars** $x^2$ :red[colour] [link](http://x.test)"
    page.goto(app.url)
    page.get_by_role("button", name="Start a live run").click()
    page.get_by_label("Environment").click()
    page.get_by_role("option", name="conversation").click()
    settled(page)
    choose(page, "simulated model (no language model)", "markup")
    page.locator(".st-key-start_run button").click()
    page.locator(".st-key-typed_intent textarea").fill(typed)
    page.locator(".st-key-ask button").click()
    settled(page)
    page.locator(".st-key-finish button").click()
    settled(page)
    page.locator("[data-act=skip]").click()
    settled(page)
    expect_memories(page, "1")
    expect(page.get_by_text("<img src=x onerror=alert(1)>").first).to_be_visible()
    assert page.locator("img[src='x']").count() == 0
    assert page.locator("a[href='http://x.test']").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("where", SCREENS)
def test_no_page_has_a_serious_accessibility_violation(page: Page, app: RunningApp, where: str) -> None:
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        if scheme == "light":
            page.goto(f"{app.url}{where}")
            if where.startswith("/step"):
                drawn_stage(page)
        expect(page.get_by_test_id("stMainBlockContainer")).to_be_visible()
        settled(page)
        page.wait_for_timeout(500)
        assert violations(page) == [], scheme


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}", "localhost:9000"])
def test_the_app_talks_to_its_own_pages(app: RunningApp, host: str) -> None:
    assert answer(app, host, f"http://{host}") == ACCEPTED


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:{port}", "https://other.example"),
        ("127.0.0.1:{port}", "http://127.0.0.1.other.example:{port}"),
        ("127.0.0.1:{port}", "null"),
        # A name that its owner lets lead here.
        ("other.example:{port}", "http://other.example:{port}"),
        ("localhost.other.example:{port}", "http://localhost.other.example:{port}"),
    ],
)
def test_no_page_of_another_site_talks_to_the_app(app: RunningApp, host: str, origin: str) -> None:
    assert answer(app, host, origin) == REFUSED


def test_no_page_of_another_site_reads_or_sends_a_file(app: RunningApp) -> None:
    foreign = {"Origin": "https://other.example"}
    with httpx.Client(base_url=app.url, headers=foreign) as client:
        assert "access-control-allow-origin" not in client.get("/_stcore/health").headers
        sent = client.put("/_stcore/upload_file/session/file", files={"file": b"x"})
    assert sent.status_code == REFUSED
