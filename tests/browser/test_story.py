"""A newcomer's way through the app, in a real browser on the embedded default."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Locator, Page, expect

from benchmarks.map import MAP, RUN, large_bank
from tests.browser.conftest import RunningApp, listeners, watched_page

PARTS = ("RECALL", "SELECT", "GENERATE", "REWARD", "UPDATE", "WRITE")
SERIOUS = ("serious", "critical")
QUIET = 500
"""Milliseconds."""

PAINTED = """map => {
  const canvas = map.parentElement.querySelector(".map-cloud");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return data.filter((value, at) => at % 4 === 3 && value > 0).length;
}"""
PLACE_OF_FIRST = """map => {
  const { xaxis, yaxis } = map._fullLayout;
  const box = map.getBoundingClientRect();
  return [box.x + xaxis._offset + xaxis.c2p(map.cloud.x[0]), box.y + yaxis._offset + yaxis.c2p(map.cloud.y[0])];
}"""


def settled(page: Page) -> None:
    """Wait until the app is drawn and has not run its script for a while: fields tell late what is typed in them."""
    page.wait_for_function(
        """([call, quiet]) => {
          const app = document.querySelector("[data-testid='stApp']");
          const busy = !app || ["initial", "running"].includes(app.dataset.testScriptState);
          if (busy || window.settling?.call !== call) window.settling = { call, since: performance.now() };
          return performance.now() - window.settling.since > quiet;
        }""",
        arg=[uuid.uuid4().hex, QUIET],
    )


def violations(page: Page) -> list[tuple[str, list[str]]]:
    """What axe finds on the page that keeps somebody out, with where it stands."""
    found = Axe().run(page).response["violations"]
    return [(v["id"], [n["html"][:200] for n in v["nodes"]][:3]) for v in found if v["impact"] in SERIOUS]


def sending(page: Page) -> list[str]:
    """The buttons above the page's charts that would send them away."""
    tools = page.locator(".modebar-btn")
    expect(tools.first).to_be_attached()
    reported = tools.evaluate_all("buttons => buttons.map(one => `${one.dataset.title} ${one.dataset.attr}`)")
    return [one for one in reported if re.search("share|send|cloud|edit|studio", one, re.IGNORECASE)]


def part(page: Page, phase: str) -> Locator:
    return page.locator(f".st-key-part_{phase}").first


def expect_memories(page: Page, count: str) -> None:
    expect(page.locator(".st-key-memory_count")).to_contain_text(re.compile(rf"(^|\D){count} memor"))


def press_step(page: Page) -> None:
    page.locator(".st-key-step button").click()
    settled(page)


def drawn_map(page: Page) -> Locator:
    shown = page.locator(MAP)
    expect(shown.locator(".plot-container")).to_be_visible()
    return shown


def x_range(page: Page) -> list[float]:
    return page.locator(MAP).evaluate("map => Array.from(map._fullLayout.xaxis.range)")


@pytest.fixture(scope="module")
def step_page(context: BrowserContext, app: RunningApp) -> Iterator[Page]:
    """The page Step at the live end of the demo, where one test goes on after another."""
    pages = watched_page(context, app)
    page = next(pages)
    page.goto(f"{app.url}/step?bank=demo")
    drawn_map(page)
    settled(page)
    yield page
    next(pages, None)


def test_zoom_and_selection_survive_a_step(step_page: Page) -> None:
    shown = drawn_map(step_page)
    box = shown.bounding_box()
    assert box
    whole = x_range(step_page)
    step_page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    step_page.mouse.wheel(0, -600)
    step_page.wait_for_function(
        "([map, width]) => { const r = document.querySelector(map)._fullLayout.xaxis.range; "
        "return r[1] - r[0] < 0.95 * width }",
        arg=[MAP, whole[1] - whole[0]],
    )
    zoomed = x_range(step_page)
    while (step_page.wait_for_timeout(700), x_range(step_page))[1] != zoomed:
        zoomed = x_range(step_page)
    shown.evaluate("map => { map.mark = 'the same node' }")
    for _ in range(3):
        press_step(step_page)
    assert x_range(step_page) == zoomed
    assert shown.evaluate("map => map.mark") == "the same node"


def test_a_clicked_point_opens_its_memory_and_stays_open(step_page: Page) -> None:
    drawn_map(step_page).locator(".scatterlayer .trace").first.locator(".point").nth(3).click(force=True)
    detail = step_page.locator(".st-key-memory_detail")
    expect(detail).to_be_visible()
    name = detail.get_by_role("heading").inner_text()
    expect(step_page).to_have_url(re.compile("memory="))
    press_step(step_page)
    expect(detail.get_by_role("heading")).to_have_text(name)


@pytest.fixture
def large(app: RunningApp) -> Iterator[str]:
    """The link to a run whose map is a cloud of points."""
    with large_bank(1200, 64) as folder:
        shelf = app.home / "banks"
        shelf.mkdir(exist_ok=True)
        (shelf / "cloud").symlink_to(folder, target_is_directory=True)
        yield f"{app.url}/step?bank=cloud&run={RUN}"
        (shelf / "cloud").unlink()


def test_a_map_of_many_memories_shows_them_opens_one_and_keeps_its_zoom(page: Page, large: str) -> None:
    page.goto(large)
    page.wait_for_function(
        "map => document.querySelector(map)?.parentElement.querySelector('.map-cloud').dataset.painted", arg=MAP
    )
    settled(page)
    assert page.locator(MAP).evaluate("map => map.cloud.count") == 1200
    assert page.locator(MAP).evaluate(PAINTED) > 1200
    place = page.locator(MAP).evaluate(PLACE_OF_FIRST)
    page.mouse.click(*place)
    expect(page.locator(".st-key-memory_detail")).to_be_visible()
    expect(page).to_have_url(re.compile(r"memory=m-"))
    page.locator(MAP).evaluate("map => window.memrlPlotly.relayout(map, {'xaxis.range': [-1, 1]})")
    settled(page)
    press_step(page)
    assert x_range(page) == [-1, 1]


