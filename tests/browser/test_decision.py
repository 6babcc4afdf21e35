"""A researcher's way from a step to the answer of a question, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from pages.decision.catalogue import QUESTIONS
from tests.browser.conftest import RunningApp, watched_page
from tests.browser.test_lab import zoom_in
from tests.browser.test_story import drawn_stage, sending, settled

# One of each kind: tests/pages asks all of them.
SOME = ("pair", "origin", "calibrated", "probe")

# Where the line of λ and its name stand, in units of λ, and what the name says.
LAMBDA = """chart => {
  const axis = chart._fullLayout.xaxis;
  const left = chart.getBoundingClientRect().x + axis._offset;
  const at = element => {
    const box = element.getBoundingClientRect();
    return axis.p2d(box.x + box.width / 2 - left);
  };
  const lines = [...chart.querySelectorAll(".shapelayer path")].sort((a, b) => a.dataset.index - b.dataset.index);
  const name = chart.querySelector(".annotation-text");
  return [name.textContent, at(lines[lines.length - 1]), at(name)];
}"""


@pytest.fixture(scope="module")
def decision(context: BrowserContext, app: RunningApp) -> Iterator[Page]:
    """The page Decision of a step of the demo, come from the page Step by one click; one test goes on after another."""
    pages = watched_page(context, app)
    page = next(pages)
    page.goto(f"{app.url}/step?bank=demo&run=household&step=29")
    drawn_stage(page)
    settled(page)
    page.locator("[data-phase='3']").click()
    page.get_by_text("Ask about this decision").click()
    page.wait_for_url(re.compile(r"/decision\?.*step=29"))
    settled(page)
    yield page
    next(pages, None)


def ask(page: Page, key: str) -> None:
    question = next(q for q in QUESTIONS if q.key == key)
    box = page.locator(".st-key-question input")
    box.fill(question.text)
    page.get_by_role("option", name=f"{question.group} · {question.text}", exact=True).click()
    settled(page)


def test_a_question_is_answered_within_three_interactions_of_the_step(decision: Page) -> None:
    for key in SOME:
        ask(decision, key)
        question = next(q for q in QUESTIONS if q.key == key)
        expect(decision.locator(".st-key-answer_box")).to_contain_text(question.text)
        expect(decision.locator("[data-testid=stException]")).to_have_count(0)
        expect(decision.locator(".st-key-answer_box [data-testid=stAlertContentError]")).to_have_count(0)


def test_a_report_is_downloaded_and_opens_without_a_network(decision: Page, tmp_path: Path) -> None:
    with decision.expect_download() as arriving:
        decision.get_by_role("button", name="Report of this step").click()
    saved = tmp_path / "report.html"
    arriving.value.save_as(saved)
    context = decision.context.browser.new_context(offline=True)
    opened = context.new_page()
    asked: list[str] = []
    complaints: list[str] = []
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    opened.goto(saved.as_uri())
    expect(opened.locator("h1")).to_have_text("Step 29 of run household")
    expect(opened.locator(".chart .main-svg").first).to_be_visible()
    assert sending(opened) == []
    assert asked == [saved.as_uri()]
    assert complaints == []
    context.close()


def test_the_line_of_lambda_stays_where_the_slider_left_it(decision: Page, app: RunningApp) -> None:
    decision.goto(f"{app.url}/decision?bank=demo&run=household&step=29&weight=0.5")
    chart = decision.locator(".st-key-diagram .memory-map")
    slider = decision.get_by_role("slider", name=re.compile("λ"))
    expect(chart.locator(".annotation-text")).to_have_text("λ = 0.5")

    def stands_at(weight: float) -> None:
        settled(decision)
        name, line, middle = chart.evaluate(LAMBDA)
        assert name == f"λ = {weight:g}"
        assert [line, middle] == pytest.approx([weight, weight], abs=0.01)

    def slide() -> float:
        before = chart.locator(".annotation-text").text_content() or ""
        slider.press("ArrowRight")
        expect(chart.locator(".annotation-text")).not_to_have_text(before)
        return float(slider.input_value())

    stands_at(0.5)
    slide()
    stands_at(slide())
    zoom_in(decision, chart, 1.0)
    stands_at(float(slider.input_value()))
    stands_at(slide())
    chart.locator(".nsewdrag").dblclick()
    whole = "document.querySelector('.st-key-diagram .memory-map')._fullLayout.xaxis.range[1] > 1"
    decision.wait_for_function(whole)
    stands_at(float(slider.input_value()))


def test_a_slash_searches_the_questions_for_what_is_typed_before_their_list_is_there(
    page: Page, app: RunningApp
) -> None:
    page.goto(f"{app.url}/decision?bank=demo&run=household&step=11&ask=flips")
    settled(page)
    page.wait_for_selector("body[data-keys]", state="attached")
    # Within one task, in which no list can open, and while there is none.
    page.evaluate(
        """async keys => {
      const box = document.querySelector(".st-key-question");
      box.classList.remove("st-key-question");
      const press = (key) => new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true });
      for (const key of keys) document.body.dispatchEvent(press(key));
      await new Promise((resolve) => setTimeout(resolve, 300));
      box.classList.add("st-key-question");
    }""",
        "/twin",
    )
    expect(page.get_by_role("option").first).to_contain_text("twin", timeout=10_000)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("ask=twin"), timeout=15_000)
