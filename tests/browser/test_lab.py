"""The Lab at work in a real browser: it opens at play, settings change under it, charts stay as they were left."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Locator, Page, expect

from memrl_core.agent.twins import Side, start_twins
from memrl_core.bank import MemoryBank
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.experiments import lab
from memrl_core.settings import MemRLSettings
from pages.lab.place import TWINS, VIEWS
from pages.lab.twins import ACCURACY, MAP
from tests.browser.conftest import EXPECT_TIMEOUT, RunningApp
from tests.browser.test_story import settled, violations

MOVING, GRID = ".st-key-lab_accuracy .memory-map", ".st-key-lab_grid .memory-map"
RANGE = "chart => Array.from(chart._fullLayout.xaxis.range)"


def a_link(app: RunningApp, steps: int, chart: str = ACCURACY) -> str:
    """A pair with so many steps in the Lab's bank of the app, and the link that shows it."""
    path, embedder = app.home / "banks" / lab.BANK, HashingEmbedder()
    with _opened(path, embedder) as bank:
        twins = start_twins(bank, (Side(MemRLSettings(weight=0.0)), Side()), task_count=8, seed=3)
        twins.step(steps)
        left, right = twins.runs
    return f"{app.url}/lab?bank={lab.BANK}&left={left}&right={right}&chart={quote(chart)}"


def _opened(path: Path, embedder: HashingEmbedder) -> MemoryBank:
    if path.exists():
        return MemoryBank.open(str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    return MemoryBank.create(str(path), embedder.name, embedder.dimension)


def drawn(page: Page, selector: str) -> Locator:
    chart = page.locator(selector)
    expect(chart.locator(".plot-container")).to_be_visible()
    return chart


def times_drawn(chart: Locator) -> int:
    return int(chart.get_attribute("data-drawn") or 0)


def step_of(page: Page) -> int:
    message = page.get_by_text(re.compile(r"^Step \d+ · epoch")).inner_text()
    return int(message.split()[1])


def until_step(page: Page, step: int) -> None:
    page.wait_for_function(
        "step => +(document.body.innerText.match(/Step (\\d+) · epoch/) || [])[1] >= step",
        arg=step,
    )


def press(page: Page, key: str) -> None:
    page.locator(f".st-key-{key} button").click()


def zoom_in(page: Page, chart: Locator, width: float) -> None:
    """Draw a frame in a chart until it shows no more than `width`: one while it is drawn again is lost."""
    chart.scroll_into_view_if_needed()
    deadline = time.monotonic() + EXPECT_TIMEOUT / 1000
    while chart.evaluate(f"chart => {{ const r = ({RANGE})(chart); return r[1] - r[0] }}") >= width:
        assert time.monotonic() < deadline, "The chart did not follow the mouse."
        box = chart.bounding_box()
        assert box
        page.mouse.move(box["x"] + box["width"] / 3, box["y"] + box["height"] / 3)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 2 / 3, box["y"] + box["height"] * 2 / 3, steps=3)
        page.mouse.up()
        page.wait_for_timeout(700)


def wheel_over(page: Page, chart: Locator) -> None:
    chart.scroll_into_view_if_needed()
    chart.hover()
    page.mouse.wheel(0, -600)
    page.wait_for_timeout(700)


def no_wider_than_the_window(page: Page) -> bool:
    return bool(page.evaluate(
        "[document.documentElement, document.querySelector('[data-testid=stMain]')]"
        ".every(part => part.scrollWidth <= part.clientWidth)"
    ))  # fmt: skip


