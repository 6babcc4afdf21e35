"""A newcomer's way through the app, in a real browser on the embedded default."""

from __future__ import annotations

import re
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import parse_qs

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Locator, Page, expect

from benchmarks.synthetic import LIVE, live_bank
from tests.browser.conftest import EXPECT_TIMEOUT, RunningApp, listeners, watched_page

SERIOUS = ("serious", "critical")
QUIET = 500
"""Milliseconds."""

STAGE = "document.querySelector('.stage-host').own.stage"
"""The stage as its page holds it."""


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


def drawer(page: Page, phase: int) -> Locator:
    """What there is to read of a phase, opened by a click on it."""
    page.locator(f"[data-phase='{phase}']").click()
    opened = page.locator(".st-key-drawer").last
    expect(opened).to_contain_text(f"{phase} · ")
    settled(page)
    return opened


def expect_memories(page: Page, count: str) -> None:
    expect(page.locator(".st-key-memory_count")).to_contain_text(re.compile(rf"(^|\D){count} memor"))


def press_step(page: Page) -> None:
    """Press Step and wait until the button names what comes after; a page at rest may not have begun to move yet."""
    button = page.locator(".st-key-step button")
    named = button.inner_text()
    button.click()
    expect(button).not_to_have_text(named, use_inner_text=True)
    settled(page)


def choose(page: Page, model: str, bank: str) -> None:
    """Fill in the form of a new run: what answers, and where it is kept."""
    settled(page)
    models = page.locator(".st-key-new_run_model").get_by_role("combobox")
    # A list closes when the form around it scrolls or is drawn anew.
    models.scroll_into_view_if_needed()
    page.wait_for_timeout(QUIET)
    models.click()
    page.get_by_role("option", name=model, exact=True).click()
    settled(page)
    page.locator(".st-key-new_run_bank input").fill(bank)
    page.locator(".st-key-new_run_bank input").press("Enter")
    settled(page)


def drawn_stage(page: Page) -> Locator:
    """The stage once it is drawn."""
    page.wait_for_selector(".stage-host[data-drawn] .stage[data-step]")
    return page.locator(".stage")


@pytest.fixture(scope="module")
def step_page(context: BrowserContext, app: RunningApp) -> Iterator[Page]:
    """The page Step at the live end of the demo, where one test goes on after another."""
    pages = watched_page(context, app)
    page = next(pages)
    page.goto(f"{app.url}/step?bank=demo")
    drawn_stage(page)
    settled(page)
    yield page
    next(pages, None)


def test_zoom_and_the_stage_itself_survive_a_step(step_page: Page) -> None:
    drawn_stage(step_page)
    view = f"() => {{ const {{ x, y, kx, ky }} = {STAGE}.map.view; return [x, y, kx, ky]; }}"
    whole = step_page.evaluate(view)
    step_page.get_by_role("button", name="Zoom in").click()
    zoomed = step_page.evaluate(view)
    assert zoomed != whole
    step_page.evaluate(f"{STAGE}.root.mark = 'the same node'")
    for _ in range(3):
        press_step(step_page)
    assert step_page.evaluate(view) == zoomed
    assert step_page.evaluate("document.querySelector('.stage').mark") == "the same node"


def test_a_clicked_memory_opens_its_card_beside_the_answer_and_stays_open(step_page: Page) -> None:
    row = drawn_stage(step_page).locator(".stage-row").nth(1)
    name = row.get_attribute("data-memory")
    row.click()
    expect(step_page.locator(".stage-card")).to_be_visible()
    expect(step_page).to_have_url(re.compile(f"memory={name}"))
    boxes = [step_page.locator(part).bounding_box() for part in (".stage-answer", ".stage-reward", ".stage-card")]
    answer, reward, card = (box for box in boxes if box)
    assert max(answer["x"] + answer["width"], reward["x"] + reward["width"]) <= card["x"]
    press_step(step_page)
    expect(step_page.locator(".stage-card")).to_have_attribute("data-memory", str(name))


