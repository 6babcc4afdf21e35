"""How soon a page is there: the first screen and a deep link beside a blank Streamlit page; and the what-if slider."""

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
FEWEST_STARTS = 3
STEPS = 20
PRESSES = 20
REFERENCE = "a blank Streamlit page"
HEADING = "h1"
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
# drawn on a canvas and count with what they are sent with. Streamlit's own part, from the key until it says that it
# runs the page, is told beside it.
WATCH_ANSWER = """() => {
  const shown = () => [...document.querySelectorAll(".st-key-answer_box, .js-plotly-plot")]
    .map((part) => part.textContent).join();
  const app = document.querySelector("[data-testid='stApp']");
  let before = shown();
  window.pressed = window.changed = window.begun = 0;
  document.addEventListener("keydown", () => {
    window.pressed = performance.now();
    window.changed = window.begun = 0;
  }, true);
  const look = () => {
    if (!window.begun && app.dataset.testScriptState === "running") window.begun = performance.now();
    const now = shown();
    if (now !== before) { before = now; window.changed = performance.now(); }
    requestAnimationFrame(look);
  };
  look();
}"""
AT_REST = "() => window.changed > window.pressed && performance.now() - window.changed > 700"


def measure(sizes: Sizes) -> list[Row]:
    """First paint with browsers that were never here, of servers that just started too; then the what-if slider."""
    with in_browser.chromium() as browser:
        return [
            *_first_paint(browser, max(sizes.repeat, FEWEST_VISITS)),
            *_first_visit(browser, max(sizes.repeat, FEWEST_STARTS)),
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


def _first_visit(browser: Browser, repeat: int) -> list[Row]:
    """The first visit of all after a start: what the server has yet to load is paid here."""
    visits: dict[str, list[float]] = {"Home": [], "a link to a decision": [], REFERENCE: []}
    up, up_blank, peaks = [], [], []
    for _ in range(repeat):
        for name, path, first in (("Home", "", HEADING), ("a link to a decision", DECISION, ANSWER)):
            with in_browser.app() as app:
                up.append(app.seconds_to_up)
                visits[name].append(painted(browser, f"{app.url}/{path}", first))
                peaks.append(app.peak_mb())
        with in_browser.blank() as blank:
            up_blank.append(blank.seconds_to_up)
            visits[REFERENCE].append(painted(browser, f"{blank.url}/", HEADING))
    reference = tuple(visits.pop(REFERENCE))
    told = [peak for peak in peaks if peak is not None]
    peak_mb = max(told, default=None)
    rows = [
        Row(NAME, f"first visit after the start, {name}", 40, 1024, tuple(seconds), REFERENCE, reference,
            aim=Aim("ratio", 2.5), peak_mb=peak_mb)
        for name, seconds in visits.items()
    ]  # fmt: skip
    started = "from the command to up"
    return [*rows, Row(NAME, started, 0, None, tuple(up), REFERENCE, tuple(up_blank), peak_mb=peak_mb)]


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
    with ExitStack() as stack:
        bank = stack.enter_context(synthetic_bank(sizes.memories, STEPS, dimension=sizes.dimension))
        home = stack.enter_context(in_browser.home_with({"large": bank.uri}))
        app = stack.enter_context(in_browser.app(home))
        page = stack.enter_context(in_browser.newcomer(browser))
        open_decision(page, app, "large")
        begun, redrawn = zip(*slider_waits(page, 1 + max(sizes.repeat, PRESSES))[1:], strict=True)
        row = partial(Row, NAME, memories=sizes.memories, dimension=sizes.dimension)
        return [
            row(what="what-if slider, from the key to the last redraw", seconds=redrawn, aim=Aim("median_s", 0.2),
                peak_mb=app.peak_mb()),
            row(what="of it, from the key until Streamlit runs the page", seconds=begun, peak_mb=app.peak_mb()),
        ]  # fmt: skip


def open_decision(page: Page, app: Server, bank: str) -> None:
    """Open the newest step of a synthetic bank on Decision, ready for `slider_waits`."""
    page.goto(f"{app.url}/decision?bank={bank}&run={RUN}&step={STEPS}")
    page.locator(SLIDER).wait_for(state="attached")
    in_browser.settled(page, 1500)
    page.evaluate(WATCH_ANSWER)


def slider_waits(page: Page, presses: int) -> list[tuple[float, float]]:
    """For each press of a key on the slider λ the seconds until the page is run, and until the last redraw."""
    waits = []
    for press in range(presses):
        page.locator(SLIDER).press("ArrowRight" if press % 2 else "ArrowLeft")
        page.wait_for_function(AT_REST)
        begun, redrawn = page.evaluate("[window.begun - window.pressed, window.changed - window.pressed]")
        waits.append((max(begun, 0.0) / 1000, redrawn / 1000))
    return waits
