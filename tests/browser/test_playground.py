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
  const ways = [["value", 0.3, {}], ["policy", 2, {}], ["value", 0.3, { replay: 2 }], ["policy", 1, { anchor: 0.05 }]];
  const trained = ways.map(([loss, rate, remedy]) => twin.trainedKeptAndGained(loss, rate, 7, remedy));
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
    # None, one or several, wherever they were moved to.
    shifts = tuple(sorted(rng.sample(range(1, 60), rng.randrange(0, 4))))
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
        shifts=shifts,
        rest=bool(shifts) and rng.random() < 0.2,
        held=rng.random() < 0.2,
    )
    return settings, 160 if rng.random() < 0.05 else rng.randrange(5, 50)


@pytest.mark.slow
def test_the_twin_in_the_browser_is_equal_to_python_number_for_number(browser: Browser) -> None:
    rng = random.Random(0)
    cases = [any_settings(rng) for _ in range(CASES)]
    page = browser.new_page()
    answered = page.evaluate(TWIN, [CORE.read_text(encoding="utf-8"), [[asdict(one), steps] for one, steps in cases]])
    page.close()
    played, memory, value, policy, replayed, anchored = json.loads(answered)
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
    assert replayed == [*trained("value", 0.3, 7, replay=2)] and anchored == [*trained("policy", 1, 7, anchor=0.05)]
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


def test_time_goes_back_shifts_move_and_go_and_the_dot_on_the_plane_sets_alpha_and_lambda(
    page: Page, app: RunningApp
) -> None:
    root = opened(page, app, "?step=150")
    strip, picture = page.locator(".pg-strip canvas"), page.locator(".pg-map canvas")
    now = "() => document.querySelector('.pg-model').innerText"
    expect(root).to_have_attribute("data-seeds", "50")
    expect(strip).to_have_attribute("aria-label", re.compile("after 150 steps"))
    first = page.evaluate(now), picture.evaluate("(canvas) => canvas.toDataURL()")
    box = strip.bounding_box()
    assert box
    page.mouse.move(box["x"] + 250, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 120, box["y"] + 100, steps=4)
    page.mouse.up()
    scrubbed = int(root.get_attribute("data-steps") or 0)
    assert 5 < scrubbed < 100
    page.get_by_role("slider", name="step", exact=True).fill("149")
    expect(page.locator(".pg-sentence")).to_contain_text("steps 145 to 149")
    page.get_by_role("button", name="Step", exact=True).click()
    page.get_by_role("button", name="Step", exact=True).click()
    page.get_by_role("button", name="Back").click()
    page.wait_for_timeout(100)
    assert (page.evaluate(now), picture.evaluate("(canvas) => canvas.toDataURL()")) == first

    # A click on a family opens its tasks and memories up to this step.
    page.mouse.click(468, 210)
    expect(page.get_by_role("region", name="Kitchen")).to_contain_text(
        re.compile(r"Kitchen 1 \(blue\): \d memories, \d worked")
    )
    assert violations(page) == []
    page.get_by_role("button", name="Close", exact=True).click()
    expect(page.get_by_role("region", name="Kitchen")).to_have_count(0)

    page.get_by_role("button", name="Show what 50 seeds do").click()
    expect(strip).to_have_attribute("aria-label", re.compile("after 288 steps"))
    expect(page.locator(".pg-sentence")).to_contain_text("steps 145 to 288")
    page.mouse.move(box["x"] + 38 + (145 / 288) * (box["width"] - 178 - 38), box["y"] + 6)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 40, steps=4)
    page.mouse.up()
    page.wait_for_url(re.compile(r"shift=\d\d&"))
    page.get_by_role("spinbutton", name="shift 1").fill("200")
    page.get_by_role("spinbutton", name="shift 1").press("Enter")
    expect(page.locator(".pg-sentence")).to_contain_text("steps 200 to 288")
    page.get_by_role("button", name="Remove the shift before step 200").click()
    page.wait_for_url(re.compile("shift=none"))
    expect(page.locator(".pg-sentence")).to_have_text(
        re.compile(r"^\d+ ± \d+ % of the tasks of steps 1 to 288 succeed\. Mean")
    )

    dot = page.get_by_test_id("plane-dot")
    at = dot.bounding_box()
    assert at and page.get_by_test_id("plane").locator(dot).count() == 1
    page.mouse.move(at["x"] + 12, at["y"] + 12)
    page.mouse.down()
    page.mouse.move(at["x"] - 120, at["y"] - 30, steps=4)
    page.mouse.up()
    chosen = [page.get_by_role("slider", name=name, exact=True).input_value() for name in ("alpha", "lambda")]
    assert chosen != ["0.3", "0.5"]
    page.wait_for_url(re.compile(f"alpha={chosen[0]}"))
    dot.press("ArrowRight")
    moved = [page.get_by_role("slider", name=name, exact=True).input_value() for name in ("alpha", "lambda")]
    assert moved != chosen


def test_scrubbing_back_shows_every_step_as_it_was_when_it_was_played(page: Page, app: RunningApp) -> None:
    """Playing moves q by each step's own moves, scrubbing folds them anew: both are read off the screen."""
    root = opened(page, app, "?step=138&alpha=0.37")
    at, step = page.get_by_role("slider", name="step", exact=True), page.get_by_role("button", name="Step", exact=True)
    shown = "(root) => root.querySelector('.pg-model').innerText + root.querySelector('.pg-map canvas').toDataURL()"

    def seen(number: int) -> str:
        expect(root).to_have_attribute("data-steps", str(number))
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return str(root.evaluate(shown))

    played = {}
    for number in range(139, 155):  # Over the shift.
        step.click()
        played[number] = seen(number)
    assert len(set(played.values())) == len(played)
    for number in reversed(played):
        at.fill(str(number))
        assert seen(number) == played[number], number
    at.fill("0")
    for number in (*range(1, 4), 200):
        at.fill(str(number))
    at.fill("150")
    assert seen(150) == played[150]


