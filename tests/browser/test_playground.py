"""The playground in a real browser: the twin of its world, the screen that runs by itself, and its address."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from memrl_core.lessons.measures import kept_and_gained, trained
from memrl_core.lessons.world import Play, Settings
from tests.browser.conftest import RunningApp
from tests.browser.test_story import violations

CORE = Path(__file__).parents[2] / "pages/playground/core.js"
CASES = 200
TWIN = """([source, cases]) => {
  const twin = new Function(source + "; return { play, keptAndGained, trainedKeptAndGained };")();
  const names = ["task", "pool", "score", "chosen", "explored", "way", "chance", "success", "moved", "now", "ever"];
  const played = cases.map(([settings, steps]) => {
    const run = twin.play(settings);
    return Array.from({ length: steps }, () => {
      const step = run.next().value;
      return names.map((name) => step[name]);
    });
  });
  const trained = [["value", 0.3], ["policy", 2]].map(([loss, rate]) => twin.trainedKeptAndGained(loss, rate, 7));
  return JSON.stringify([played, twin.keptAndGained(cases[0][0], 7), ...trained]);
}"""


@pytest.fixture(scope="module")
def app(serve: Callable[..., RunningApp]) -> RunningApp:
    return serve()


def opened(page: Page, app: RunningApp, address: str = "") -> Any:
    page.goto(f"{app.url}/playground{address}")
    root = page.get_by_test_id("playground")
    expect(root).to_have_attribute("data-steps", re.compile(r"\d"))
    return root


def test_home_shows_a_memory_that_learns_and_leads_to_the_playground(page: Page, app: RunningApp) -> None:
    page.goto(app.url)
    picture = page.locator(".home-running")
    expect(picture).to_have_attribute("data-steps", re.compile(r"\d"))
    begun = picture.get_attribute("data-steps")
    expect(picture).not_to_have_attribute("data-steps", begun or "")
    page.get_by_role("button", name="Open the playground").click()
    expect(page.get_by_test_id("playground")).to_have_attribute("data-steps", re.compile(r"\d"))


def any_settings(rng: random.Random) -> tuple[Settings, int]:
    settings = Settings(
        seed=rng.randrange(1, 10_000),
        alpha=rng.choice([0.0, 1.0, rng.random()]),
        weight=rng.choice([0.0, 1.0, rng.random()]),
        epsilon=rng.choice([0.0, rng.random()]),
        change=rng.choice([0.0, rng.random() / 5]),
        delta=rng.choice([-1.0, rng.random()]),
        k1=rng.choice([rng.randrange(1, 49), 150]),
        k2=rng.randrange(1, 9),
        keep=rng.choice([1_000_000, rng.randrange(1, 60)]),
        shifts=tuple(sorted(rng.sample(range(1, 60), rng.randrange(1, 4)))),
        rest=rng.random() < 0.2,
    )
    return settings, 160 if rng.random() < 0.05 else rng.randrange(5, 50)


@pytest.mark.slow
def test_the_twin_in_the_browser_is_equal_to_python_number_for_number(browser: Browser) -> None:
    rng = random.Random(0)
    cases = [any_settings(rng) for _ in range(CASES)]
    page = browser.new_page()
    answered = page.evaluate(TWIN, [CORE.read_text(encoding="utf-8"), [[asdict(one), steps] for one, steps in cases]])
    page.close()
    played, memory, value, policy = json.loads(answered)
    for (settings, steps), theirs in zip(cases, played, strict=True):
        ours = [
            [
                *(step.task, made.pool, made.score, made.chosen, made.explored, made.way),
                *(step.chance, step.success, step.moved, step.now, step.ever),
            ]
            for step in islice(Play(settings), steps)
            for made in [step.choice]
        ]
        assert json.loads(json.dumps(ours)) == theirs, settings
    assert memory == [*kept_and_gained(cases[0][0], 7)]
    assert (value, policy) == ([*trained("value", 0.3, 7)], [*trained("policy", 2, 7)])


def test_it_runs_when_opened_and_fits_the_screen(page: Page, app: RunningApp) -> None:
    root = opened(page, app, "?speed=20")
    expect(root).to_have_attribute("data-steps", re.compile(r"[1-9]\d"))
    fits = "(main) => [main.scrollHeight - main.clientHeight, main.scrollWidth - main.clientWidth]"
    assert page.locator('[data-testid="stMain"]').evaluate(fits) == [0, 0]
    for part in root.locator("canvas, input, button").all():
        box = part.bounding_box()
        assert box and box["y"] + box["height"] <= 900 and box["width"] > 20
    expect(root).to_have_attribute("data-seeds", "50")
    page.get_by_role("button", name="Pause").click()
    assert violations(page) == []


def test_sliders_and_buttons_are_in_the_address_which_opens_the_same(page: Page, app: RunningApp) -> None:
    root = opened(page, app, "?step=30")
    strip = page.locator(".pg-strip canvas")
    expect(root).to_have_attribute("data-seeds", "50")
    before = strip.evaluate("(canvas) => canvas.toDataURL()")
    for name in ("alpha", "lambda", "epsilon", "change rate"):
        page.get_by_role("slider", name=name, exact=True).press("ArrowRight")
    page.get_by_role("button", name="Shift the world").click()
    page.wait_for_url(re.compile(r"alpha=0.31&lambda=0.51&epsilon=0.01&change=0.005&shift=31,145&step=30"))
    expect(root).to_have_attribute("data-seeds", "50")
    assert strip.evaluate("(canvas) => canvas.toDataURL()") != before
    page.reload()
    expect(page.get_by_role("slider", name="alpha", exact=True)).to_have_value("0.31")
    expect(root).to_have_attribute("data-steps", "30")


def test_a_link_out_of_range_is_clamped_and_says_so(page: Page, app: RunningApp) -> None:
    root = opened(page, app, "?alpha=7&lambda=x&k1=-3&shift=0,50,1e9&step=9999&seed=NaN")
    status = root.get_by_role("status")
    for part in (
        "alpha is 1 (from 0 to 1",
        "lambda is a number",
        "k1 is 1",
        "here: 50",
        "step is 288",
        "seed is a number",
    ):
        expect(status).to_contain_text(part)
    expect(root).to_have_attribute("data-steps", "288")