@pytest.fixture
def large(app: RunningApp) -> Iterator[str]:
    """The link to a run whose map is a cloud of points."""
    with live_bank(1200, 64) as folder:
        shelf = app.home / "banks"
        shelf.mkdir(exist_ok=True)
        (shelf / "cloud").symlink_to(folder, target_is_directory=True)
        yield f"{app.url}/step?bank=cloud&run={LIVE}"
        (shelf / "cloud").unlink()


def test_a_map_of_many_memories_shows_them_opens_one_and_keeps_its_zoom(page: Page, large: str) -> None:
    page.goto(large)
    drawn_stage(page)
    settled(page)
    assert page.evaluate(f"{STAGE}.map.glyphs.reduce((sum, glyph) => sum + glyph.seen.length, 0)") == 1200
    alone = page.evaluate(f"""() => {{
      const {{ map }} = {STAGE};
      const glyph = map.glyphs.findLast(({{ group }}) => {{
        const [x, y] = map.at(group.x, group.y);
        return x > 20 && y > 20 && x < map.width - 20 && y < map.height - 20;
      }});
      const box = map.box.getBoundingClientRect();
      const [x, y] = map.at(glyph.group.x, glyph.group.y);
      return [box.x + x, box.y + y];
    }}""")
    page.mouse.click(*alone)
    expect(page.locator(".stage-card")).to_be_visible()
    expect(page).to_have_url(re.compile(r"memory=m-"))
    page.evaluate(f"{STAGE}.map.zoom(2)")
    zoomed = page.evaluate(f"{STAGE}.map.view.kx")
    settled(page)
    press_step(page)
    assert page.evaluate(f"{STAGE}.map.view.kx") == zoomed


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
    expect(page.locator(".stage-card")).to_contain_text("#7")
    expect(page.locator(".st-key-header_step input")).to_have_value("9")
    assert page.locator(".st-key-header").evaluate("row => row.getBoundingClientRect().height") <= 44


def test_a_link_to_a_memory_that_is_not_there_shows_its_bank(page: Page, app: RunningApp) -> None:
    page.goto(f"{app.url}/step?bank=demo&memory=%3Cb%3Ex")
    expect(page.get_by_test_id("stToast").first).to_be_visible()
    drawn_stage(page)


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
    drawn_stage(page)
    settled(page)
    for _ in range(10):
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(150)
    expect(page.get_by_text("Replay of step 25 ")).to_be_visible()
    expect(page).to_have_url(re.compile("step=25"))
    for key in ("ArrowLeft", "ArrowLeft", "Home", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    expect(page.get_by_text("Replay of step 3 ")).to_be_visible()


def test_keys_mean_the_stage_in_it_the_step_elsewhere_and_nothing_while_somebody_types(
    page: Page, app: RunningApp
) -> None:
    page.goto(f"{app.url}/step?bank=demo&step=15")
    drawn_stage(page)
    settled(page)
    page.get_by_label("Colour of the map").select_option("outcome")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("Replay of step 16 ")).to_be_visible()
    settled(page)
    # Within the stage the arrows go through its phases, and with Shift through the steps.
    page.locator("[data-phase='3']").click()
    page.keyboard.press("ArrowRight")
    expect(page.locator("[data-phase='4']")).to_have_attribute("data-state", "current")
    page.keyboard.press("Shift+ArrowRight")
    expect(page.get_by_text("Replay of step 17 ")).to_be_visible()
    settled(page)
    # Digits rate, with every drawer closed and the focus within the stage; with Shift they are phases.
    page.keyboard.press("Shift+Digit3")
    expect(page.locator("[data-phase='3']")).to_have_attribute("data-state", "current")
    for focused in (None, ".stage-lambda [type=range]", ".strip-track", ".stage select >> nth=0"):
        if focused is not None:
            page.locator(focused).focus()
        page.keyboard.press("5")
        expect(hand(page)).to_contain_text("you +1.000")
        page.keyboard.press("u")
        expect(hand(page)).not_to_contain_text("you ")
        settled(page)
    page.keyboard.press("e")
    page.keyboard.type("nnn")
    page.keyboard.press("ArrowLeft")
    settled(page)
    expect(page.get_by_text("Replay of step 17 ")).to_be_visible()
    page.locator("[data-phase='3']").click()
    page.keyboard.press("Home")
    expect(page.get_by_text("Replay of step 1 ")).to_be_visible()


