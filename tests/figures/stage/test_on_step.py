"""The stage on the page Step: steps of a replay without the server, and a live step that fills."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from memrl_core.agent import Agent
from memrl_core.agent.preferences import load_preferences
from memrl_core.agent.run_parts import create_bank
from memrl_core.agent.runs import live_run, start_run
from memrl_core.analysis.map.map_layout import MapLayout
from memrl_core.bank import MemoryBank
from memrl_core.bank.storage.folders import copy_bank
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments import make_environment
from memrl_core.environments.tasks import sample_data_path, sample_tasks
from memrl_core.models.simulated import SimulatedModel
from memrl_core.settings import MemRLSettings
from tests.browser.conftest import RunningApp, app, context, serve, watched_page
from tests.browser.test_smoke import ROOM
from tests.browser.test_story import STAGE, drawn_stage, press_step, settled, violations
from tests.builders import a_run

__all__ = ["app", "context", "serve"]

TWO_FRAMES = """async (key) => {
  const frame = () => new Promise(requestAnimationFrame);
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  await frame();
  await frame();
  return document.querySelector(".stage").dataset.step;
}"""


@pytest.fixture
def page(context: BrowserContext, app: RunningApp) -> Iterator[Page]:
    yield from watched_page(context, app)


@pytest.mark.slow
def test_a_step_of_a_replay_is_there_after_two_frames_and_the_page_follows(page: Page, app: RunningApp) -> None:
    page.goto(f"{app.url}/step?bank=demo&step=11")
    drawn_stage(page)
    settled(page)
    node = page.evaluate_handle("document.querySelector('.stage')")
    # A server cannot answer within two frames.
    assert [page.evaluate(TWO_FRAMES, "ArrowRight") for _ in range(3)] == ["12", "13", "14"]
    assert page.evaluate(TWO_FRAMES, "ArrowLeft") == "13"
    expect(page).to_have_url(re.compile("step=13"))
    expect(page.get_by_text("Replay of step 13 ")).to_be_visible()
    settled(page)
    assert page.locator(".stage").get_attribute("data-step") == "13"
    assert page.evaluate("node => node.isConnected", node), "the stage was not made anew"


@pytest.mark.slow
def test_the_strip_leads_to_any_step_its_window_to_the_table_and_the_film_to_where_it_is_stopped(
    page: Page, app: RunningApp
) -> None:
    page.goto(f"{app.url}/step?bank=demo&step=11")
    strip = page.get_by_test_id("strip")
    expect(strip.locator("[data-step]")).to_have_count(40)
    settled(page)
    for step in (33, 35):
        strip.locator(f"[data-step='{step}']").click()
        expect(page.locator(".stage")).to_have_attribute("data-step", str(step))
        expect(strip.locator("[aria-current=step]")).to_have_attribute("data-step", str(step))
        expect(page).to_have_url(re.compile(f"step={step}"))
    settled(page)
    page.get_by_test_id("film").click()
    expect(page.locator(".film")).to_be_visible()
    page.wait_for_function("document.querySelector('.film').dataset.step > 1")
    page.locator(".film").press(" ")
    stopped = page.locator(".film").get_attribute("data-step")
    page.locator(".film-map canvas").click()
    expect(page.locator(".film")).to_have_count(0)
    expect(page).to_have_url(re.compile(f"step={stopped}(&|$)"))
    settled(page)
    strip.get_by_role("slider").focus()
    for key in ("Home", "Shift+PageUp"):
        page.keyboard.press(key)
    expect(strip.locator(".strip-window")).to_contain_text("Steps 1–11")
    strip.get_by_role("button", name="These steps").click()
    expect(page).to_have_url(re.compile("/steps.*window=1-11"))
    expect(page.get_by_text("11 of 40 steps")).to_be_visible()


VIEWED = """({ step, tried, pinnedId, goal, chosen, map, search, found }) =>
  [step.step, tried, pinnedId, goal, chosen, map.colour, search.value, found.textContent]"""
"""What of a stage a person sees: step, what is tried, memory, moment, the memories selected then, colour and filter."""


@pytest.mark.slow
def test_any_view_reopens_by_its_address_and_as_the_file_that_share_writes(
    page: Page, app: RunningApp, context: BrowserContext
) -> None:
    rng = random.Random(5)
    page.goto(f"{app.url}/step?bank=demo&step=20")
    drawn_stage(page)
    for number in range(4):
        settled(page)
        rows = page.locator(".stage-row")
        rows.nth(rng.randrange(rows.count())).dispatch_event("click")
        for _ in range(rng.randrange(4)):
            page.keyboard.press(rng.choice(["ArrowLeft", "ArrowRight"]))
        page.locator(f"[data-phase='{rng.randint(1, 7)}']").click()
        page.wait_for_function(f"{STAGE}.t === {STAGE}.goal")
        if weight := rng.choice(["", "0", "0.13", "0.62", "1"]):
            page.get_by_label("Weight λ").fill(weight)
        elif page.get_by_role("button", name="as recorded").is_visible():
            page.get_by_role("button", name="as recorded").click()
        for symbol, value in rng.sample([("k1", "4"), ("k2", "1"), ("δ", "0.35")], rng.randrange(3)):
            page.get_by_label(f"{symbol} as a number").fill(value)
            page.get_by_label(f"{symbol} as a number").press("Enter")
        page.get_by_label("Colour of the map").select_option(rng.choice(["q", "outcome", "family"]))
        page.get_by_label("Search the texts").fill(rng.choice(["", "letter", "pot & <pan>"]))
        # The page follows a view once the hand rests.
        host = STAGE.removesuffix(".stage")
        page.wait_for_function(f"JSON.stringify({STAGE}.look) === JSON.stringify({host}.look)")
        settled(page)
        page.wait_for_function(f"{STAGE}.t === {STAGE}.goal")
        link = page.evaluate(f"{STAGE}.callbacks.link()")
        seen = page.evaluate(f"({VIEWED})({STAGE})")
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save as a file").click()
        path = app.home / f"shared-{number}.html"
        saved.value.save_as(path)
        shared = context.new_page()
        shared.goto(path.as_uri())
        shared.wait_for_selector(".stage [data-state=current]")
        assert shared.evaluate(f"({VIEWED})(player)") == seen
        shared.goto(link)
        drawn_stage(shared)
        settled(shared)
        assert shared.evaluate(f"({VIEWED})({STAGE})") == seen
        shared.close()


@pytest.mark.slow
def test_a_file_that_is_saved_at_once_opens_with_what_was_typed_and_chosen_last(
    page: Page, app: RunningApp, context: BrowserContext
) -> None:
    page.goto(f"{app.url}/step?bank=demo&step=20")
    drawn_stage(page)
    settled(page)
    # At once, and amid the run of the page that follows what was typed.
    for number, wait in enumerate((0, 380)):
        page.locator(".stage-row").nth(number).dispatch_event("click")
        page.get_by_label("Colour of the map").select_option(("outcome", "family")[number])
        page.get_by_label("Search the texts").fill(("letter", "pot")[number])
        seen = page.evaluate(f"({VIEWED})({STAGE})")
        page.wait_for_timeout(wait)
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save as a file").click()
        path = app.home / f"at-once-{number}.html"
        saved.value.save_as(path)
        shared = context.new_page()
        shared.goto(path.as_uri())
        shared.wait_for_selector(".stage [data-state=current]")
        assert shared.evaluate(f"({VIEWED})(player)") == seen
        shared.close()


@pytest.mark.slow
def test_what_is_tried_on_a_live_step_can_be_used_from_the_next_step_on(page: Page, app: RunningApp) -> None:
    (app.home / "banks").mkdir(exist_ok=True)
    folder = app.home / "banks" / "tried"
    copy_bank(sample_data_path() / "demo_bank", folder)
    page.goto(f"{app.url}/step?bank=tried")
    drawn_stage(page)
    settled(page)
    use = page.get_by_role("button", name="Use from the next step on")
    expect(use).to_be_disabled()
    last = page.evaluate(f"{STAGE}.step.step")
    recorded = page.locator(".stage-chip").evaluate_all("all => all.map((one) => one.dataset.memory)")
    for symbol, value in (("k1", "6"), ("k2", "1"), ("δ", "0.3")):
        page.get_by_label(f"{symbol} as a number").fill(value)
        page.get_by_label(f"{symbol} as a number").press("Enter")
    page.get_by_label("Weight λ").fill("0.9")
    chosen = page.locator(".stage-chip:not(.stage-chip-gone)")
    expect(chosen).to_have_count(1)
    expect(page.locator(".stage-line")).to_contain_text("What if λ were 0.900")
    use.click()
    expect(page.get_by_text(f"From step {last + 1} on")).to_be_visible()
    expect(use).to_be_disabled()
    with closing(sqlite3.connect(f"file:{folder / 'bank.db'}?mode=ro", uri=True)) as database:
        query = "SELECT step, payload FROM ledger WHERE kind = 'settings_changed'"
        ((step, payload),) = database.execute(query).fetchall()
    settings = json.loads(payload)["settings"]
    assert step == last + 1
    assert [settings[name] for name in ("weight", "k1", "k2", "delta")] == [0.9, 6, 1, 0.3]
    # The step that is shown stays as it was decided.
    page.get_by_role("button", name="as recorded").click()
    expect(page.locator(".stage-chip")).to_have_count(len(recorded))


@pytest.mark.slow
def test_a_warning_takes_no_height_from_the_stage(page: Page, app: RunningApp) -> None:
    folder = app.home / "banks" / "no-model"
    folder.parent.mkdir(exist_ok=True)
    embedder, model = HashingEmbedder(), SimulatedModel()
    with MemoryBank.create(str(folder), embedder.name, embedder.dimension) as bank:
        run = replace(a_run("r"), embedder=embedder.name, model="ollama:not-there", simulated=False)
        bank.write.start_run(run)
        list(Agent(bank, "r", model, embedder, make_environment("household")).run(sample_tasks("household-train")[:3]))
    page.set_viewport_size({"width": 1024, "height": 768})
    page.goto(f"{app.url}/step?bank=no-model")
    drawn_stage(page)
    settled(page)
    warning = page.locator(".st-key-model_banner")
    expect(warning).to_be_visible()
    for width, height in ((1024, 768), (1440, 900)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(f"({ROOM})()[0] === 0")
        box, stage = page.locator(".st-key-notices").bounding_box(), page.locator(".stage").bounding_box()
        assert box and stage and box["y"] >= stage["y"] + stage["height"] - 1 and box["y"] + box["height"] <= height
    warning.hover()
    page.get_by_role("button", name="Check again").click()


@pytest.mark.slow
def test_what_went_wrong_stands_above_a_stage_that_still_fits(page: Page, app: RunningApp) -> None:
    banks = app.home / "banks"
    banks.mkdir(exist_ok=True)
    copy_bank(sample_data_path() / "demo_bank", banks / "torn")
    with closing(sqlite3.connect(banks / "torn" / "bank.db")) as database, database:
        database.execute("UPDATE steps SET trace = substr(trace, 1, 200) WHERE step = 12")
    embedder, model = HashingEmbedder(), SimulatedModel()
    with MemoryBank.create(str(banks / "no-server"), embedder.name, embedder.dimension) as bank:
        run = replace(a_run("r"), embedder=embedder.name, model="ollama:not-there", simulated=False)
        bank.write.start_run(run)
        list(Agent(bank, "r", model, embedder, make_environment("household")).run(sample_tasks("household-train")[:3]))
    page.set_viewport_size({"width": 1440, "height": 900})
    for name, says in (("torn", "cannot be read"), ("no-server", "Ollama")):
        page.goto(f"{app.url}/step?bank={name}")
        drawn_stage(page)
        settled(page)
        if name == "no-server":
            page.keyboard.press("f")
            expect(page.get_by_role("button", name="Drop this step")).to_be_visible()
        said = page.get_by_role("alert").filter(has_text=says).first
        expect(said).to_be_visible()
        settled(page)
        page.wait_for_function(f"({ROOM})()[0] === 0")
        box, stage = said.bounding_box(), page.locator(".stage").bounding_box()
        assert box and stage and stage["y"] + stage["height"] <= 900
        if name == "torn":
            assert box["y"] + box["height"] <= stage["y"]
        expect(page.get_by_label("k1 as a number")).to_be_in_viewport(ratio=1)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["", "&step=20"])
@pytest.mark.parametrize("size", [(390, 844), (1440, 900)])
def test_the_stage_is_drawn_where_it_stays(browser: Browser, app: RunningApp, size: tuple[int, int], at: str) -> None:
    # Somebody new: the scripts of the buttons come after the stage.
    with browser.new_context(viewport={"width": size[0], "height": size[1]}) as newcomer:
        newcomer.add_init_script("""
          window.tops = new Set();
          const look = () => {
            const stage = document.querySelector(".stage [data-state=current]")?.closest(".stage");
            if (stage) window.tops.add(Math.round(stage.getBoundingClientRect().top));
            requestAnimationFrame(look);
          };
          look();
        """)
        page = newcomer.new_page()
        page.goto(f"{app.url}/step?bank=demo{at}")
        drawn_stage(page)
        expect(page.get_by_role("button", name="Save as a file")).to_be_visible()
        settled(page)
        assert len(page.evaluate("[...window.tops]")) == 1


@pytest.mark.slow
def test_a_view_in_the_address_that_cannot_be_is_the_end_of_the_step_under_its_own_weight(
    page: Page, app: RunningApp
) -> None:
    page.goto(f"{app.url}/step?bank=demo&step=20&phase=x&lambda=7")
    drawn_stage(page)
    expect(page).not_to_have_url(re.compile("phase|lambda"))
    assert page.evaluate(f"[{STAGE}.weight, {STAGE}.goal]") == [None, 7]


@pytest.mark.slow
def test_a_live_step_fills_phase_by_phase(page: Page, app: RunningApp) -> None:
    (app.home / "banks").mkdir(exist_ok=True)
    copy_bank(sample_data_path() / "demo_bank", app.home / "banks" / "live")
    page.goto(f"{app.url}/step?bank=live")
    drawn_stage(page)
    settled(page)
    places = """() => Object.fromEntries([...document.querySelectorAll(".stage-plot [data-memory]")].map((one) =>
      [one.dataset.memory, [one.getCTM().e, one.getCTM().f]]))"""
    begun: dict[str, list[float]] = {}
    for phase in ("1", "1", "2", "3", "4"):
        press_step(page)
        expect(page.locator("[data-state=current]")).to_have_attribute("data-phase", phase)
        settled(page)
        page.wait_for_function(f"{STAGE}.t === {STAGE}.goal")
        if phase == "2":  # The map comes near to the query and the pool; from phase B at rest it is exactly home.
            continue
        now = page.evaluate(places)
        for name in now.keys() & begun.keys():
            assert now[name] == pytest.approx(begun[name], abs=0.01)
        begun |= now
    # Back to an earlier step and on again: the step under way is where it was.
    page.locator("[data-phase='1']").click()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".stage")).to_have_attribute("data-step", "40")
    expect(page).to_have_url(re.compile("step=40"))
    settled(page)
    page.keyboard.press("ArrowRight")
    expect(page.locator(".stage")).to_have_attribute("data-step", "41")
    expect(page.locator("[data-state=current]")).to_have_attribute("data-phase", "4")
    settled(page)
    page.keyboard.press("f")
    expect(page.locator("[data-state=current]")).to_have_attribute("data-phase", "7")
    expect(page.locator(".stage-written")).to_contain_text("#41")


def q_on_stage(page: Page) -> dict[str, float]:
    """q of each memory on the stage; every place that names one agrees."""
    settled(page)
    marked = page.locator(".stage [data-q]").evaluate_all(
        "all => all.map(({ dataset }) => [dataset.memory, dataset.q])"
    )
    said = {name: float(q) for name, q in marked}
    assert all(said[name] == float(q) for name, q in marked)
    return said


def moves_on_stage(page: Page) -> dict[str, Any]:
    """The reward; and of each memory that it moved, q before and after, its place on the axis and its colour."""
    settled(page)
    shown = page.evaluate(f"""() => {{
      const {{ step, changes, axis, model }} = {STAGE};
      const dot = (n) => axis.dots.find((one) => one.n === n).dot;
      const drawn = (n) => ["cy", "fill"].map((name) => dot(n).getAttribute(name));
      const moves = changes.map(({{ change: {{ memory: n, before, after }} }}) =>
        [model.ids[n], [before, after, ...drawn(n)]]);
      return {{ reward: step.reward.reward, ...Object.fromEntries(moves) }};
    }}""")
    return dict(shown)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["", "&step=20"])
def test_a_reward_by_key_moves_the_stage_to_what_the_bank_holds_and_undo_moves_it_back(
    page: Page, app: RunningApp, at: str
) -> None:
    name = f"rated{at[-2:]}"
    (app.home / "banks").mkdir(exist_ok=True)
    folder = app.home / "banks" / name
    copy_bank(sample_data_path() / "demo_bank", folder)

    def in_bank(table: str, columns: str, where: str = "") -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{folder / 'bank.db'}?mode=ro", uri=True)) as database:
            return database.execute(f"SELECT {columns} FROM {table} WHERE run = 'household' {where}").fetchall()

    def agrees() -> dict[str, Any]:
        q = dict(in_bank("q_values", "memory_id, q"))
        shown = q_on_stage(page)
        assert shown and shown == {name: q[name] for name in shown}
        moves = moves_on_stage(page)
        step = page.evaluate(f"{STAGE}.step.step")
        held = in_bank("q_moves", "memory_id, before, after", f"AND step = {step} AND reward IS NOT NULL")
        assert {name: tuple(move[:2]) for name, move in moves.items() if name != "reward"} == {
            name: (before, after) for name, before, after in held
        }
        return moves

    page.goto(f"{app.url}/step?bank={name}{at}")
    drawn_stage(page)
    before = agrees()
    assert before["reward"] == 1.0
    settled(page)
    page.keyboard.press("1")
    expect(page.locator(".stage-reward-value")).to_have_text("−1.000")
    after = agrees()
    assert after["reward"] == -1.0 and after.keys() == before.keys()
    for memory in before.keys() - {"reward"}:
        # q, its place on the axis and its colour.
        assert all(now != then for now, then in zip(after[memory][1:], before[memory][1:], strict=True))
    page.reload()
    drawn_stage(page)
    settled(page)  # The row of buttons comes after the stage and takes of its height.
    assert agrees() == after
    page.keyboard.press("u")
    expect(page.locator(".stage-reward-value")).to_have_text("+1.000")
    assert agrees() == before


@pytest.mark.slow
def test_a_new_layout_stands_beside_the_old_until_it_is_used_and_one_click_leads_back(
    page: Page, app: RunningApp, tmp_path: Path
) -> None:
    with create_bank(str(tmp_path / "few"), "hashing", load_preferences()) as bank:
        run = start_run(
            bank, environment="household", tasks="household-train", settings=MemRLSettings(), seed=3, model="simulated"
        )
        live = live_run(bank, run.id, load_preferences())
        for number, _ in zip(range(9), live.agent.run(live.tasks, 1), strict=False):
            if number == 5:
                MapLayout(bank).places()  # Frozen on six of them: another one differs.
    shelf = app.home / "banks"
    shelf.mkdir(exist_ok=True)
    copy_bank(tmp_path / "few", shelf / "few")
    page.goto(f"{app.url}/step?bank=few")
    drawn_stage(page)
    settled(page)
    on_stage = f"() => {{ const {{ data }} = {STAGE}.model; return [data.memories.x, data.memories.y]; }}"
    before = page.evaluate(on_stage)
    page.locator(".st-key-map_menu button").first.click()
    page.locator(".st-key-relayout button").first.click()
    shown = "document.querySelector('.layouts-host').layouts"
    page.wait_for_selector(".layouts canvas")
    page.wait_for_function(f"{shown}?.models")
    settled(page)
    assert violations(page) == []
    old, new = page.evaluate(f"{shown}.models.map(({{ data }}) => [data.memories.x, data.memories.y])")
    assert page.evaluate(on_stage) == before == old != new
    assert np.ptp(np.array(new) - np.array(old)) < np.ptp(np.array(old)), "turned to fit"
    x, y = page.evaluate(f"""() => {{
      const {{ map }} = {shown}.sides[1];
      const [x, y] = map.at(map.glyphs[0].group.x, map.glyphs[0].group.y);
      const box = map.box.getBoundingClientRect();
      return [box.x + x, box.y + y];
    }}""")
    page.mouse.move(x, y)
    page.wait_for_function("document.querySelectorAll('.layouts .stage-lit').length === 2")
    assert len(set(page.locator(".layouts .stage-lit").evaluate_all("all => all.map(one => one.dataset.memory)"))) == 1
    page.get_by_role("button", name="Use the new map").click()
    page.wait_for_function(f"JSON.stringify(({on_stage})()) === '{json.dumps(new, separators=(',', ':'))}'")
    page.get_by_role("button", name="Back to the old map").click()
    page.wait_for_function(f"JSON.stringify(({on_stage})()) === '{json.dumps(old, separators=(',', ':'))}'")
