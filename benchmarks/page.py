"""How soon a page is there, beside a blank Streamlit page, and how soon it answers: to the menu, to keys, to sliders.

The what-if slider is moved again while UMAP lays out a map in the background, which a screen should hardly feel."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from benchmarks import in_browser
from benchmarks.in_browser import Server
from benchmarks.measuring import Aim, Row, Sizes
from benchmarks.synthetic import LIVE, RUN, live_bank, synthetic_bank

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAME = "page"
FEWEST_VISITS = 15
KEYS = 10
POOL, MEMORIES = 200, 1000
DRAGGED = (2_000, 100_000)
SMALL = 64
GESTURES = 5
MAP = ".stage-plot"
FITTING = ".st-key-stop_layout"
MIDDLE = in_browser.SCREEN["width"] / 2, in_browser.SCREEN["height"] / 2
STEPS = 20
PRESSES = 20
REFERENCE = "a blank Streamlit page"
RERUN = "a rerun of a blank page"
HEADING = "h1"
SLIDER = "[class*='st-key-what_if_weight'] input[type=range]"
ANSWER = ".st-key-answer_box p"
STEP = "step?bank=demo&run=household&step=11"
STAGE = ".stage[data-step]"
DECISION = "decision?bank=demo&run=household&step=8"

# A thing counts as painted in the frame after the one that found it laid out with its words.
WATCH_FOR = """(() => {
  const look = () => {
    const found = [...document.querySelectorAll(SELECTOR)].some(
      (one) => one.getClientRects().length && one.innerText.trim());
    requestAnimationFrame(found ? () => { window.painted = performance.now(); } : look);
  };
  requestAnimationFrame(look);
})()"""

# What the answer shows, as text; a slider's answer is there when it last changed before it came to rest. Tables are
# drawn on a canvas and count with what they are sent with.
WATCH_ANSWER = """() => {
  const shown = () => [...document.querySelectorAll(".st-key-answer_box, .js-plotly-plot")]
    .map((part) => part.textContent).join();
  let before = shown();
  window.pressed = window.changed = 0;
  document.addEventListener("keydown", () => { window.pressed = performance.now(); window.changed = 0; }, true);
  const look = () => {
    const now = shown();
    if (now !== before) { before = now; window.changed = performance.now(); }
    requestAnimationFrame(look);
  };
  look();
}"""
AT_REST = "() => window.changed > window.pressed && performance.now() - window.changed > 700"


def measure(sizes: Sizes) -> list[Row]:
    """First paint with browsers that were never here; then the what-if slider, also while UMAP is fitted."""
    with in_browser.chromium() as browser:
        return [
            *_first_paint(browser, max(sizes.repeat, FEWEST_VISITS)),
            _switch(browser, sizes.repeat),
            _quick_keys(browser),
            _next_step(browser, max(sizes.repeat, PRESSES)),
            _weight(browser),
            *(_drag(browser, memories) for memories in DRAGGED),
            *_slider(browser, sizes),
        ]


def _first_paint(browser: Browser, repeat: int) -> list[Row]:
    with ExitStack() as stack:
        app, blank = stack.enter_context(in_browser.app()), stack.enter_context(in_browser.blank())
        pages = (
            ("Home", "", HEADING, 2.5),
            ("a link to a decision", DECISION, ANSWER, 2.5),
            ("a link to a step: its stage", STEP, STAGE, 1.5),
        )
        reference = partial(painted, browser, f"{blank.url}/", HEADING)
        return [
            _in_turns(f"first paint of {what}", partial(painted, browser, f"{app.url}/{path}", first), reference,
                      repeat, app, aim)
            for what, path, first, aim in pages
        ]  # fmt: skip


def _in_turns(
    what: str, page: Callable[[], float], reference: Callable[[], float], repeat: int, app: Server, aim: float
) -> Row:
    pairs = [(page(), reference()) for _ in range(1 + repeat)][1:]
    seconds, others = zip(*pairs, strict=True)
    return Row(NAME, what, 40, 1024, seconds, REFERENCE, others, aim=Aim("ratio", aim), peak_mb=app.peak_mb())


def painted(browser: Browser, url: str, first: str) -> float:
    """The seconds until the first of `first` is painted, for a browser that was never here."""
    with in_browser.newcomer(browser, [WATCH_FOR.replace("SELECTOR", repr(first))]) as page:
        page.goto(url, wait_until="commit")
        page.wait_for_function("window.painted")
        return float(page.evaluate("window.painted")) / 1000


def _switch(browser: Browser, repeat: int) -> Row:
    """From a click on the menu to the end of the run of the other screen; in turns with a rerun of a blank page."""
    with ExitStack() as stack:
        app, rerun = stack.enter_context(in_browser.app()), stack.enter_context(in_browser.blank_rerun(browser))
        page = stack.enter_context(in_browser.newcomer(browser))
        page.goto(f"{app.url}/{DECISION}")
        in_browser.settled(page)
        page.evaluate(in_browser.WATCH_RUN)
        waits, reference = [], []
        for _ in range(1 + repeat):
            for name in ("Step", "Decision"):
                waits.append(in_browser.rerun_seconds(page, page.get_by_role("link", name=name, exact=True)))
                reference.append(rerun())
        return Row(NAME, "switch of screens, Step and Decision in turns", 40, 1024, tuple(waits[2:]), RERUN,
                   tuple(reference[2:]), aim=Aim("ratio", 4.0), peak_mb=app.peak_mb())  # fmt: skip


def _quick_keys(browser: Browser) -> Row:
    """How many steps of a replay ten keys in two seconds go."""
    with in_browser.app() as app, in_browser.newcomer(browser) as page:
        page.goto(f"{app.url}/step?bank=demo&run=household&step=15")
        page.locator(STAGE).wait_for()
        in_browser.settled(page)
        for _ in range(KEYS):
            page.keyboard.press("ArrowRight")
            page.wait_for_timeout(2000 / KEYS)
        in_browser.settled(page)
        gone = int(page.locator(STAGE).get_attribute("data-step") or 0) - 15
        return Row(NAME, "steps that ten keys in two seconds go", 40, 1024, value=gone, aim=Aim("value", KEYS, True),
                   peak_mb=app.peak_mb())  # fmt: skip


def _next_step(browser: Browser, presses: int) -> Row:
    """The next step of a replay, which the browser has; in turns with a key on a blank page."""
    with ExitStack() as stack:
        app, blank = stack.enter_context(in_browser.app()), stack.enter_context(in_browser.blank())
        page, other = (stack.enter_context(in_browser.newcomer(browser, [in_browser.HEAR_KEYS])) for _ in range(2))
        page.goto(f"{app.url}/step?bank=demo&run=household&step=11")
        page.locator(STAGE).wait_for()
        other.goto(f"{blank.url}/")
        in_browser.settled(other)
        in_browser.settled(page)
        page.evaluate(in_browser.WATCH_STAGE)
        other.evaluate(in_browser.WATCH_NOTHING)
        pairs = []
        for _ in range(1 + presses):
            in_browser.settled(page)
            pairs.append(tuple(in_browser.last_frame_seconds(each, "ArrowRight") for each in (page, other)))
        seconds, others = zip(*pairs[1:], strict=True)
        return Row(NAME, "the next step of a replay, from the key to its last frame", 40, 1024, seconds,
                   "a key on a blank page", others, aim=Aim("median_s", 0.1), peak_mb=app.peak_mb())  # fmt: skip


def _drag(browser: Browser, memories: int) -> Row:
    """Frames a second while a map is dragged on which every memory has an intent of its own."""
    with ExitStack() as stack:
        folder = stack.enter_context(live_bank(memories, SMALL, tasks=memories))
        app = stack.enter_context(in_browser.app(stack.enter_context(in_browser.home_with({"large": folder}))))
        blank = stack.enter_context(in_browser.blank())
        page, other = (stack.enter_context(in_browser.newcomer(browser)) for _ in range(2))
        page.goto(f"{app.url}/step?bank=large&run={LIVE}")
        page.wait_for_function("document.querySelector('.stage-host')?.dataset.drawn")
        page.locator(FITTING).wait_for(state="detached")
        in_browser.settled(page, 2000)
        box = page.locator(MAP).bounding_box()
        assert box is not None
        middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        other.goto(f"{blank.url}/")
        in_browser.settled(other)
        pairs = [(in_browser.dragged(page, *middle), in_browser.dragged(other, *MIDDLE)) for _ in range(GESTURES)]
        found, empty = (median(each) for each in zip(*pairs, strict=True))
        return Row(NAME, "frames a second while the map is dragged", memories, SMALL, value=found, unit="/s",
                   aim=Aim("value", 30, at_least=True), peak_mb=app.peak_mb(),
                   size=f"a blank page: {empty:.0f}/s")  # fmt: skip


def _weight(browser: Browser) -> Row:
    """Frames a second of a stage on which λ is dragged over a large pool."""
    with ExitStack() as stack:
        folder = stack.enter_context(live_bank(MEMORIES, SMALL, k1=POOL))
        app = stack.enter_context(in_browser.app(stack.enter_context(in_browser.home_with({"wide": folder}))))
        page = stack.enter_context(in_browser.newcomer(browser))
        page.goto(f"{app.url}/step?bank=wide&run={LIVE}")
        page.locator(STAGE).wait_for()
        in_browser.settled(page)
        page.keyboard.press("f")
        page.locator(".stage[data-step='1'] .stage-row-b").nth(POOL - 1).wait_for(state="attached")
        in_browser.settled(page, 4000)
        box = page.locator(".stage-rail").bounding_box()
        assert box is not None
        x, y = box["x"], box["y"] + 10
        page.mouse.move(x + box["width"] / 2, y)
        page.mouse.down()
        found = in_browser.frames_a_second(page, lambda turn: page.mouse.move(x + turn * 7 % box["width"], y))
        page.mouse.up()
        return Row(NAME, "frames a second while λ is dragged on the stage", MEMORIES, SMALL, value=found, unit="/s",
                   aim=Aim("value", 30, at_least=True), peak_mb=app.peak_mb(), size=f"pool of {POOL}")  # fmt: skip


def _slider(browser: Browser, sizes: Sizes) -> list[Row]:
    presses = max(sizes.repeat, PRESSES)
    with ExitStack() as stack:
        bank = stack.enter_context(synthetic_bank(sizes.memories, STEPS, dimension=sizes.dimension))
        app = stack.enter_context(in_browser.app(stack.enter_context(in_browser.home_with({"large": bank.uri}))))
        page = stack.enter_context(in_browser.newcomer(browser))
        other = stack.enter_context(in_browser.newcomer(browser))
        open_decision(page, app, "large")
        row = partial(Row, NAME, memories=sizes.memories, dimension=sizes.dimension)
        alone = slider_waits(page, 1 + presses)[1:]
        rows = [row(what="what-if slider, from the key to the last redraw", seconds=alone, aim=Aim("median_s", 0.2),
                    peak_mb=app.peak_mb())]  # fmt: skip
        other.goto(f"{app.url}/step?bank=large&run={RUN}")
        other.locator(FITTING).wait_for()
        for what in ("while UMAP is loaded and compiled", "while UMAP is fitted"):
            waits = slider_waits(page, presses)
            size = "" if other.locator(FITTING).count() else "the fit ended meanwhile"
            rows.append(
                row(what=f"the same {what}", seconds=waits, reference="while nothing is fitted",
                    reference_seconds=alone, aim=Aim("ratio", 1.5), peak_mb=app.peak_mb(), size=size)
            )  # fmt: skip
        return rows


def open_decision(page: Page, app: Server, bank: str) -> None:
    """Open the newest step of a synthetic bank on Decision, ready for `slider_waits`."""
    page.goto(f"{app.url}/decision?bank={bank}&run={RUN}&step={STEPS}")
    page.locator(SLIDER).wait_for(state="attached")
    in_browser.settled(page, 1500)
    page.evaluate(WATCH_ANSWER)


def slider_waits(page: Page, presses: int) -> tuple[float, ...]:
    """Seconds from each press of a key on the slider λ to the last redraw."""
    waits = []
    for press in range(presses):
        page.locator(SLIDER).press("ArrowRight" if press % 2 else "ArrowLeft")
        page.wait_for_function(AT_REST)
        waits.append(float(page.evaluate("window.changed - window.pressed")) / 1000)
    return tuple(waits)