DRAWN = f"""(id) => {{
  const {{ axis, map, model }} = {STAGE};
  const n = model.numbers.get(id);
  const q = Number(document.querySelector(`.stage-change[data-memory="${{id}}"]`).dataset.q);
  const circle = document.querySelector(`.stage-lane[data-memory="${{id}}"] circle:not(.stage-q-left)`);
  const point = document.querySelector(`.stage-plot [data-memory="${{id}}"] .stage-shape`);
  const [red, green, blue] = map.colourOf(n, q);
  return [
    Math.abs(Number(circle.getAttribute("cy")) - axis.y(q)) < 1e-6,
    point.getAttribute("fill") === `rgb(${{red}} ${{green}} ${{blue}})`,
    [...document.querySelectorAll(`.stage [data-memory="${{id}}"][data-q]`)].map((one) => Number(one.dataset.q)),
  ];
}}"""
"""Whether a memory's dot on the axis and the colour of its point are those of its q; and every q shown of it."""


def hand(page: Page) -> Locator:
    return page.get_by_test_id("hand")


def expect_stage_as_stored(page: Page, app: RunningApp, memories: list[str]) -> dict[str, float]:
    """The q of memories, which the stage shows in every place as the bank has it."""
    known = {name: stored(app, name) for name in memories}
    # What was given on another tab arrives on this one when it next asks.
    for name, q in known.items():
        page.wait_for_function(f"([id, q]) => new Set(({DRAWN})(id)[2]).has(q)", arg=[name, q])
    page.wait_for_function(f"{STAGE}.t === {STAGE}.goal && !{STAGE}.model.swing")
    for name, q in known.items():
        on_axis, in_colour, marks = page.evaluate(DRAWN, name)
        assert on_axis and in_colour and len(marks) > 1 and set(marks) == {q}
    return known


@pytest.mark.parametrize("step", [None, 20])
def test_a_reward_by_key_moves_on_the_stage_what_it_moves_in_the_bank_and_undo_moves_it_back(
    page: Page, app: RunningApp, step: int | None
) -> None:
    page.goto(f"{app.url}/step?bank=demo" + (f"&step={step}" if step else ""))
    drawn_stage(page)
    settled(page)
    changes = page.locator(".stage-change")
    for _ in range(5):
        if step is not None or ("next task" in page.locator(".st-key-step button").inner_text() and changes.count()):
            break
        # Another test has left a step under way, or one that moved no q; the next may move none as well.
        page.locator(".st-key-finish button").click()
        settled(page)
    expect(changes.first).to_be_attached()
    names = changes.evaluate_all("nodes => nodes.map(one => one.dataset.memory)")
    begun = expect_stage_as_stored(page, app, names)
    environment = str(hand(page).get_attribute("data-reward"))
    key, other = ("1", "-1") if float(environment) > 0 else ("5", "1")
    page.keyboard.press(key)
    expect(hand(page)).to_have_attribute("data-reward", other)
    expect(hand(page)).to_contain_text("counts: yours")
    for _ in range(2):
        moved = expect_stage_as_stored(page, app, names)
        assert all(moved[name] != begun[name] for name in names)
        page.reload()
        drawn_stage(page)
        settled(page)
    page.keyboard.press("u")
    expect(hand(page)).to_have_attribute("data-reward", environment)
    assert expect_stage_as_stored(page, app, names) == begun
    # The same by mouse.
    page.locator(f"[data-testid=hand] [data-value='{other}']").click()
    expect(hand(page)).to_have_attribute("data-reward", other)
    assert expect_stage_as_stored(page, app, names) == moved
    page.locator("[data-act=undo]").click()
    expect(hand(page)).to_have_attribute("data-reward", environment)
    assert expect_stage_as_stored(page, app, names) == begun


