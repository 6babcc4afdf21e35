"""The stage in Chromium, as the player shows it."""

from __future__ import annotations

import copy
import json
import re
import shutil
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from memrl_core.agent.preferences import load_preferences
from memrl_core.agent.run_parts import create_bank
from memrl_core.agent.runs import live_run, start_run
from memrl_core.analysis.decision.labels import FUNCTION_WORDS
from memrl_core.analysis.decision.spectrum import spectrum
from memrl_core.analysis.decision.whatif import decided, situation_of
from memrl_core.bank import MemoryBank
from memrl_core.environments.helpdesk import Helpdesk
from memrl_core.figures.stage.data import NOT_REPORTED, Known, StageSource, stage_data
from memrl_core.figures.stage.player import source_of_run, stage_script, write_player
from memrl_core.numerals import fixed, signed
from memrl_core.records import Recalled, RecallRecord
from memrl_core.retrieval import select
from memrl_core.retrieval.exploration import Exploration, Ties, order_of_equals
from memrl_core.settings import MemRLSettings
from tests.builders import an_agent
from tests.figures.stage.conftest import SAMPLES

Play = Callable[..., Page]
POOLS = 1_000


def until(page: Page, condition: str, seconds: float = 60.0) -> None:
    """Wait for a condition; the player's policy forbids Playwright's own way, which evaluates a string in the page."""
    deadline = time.monotonic() + seconds
    while not page.evaluate(f"() => {condition}"):
        assert time.monotonic() < deadline, f"never came: {condition}"
        page.wait_for_timeout(30)


def a_pool(rng: np.random.Generator) -> tuple[RecallRecord, np.ndarray]:
    """A pool in the order of phase A with its q; many of its values are equal."""
    size = int(rng.integers(1, 14))
    coarse = rng.random() < 0.5
    similarity = np.sort(rng.integers(0, 4, size) / 4 if coarse else rng.random(size).round(9))[::-1]
    q = rng.integers(-2, 3, size) / 2 if coarse else rng.normal(size=size)
    pool = tuple(Recalled(f"m{i}", float(value), i + 1, None) for i, value in enumerate(similarity))
    return RecallRecord(size, "record", -1.0, True, size, pool, ()), q


def test_phase_b_in_the_browser_is_the_cores_on_a_thousand_random_pools(browser: Browser) -> None:
    rng = np.random.default_rng(7)
    pools, expected = [], []
    for seed in range(POOLS):
        recalled, q = a_pool(rng)
        size, weight = len(q), float(rng.choice([0.0, 0.5, 1.0, rng.random()]))
        ties: Ties = "older" if seed % 3 == 0 else "seeded"
        decision = select(
            recalled, q, np.zeros(size, dtype=np.int64), k2=3, weight=weight, normaliser="pool", fixed_mean=0.5,
            fixed_sd=0.1, epsilon=0.0, seed=seed, exploration=Exploration(ties=ties),
        )  # fmt: skip
        equals = order_of_equals(np.arange(1, size + 1), ties, seed).argsort().argsort().tolist()
        similarity = [one.similarity for one in recalled.pool]
        pools.append({"similarity": similarity, "q": q.tolist(), "equals": equals, "weight": weight})
        order = [int(c.memory_id[1:]) for c in decision.candidates]
        expected.append((order, [float(c.score or 0.0) for c in decision.candidates]))
    page = browser.new_page()
    found = page.evaluate(
        """async ([script, pools]) => {
          const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
          const { phaseB } = await import(address);
          return pools.map((pool) => phaseB(pool));
        }""",
        [stage_script(), pools],
    )
    page.close()
    for (order, scores), one in zip(expected, found, strict=True):
        assert one["order"] == order
        assert [one["scores"][i] for i in order] == pytest.approx(scores, abs=1e-9)


def tried_settings(rng: np.random.Generator, base: Mapping[str, Any]) -> dict[str, Any]:
    """Another λ, k1, k2 and δ, some of them as in `base`."""
    k1 = int(rng.integers(1, 16))
    drawn = {"weight": float(rng.choice([0.0, 1.0, rng.random()])), "k1": k1, "k2": int(rng.integers(0, k1 + 1)),
             "delta": float(rng.choice([-1.0, 0.0, rng.random()]))}  # fmt: skip
    kept = {name: base[name] for name in drawn if rng.random() < 0.3}
    both = {**drawn, **kept}
    return {**both, "k2": min(both["k2"], both["k1"])}


def test_another_k1_k2_or_delta_decides_in_the_browser_as_in_the_core(demo: MemoryBank, browser: Browser) -> None:
    rng, run, cases, expected = np.random.default_rng(3), demo.runs()[0], [], []
    for trace in [*demo.traces(run.id)] * 3:
        bounds = {"q_min": float(rng.choice([-10.0, -0.2])), "q_floor": float(rng.choice([-10.0, 0.0]))}
        ties, normaliser = str(rng.choice(["seeded", "older"])), str(rng.choice(["pool", "fixed", "raw"]))
        base = {**trace.settings, **bounds, "ties": ties, "normaliser": normaliser, "k1": int(rng.integers(1, 12))}
        base["k2"] = min(base["k2"], base["k1"])
        situation = replace(situation_of(demo, trace), settings=base)
        recall, decision = decided(situation)
        recorded = replace(trace, recall=recall, decision=decision, settings=base)
        data = stage_data(StageSource(run, "demo", [recorded], [], {}, {}, Known({}, {})))
        tried = tried_settings(rng, base)
        cases.append({"step": data["steps"][0], "tried": tried})
        again, chosen = decided(situation, {**base, **tried})
        ids = data["memories"]["id"]
        held = {one.memory_id for one in (*recall.pool, *recall.left_out)}
        pool = [one.memory_id for one in again.pool]
        scores = [c.score for c in chosen.candidates][: len(pool)]
        expected.append((ids, held, pool, list(chosen.selected), scores, [f.weight for f in spectrum(chosen).flips]))
    page = browser.new_page()
    found = page.evaluate(
        """async ([script, cases]) => {
          const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
          const { decidedAgain, flipsOf, reranked, selectedAt } = await import(address);
          return cases.map(({ step, tried }) => {
            const again = decidedAgain(step, tried);
            const order = reranked(again, tried.weight);
            const pool = again.candidates.filter((one) => !one.missed).map((one) => one.memory);
            const scores = order.map((one) => one.score);
            return [again.known ?? true, pool, selectedAt(again, tried.weight), scores, flipsOf(again)];
          });
        }""",
        [stage_script(), cases],
    )
    page.close()
    told = 0
    for (ids, held, pool, selected, scores, flips), (known, in_pool, chosen, shown, ticks) in zip(
        expected, found, strict=True
    ):
        if not known:
            assert len(in_pool) <= len(pool)
            continue
        told += 1
        assert held >= set(pool)
        assert [ids[n] for n in in_pool] == pool
        assert [ids[n] for n in chosen] == selected
        assert shown == pytest.approx(scores, abs=1e-9)
        assert ticks == pytest.approx(flips, abs=1e-9)
    assert told > len(cases) / 2 and told < len(cases)


