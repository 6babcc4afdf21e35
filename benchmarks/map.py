"""The map of a large memory in the browser: its frames under the mouse, and how soon it shows a step."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import in_browser
from benchmarks.in_browser import Server
from benchmarks.measuring import Aim, Row, Sizes
from benchmarks.synthetic import MEMORIES_AT_ONCE, TASKS, import_memories, portions, vectors
from memrl_core.agent import workspace
from memrl_core.analysis.map.map_layout import UMAP
from memrl_core.analysis.map.projection import Pca
from memrl_core.bank import MemoryBank
from memrl_core.settings import MemRLSettings

if TYPE_CHECKING:
    from playwright.sync_api import Page

NAME = "map"
RUN = "large"
GESTURES = 5
PRESSES = 20
FINISHED = 3
MAP = ".stage-plot"
FITTING = ".st-key-stop_layout"

WATCH_MAP = """() => {
  const drawn = () => document.querySelector(".stage-host")?.dataset.drawn;
  let before = drawn();
  const look = () => {
    const now = drawn();
    if (now !== before) window.changed = performance.now();
    before = now;
    requestAnimationFrame(look);
  };
  look();
}"""
AT_REST = """() => {
  const state = document.querySelector("[data-testid='stApp']")?.dataset.testScriptState;
  if (!state || ["initial", "running"].includes(state)) window.busySince = performance.now();
  return performance.now() - Math.max(window.pressed, window.changed, window.busySince || 0) > 800;
}"""
DRAWN = """() => {
  const { glyphs } = document.querySelector(".stage-host").own.stage.map;
  return glyphs.reduce((sum, glyph) => sum + glyph.seen.length, 0);
}"""


def measure(sizes: Sizes) -> list[Row]:
    """A live run of the household that already knows so many memories, on the page Step."""
    row = partial(Row, NAME, memories=sizes.memories, dimension=sizes.dimension)
    with ExitStack() as stack:
        browser = stack.enter_context(in_browser.chromium())
        folder = stack.enter_context(large_bank(sizes.memories, sizes.dimension))
        app = stack.enter_context(in_browser.app(stack.enter_context(in_browser.home_with({"large": folder}))))
        page = stack.enter_context(in_browser.newcomer(browser, [in_browser.HEAR_KEYS]))
        rerun = stack.enter_context(in_browser.blank_rerun(browser))
        open_map(page, app, "large")
        share = page.evaluate(DRAWN) / sizes.memories
        rows = [
            row(what=f"frames a second while {name}", value=median(gesture(page) for _ in range(GESTURES)),
                unit="/s", aim=Aim("value", 30, at_least=True), peak_mb=app.peak_mb())
            for name, gesture in (("dragging", dragged), ("turning the wheel", _wheeled))
        ]  # fmt: skip
        page.evaluate(WATCH_MAP)
        presses = max(sizes.repeat, PRESSES)
        # The first press is the warm-up.
        stepped = _presses(page, itertools.repeat("n", 1 + presses))[1:]
        reruns = tuple(rerun() for _ in range(1 + presses))[1:]
        _presses(page, itertools.repeat("f", FINISHED))
        in_browser.settled(page)
        # Within the stage the arrows go through its phases.
        page.evaluate("document.activeElement.blur()")
        _presses(page, iter(("Home",)))
        page.evaluate(in_browser.WATCH_STAGE)
        turns = itertools.islice(itertools.cycle(("ArrowRight", "ArrowLeft")), 1 + presses)
        replayed = tuple(next_step(page, key) for key in turns)[1:]
        return [
            *rows,
            row(what="share of the memories that is drawn", value=share, unit="", peak_mb=app.peak_mb()),
            row(what="Step, from the key to the map redrawn", seconds=_redrawn(stepped),
                reference="a rerun of a blank page", reference_seconds=reruns, aim=Aim("ratio", 4.0),
                peak_mb=app.peak_mb(), size=_of_keys(stepped)),
            row(what="the next step of a replay, from the key to its last frame", seconds=replayed,
                aim=Aim("median_s", 0.1), peak_mb=app.peak_mb()),
        ]  # fmt: skip


@contextmanager
def large_bank(memories: int, dimension: int, k1: int = 10, tasks: int = TASKS) -> Iterator[str]:
    """The folder of a bank whose run `RUN` can go on and recalls `k1` memories, with a map that is laid out.

    The memories are of so many tasks: each of them is a glyph of the map.
    """
    folder = Path(tempfile.mkdtemp(prefix="memrl-bench-"))
    rng = np.random.default_rng(0)
    try:
        with MemoryBank.create(str(folder / "bank"), f"hashing-{dimension}", dimension) as bank:
            settings = MemRLSettings(delta=-1.0, k1=k1)
            workspace.start_run(bank, environment="household", tasks="household-train", settings=settings, run=RUN)
            for first, count in portions(memories, MEMORIES_AT_ONCE):
                import_memories(bank, RUN, first - 1, vectors(count, rng, dimension), rng, tasks)
            ids = bank.memory_ids()
            embeddings = bank.view(RUN).embeddings
            places = Pca(embeddings).place(embeddings).tolist()
            bank.layouts.save(UMAP, {memory_id: (x, y) for memory_id, (x, y) in zip(ids, places, strict=True)})
        yield str(folder / "bank")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def open_map(page: Page, app: Server, bank: str) -> None:
    """Open Step of a large bank, and wait until its map is there and nothing is laid out."""
    page.goto(f"{app.url}/step?bank={bank}&run={RUN}")
    page.wait_for_function("document.querySelector('.stage-host')?.dataset.drawn")
    page.locator(FITTING).wait_for(state="detached")
    in_browser.settled(page, 2000)


def next_step(page: Page, key: str) -> float:
    """Seconds to the last frame of the next step of a replay, for a key after which the server has followed."""
    in_browser.settled(page)
    return in_browser.last_frame_seconds(page, key)


def dragged(page: Page) -> float:
    """Frames a second while the map is dragged."""
    return in_browser.dragged(page, *_middle(page))


def _wheeled(page: Page) -> float:
    page.mouse.move(*_middle(page))
    return in_browser.frames_a_second(page, lambda turn: page.mouse.wheel(0, -60 if turn % 16 < 8 else 60))


def _middle(page: Page) -> tuple[float, float]:
    box = page.locator(MAP).bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def _presses(page: Page, keys: Iterator[str]) -> list[float]:
    """The seconds from each key to the last redraw; 0 or less where nothing changed."""
    waits = []
    for key in keys:
        page.keyboard.press(key)
        page.wait_for_function(AT_REST)
        waits.append(float(page.evaluate("window.changed - window.pressed")) / 1000)
    return waits


def _redrawn(waits: Sequence[float]) -> tuple[float, ...]:
    return tuple(waited for waited in waits if waited > 0)


def _of_keys(waits: Sequence[float]) -> str:
    return f"{len(_redrawn(waits))} of {len(waits)} keys changed the map"