def test_what_is_typed_right_before_a_reward_goes_with_it_and_takes_no_press_away(page: Page, app: RunningApp) -> None:
    def given() -> list[tuple[float, str, str]]:
        with closing(sqlite3.connect(f"file:{bank}?mode=ro", uri=True)) as database:
            query = (
                "SELECT value, rater, reason FROM ledger WHERE run = 'household' AND step = 21 AND source = 'person' "
                "AND kind = 'reward_given' ORDER BY position"
            )
            return [tuple(row) for row in database.execute(query)]

    page.goto(f"{app.url}/step?bank=demo&step=21")
    drawn_stage(page)
    settled(page)
    (bank,) = app.home.glob("**/demo*/bank.db")
    name, reason = page.locator(".stage-name"), page.locator(".stage-reason")
    good, bad = (page.locator(f"[data-testid=hand] [data-value='{value}']") for value in ("1", "-1"))
    before = given()
    name.fill("Zoe")
    bad.click(delay=90)
    expect(hand(page)).to_contain_text("you −1.000")
    assert given() == [*before, (-1.0, "Zoe", "")]
    reason.fill("the right one")
    good.click(delay=90)
    expect(hand(page)).to_contain_text("you +1.000")
    settled(page)
    assert given()[len(before) + 1 :] == [(1.0, "Zoe", "the right one")]
    reason.fill("no, wrong")
    reason.press("Enter")
    page.keyboard.press("1")
    expect(hand(page)).to_contain_text("you −1.000")
    settled(page)
    assert given()[len(before) + 2 :] == [(-1.0, "Zoe", "no, wrong")]
    # Alone it is kept with the reward that stands.
    reason.fill("quite wrong")
    reason.press("Enter")
    page.wait_for_timeout(2 * QUIET)
    settled(page)
    assert given()[len(before) + 3 :] == [(-1.0, "Zoe", "quite wrong")]
    # As it was then nobody had said anything; a list that covers the page takes no reward.
    page.get_by_role("button", name="as it was then").click()
    expect(hand(page)).not_to_contain_text("you ")
    page.get_by_role("button", name="as it was then").click()
    expect(hand(page)).to_contain_text("you −1.000")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("5")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    settled(page)
    assert len(given()) == len(before) + 4
    for _ in range(3):
        page.keyboard.press("u")
        settled(page)
    name.fill("")
    name.press("Enter")
    settled(page)


@pytest.mark.slow
def test_two_tabs_that_rate_one_step_show_what_the_bank_holds(context: BrowserContext, app: RunningApp) -> None:
    expect.set_options(timeout=EXPECT_TIMEOUT)
    tabs = [context.new_page(), context.new_page()]
    for tab in tabs:
        tab.set_default_timeout(EXPECT_TIMEOUT)
        tab.goto(f"{app.url}/step?bank=demo&step=19")
        drawn_stage(tab)
        settled(tab)
    changes = tabs[0].locator(".stage-change")
    names = changes.evaluate_all("nodes => nodes.map(one => one.dataset.memory)")
    begun = expect_stage_as_stored(tabs[0], app, names)
    environment = str(hand(tabs[0]).get_attribute("data-reward"))
    key, other = ("1", "-1") if float(environment) > 0 else ("5", "1")
    # What one gives and the other takes back is seen on both.
    for tab, pressed, reward in ((tabs[0], key, other), (tabs[1], "u", environment)):
        tab.keyboard.press(pressed)
        for one in tabs:
            expect(hand(one)).to_have_attribute("data-reward", reward)
            settled(one)
        assert expect_stage_as_stored(tabs[0], app, names) == expect_stage_as_stored(tabs[1], app, names)
    assert expect_stage_as_stored(tabs[1], app, names) == begun
    # Both at once: one of both counts, on both tabs.
    for tab, pressed in zip(tabs, "15", strict=True):
        tab.keyboard.press(pressed)
    for one in tabs:
        expect(hand(one)).to_contain_text("you ")
        settled(one)
    tabs[1].wait_for_timeout(3 * QUIET)
    expect(hand(tabs[1])).to_have_attribute("data-reward", str(hand(tabs[0]).get_attribute("data-reward")))
    assert expect_stage_as_stored(tabs[0], app, names) == expect_stage_as_stored(tabs[1], app, names)
    for _ in range(2):
        if "you " in hand(tabs[0]).inner_text():
            tabs[0].keyboard.press("u")
            settled(tabs[0])
    expect(hand(tabs[0])).to_have_attribute("data-reward", environment)
    for tab in tabs:
        tab.close()


