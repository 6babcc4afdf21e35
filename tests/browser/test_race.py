"""A race in a real browser: it draws itself, is paused, reloaded, shifted, and leads to Compare."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from memrl_core.agent.run_parts import SIMULATED
from memrl_core.bank import MemoryBank
from tests.browser.conftest import RunningApp

RACE = "[data-testid=race]"
Q = """() => [...document.querySelectorAll("[data-agent]")].map((side) => Object.fromEntries(
    [...side.querySelectorAll("[data-memory]")].map((dot) => [dot.dataset.memory, Number(dot.dataset.q)])))"""


def begun(page: Page, app: RunningApp, model: str, messages: int) -> tuple[str, str]:
    """A race that has answered two messages at least; its runs."""
    page.goto(f"{app.url}/race")
    if model == SIMULATED:
        page.get_by_role("combobox", name="Model").click()
        page.get_by_role("option", name=re.compile("simulated")).click()
    page.get_by_label("Messages").fill(str(messages))
    page.get_by_label("Messages").press("Enter")
    page.get_by_role("button", name="Start the race").click()
    until_answered(page, ">= 2")
    found = re.search(r"left=([^&]+)&right=([^&]+)", page.url)
    assert found is not None
    return found[1], found[2]


def until_answered(page: Page, how_many: str) -> None:
    page.wait_for_function(f"Number(document.querySelector('{RACE}')?.dataset.messages) {how_many}")


@pytest.mark.parametrize(
    "model", [SIMULATED, pytest.param("gguf:smollm2", marks=pytest.mark.slow)], ids=["simulated", "smollm2"]
)
def test_a_race_draws_what_the_bank_holds_pauses_shifts_and_leads_to_compare(
    page: Page, app: RunningApp, model: str
) -> None:
    runs = begun(page, app, model, 320 if model == SIMULATED else 40)
    expect(page.locator("[data-agent]")).to_have_count(2)
    page.get_by_role("button", name="Change the rules now").click()
    expect(page.locator(".race-shift")).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Go on")).to_be_visible()
    with MemoryBank.open(str(app.home / "banks" / "race")) as bank:
        assert {bank.run(run).model for run in runs} == {model}
        done = min(bank.next_step(run) - 1 for run in runs)
        until_answered(page, f"=== {done}")
        for shown, run in zip(page.evaluate(Q), runs, strict=True):
            known = bank.utilities(run)
            assert shown == {i: pytest.approx(known[i].q, abs=1e-4) for i in known}
    page.reload()
    until_answered(page, f"=== {done}")
    page.get_by_role("button", name="Go on").click()
    until_answered(page, f"> {done}")
    page.get_by_role("button", name="Pause").click()
    page.locator(".race-strip rect[data-step='2'][data-side='1']").click()
    expect(page).to_have_url(re.compile(rf"/compare\?.*run={runs[0]}.*step=2.*against={runs[1]}"))
    expect(page.get_by_text("What they achieved")).to_be_visible()