def test_the_keyboard_help_opens_with_a_question_mark(step_page: Page) -> None:
    step_page.keyboard.press("?")
    expect(step_page.get_by_role("dialog")).to_contain_text("Step: run the next phase")
    step_page.keyboard.press("Escape")
    expect(step_page.get_by_role("dialog")).to_have_count(0)


def test_keys_are_heard_once_whatever_the_theme(step_page: Page) -> None:
    heard = listeners(step_page, "keydown")
    for scheme in ("dark", "light"):
        step_page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        settled(step_page)
        step_page.wait_for_timeout(500)
    assert listeners(step_page, "keydown") == heard


def test_a_link_reopens_bank_run_step_and_memory(page: Page, app: RunningApp) -> None:
    page.goto(f"{app.url}/step?bank=demo&run=household&step=9&memory=household-0007")
    expect(page.get_by_text("Replay of step 9")).to_be_visible()
    expect(page.locator(".st-key-memory_detail")).to_contain_text("Memory #7")
    expect(page.locator(".st-key-header_step input")).to_have_value("9")
    assert page.locator(".st-key-header").evaluate("row => row.getBoundingClientRect().height") <= 44


@pytest.mark.parametrize("query", ["step=99999", "step=-1", "step=NaN", "run=nobody", "bank=../../etc"])
def test_a_link_to_what_is_not_there_gets_a_lasting_sentence(page: Page, app: RunningApp, query: str) -> None:
    address = f"{app.url}/step?bank=demo&{query}" if "bank" not in query else f"{app.url}/step?{query}"
    page.goto(address)
    expect(page.locator(".st-key-not_here")).to_be_visible()
    page.wait_for_timeout(1000)
    expect(page.locator(".st-key-not_here")).to_be_visible()
    assert query.split("=")[0] in page.url, "the address that was asked for stays"
    page.locator(".st-key-show_instead button").click()
    drawn_map(page)


def test_a_link_to_a_memory_that_is_not_there_shows_its_bank(page: Page, app: RunningApp) -> None:
    page.goto(f"{app.url}/step?bank=demo&memory=%3Cb%3Ex")
    expect(page.get_by_test_id("stToast").first).to_be_visible()
    drawn_map(page)


def test_many_tasks_run_with_progress_and_stop_keeps_what_is_done(step_page: Page) -> None:
    step_page.get_by_role("button", name="Run n tasks").click()
    step_page.locator(".st-key-run_count input").fill("2000")
    step_page.locator(".st-key-run_count input").press("Enter")
    step_page.locator(".st-key-run_many button").click()
    expect(step_page.get_by_text(re.compile(r"\d+ of 2000 tasks"))).to_be_visible()
    step_page.locator(".st-key-stop button").click()
    expect(step_page.locator(".st-key-step button")).to_be_enabled()


def test_ten_keys_in_two_seconds_are_ten_steps(page: Page, app: RunningApp) -> None:
    page.goto(f"{app.url}/step?bank=demo&step=15")
    drawn_map(page)
    settled(page)
    for _ in range(10):
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(150)
    expect(page.get_by_text("Replay of step 25 ")).to_be_visible()
    expect(page).to_have_url(re.compile("step=25"))
    for key in ("ArrowLeft", "ArrowLeft", "Home", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    expect(page.get_by_text("Replay of step 3 ")).to_be_visible()


def test_keys_are_heard_in_a_list_that_is_closed_and_not_while_somebody_types(page: Page, app: RunningApp) -> None:
    page.goto(f"{app.url}/step?bank=demo&step=15")
    drawn_map(page)
    settled(page)
    page.locator(".st-key-map_colour").click()
    page.keyboard.press("ArrowRight")
    page.get_by_role("option", name="outcome").click()
    settled(page)
    expect(page.get_by_text("Replay of step 15 ")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("Replay of step 16 ")).to_be_visible()
    settled(page)
    page.locator(".st-key-map_labels").get_by_text("all").click()
    settled(page)
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("Replay of step 17 ")).to_be_visible()
    settled(page)
    part(page, "REWARD").locator("summary").click()
    # A list closes when the page scrolls under it, and a click first scrolls to where the list is.
    page.locator(".st-key-map_colour").scroll_into_view_if_needed()
    settled(page)
    page.locator(".st-key-map_colour").click()
    page.get_by_role("option", name="visits").click()
    settled(page)
    page.keyboard.press("2")  # Streamlit hears this one itself.
    expect(part(page, "REWARD")).to_contain_text("Saved: +1.000")
    page.keyboard.press("u")
    expect(part(page, "REWARD")).not_to_contain_text("Saved:")
    page.locator(".st-key-reward_reason input").click()
    page.keyboard.type("nnn")
    page.keyboard.press("ArrowLeft")
    settled(page)
    expect(page.get_by_text("Replay of step 17 ")).to_be_visible()


def test_back_leaves_a_screen_or_a_step_with_one_press(page: Page, app: RunningApp) -> None:
    page.goto(f"{app.url}/step?bank=demo&step=14")
    drawn_map(page)
    settled(page)
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile("step=15"))
    settled(page)
    page.get_by_role("link", name="Decision").first.click()
    page.wait_for_url(re.compile("/decision"))
    settled(page)
    page.go_back()
    page.wait_for_url(re.compile(r"/step\?.*step=15"))
    expect(page.get_by_text("Replay of step 15 ")).to_be_visible()
    settled(page)
    page.go_back()
    expect(page.get_by_text("Replay of step 14 ")).to_be_visible()