def test_played_charts_are_drawn_in_place_and_keep_their_zoom(page: Page, app: RunningApp) -> None:
    page.goto(a_link(app, 24))
    chart = drawn(page, MOVING)
    settled(page)
    chart.evaluate("chart => { chart.mark = 'the same node' }")
    unmoved = chart.evaluate(RANGE)
    wheel_over(page, chart)
    assert chart.evaluate(RANGE) == unmoved
    press(page, "lab_play")
    until_step(page, 26)
    drawn_before = times_drawn(chart)
    whole = chart.evaluate(RANGE)
    zoom_in(page, chart, 0.95 * (whole[1] - whole[0]))
    page.wait_for_timeout(500)
    zoomed, then = chart.evaluate(RANGE), step_of(page)
    until_step(page, then + 10)
    assert chart.evaluate(RANGE) == zoomed
    assert times_drawn(chart) > drawn_before
    press(page, "lab_pause")
    expect(page.locator(".st-key-lab_play button")).to_be_visible()
    settled(page)
    stopped = step_of(page)
    page.wait_for_timeout(1200)
    assert step_of(page) == stopped
    assert chart.evaluate(RANGE) == zoomed
    assert chart.evaluate("chart => chart.mark") == "the same node"


def test_it_opens_at_play_and_changes_are_drawn_where_they_begin_to_hold(
    page: Page, serve: Callable[..., RunningApp]
) -> None:
    page.goto(f"{serve().url}/lab")  # A home of its own, where no pair was left by another test.
    chart, grid = drawn(page, MOVING), drawn(page, GRID)
    first = step_of(page)
    until_step(page, first + 5)
    box = grid.bounding_box()
    assert box and box["y"] + box["height"] <= 900
    marks = "(chart, text) => (chart._fullLayout.annotations || []).filter(note => note.text.includes(text)).length"
    until_step(page, 85)
    assert (chart.evaluate(marks, "world shifted"), grid.evaluate(marks, "world shifted")) == (1, 2)
    page.get_by_role("slider", name="λ").first.focus()
    page.keyboard.press("End")
    for one in (chart, grid):
        page.wait_for_function(
            f"([chart, text]) => ({marks})(chart, text) === 1", arg=[one.element_handle(), "λ 0 → 1"]
        )
    shifts = grid.evaluate(marks, "world shifted")
    page.get_by_role("button", name="Shift the world").click()
    page.wait_for_function(
        f"([chart, text, before]) => ({marks})(chart, text) > before",
        arg=[grid.element_handle(), "world shifted", shifts],
    )


def test_the_map_of_both_plays_and_scrubs_without_the_server(page: Page, app: RunningApp) -> None:
    sent: list[object] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(frame)))
    page.goto(a_link(app, 12, MAP))
    # The others are the labels of ticks.
    label = page.locator(".slider-label", has_text="step")
    expect(label).to_have_text("step 12")
    settled(page)
    page.wait_for_timeout(500)
    before = len(sent)
    assert before
    # The first frame, then on by itself.
    touched = page.locator(".slider-rail-touch-rect")
    touched.scroll_into_view_if_needed()
    rail = touched.bounding_box()
    assert rail
    page.mouse.click(rail["x"] + 2, rail["y"] + rail["height"] / 2)
    expect(label).to_have_text("step 0")
    page.locator(".updatemenu-button").first.click()
    expect(label).to_have_text(re.compile(r"step ([5-9]|1\d)$"))
    page.locator(".updatemenu-button").nth(1).click()
    page.wait_for_timeout(400)
    paused = label.text_content()
    page.wait_for_timeout(700)
    assert label.text_content() == paused
    for words in page.locator(".textpoint text").all():
        # Its lines follow each other without a sign between them.
        expect(words).to_have_attribute("data-unformatted", re.compile(rf"after {paused}<br>"))
    assert len(sent) == before


def test_no_view_is_inaccessible_or_too_wide(page: Page, app: RunningApp) -> None:
    page.goto(a_link(app, 10))
    for view in VIEWS:
        page.set_viewport_size({"width": 1440, "height": 900})
        page.locator(".st-key-view").get_by_text(view, exact=True).click()
        settled(page)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            settled(page)
            drawn(page, MOVING) if view == TWINS else expect(page.locator(".js-plotly-plot").first).to_be_visible()
            page.wait_for_timeout(500)
            assert violations(page) == [], (view, scheme)
        page.set_viewport_size({"width": 1024, "height": 768})
        settled(page)
        assert no_wider_than_the_window(page), view