def stored(app: RunningApp, memory_id: str) -> float:
    """q of a memory of the demo, as bank.db has it."""
    (bank,) = app.home.glob("**/demo*/bank.db")
    with closing(sqlite3.connect(f"file:{bank}?mode=ro", uri=True)) as database:
        query = "SELECT q FROM q_values WHERE run = 'household' AND memory_id = ?"
        return float(database.execute(query, (memory_id,)).fetchone()[0])


def test_a_second_tab_that_is_behind_runs_nothing_and_says_so(context: BrowserContext, app: RunningApp) -> None:
    first, second = context.new_page(), context.new_page()
    for one in (first, second):
        one.goto(f"{app.url}/step?bank=demo")
        drawn_stage(one)
        settled(one)
    press_step(first)
    label = first.locator(".st-key-step button").inner_text()
    second.keyboard.press("n")
    expect(second.get_by_text("moved on elsewhere")).to_be_visible()
    assert second.locator(".st-key-step button").inner_text() == label
    second.keyboard.press("n")
    expect(second.locator(".st-key-step button")).not_to_have_text(label)
    for one in (first, second):
        one.close()


def test_every_arrow_moves_a_slider_however_quickly_they_come(page: Page, app: RunningApp) -> None:
    def pressed_twenty_times(slider: Locator) -> None:
        slider.focus()
        for _ in range(20):
            page.keyboard.press("ArrowRight")
            page.wait_for_timeout(80)
        settled(page)

    page.goto(f"{app.url}/decision?bank=demo&step=14")
    settled(page)
    for name, step in (("alpha", 0.01), ("k1", 1)):
        slider = page.locator(f".st-key-what_if_{name} input[type=range]")
        before = float(slider.input_value())
        pressed_twenty_times(slider)
        assert float(slider.input_value()) == pytest.approx(before + 20 * step)
        assert float(parse_qs(page.url)[name][0]) == pytest.approx(before + 20 * step)
    page.goto(f"{app.url}/step?bank=demo&step=5")
    drawn_stage(page)
    settled(page)
    pressed_twenty_times(page.locator(".strip-track"))
    expect(page.get_by_text("Replay of step 25 ")).to_be_visible()


def test_quick_presses_of_n_are_a_phase_each(page: Page, app: RunningApp) -> None:
    page.goto(f"{app.url}/step?bank=demo")
    drawn_stage(page)
    settled(page)
    page.locator(".st-key-finish button").click()
    settled(page)
    for _ in range(3):
        page.keyboard.press("n")
        page.wait_for_timeout(400)
    expect(page.locator(".st-key-step button")).to_contain_text("Phase B")


def test_back_leaves_a_screen_or_a_step_with_one_press(page: Page, app: RunningApp) -> None:
    page.goto(f"{app.url}/step?bank=demo&step=14")
    drawn_stage(page)
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


def test_back_leaves_the_app_with_as_many_presses_as_there_were_screens(page: Page, app: RunningApp) -> None:
    for first, link, then in (("", "Step", "step"), ("playground", "Home", "")):
        page.goto("about:blank")
        page.goto(f"{app.url}/{first}")
        settled(page)
        page.wait_for_function("() => window.memrlCompletes")
        page.get_by_role("link", name=link).first.click()
        page.wait_for_url(re.compile(rf"{app.url}/{then}\?bank="))
        settled(page)
        page.go_back()
        page.wait_for_url(re.compile(rf"{app.url}/{first}(\?|$)"))
        settled(page)
        page.go_back()
        page.wait_for_url("about:blank")


def test_a_page_that_streamlit_cannot_draw_is_loaded_again_once(page: Page, app: RunningApp) -> None:
    error = "window.before = true; dispatchEvent(new ErrorEvent('error', { message: 'Error: Bad delta path index 4' }))"
    page.goto(f"{app.url}/step?bank=demo&step=14")
    drawn_stage(page)
    settled(page)
    page.evaluate(error)
    page.wait_for_function("() => !window.before")
    expect(page.get_by_text("Replay of step 14 ")).to_be_visible()
    settled(page)
    page.evaluate(error)
    page.wait_for_timeout(1000)
    assert page.evaluate("() => window.before")