def test_on_a_phone_the_picture_stays_beside_the_sliders_and_hides_what_scrolls_under_it(
    page: Page, app: RunningApp
) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    opened(page, app, "?step=30")
    slider, legend = page.get_by_role("slider", name="alpha", exact=True), page.locator(".pg-legend")
    page.locator('[data-testid="stMain"]').evaluate("(main) => main.scrollTo(0, 280)")
    page.wait_for_timeout(300)
    picture, key, hand = (one.bounding_box() for one in (page.locator(".pg-map"), legend, slider))
    under = legend.evaluate("(one) => getComputedStyle(one).backgroundColor")
    page.set_viewport_size({"width": 1440, "height": 900})
    assert picture and key and hand
    assert picture["y"] >= 0 and picture["y"] + picture["height"] < hand["y"] < 844
    assert (key["x"], key["width"]) == (picture["x"], picture["width"])
    assert under not in ("transparent", "rgba(0, 0, 0, 0)")


@pytest.mark.parametrize(
    ("link", "says"),
    [
        (
            "shift=1&step=288",
            r"^After the shift, of steps 1 to 288, N of the tasks that changed and N of those that stayed succeed\.",
        ),
        ("shift=1&change=0.05&step=288", r"^After the shift, N of the tasks of steps 1 to 288 succeed\."),
        (
            "shift=288&step=288",
            r"^N of the tasks of steps 1 to 287 succeed; after the shift, of step 288, N of those that ",
        ),
    ],
)
def test_the_sentence_is_whole_wherever_the_shift_is(page: Page, app: RunningApp, link: str, says: str) -> None:
    expect(opened(page, app, f"?{link}")).to_have_attribute("data-seeds", "50")
    expect(page.locator(".pg-sentence")).to_have_text(re.compile(says.replace("N", r"\d+ ± \d+ %")))


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


OWN = """# <img src=x onerror=alert(1)>
bake a cake
boil rice
fry an egg
roast a chicken

change the oil
replace a tyre
<b>fix</b> the brakes
wash the car"""


def test_own_tasks_become_the_families_and_bad_ones_leave_the_tasks_as_they_were(page: Page, app: RunningApp) -> None:
    root = opened(page, app, "?step=10&k2=2")
    page.get_by_role("button", name="Your own tasks").click()
    texts, said = page.get_by_role("textbox", name="Tasks"), page.locator(".pg-own p")
    texts.fill("one\n\ntwo")
    page.get_by_role("button", name="Use them").click()
    expect(said).to_contain_text("2 texts")
    expect(root).to_have_attribute("data-steps", "10")
    texts.fill(OWN)
    page.get_by_role("button", name="Use them").click()
    expect(root).to_have_attribute("data-own", "8")
    expect(page.locator(".pg-status")).to_contain_text("8 tasks of yours in 2 families")
    expect(root).to_have_attribute("data-seeds", "50")
    expect(root).to_have_attribute("data-steps", re.compile("[1-9]"))
    assert page.locator(".pg-task").text_content() in OWN.splitlines()
    map_box = page.locator(".pg-map canvas").bounding_box()
    assert map_box
    page.locator(".pg-map canvas").click(position={"x": map_box["width"] * 0.29, "y": 90})
    expect(page.locator(".pg-family h2")).to_have_text("<img src=x onerror=alert")
    expect(page.get_by_role("slider", name="k2", exact=True)).to_have_value("2")
    page.get_by_role("slider", name="step", exact=True).fill("30")
    expect(page).to_have_url(re.compile("step=30&own="))
    link, task = page.url, page.locator(".pg-task").text_content()
    page.goto(link)
    expect(root).to_have_attribute("data-own", "8")
    expect(page.locator(".pg-task")).to_have_text(task or "")
    assert page.url == link
    page.goto(re.sub("own=.*", "own=A", link))
    expect(page.locator(".pg-status")).to_contain_text("The tasks of this link cannot be used")
    expect(root).to_have_attribute("data-steps", "30")
    expect(page).not_to_have_url(re.compile("own="))
    page.get_by_role("button", name="Your own tasks").click()
    # Forty texts of letters drawn anew leave nothing to compress.
    drawn = ["".join(random.Random(number).choices("abcdefghijklmnopqrstuvwxyz", k=100)) for number in range(40)]
    long = "\n".join(["# One", *drawn[:20], "# Two", *drawn[20:]])
    page.get_by_label("Open a file of tasks").set_input_files(
        {"name": "t.txt", "mimeType": "text/plain", "buffer": long.encode()}
    )
    expect(texts).to_have_value(long)
    page.get_by_role("button", name="Use them").click()
    expect(root).to_have_attribute("data-own", "40")
    expect(page).not_to_have_url(re.compile("own="))
    page.get_by_role("button", name="Copy link").click()
    page.get_by_role("button", name="Your own tasks").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as a file").click()
    assert saved.value.path().read_text("utf-8") == long
    page.get_by_role("button", name="Back to the shipped tasks").click()
    expect(page.locator(".pg-task")).to_contain_text(re.compile(r"[A-Z][a-z]+ \d"))
