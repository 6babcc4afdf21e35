"""The charts that are drawn in place: what is left of one that has gone, and which of two drawings stands."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from playwright.sync_api import Page

from memrl_core.bank.storage.folders import copy_bank
from memrl_core.environments.tasks import sample_data_path
from pages.shared import picture
from tests.browser.conftest import RunningApp, listeners
from tests.browser.test_story import drawn_stage, press_step, settled

SCRIPT = Path(picture.__file__).with_name("plotly_map.js").read_bytes()

# A frame as Streamlit gives one to the script, and a Plotly that notes what it is asked for.
STAGE = """async script => {
  document.body.innerHTML = `<div class="map-frame"><div class="memory-map"></div></div>`;
  window.said = [];
  window.memrlPlotly = {
    react: async (host, traces) => { said.push(`drawn ${traces[0].name}`); },
    purge: () => said.push("purged"),
  };
  const { default: component } = await import(`data:text/javascript;base64,${script}`);
  window.draw = (name) => component({
    parentElement: document.body,
    data: { figure: JSON.stringify({ data: [{ name }], layout: {} }), height: 100 },
  });
}"""


@pytest.fixture
def stage(page: Page) -> Page:
    page.evaluate(STAGE, base64.b64encode(SCRIPT).decode())
    return page


def message(stage: Page) -> list[str]:
    stage.wait_for_timeout(200)
    return list(stage.evaluate("said"))


def a_task(page: Page) -> None:
    """Press Step until the next press begins another task: charts have come, and those of the task before have gone."""
    press_step(page)
    while "next task" not in page.locator(".st-key-step button").inner_text():
        press_step(page)


def test_a_chart_that_has_gone_leaves_nothing_in_the_window(page: Page, app: RunningApp) -> None:
    (app.home / "banks").mkdir(exist_ok=True)
    copy_bank(sample_data_path() / "demo_bank", app.home / "banks" / "charts")
    page.goto(f"{app.url}/step?bank=charts")
    drawn_stage(page)
    settled(page)
    a_task(page)
    once = listeners(page, "resize", "mouseup")
    a_task(page)
    a_task(page)
    assert listeners(page, "resize", "mouseup") <= once


def test_a_chart_is_given_back_when_it_has_gone_and_not_when_only_its_data_were_replaced(stage: Page) -> None:
    stage.evaluate("void (window.end = draw('first'))")
    stage.evaluate("end()")
    assert message(stage) == ["drawn first"]
    stage.evaluate("document.querySelector('.map-frame').remove(); end()")
    assert message(stage) == ["drawn first", "purged"]


def test_a_drawing_that_waited_does_not_replace_a_newer_one(stage: Page) -> None:
    stage.evaluate("[window.late, window.memrlPlotly] = [memrlPlotly, undefined]")
    stage.evaluate("void draw('old')")
    stage.evaluate("void draw('new')")
    stage.evaluate("window.memrlPlotly = late")
    assert message(stage) == ["drawn new"]