def test_every_number_that_is_shown_is_the_traces(demo: MemoryBank, demo_data: Any, play: Play) -> None:
    page = play(demo_data, "step=11&phase=7")
    trace = demo.trace(demo.runs()[0].id, 11)
    assert trace.decision and trace.update and trace.reward and trace.reward.reward is not None
    for c in trace.decision.candidates:
        row = page.locator(f'.stage-row[data-memory="{c.memory_id}"]')
        expect(row).to_contain_text(fixed(c.similarity))
        assert row.locator("text").first.text_content() == str(c.rank_recall)
        if c.rank_select is not None:
            texts = page.locator(f'.stage-row-b[data-memory="{c.memory_id}"] text').all_text_contents()
            assert (texts[0], texts[-1]) == (str(c.rank_select), signed(c.score or 0.0))
    expect(page.locator(".stage-reward-value")).to_have_text(signed(trace.reward.reward))
    for change in trace.update.of_q:
        row = page.locator(f'.stage-change[data-memory="{change.memory_id}"]')
        for value in (change.before, change.after, change.after - change.before):
            expect(row).to_contain_text(signed(value))
    chips = page.locator(".stage-chip").evaluate_all("all => all.map((one) => one.dataset.memory)")
    assert chips == list(trace.decision.selected)


def test_a_memory_that_is_pointed_at_lights_up_in_all_parts_and_a_click_opens_its_card(
    demo: MemoryBank, demo_data: Any, play: Play
) -> None:
    page = play(demo_data, "step=39&phase=7")
    decision = demo.trace(demo.runs()[0].id, 39).decision
    assert decision is not None
    memory = decision.selected[0]
    same = f'[data-memory="{memory}"]'
    page.locator(f".stage-row{same}").hover()
    lit = page.locator(f"{same}[data-lit]")
    parts = lit.evaluate_all("all => all.map((one) => one.getAttribute('class').split(' ')[0])")
    assert {"stage-row", "stage-row-b", "stage-slope", "stage-chip", "stage-dot", "stage-lane"} <= set(parts)
    assert page.locator("[data-lit]").count() == lit.count()
    page.locator(f".stage-dot{same} .stage-shape").click(force=True)
    expect(page.locator(".stage-card")).to_contain_text(demo.memory(memory).intent)
    expect(page.locator(".stage-card")).to_contain_text("λ")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".stage-card")).not_to_have_attribute("data-memory", memory)
    page.keyboard.press("Escape")
    expect(page.locator(".stage-card")).to_be_hidden()


def test_search_and_lasso_find_what_is_there(demo: MemoryBank, demo_data: Any, play: Play) -> None:
    table = demo_data["memories"]
    about = [*table["about"]]
    about[3] = "user: 7 · tags: kitchen"
    page = play({**demo_data, "memories": {**table, "about": about}}, f"step=30&phase=7&memory={table['id'][3]}")
    expect(page.locator(".stage-card")).to_contain_text("user: 7")
    page.get_by_label("Search the texts").fill("User: 7")
    expect(page.get_by_text("1 found")).to_be_visible()
    page.keyboard.press("Escape")
    known = demo.utilities(demo.runs()[0].id, as_of=29)
    word = max(demo.memory(next(iter(known))).intent.split(), key=len)
    page.get_by_label("Search the texts").fill(word.upper())
    having = [name for name in known if word in demo.memory(name).experience.lower()]
    expect(page.get_by_text(f"{len(having)} found")).to_be_visible()
    page.keyboard.press("Escape")
    box = page.locator(".stage-map-box").bounding_box()
    assert box
    # The corners of the plot are round.
    right, low = box["width"] - 6, box["height"] - 6
    corners = [(6, 6), (right, 6), (right, low), (6, low), (6, 12)]
    page.get_by_role("button", name="Lasso").click()
    page.mouse.move(box["x"] + 6, box["y"] + 6)
    page.mouse.down()
    for x, y in corners:
        page.mouse.move(box["x"] + x, box["y"] + y, steps=3)
    page.mouse.up()
    expect(page.locator(".stage-card")).to_contain_text(f"{len(known)} memories selected")


def test_what_is_nearest_in_the_full_space_is_named_on_the_card_and_lit_on_the_map(
    demo: MemoryBank, demo_data: Any, play: Play
) -> None:
    page = play(demo_data, "step=40&phase=7&memory=household-0007")
    own = demo.memory("household-0007")
    best: dict[str, float] = {}
    for other in demo.memories():
        similarity = float(demo.embedding(other.id) @ demo.embedding(own.id))
        best[other.intent] = max(best.get(other.intent, -1.0), similarity)
    expected = sorted((similarity for intent, similarity in best.items() if intent != own.intent), reverse=True)[:8]
    shown = page.locator(".stage-card .stage-list li").all_text_contents()
    assert [line.split(" ")[0] for line in shown] == [fixed(similarity) for similarity in expected]
    page.get_by_role("button", name="on the map").click()
    assert page.evaluate("player.map.marked.size") == 1 + len(expected)
    page.keyboard.press("Escape")
    assert page.evaluate("player.map.marked") is None


# Of a glyph: whether the canvas has its colour where the map says that it lies.
COLOURED = """(at) => {
  const { map } = player;
  const { group } = map.byGroup[at];
  const [x, y] = map.at(group.x, group.y);
  const [box, canvas] = [map.box, map.canvas].map((one) => one.getBoundingClientRect());
  const places = [x + box.x - canvas.x, y + box.y - canvas.y].map((place) => Math.floor(place * map.ratio));
  const [red, green, blue] = map.canvas.getContext("2d").getImageData(...places, 1, 1).data;
  return map.packed().value[at] << 8 >>> 0 === ((blue << 16 | green << 8 | red) << 8) >>> 0;
}"""


