"""How soon a page is there: the first screen and a deep link beside a blank Streamlit page; and the what-if slider.

The slider is moved again while UMAP lays out a map in the background, which a screen should hardly feel."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import in_browser
from benchmarks.in_browser import Server
from benchmarks.measuring import Aim, Row, Sizes
from benchmarks.synthetic import RUN, synthetic_bank

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAME = "page"
FEWEST_VISITS = 15
STEPS = 20
PRESSES = 20
REFERENCE = "a blank Streamlit page"
HEADING = "h1"
FITTING = ".st-key-stop_layout"
SLIDER = "[class*='st-key-what_if_weight'] input[type=range]"
ANSWER = ".st-key-answer_box p"
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
            *_slider(browser, sizes),
        ]


def _first_paint(browser: Browser, repeat: int) -> list[Row]:
    with ExitStack() as stack:
        app, blank = stack.enter_context(in_browser.app()), stack.enter_context(in_browser.blank())
        pages = (
            ("first paint of Home", partial(painted, browser, f"{app.url}/", HEADING)),
            ("first paint of a link to a decision", partial(painted, browser, f"{app.url}/{DECISION}", ANSWER)),
        )
        reference = partial(painted, browser, f"{blank.url}/", HEADING)
        return [_in_turns(what, page, reference, repeat, app) for what, page in pages]


def _in_turns(what: str, page: Callable[[], float], reference: Callable[[], float], repeat: int, app: Server) -> Row:
    pairs = [(page(), reference()) for _ in range(1 + repeat)][1:]
    seconds, others = zip(*pairs, strict=True)
    return Row(NAME, what, 40, 1024, seconds, REFERENCE, others, aim=Aim("ratio", 2.5), peak_mb=app.peak_mb())


def painted(browser: Browser, url: str, first: str) -> float:
    """The seconds until the first of `first` is painted, for a browser that was never here."""
    with in_browser.newcomer(browser, [WATCH_FOR.replace("SELECTOR", repr(first))]) as page:
        page.goto(url, wait_until="commit")
        page.wait_for_function("window.painted")
        return float(page.evaluate("window.painted")) / 1000


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
