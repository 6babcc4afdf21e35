"""A student's phone in a real browser: what it shows and reports of its seed is what Python computes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from memrl_core.lessons.lesson import load_shelf
from memrl_core.lessons.room import QUESTIONS, OpenRoom, Question, Room, question_of
from memrl_core.lessons.world import Play, Settings

PAGES = Path(__file__).parents[2] / "pages"
FILES = {
    **{name: PAGES / "room" / name for name in ("phone.html", "phone.css", "phone.js")},
    "core.js": PAGES / "playground" / "core.js",
}


@pytest.fixture
def phone(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.set_default_timeout(60_000)
    yield page
    page.close()


def joined(phone: Page, question: Question) -> OpenRoom:
    opened = OpenRoom(Room(question), FILES)
    phone.goto(opened.address)
    phone.get_by_role("textbox", name="Your name").fill("Ada <b>")
    phone.get_by_role("button", name="Join").click()
    expect(phone.get_by_role("heading")).to_have_text(question.text)
    return opened


def points(question: Question, seed: int) -> float:
    def share(side: Any) -> float:
        settings = Settings(**{"seed": seed, **side})
        return fmean(step.success for step in islice(Play(settings), question.since - 1, question.steps))

    return 100 * (share(question.right) - share(question.left))


def test_a_phone_predicts_hears_the_answer_plays_its_seed_and_hears_the_end(phone: Page) -> None:
    question = QUESTIONS["Does utility help when the world shifts?"]
    opened = joined(phone, question)
    answer = question.answer or 0
    phone.get_by_role("button", name=question.choices[answer]).click()
    expect(phone.locator("main")).to_contain_text("Ada <b>: your prediction is locked")
    assert question.because not in phone.content() and phone.locator(".right").count() == 0
    opened.room.go_to("revealed")
    expect(phone.locator(".right")).to_have_text(re.compile(question.choices[answer]))
    expect(phone.locator("main")).to_contain_text(question.because)
    opened.room.go_to("play")
    expected = points(question, 2)
    shown = f"{'+' if expected >= 0 else '−'}{abs(expected):.1f} points"
    expect(phone.locator(".result")).to_have_text(shown)
    expect(phone.get_by_role("img", name="dashed λ = 0, solid λ = 0.5")).to_be_visible()
    phone.wait_for_timeout(1500)
    (reported,) = opened.room.overview().results
    assert 100 * reported == pytest.approx(expected)
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    opened.close()
    expect(phone.get_by_role("heading")).to_have_text("This room is closed.")


@pytest.mark.parametrize(
    ("key", "legend"),
    [
        ("11-a-full-memory", "dashed memories kept = 48, solid all memories kept"),
        ("05-the-gate", "dashed no gate, solid δ = 0.7"),
        ("10-the-gap", "dashed no shift, solid a shift"),
    ],
)
def test_the_curves_of_a_lesson_of_ones_own_have_the_names_of_what_differs(phone: Page, key: str, legend: str) -> None:
    lesson = load_shelf().lessons[key]
    # As a person's own file may: another setting is compared with the start, by success after the shift.
    other = [one for one in lesson.finding if one.settings != lesson.start][:1]
    question = question_of(
        lesson.model_copy(update={"finding": [one.model_copy(update={"measure": "changed"}) for one in other]})
    )
    opened = joined(phone, question)
    opened.room.go_to("play")
    expect(phone.get_by_role("img", name=legend)).to_be_visible()
    for words in re.findall(r"(?:dashed|solid) ([^,]+)", legend):
        assert words in question.effect
    opened.close()