def test_of_thousands_a_drag_paints_nothing_and_a_step_makes_only_the_glyphs_anew_that_changed(
    demo_data: Any, play: Play
) -> None:
    many, first = 4_000, len(demo_data["before"])
    rng = np.random.default_rng(3)
    memories = copy.deepcopy(demo_data["memories"])
    for n in range(first, first + many):
        x, y, intent = *(4 * rng.random(2)), len(memories["intents"])
        memories["intents"].append([f"task {n}", ""])
        new = {"id": f"m{n}", "label": f"m{n}", "x": x, "y": y, "intent": intent, "outcome": None, "step": 0, "run": ""}
        for name, value in new.items():
            memories[name].append(value)
    before = [*demo_data["before"], *([float(q), 1] for q in rng.uniform(-1, 1, many))]
    page = play({**demo_data, "memories": memories, "before": before}, "step=11&phase=7")
    page.evaluate("""() => {
      const { map } = player; const { paint } = map;
      window.paints = 0;
      map.paint = () => { window.paints += 1; paint.call(map); };
      window.made = [...map.byGroup];
    }""")
    top = page.evaluate("player.map.order.at(-1)")
    assert page.evaluate(COLOURED, top)
    box = page.locator(".stage-plot").bounding_box()
    assert box
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    begun = page.evaluate("player.map.view.x")
    right = page.evaluate("(at) => player.map.byGroup[at].group.x > player.map.view.x", top)
    for to, paints in ((100, 0), (200, 1)):
        page.mouse.move(x - to if right else x + to, y, steps=5)
        until(page, f"player.map.drawn.includes(player.map.view.x) && player.map.view.x !== {begun}")
        assert (page.evaluate("paints"), page.evaluate(COLOURED, top)) == (paints, True)
    page.mouse.up()
    page.keyboard.press("Shift+ArrowRight")
    page.wait_for_selector(".stage[data-step='12']")
    assert 0 < page.evaluate("player.map.byGroup.filter((glyph, at) => glyph !== made[at]).length") < 10


def current(page: Page) -> str | None:
    return page.locator("[data-phase][data-state=current]").get_attribute("data-phase")


@pytest.mark.slow
def test_it_plays_to_the_end_and_moves_nothing_on_the_map_but_what_the_step_says(demo_data: Any, play: Play) -> None:
    page = play(demo_data, "step=11&phase=1")
    places = """() => Object.fromEntries([...document.querySelectorAll(".stage-plot [data-memory]")].map((one) => {
      const at = one.getCTM(); return [one.dataset.memory, [at.e, at.f]]; }))"""
    begun = page.evaluate(places)
    page.evaluate("""() => {
      window.seen = []; window.far = 0; window.near = 0;
      const first = {};
      const look = () => {
        // On phase A the view comes near, and on phase B it is back where it was.
        const { view, home } = player.map;
        near = Math.max(near, view.kx / home.kx);
        const parts = view.kx === home.kx ? ".stage-plot [data-memory], .stage-row" : ".stage-row";
        for (const one of document.querySelectorAll(parts)) {
          const { e, f } = one.getCTM(); const name = one.getAttribute("class").split(" ")[0] + one.dataset.memory;
          first[name] ??= [e, f];
          far = Math.max(far, Math.abs(e - first[name][0]), Math.abs(f - first[name][1]));
        }
        const now = document.querySelector("[data-phase][data-state=current]").dataset.phase;
        if (seen.at(-1) !== now) seen.push(now);
        requestAnimationFrame(look);
      };
      look();
    }""")
    page.locator(".stage").focus()
    page.keyboard.press(" ")
    until(page, "seen.at(-1) === '7' && player.t === 7")
    assert page.evaluate("seen") == list("1234567")
    assert page.evaluate("far") <= 1 < page.evaluate("near")
    for number in range(12, 20):
        page.keyboard.press("Shift+ArrowRight")
        # Drawn, which is a frame later than known.
        page.wait_for_selector(f".stage[data-step='{number}']")
        now = page.evaluate(places)
        apart = [abs(a - b) for name in now.keys() & begun.keys() for a, b in zip(now[name], begun[name], strict=True)]
        assert not apart or max(apart) <= 1
    page.keyboard.press("2")
    page.locator("[data-phase='6']").click()
    assert page.evaluate("player.t") >= 5, "a phase that is opened waits for none before it"


def test_keys_go_through_phases_and_steps_and_the_address_remembers(demo_data: Any, play: Play) -> None:
    page = play(demo_data, "step=11&phase=2", reduced_motion="reduce")
    assert current(page) == "2"
    page.keyboard.press("6")
    page.wait_for_selector("[data-phase='6'][data-state=current]")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    until(page, "location.hash.includes('step=12') && location.hash.includes('phase=1')")
    for _ in range(10):
        page.keyboard.press("Shift+ArrowRight")
    until(page, "player.step.step === 22")
    page.keyboard.press("ArrowLeft")
    until(page, "location.hash.includes('step=21') && location.hash.includes('phase=7')")
    page.get_by_label("Weight λ").fill("1")
    expect(page.locator(".stage-line")).to_contain_text("What if λ")
    until(page, "location.hash.includes('lambda=1')")


SEEN = """async (address) => {
  const frame = () => new Promise(requestAnimationFrame);
  const came = new Promise((resolve) => window.addEventListener("hashchange", resolve, { once: true }));
  location.hash = address;
  await came;
  await frame();
  await frame();
  const { step, tried, pinnedId, goal, chosen, map, search, found } = player;
  return [location.hash, [step.step, tried, pinnedId, goal, chosen, map.colour, search.value, found.textContent]];
}"""
"""What a person sees at an address, and the address that the player then has."""


def test_any_view_of_the_player_is_the_same_by_the_address_that_it_gives(demo_data: Any, play: Play) -> None:
    rng = np.random.default_rng(11)
    page = play(demo_data)
    ids = [*demo_data["memories"]["id"], "not there"]
    parts: dict[str, list[Any]] = {
        "step": [1, 7, 20, 39, 99], "memory": ids, "phase": ["0.5", "3", "9", "x"], "find": ["pot & <pan>", "%"],
        "lambda": ["0", "0.13", "1", "7"], "k1": ["1", "4", "12", "2.5", "0"], "k2": ["0", "2", "101"],
        "delta": ["-0.5", "0.31", "2"], "colour": ["age", "family", "no"],
    }  # fmt: skip
    for n in range(40):
        names = [name for name in parts if rng.random() < 0.5]
        asked = {name: parts[name][rng.integers(len(parts[name]))] for name in names}
        address, seen = page.evaluate(SEEN, urlencode({**asked, "n": n}))
        again, now = page.evaluate(SEEN, f"{address}&n")
        assert (again, now) == (address, seen)


def test_a_digit_shows_its_phase_at_once_and_space_plays(demo_data: Any, play: Play) -> None:
    page = play(demo_data, "step=11&phase=1")
    at_once = """async (phase) => {
      document.dispatchEvent(new KeyboardEvent("keydown", { key: phase, bubbles: true }));
      for (const _ of [1, 2]) await new Promise(requestAnimationFrame);
      return [player.t, Number(document.querySelector("[data-phase][data-state=current]").dataset.phase)];
    }"""
    for phase in (2, 7, 3, 6, 5):
        assert page.evaluate(at_once, str(phase)) == [phase, phase]
    page.keyboard.press(" ")
    until(page, "player.t > 5 && player.playing")


