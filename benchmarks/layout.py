"""What a screen feels of a UMAP layout in the background: the same reruns while nothing is fitted and while it is."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks import in_browser
from benchmarks.measuring import Aim, Row, Sizes
from benchmarks.page import STEPS, open_decision, slider_waits
from benchmarks.synthetic import RUN, synthetic_bank

if TYPE_CHECKING:
    from playwright.sync_api import Page

NAME = "layout"
PRESSES = 20
REFERENCE = "the same while nothing is fitted"
FITTING = ".st-key-stop_layout"


def measure(sizes: Sizes) -> list[Row]:
    """Reruns of Decision by its slider: before and after a fit, as it begins (imports, compiling), and on its way."""
    with ExitStack() as stack:
        browser = stack.enter_context(in_browser.chromium())
        bank = stack.enter_context(synthetic_bank(sizes.memories, STEPS, dimension=sizes.dimension))
        home = stack.enter_context(in_browser.home_with({"large": bank.uri}))
        app = stack.enter_context(in_browser.app(home))
        reader = stack.enter_context(in_browser.newcomer(browser))
        other = stack.enter_context(in_browser.newcomer(browser))
        presses = max(sizes.repeat, PRESSES)
        open_decision(reader, app, "large")
        idle = _reruns(reader, 1 + presses)[1:]
        other.goto(f"{app.url}/step?bank=large&run={RUN}")
        other.locator(FITTING).wait_for()
        beginning = _reruns(reader, presses)
        beginning_mb = app.peak_mb()
        under_way = _reruns(reader, presses)
        fitting = other.locator(FITTING).count() > 0
        peak_mb = app.peak_mb()
        if fitting:
            other.locator(f"{FITTING} button").click()
        other.locator(FITTING).wait_for(state="detached")
        in_browser.settled(other, 1500)
        idle += _reruns(reader, 1 + presses)[1:]
        told = "" if fitting else "the fit ended meanwhile"
        found = (("is loaded and compiled", beginning, beginning_mb), ("is fitted", under_way, peak_mb))
        return [
            Row(NAME, f"a rerun while UMAP {does}", sizes.memories, sizes.dimension, tuple(seconds), REFERENCE,
                tuple(idle), aim=Aim("ratio", 1.5), peak_mb=mb, size=told)
            for does, seconds, mb in found
        ]  # fmt: skip


def _reruns(page: Page, presses: int) -> list[float]:
    return [redrawn for _, redrawn in slider_waits(page, presses)]
