"""What a screen feels of a UMAP layout in the background: the same reruns while nothing is fitted and while it is."""

from __future__ import annotations

from contextlib import ExitStack

from memrl_core.benchmarks import in_browser
from memrl_core.benchmarks.measuring import Aim, Row, Sizes
from memrl_core.benchmarks.page import STEPS, open_decision, slider_waits
from memrl_core.benchmarks.synthetic import RUN, synthetic_bank

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
        idle = slider_waits(reader, 1 + presses)[1:]
        idle_mb = app.peak_mb()
        other.goto(f"{app.url}/step?bank=large&run={RUN}")
        other.locator(FITTING).wait_for()
        beginning = slider_waits(reader, presses)
        under_way = slider_waits(reader, presses)
        fitting = other.locator(FITTING).count() > 0
        peak_mb = app.peak_mb()
        if fitting:
            other.locator(f"{FITTING} button").click()
        other.locator(FITTING).wait_for(state="detached")
        in_browser.settled(other, 1500)
        idle += slider_waits(reader, 1 + presses)[1:]
        aim = Aim("ratio", 1.5)
        return [
            Row(NAME, f"a rerun while UMAP {does}", sizes.memories, sizes.dimension, tuple(seconds), REFERENCE,
                tuple(idle), aim=aim, peak_mb=mb, size="" if fitting else "the fit ended meanwhile")
            for does, seconds, mb in (("is loaded and compiled", beginning, idle_mb), ("is fitted", under_way, peak_mb))
        ]  # fmt: skip