# Of each step: pairs of labels in one picture whose boxes overlap, and what was selected without a name on the map or
# beside the axis of q.
LABELS = """async ([steps, phase]) => {
  const found = [];
  const frame = () => new Promise(requestAnimationFrame);
  const hidden = (node) => Number(node.getAttribute("opacity") ?? 1) === 0 || getComputedStyle(node).display === "none";
  const seen = (text) => {
    for (let at = text; at.tagName !== "svg"; at = at.parentNode) if (hidden(at)) return false;
    return text.textContent && !text.hasAttribute("clip-path");
  };
  for (const index of steps) {
    player.show(index, phase);
    const pool = player.step.candidates;
    player.hover(pool.length ? pool[index % pool.length].memory : null);
    for (const _ of [1, 2]) await frame();
    for (const part of [".stage-plot svg", ".stage-q", ".stage-ranks svg"]) {
      const texts = [...document.querySelector(part).querySelectorAll("text")].filter(seen);
      const boxes = texts.map((one) => one.getBoundingClientRect());
      boxes.forEach((a, i) => boxes.slice(0, i).forEach((b, j) => {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (Math.min(wide, high) > 0.5) found.push([index, part, texts[i].textContent, texts[j].textContent]);
      }));
      for (const n of part === ".stage-ranks svg" ? [] : player.step.decision?.selected ?? []) {
        if (!texts.some((one) => one.textContent === player.model.labels[n])) found.push([index, part, n, "no name"]);
      }
    }
  }
  return found;
}"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [1440, 1024])
def test_no_label_lies_on_another_and_whatever_was_selected_has_its_name(
    demo_data: Any, play: Play, width: int
) -> None:
    page = play(demo_data, width=width)
    for phase in (7, 3):
        assert page.evaluate(LABELS, [list(range(len(demo_data["steps"]))), phase]) == []


@pytest.mark.parametrize("width", [1440, 1024])
def test_a_rank_of_many_digits_leaves_the_name_free(demo_data: Any, play: Play, width: int) -> None:
    data = copy.deepcopy({**demo_data, "steps": demo_data["steps"][-1:]})
    for candidate in data["steps"][0]["candidates"][-3:]:
        candidate["rank_a"] += 2400
    page = play(data, "phase=7", width=width, reduced_motion="reduce")
    assert page.locator(".stage-row text", has_text=re.compile(r"^24\d\d$")).count() == 3
    assert page.evaluate(LABELS, [[0], 7]) == []


@pytest.mark.parametrize("width", [1440, 1024])
def test_a_line_leads_from_each_memory_that_the_answer_follows_to_the_answer(
    tmp_path: Path, play: Play, width: int
) -> None:
    agent = an_agent(tmp_path / "bank", environment="helpdesk", credit="followed", k2=3)
    traces = list(agent.run(Helpdesk.make_tasks("helpdesk-train")[:40]))
    data = stage_data(source_of_run(agent.bank, "r"))
    followed = [len(trace.follows.memories) if trace.follows else 0 for trace in traces]
    at = next(n for n in range(39, 0, -1) if 0 < followed[n] < len(traces[n].decision.selected))
    page = play(data, f"step={traces[at].step}&phase=7", width=width, reduced_motion="reduce")
    lines = page.locator(".stage-followed-line")
    assert lines.count() == followed[at]
    assert set(lines.evaluate_all("all => all.map(one => one.dataset.memory)")) == set(traces[at].follows.memories)
    assert page.locator(".stage-chip[data-followed]").count() == followed[at]
    shown = page.locator(".stage-followed").bounding_box()
    for line in lines.all():
        box = line.bounding_box()
        assert shown and box and box["y"] <= shown["y"] + shown["height"] and box["width"] > 2
        chip = page.locator(f".stage-chip[data-memory='{line.get_attribute('data-memory')}']").bounding_box()
        ends = (box["y"], box["y"] + box["height"])
        assert chip and any(chip["y"] - 3 <= end <= chip["y"] + chip["height"] + 3 for end in ends)
    assert "not credited" in page.locator(".stage-update").inner_text()
    # Where the stage gets another height they go along.
    height = page.viewport_size["height"]  # type: ignore[index]
    for now in (height - 120, height):
        page.set_viewport_size({"width": width, "height": now})
        until(page, "!document.getAnimations().length")
        page.wait_for_timeout(300)
        said = page.locator(".stage-followed").bounding_box()
        for line in lines.all():
            box = line.bounding_box()
            middle = said["y"] + said["height"] / 2 if said else 0.0
            assert box and min(abs(box["y"] - middle), abs(box["y"] + box["height"] - middle)) < 6
    page.keyboard.press("m")
    expect(lines.first).to_be_hidden()
    page.keyboard.press("m")
    expect(lines.first).to_be_visible()
    page.keyboard.press("2")
    until(page, "document.querySelectorAll('.stage-followed-line').length === 0")


NAMED = """(n) => {
  const [id, name] = [player.model.ids[n], player.model.names[n]];
  const of = (list, text) => [...document.querySelectorAll(list)].filter((one) => one.dataset.memory === id)
    .map((one) => one.querySelector(text).firstChild.textContent);
  const drawn = [".stage-q .stage-lane", ".stage-row", ".stage-row-b"];
  player.setTried({ weight: 0 });
  return { name, parts: [
    ...drawn.map((list) => of(list, list.includes("row") ? ".stage-strong" : "text")), of(".stage-chip", "b"),
    of(".stage-change", "b"), [player.map.cast.find((one) => one.n === n).name.textContent],
  ].map(([one]) => one), line: player.followed.textContent };
}"""
"""What each part of the stage calls a memory."""


@pytest.mark.parametrize("long", ["household-0022", "household-fork-2966-0022"])
def test_a_memory_of_another_run_has_one_name_in_all_parts_of_the_stage(demo_data: Any, play: Play, long: str) -> None:
    data = copy.deepcopy(demo_data)
    step = next(one for one in data["steps"] if one["follows"])
    n = step["follows"][0]
    label, data["memories"]["label"][n] = data["memories"]["label"][n], long
    step["followed"] = step["followed"].replace(label, long)
    page = play(data, f"step={step['step']}&phase=7", reduced_motion="reduce")
    named = page.evaluate(NAMED, n)
    assert set(named["parts"]) == {named["name"]}
    assert named["line"].startswith(f"follows {named['name']}")
    assert named["name"] == (long if len(long) <= 14 else "househ…66-0022")
    said = page.locator(".stage-followed")
    assert long in (said.get_attribute("title") or "")


def test_of_the_pool_one_row_takes_the_focus_and_the_arrows_go_on_from_it(demo_data: Any, play: Play) -> None:
    page = play(demo_data, "step=11&phase=7", reduced_motion="reduce")
    # An element of SVG that listens to the focus takes it in Chromium, with a tabindex or without.
    takes = "one => { one.focus(); return document.activeElement === one && one.getAttribute('tabindex') !== '-1'; }"
    stops = page.evaluate(f"[...document.querySelectorAll('.stage svg *')].filter({takes}).map(one => one.ariaLabel)")
    assert len(stops) == 1 and ", rank 1 by similarity" in stops[0]
    page.locator(".stage-row[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    assert ", rank 2 by similarity" in page.evaluate("document.activeElement.ariaLabel")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_window(
    demo_data: Any, play: Play, scheme: str, width: int
) -> None:
    page = play(demo_data, "step=11&phase=7&memory=household-0007", width=width, color_scheme=scheme)
    found = Axe().run(page).response["violations"]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


CUT = """(step) => {
  player.show(player.model.indexOf(step), 7);
  player.render();
  const box = (node) => node.getBoundingClientRect();
  const apart = (a, b) => Math.max(Math.max(a.left, b.left) - Math.min(a.right, b.right),
    Math.max(a.top, b.top) - Math.min(a.bottom, b.bottom));
  const dots = [...document.querySelectorAll(".stage-lane circle")].map(box);
  const numbers = [...document.querySelectorAll(".stage-q > text")];
  const covered = numbers.filter((number) => dots.some((dot) => apart(dot, box(number)) < -0.5));
  const stage = box(player.root).right;
  return {
    numbers: covered.map((one) => [step, one.textContent]),
    names: [1, 2, 3, 4, 5, 6, 7].filter((phase) => {
      player.goTo(phase, { atOnce: true });
      player.render();
      const button = document.querySelector(`[data-phase="${phase}"]`);
      return button.scrollWidth > button.clientWidth;
    }),
    tools: [...document.querySelectorAll(".stage-tools *")].filter((one) => box(one).right > stage + 0.5).length,
  };
}"""
"""What of a step is cut or covered: numbers of the axis under a dot, names of phases, tools of the map."""


@pytest.mark.parametrize("width", [1390, 1200])
def test_no_name_of_a_phase_is_cut_no_dot_covers_a_number_and_the_tools_stay_within_the_stage(
    demo_data: Any, play: Play, width: int
) -> None:
    page = play(demo_data, width=width)
    for step in (step["step"] for step in demo_data["steps"]):
        assert page.evaluate(CUT, step) == {"numbers": [], "names": [], "tools": 0}


def test_why_a_phase_has_no_record_is_said_whole_in_its_column(demo_data: Any, play: Play) -> None:
    lacking = {"recall": None, "decision": None, "candidates": [], "missing": {"2": NOT_REPORTED, "3": NOT_REPORTED}}
    page = play({**demo_data, "steps": [{**demo_data["steps"][0], **lacking}]})
    said = page.locator(".stage-ranks .stage-caption").evaluate_all("lines => lines.map(one => one.textContent)")
    assert " ".join(said).count(NOT_REPORTED) == 2
    right = page.locator(".stage-ranks").evaluate("one => one.getBoundingClientRect().right")
    for line in page.locator(".stage-ranks .stage-caption").all():
        assert (box := line.bounding_box()) and box["x"] + box["width"] <= right


def test_no_part_of_a_step_sticks_out_of_a_narrow_stage_however_long_the_names(demo_data: Any, play: Play) -> None:
    labels = [f"given-{n:03}" for n in range(len(demo_data["memories"]["label"]))]
    data = {**demo_data, "memories": {**demo_data["memories"], "label": labels}}
    page = play(data, "step=11&phase=7", width=800)
    beyond = """[...document.querySelectorAll(".stage-task, .stage-task *")].map((one) =>
      one.getBoundingClientRect().right - document.querySelector(".stage").getBoundingClientRect().right)"""
    assert page.locator(".stage-change").count() > 0
    assert max(page.evaluate(beyond)) <= 0.5


HOSTILE = "<img src=x onerror=window.hacked=1></script><script>window.hacked=1</script>{{7*7}}"


def test_hostile_texts_stay_texts(demo_data: Any, play: Play) -> None:
    def damaged(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: damaged(one, key) for key, one in value.items()}
        if isinstance(value, list):
            return [damaged(one, name) for one in value]
        return HOSTILE if isinstance(value, str) and name not in ("outcome", "rule", "op", "origin", "id") else value

    data = damaged(copy.deepcopy({**demo_data, "steps": demo_data["steps"][8:12]}))
    data["memories"]["id"] = [f'{HOSTILE}"]{n}' for n in range(len(data["memories"]["id"]))]
    data["memories"]["label"] = data["memories"]["id"]
    data["memories"]["texts"]["2"] = HOSTILE + "é" * 1_000_000
    page = play(data, "step=11&phase=7")
    page.locator(".stage-row").first.click()
    expect(page.locator(".stage-card")).to_contain_text("onerror")
    page.get_by_role("button", name="read it").dispatch_event("click")
    expect(page.locator(".stage-card")).to_contain_text("</script>")
    assert page.evaluate("[window.hacked, document.querySelectorAll('img, script').length]") == [None, 2]


@pytest.mark.parametrize(
    "lacking", [("recall", "decision"), ("decision",), ("answer", "prompt", "reward", "update", "write")]
)
def test_a_step_with_missing_parts_is_drawn_and_says_so(demo_data: Any, play: Play, lacking: tuple[str, ...]) -> None:
    step = {**copy.deepcopy(demo_data["steps"][10]), **dict.fromkeys(lacking), "query": None}
    step["missing"] = {str(n): f"Part {n} was not reported." for n in range(2, 8)}
    if "decision" in lacking:
        kept = ("memory", "similarity", "rank_a", "missed", "short", "why")
        step["candidates"] = [] if "recall" in lacking else [{k: one[k] for k in kept} for one in step["candidates"]]
    page = play({**demo_data, "steps": [step]}, "phase=7")
    for phase in "1234567":
        page.keyboard.press(phase)
    expect(page.locator(".stage")).to_contain_text("was not reported")
    until(page, "player.t === 7")


def test_a_layout_that_lacks_memories_is_drawn_and_says_how_many(demo_data: Any, play: Play) -> None:
    memories = {**demo_data["memories"], **{axis: [None] * 10 + demo_data["memories"][axis][10:] for axis in "xy"}}
    page = play({**demo_data, "memories": memories}, "step=11&phase=7")
    expect(page.locator(".stage-legend")).to_contain_text("10 memories have no place on this map")
    page.locator(".stage-row").first.click()
    expect(page.locator(".stage-card")).to_be_visible()


def test_no_memory_and_one_memory_are_drawn(demo_data: Any, play: Play) -> None:
    for steps in (demo_data["steps"][:1], demo_data["steps"][1:2]):
        data = {**demo_data, "steps": steps, "before": [None] * len(demo_data["before"])}
        page = play(data, "phase=7")
        expect(page.locator(".stage-line")).to_contain_text("written as")


@pytest.mark.slow
def test_five_hundred_steps_are_less_than_five_megabytes(tmp_path: Path, browser: Browser) -> None:
    with create_bank(str(tmp_path / "bank"), "hashing", load_preferences()) as bank:
        run = start_run(
            bank, environment="household", tasks="household-train", settings=MemRLSettings(), seed=3,
            model="simulated",
        )  # fmt: skip
        live = live_run(bank, run.id, load_preferences())
        with bank.write.batch(100):
            for _, _trace in zip(range(500), live.agent.run(live.tasks, 500), strict=False):
                pass
        assert write_player(bank, run.id, tmp_path / "run.html") < 5_000_000
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{(tmp_path / 'run.html').as_uri()}#step=500&phase=7")
    expect(page.locator(".stage")).to_contain_text("Step 500")
    page.close()
    assert [address for address in asked if not address.startswith("file:")] == []


def test_the_script_is_plain_modules_without_a_build_and_passes_over_the_cores_function_words() -> None:
    script = stage_script()
    assert "innerHTML" not in script and "import " not in script.split("\n", 1)[0]
    (words,) = re.findall(r"FUNCTION_WORDS = new Set\((.*)\)", script)
    assert set(json.loads(words)) == FUNCTION_WORDS


def test_stage_data_of_the_second_demo_plays(tmp_path: Path, play: Play) -> None:
    shutil.copytree(SAMPLES / "demo_qwen_bank", tmp_path / "bank")
    with MemoryBank.open(str(tmp_path / "bank")) as bank:
        data = stage_data(source_of_run(bank, bank.runs()[-1].id))
    page = play(data, "step=41&phase=7", reduced_motion="reduce")
    for number in range(42, 52):
        page.keyboard.press("Shift+ArrowRight")
        until(page, f"player.step.step === {number}")


def test_the_strip_leads_to_each_step_by_click_drag_and_key_and_the_film_plays_every_move(
    demo: MemoryBank, demo_data: Any, play: Play
) -> None:
    run = demo.runs()[0].id
    page = play(demo_data, "step=11&phase=7")
    strip = page.get_by_test_id("strip")
    outcomes = strip.locator("[data-step]").evaluate_all("all => all.map((one) => one.dataset.outcome)")
    assert outcomes == [trace.reward and trace.reward.outcome for trace in demo.traces(run)]
    expect(strip.locator("[aria-current=step]")).to_have_attribute("data-step", "11")
    strip.locator("[data-step='7']").click()
    expect(page.locator(".stage")).to_have_attribute("data-step", "7")
    boxes = [strip.locator(f"[data-step='{step}']").bounding_box() for step in (20, 26)]
    (x, y), (to, _) = [(box["x"] + box["width"] / 2, box["y"] + 9) for box in boxes if box]
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(to, y, steps=4)
    expect(page.locator(".stage")).to_have_attribute("data-step", "26")
    page.mouse.up()
    for key in ("ArrowRight", "PageDown", "Shift+Home"):
        page.keyboard.press(key)
    expect(strip.get_by_role("slider")).to_have_attribute("aria-valuenow", "1")
    won = outcomes[:17].count("success")
    expect(strip.locator(".strip-window")).to_contain_text(f"Steps 1–17: {won} of 17 succeeded")
    page.keyboard.press("Escape")
    expect(strip.locator(".strip-window")).to_be_hidden()
    page.get_by_test_id("film").click()
    until(page, "player.film && player.film.frames > 5 && player.film.ended > 0")
    after = page.evaluate("Array.from({ length: player.film.total + 1 }, (_, ended) => [...player.film.qAfter(ended)])")
    ids, histories = demo_data["film"]["ids"], demo.histories(run)
    for ended, found in enumerate(after):
        for name, q in zip(ids, found, strict=True):
            points = [point for point in histories[name] if point.step <= ended]
            assert (points[-1].after == q) if points else q is None or np.isnan(q)
    page.keyboard.press(" ")
    until(page, "!player.film.playing")
    page.evaluate("player.film.jump(30)")
    shown = page.evaluate("[...player.film.shown]")
    assert shown == after[30]
    page.keyboard.press("ArrowRight")
    page.locator(".film-swarm canvas").click()
    expect(page.locator(".film")).to_have_count(0)
    expect(page.locator(".stage")).to_have_attribute("data-step", "31")
    page.get_by_test_id("film").click()
    page.keyboard.press("Escape")
    expect(page.locator(".stage")).to_have_attribute("data-step", "31")


def test_the_rows_of_a_pool_that_stand_close_leave_room_between_their_letters(demo_data: Any, play: Play) -> None:
    page = play(demo_data, "step=22", width=1024)
    pitch, size = page.evaluate(
        """() => {
          const { ranks, model, theme, index, step } = player;
          ranks.layout(560, 62 + 12.5 * step.candidates.length, model, theme);
          ranks.setStep(index, step);
          const rows = [...document.querySelectorAll(".stage-row")].filter((row) => row.querySelector("text"));
          const tops = rows.map((row) => row.getCTM().f);
          const texts = rows.flatMap((row) => [...row.querySelectorAll("text")]);
          const sizes = texts.map((text) => parseFloat(getComputedStyle(text).fontSize));
          return [Math.min(...tops.slice(1).map((top, i) => top - tops[i])), Math.max(...sizes)];
        }"""
    )
    assert 11 < pitch < 13
    assert size <= 0.85 * pitch


def test_a_film_whose_frames_are_late_skips_steps_and_takes_the_time_that_was_chosen(browser: Browser) -> None:
    page = browser.new_page()
    steps, seconds, late = 400, 10, 0.3
    moves = b"".join(
        array.tobytes()
        for array in (np.linspace(-1, 1, steps), np.arange(1, steps + 1, dtype="<i4"), np.arange(steps, dtype="<i4"))
    )
    film = {
        "ids": [str(n) for n in range(steps)],
        "count": steps,
        "moves": b64encode(moves).decode(),
        "gone": [[3, 50]],
    }
    reached, as_folded, known = page.evaluate(
        """async ([script, film, steps, seconds, late]) => {
          const { Film } = await import(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
          const strip = { first: 1, steps: null, cells: "1".repeat(steps), lines: [] };
          const made = new Film(document.body, { film, strip, q: [-1, 0, 1], placeOf: () => null, onOpen() {} });
          made.redraw = () => {};
          Object.assign(made, { seconds, last: null, playing: true });
          let now = 1;
          const reached = [];
          const as_folded = [];
          for (let spent = 0; spent <= seconds / 2; spent += late, now += 1000 * late) {
            made.tick(now);
            reached.push([spent, made.ended]);
            as_folded.push(String(made.target) === String(made.qAfter(made.ended)));
          }
          return [reached, as_folded, made.target.filter((q) => !Number.isNaN(q)).length];
        }""",
        [stage_script(), film, steps, seconds, late],
    )
    page.close()
    assert all(abs(ended - steps * spent / seconds) <= 1 for spent, ended in reached) and len(reached) == 17
    assert all(as_folded) and known == reached[-1][1] - 1


def test_the_old_run_of_a_rewound_one_stands_below_it_step_by_step_and_a_click_opens_it(browser: Browser) -> None:
    page = browser.new_page()
    aligned, beyond, opened, said = page.evaluate(
        """async (script) => {
          const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
          const { RunStrip } = await import(address);
          const opened = [];
          const strip = new RunStrip(document.body, { ghost: (run, step) => opened.push([run, step]) });
          const ghost = { run: "old <b>", steps: [20, 21, 22, 23, 24], cells: "12120" };
          strip.update({ first: 20, steps: null, cells: "21", lines: [], ghost }, 21);
          strip.draw();
          const left = (name) => Number(strip.svg.querySelector(`${name} rect`).getAttribute("x"));
          const aligned = [20, 21].map((step) => left(`[data-step="${step}"]`) === left(`[data-ghost-step="${step}"]`));
          const beyond = [22, 23, 24].map((step) => left(`[data-ghost-step="${step}"]`) - left(`[data-step="21"]`));
          const cell = strip.svg.querySelector(`[data-ghost-step="23"]`);
          cell.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true, button: 0 }));
          return [aligned, beyond.map((apart) => apart / strip.wide), opened, cell.textContent];
        }""",
        stage_script(),
    )
    page.close()
    assert aligned == [True, True]
    assert beyond == pytest.approx([1, 2, 3])
    assert opened == [["old <b>", 23]]
    assert "old <b>" in said and "step 23: failure" in said


def test_many_steps_are_binned_and_one_or_none_is_drawn(browser: Browser) -> None:
    page = browser.new_page()
    widths = page.evaluate(
        """async ([script, runs]) => {
          const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
          const { RunStrip } = await import(address);
          const parent = document.createElement("div");
          document.body.append(parent);
          const found = [];
          for (const cells of runs) {
            const strip = new RunStrip(parent, {});
            strip.update({ first: 1, steps: null, cells, lines: [] }, cells.length);
            strip.draw();
            const nodes = [...strip.svg.querySelectorAll(".strip-cell")];
            const reached = nodes.map(({ dataset: { step, last } }) => [Number(step), Number(last ?? step)]);
            const gapless = reached.every(([from], i) => !i || from === reached[i - 1][1] + 1);
            found.push([nodes.length, reached.at(-1)?.[1] ?? 0, gapless]);
            strip.root.remove();
          }
          return found;
        }""",
        [stage_script(), ["", "1", "12" * 150, "129" * 4_000, "1" * 50_000]],
    )
    page.close()
    assert [(last, gapless) for _, last, gapless in widths] == [(n, True) for n in (0, 1, 300, 12_000, 50_000)]
    assert [count for count, _, _ in widths[:2]] == [0, 1]
    assert all(100 < count <= 400 for count, _, _ in widths[2:])


USED = """() => {
  const { map } = player;
  const at = map.glyphs.map(({ group }) => map.at(group.x, group.y));
  const reach = (axis) => Math.max(...at.map((one) => one[axis])) - Math.min(...at.map((one) => one[axis]));
  return (reach(0) * reach(1)) / (map.width * map.height);
}"""


def test_the_map_uses_its_plot_comes_near_on_phase_a_stands_alone_and_fans_out_what_coincides(
    demo_data: Any, play: Play
) -> None:
    memories = copy.deepcopy(demo_data["memories"])
    one, other = [n for n, intent in enumerate(memories["intent"][:30]) if memories["intent"].count(intent) == 1][-2:]
    for axis in "xy":
        memories[axis][one] = memories[axis][other]
    page = play({**demo_data, "memories": memories}, "step=40&phase=7")
    assert page.evaluate(USED) >= 2 / 3
    home = page.evaluate("player.map.view.kx")
    page.evaluate("player.show(10, 2); player.render()")
    assert page.evaluate("player.map.view.kx") > 1.5 * home
    near = page.evaluate(
        "player.map.cast.filter(({ kind }) => kind !== 'missed').map(({ n }) => player.map.placeOf(n))"
    )
    width, height = page.evaluate("[player.map.width, player.map.height]")
    assert all(0 < x < width and 0 < y < height for x, y in near)
    page.evaluate("player.show(39, 7); player.render()")
    assert page.evaluate("player.map.view.kx") == home
    x, y = page.evaluate(
        """(n) => {
          const box = player.map.box.getBoundingClientRect();
          const [x, y] = player.map.placeOf(n);
          return [box.x + x, box.y + y];
        }""",
        one,
    )
    page.mouse.move(x - 3, y)
    page.mouse.move(x, y)
    fanned = [page.locator(f".stage-dot[data-memory='{memories['id'][n]}']") for n in (one, other)]
    boxes = [dot.first.bounding_box() for dot in fanned]
    assert all(boxes)
    (left, top), (right, bottom) = [(box["x"], box["y"]) for box in boxes if box]
    assert abs(left - right) + abs(top - bottom) > 12
    page.keyboard.press("m")
    expect(page.locator(".stage-ranks")).to_be_hidden()
    assert page.evaluate("player.map.width") > 2 * width and page.evaluate(USED) >= 2 / 3
    page.keyboard.press("m")
    expect(page.locator(".stage-ranks")).to_be_visible()
    assert page.evaluate("player.map.width") == width


RATED = """(scale) => {
  const { step } = player;
  const of = { id: step.id, off: "", counts: 0.5, whose: "yours", environment: 1, mine: 0.5, given: {}, reason: "" };
  const around = { people: [], note: "", credited: [], credit: null, credit_by: "", undo: true, redo: false };
  const said = { labels: {}, uses: {}, label_off: "" };
  const hand = { rater: "ann", login: false, off: "", scale, waits: false, done: null, later: null };
  player.callbacks.hand = () => ({ ...hand, steps: { [step.step]: { ...of, ...around, ...said } } });
  player.callbacks.height = () => 674;
  player.relayout();
}"""
"""Lets a person have rated the step that is shown, on a scale; the stage is as high as on Step at 1440 × 900."""


@pytest.mark.parametrize("name", ["rubric", "graded", "thumbs"])
def test_no_scale_of_rewards_pushes_a_part_of_the_step_out_of_its_column(demo_data: Any, play: Play, name: str) -> None:
    page = play(demo_data, at="step=41", height=900)
    criteria = ["correct", "complete", "clear"] if name == "rubric" else []
    page.evaluate(RATED, {"name": name, "options": [["1", "Bad", -1], ["5", "Good", 1]], "criteria": criteria})
    assert page.locator("[data-act=undo]").is_visible()
    boxes = page.locator(".stage-rest, .stage-part, .stage-tries").evaluate_all("""(all) =>
      all.map((one) => [one.className, ...["top", "bottom"].map((side) => one.getBoundingClientRect()[side])])""")
    (_, top, bottom), *parts, (_, tries, _) = boxes
    assert len(parts) == 5 and bottom <= tries
    for (_, _, above), (part, begin, end) in zip([("", 0, top), *parts[:-1]], parts, strict=True):
        assert above <= begin + 0.5 and end <= bottom + 0.5, part


SWINGING = """() => {
  const data = player.model.data;
  const at = player.index;
  const rated = (reward) => {
    const copy = structuredClone(data);
    const { update, reward: given } = copy.steps[at];
    given.reward = reward;
    copy.memories.now = {};
    for (const change of update.changes) copy.memories.now[change.memory] = change.after = reward / 2;
    return copy;
  };
  const shown = () => {
    player.render();
    return [player.rewardValue, ...player.changes.map(({ after }) => after)].map((one) => one.textContent);
  };
  player.pause();
  player.t = player.goal = 7;
  cancelAnimationFrame(player.frame);
  player.redraw = () => {};
  player.update(rated(0.8));
  player.model.swing = null;
  player.update(rated(-0.6));
  player.model.swing.share = 0.4;
  const begun = shown();
  player.update(rated(-0.6));
  const [share, again] = [player.model.swing.share, shown()];
  player.update(rated(0.2));
  return { begun, share, again, turned: [player.model.swing.share, shown()] };
}"""
"""Has the step that is shown rated anew, and sends it amid the movement again, and rated once more."""


def test_a_number_on_its_way_goes_on_when_other_data_come_and_turns_where_it_is(demo_data: Any, play: Play) -> None:
    shown = play(demo_data, at="step=30").evaluate(SWINGING)
    assert len(shown["begun"]) > 1
    assert not {"+0.800", "−0.600", "+0.400", "−0.300"} & {*shown["begun"]}
    assert (shown["share"], shown["again"]) == (0.4, shown["begun"])
    assert shown["turned"] == [0, shown["begun"]]


ON_TOP = """() => {
  const all = [...document.querySelectorAll(".stage-plot svg *")];
  const last = (list) => Math.max(...[...document.querySelectorAll(list)].map((one) => all.indexOf(one)));
  const star = document.querySelector(".stage-star");
  const names = [...document.querySelectorAll(".stage-dot-name text")].map((one) => all.indexOf(one));
  const { opacity, fillOpacity } = getComputedStyle(star);
  return [last(".stage-dot *") < all.indexOf(star), all.indexOf(star) < Math.min(...names), opacity, fillOpacity];
}"""
"""Whether the star is drawn above all markers and below all names, and how much of it is seen."""


def test_the_query_is_clear_in_every_phase_and_no_marker_lies_on_a_name(demo_data: Any, play: Play) -> None:
    page = play(demo_data, at="step=30")
    for phase in range(2, 8):
        page.keyboard.press(str(phase))
        until(page, f"player.t === {phase}")
        page.evaluate("player.render()")
        assert page.evaluate(ON_TOP) == [True, True, "1", "1"]


def test_a_digit_that_rates_nothing_says_which_do_and_a_weight_is_read_whole(demo_data: Any, play: Play) -> None:
    page = play(demo_data, at="step=30")
    page.evaluate(RATED, {"name": "thumbs", "options": [["1", "Bad", -1], ["5", "Good", 1]], "criteria": []})
    assert page.evaluate("player.hand.key('3')")
    assert page.locator(".stage-notice").inner_text() == "This run's scale has the keys 1 and 5."
    field = page.get_by_label("λ as a number")
    field.fill("0.975")
    measured = (
        "one => [one.clientWidth - parseFloat(getComputedStyle(one).paddingLeft) * 2, getComputedStyle(one).font]"
    )
    room, font = field.evaluate(measured)
    drawn = "Object.assign(new OffscreenCanvas(1, 1).getContext('2d'), { font }).measureText('0.975').width"
    spinner = 16
    assert page.evaluate(f"(font) => {drawn}", font) + spinner <= room


def test_a_move_of_q_that_later_steps_went_beyond_says_that_it_was_then(demo_data: Any, play: Play) -> None:
    page = play(demo_data, at="step=30")
    page.evaluate("""() => {
      const [{ memory, after }] = player.step.update.changes;
      player.model.data.memories.now = { [memory]: after - 0.5 };
      player.relayout();
      player.render();
    }""")
    first, *others = page.evaluate(
        "player.changes.map(({ change }) => player.axis.dots.find((one) => one.n === change.memory).delta.textContent)"
    )
    assert first.endswith(" then") and others and not any("then" in one for one in others)


BESIDE = """() => {
  for (const one of player.step.update.changes) [one.before, one.after] = [0.97, 0.99];
  player.model.data.memories.now = Object.fromEntries(player.step.update.changes.map((one) => [one.memory, 0.99]));
  player.relayout();
  player.render();
  const sides = ["left", "right", "top", "bottom"];
  const boxes = (all) => all.map((one) => one.getBoundingClientRect()).map((box) => sides.map((side) => box[side]));
  const all = (list) => [...document.querySelectorAll(list)];
  return {
    labels: boxes(all(".stage-q .stage-lane text").filter((one) => one.getAttribute("display") !== "none")),
    numbers: boxes(player.axis.numbers.map(({ text }) => text)),
    dots: boxes(all(".stage-q .stage-lane circle")),
  };
}"""
"""The labels on the axis where all memories of a step have almost one q, near the end of the axis."""


def test_labels_on_one_line_of_the_axis_stand_apart_and_no_dot_lies_on_a_number(demo_data: Any, play: Play) -> None:
    found = play(demo_data, at="step=30").evaluate(BESIDE)
    labels = found["labels"]
    assert len(labels) >= 3
    for i, (left, right, top, bottom) in enumerate(labels):
        for other in labels[:i]:
            if min(bottom, other[3]) - max(top, other[2]) > 2:
                assert max(left, other[0]) - min(right, other[1]) >= 2
    for left, right, top, bottom in found["numbers"]:
        for dot in found["dots"]:
            assert min(right, dot[1]) <= max(left, dot[0]) + 1 or min(bottom, dot[3]) <= max(top, dot[2]) + 2


@pytest.mark.slow
def test_late_frames_leave_the_movements_about_their_duration(demo_data: Any, play: Play) -> None:
    page = play(demo_data, "step=20")
    frames = page.evaluate("""() => {
      const stage = player;
      stage.pause();
      stage.redraw = () => {};
      [stage.t, stage.goal, stage.last] = [4, 7, null];
      let count = 0;
      for (let now = 1e6; stage.t < stage.goal && count < 1000; now += 500) {
        stage.tick(now);
        count += 1;
      }
      return count;
    }""")
    assert frames <= 20
